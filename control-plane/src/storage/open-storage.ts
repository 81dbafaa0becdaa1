/** Opens the blob store of MATTING_STORAGE_URL: the one place that knows the kinds of storage. */
import { fileURLToPath } from 'node:url';
import type { BlobStore } from './blob-store.ts';
import { openDirectoryBlobStore } from './directory/directory-blob-store.ts';

const HAS_SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i;

/** The storage cannot be used as configured: for the operator, at start. */
export class StorageConfigError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'StorageConfigError';
  }
}

/** The directory a storage URL names: a path, or a file URL. Throws StorageConfigError. */
export function storageDirectory(storageUrl: string): string {
  if (/^s3:/i.test(storageUrl)) {
    throw new StorageConfigError(
      'MATTING_STORAGE_URL: s3:// storage is not available yet; name a directory, which all ' +
        'replicas share',
    );
  }
  if (!HAS_SCHEME.test(storageUrl)) return storageUrl;
  try {
    return fileURLToPath(storageUrl);
  } catch (error) {
    const message = 'MATTING_STORAGE_URL: must be a directory or a file:// URL of one';
    throw new StorageConfigError(message, error);
  }
}

/** Rejects with StorageConfigError, also where the directory cannot be made or written. */
export async function openStorage(storageUrl: string): Promise<BlobStore> {
  const directory = storageDirectory(storageUrl);
  try {
    return await openDirectoryBlobStore(directory);
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
    const message = `MATTING_STORAGE_URL: the directory ${directory} cannot be written (${code})`;
    throw new StorageConfigError(message, cause);
  }
}
