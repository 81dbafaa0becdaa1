/** Opens the blob store of MATTING_STORAGE_URL: the one place that knows the kinds of storage. */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  type BucketBlobStoreOptions,
  openBucketBlobStore,
} from '../../object-storage/bucket/bucket-blob-store.ts';
import { checkBucket } from '../../object-storage/bucket/bucket-check.ts';
import { describeBucketError } from '../../object-storage/bucket/bucket-errors.ts';
import {
  bucketLifecycle,
  type Lifecycle,
  type LifecycleOptions,
} from '../../object-storage/bucket/bucket-lifecycle.ts';
import {
  type BucketOptions,
  BucketUrlError,
  parseBucketUrl,
} from '../../object-storage/bucket/bucket-url.ts';
import { joinBlobStores } from '../../object-storage/fallback-blob-store.ts';
import type { BlobStore } from './blob-store.ts';
import {
  missingDirectories,
  openDirectoryBlobStore,
  readDirectoryBlobs,
} from './directory-blob-store.ts';
import { checkDirectory } from './directory-check.ts';
import type { StorageFinding } from './storage-finding.ts';

const HAS_SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i;

/** The storage cannot be used as configured: for the operator, at start. */
export class StorageConfigError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'StorageConfigError';
  }
}

/** What a bucket needs besides. */
export interface OpenStorageOptions extends Omit<BucketBlobStoreOptions, 'bucket'> {
  /** What names the storage in errors; MATTING_STORAGE_URL where absent. */
  readonly setting?: string;
}

const SETTING = 'MATTING_STORAGE_URL';

export function isBucket(storageUrl: string): boolean {
  return /^s3:/i.test(storageUrl);
}

/** The directory a storage URL names: a path, or a file URL. Throws StorageConfigError. */
export function storageDirectory(storageUrl: string): string {
  if (!HAS_SCHEME.test(storageUrl)) return storageUrl;
  try {
    return fileURLToPath(storageUrl);
  } catch (error) {
    const message =
      'MATTING_STORAGE_URL: must be a directory, a file:// URL of one, or s3://bucket/prefix';
    throw new StorageConfigError(message, error);
  }
}

/** The same storage, named so that it is the same from any working directory. */
export function absoluteStorage(storageUrl: string): string {
  const isUrl = HAS_SCHEME.test(storageUrl) || isBucket(storageUrl);
  return isUrl ? storageUrl : path.resolve(storageUrl);
}

/** Rejects with StorageConfigError, also where the storage cannot be reached or written. */
export async function openStorage(
  storageUrl: string,
  { setting = SETTING, ...options }: OpenStorageOptions = {},
): Promise<BlobStore> {
  try {
    return isBucket(storageUrl)
      ? await openBucket(storageUrl, options)
      : await openDirectory(storageDirectory(storageUrl));
  } catch (error) {
    if (!(error instanceof StorageConfigError)) throw error;
    throw new StorageConfigError(error.message.replace(SETTING, setting), error.cause);
  }
}

/**
 * What is only read, as a copy that was put aside: a directory may lie on what nobody can write,
 * and is not made; one that is missing, as of a disk that is not mounted, is a StorageConfigError.
 * A bucket is opened as any other.
 */
export async function openStorageToRead(
  storageUrl: string,
  options: OpenStorageOptions = {},
): Promise<BlobStore> {
  if (isBucket(storageUrl)) return await openStorage(storageUrl, options);
  const directory = storageDirectory(storageUrl);
  const found = await stat(directory).catch(() => undefined);
  if (found?.isDirectory()) return readDirectoryBlobs(directory);
  const { setting = SETTING } = options;
  throw new StorageConfigError(`${setting}: there is no directory ${directory}`);
}

interface StorageUrls {
  readonly storageUrl: string;
  readonly fallbackUrl?: string | undefined;
}

/**
 * A service's storage: with a fallback, both as one.
 * @param open openStorageToRead for what is read alone; rejects as it does
 */
export async function openStorages(
  { storageUrl, fallbackUrl }: StorageUrls,
  options: OpenStorageOptions = {},
  open = openStorage,
): Promise<BlobStore> {
  const first = await open(storageUrl, options);
  if (fallbackUrl === undefined) return first;
  const setting = 'MATTING_STORAGE_FALLBACK_URL';
  return joinBlobStores(first, await open(fallbackUrl, { ...options, setting }));
}

/** The directories that opening it would make; none of a bucket. @throws StorageConfigError */
export async function missingOfStorage(storageUrl: string): Promise<readonly string[]> {
  return isBucket(storageUrl) ? [] : await missingDirectories(storageDirectory(storageUrl));
}

/** What the storage can and cannot do. Rejects with StorageConfigError where the URL is none. */
export async function checkStorage(storageUrl: string): Promise<readonly StorageFinding[]> {
  return isBucket(storageUrl)
    ? await checkBucket(bucketOf(storageUrl))
    : await checkDirectory(storageDirectory(storageUrl));
}

/** A rule for the bucket. Throws StorageConfigError where the storage is none. */
export function lifecycleOf(
  storageUrl: string,
  lives: Omit<LifecycleOptions, 'prefix'>,
): Lifecycle {
  if (!isBucket(storageUrl)) {
    throw new StorageConfigError(
      `${SETTING}: a directory has no lifecycle rules; the sweeper tidies it`,
    );
  }
  return bucketLifecycle({ ...lives, prefix: bucketOf(storageUrl).prefix });
}

function bucketOf(storageUrl: string): BucketOptions {
  try {
    return parseBucketUrl(storageUrl);
  } catch (error) {
    if (!(error instanceof BucketUrlError)) throw error;
    throw new StorageConfigError(`${SETTING} must be ${error.message}`, error);
  }
}

async function openDirectory(directory: string): Promise<BlobStore> {
  try {
    return await openDirectoryBlobStore(directory);
  } catch (error) {
    const cause = causeOf(error);
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
    const message = `MATTING_STORAGE_URL: the directory ${directory} cannot be written (${code})`;
    throw new StorageConfigError(message, cause);
  }
}

async function openBucket(storageUrl: string, options: OpenStorageOptions): Promise<BlobStore> {
  const bucket = bucketOf(storageUrl);
  try {
    return await openBucketBlobStore({ ...options, bucket });
  } catch (error) {
    const cause = causeOf(error);
    const said = describeBucketError(cause);
    throw new StorageConfigError(
      `MATTING_STORAGE_URL: the bucket cannot be written: ${said}`,
      cause,
    );
  }
}

function causeOf(error: unknown): unknown {
  const cause = error instanceof Error ? error.cause : undefined;
  if (!(cause instanceof Error)) return error;
  return cause.name === 'ContractError' ? causeOf(cause) : cause;
}
