/** Opens the blob store of a storage URL: a directory, or what a kind of storage opens. */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BlobStore } from './blob-store.ts';
import {
  checkDirectory,
  missingDirectories,
  openDirectoryBlobStore,
  readDirectoryBlobs,
} from './directory-blob-store.ts';
import { joinBlobStores } from './joined-blob-stores.ts';
import type { StorageFinding } from './storage-finding.ts';
import type { StorageKind, StorageOpening } from './storage-kind.ts';

const HAS_SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i;

/** The storage cannot be used as configured: for the operator, at start. */
export class StorageConfigError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'StorageConfigError';
  }
}

interface OpenStorageOptions extends StorageOpening {
  /** Beside directories; none where absent. */
  readonly storageKinds?: readonly StorageKind[];
  /** What names the storage in errors; MATTING_STORAGE_URL where absent. */
  readonly setting?: string;
}

const SETTING = 'MATTING_STORAGE_URL';

/** Undefined: a directory. */
export function storageKindOf(
  storageUrl: string,
  storageKinds: readonly StorageKind[] = [],
): StorageKind | undefined {
  return storageKinds.find(kind => kind.isFor(storageUrl));
}

/** The directory a storage URL names: a path, or a file URL. Throws StorageConfigError. */
export function storageDirectory(
  storageUrl: string,
  storageKinds: readonly StorageKind[] = [],
): string {
  if (!HAS_SCHEME.test(storageUrl)) return storageUrl;
  try {
    return fileURLToPath(storageUrl);
  } catch (error) {
    const forms = ['a directory, a file:// URL of one', ...storageKinds.map(({ form }) => form)];
    throw new StorageConfigError(`${SETTING}: must be ${forms.join(', or ')}`, error);
  }
}

/** The same storage, named so that it is the same from any working directory. */
export function absoluteStorage(
  storageUrl: string,
  storageKinds: readonly StorageKind[] = [],
): string {
  const isUrl =
    HAS_SCHEME.test(storageUrl) || storageKindOf(storageUrl, storageKinds) !== undefined;
  return isUrl ? storageUrl : path.resolve(storageUrl);
}

/** Rejects with StorageConfigError, also where the storage cannot be reached or written. */
export async function openStorage(
  storageUrl: string,
  { setting = SETTING, storageKinds, ...options }: OpenStorageOptions = {},
): Promise<BlobStore> {
  try {
    const kind = storageKindOf(storageUrl, storageKinds);
    return kind === undefined
      ? await openDirectory(storageDirectory(storageUrl, storageKinds))
      : await openKind(kind, storageUrl, options);
  } catch (error) {
    if (!(error instanceof StorageConfigError)) throw error;
    throw new StorageConfigError(error.message.replace(SETTING, setting), error.cause);
  }
}

/**
 * What is only read, as a copy that was put aside: a directory may lie on what nobody can write,
 * and is not made; one that is missing, as of a disk that is not mounted, is a StorageConfigError.
 * Any other storage is opened as ever.
 */
export async function openStorageToRead(
  storageUrl: string,
  options: OpenStorageOptions = {},
): Promise<BlobStore> {
  const { setting = SETTING, storageKinds } = options;
  if (storageKindOf(storageUrl, storageKinds)) return await openStorage(storageUrl, options);
  const directory = storageDirectory(storageUrl, storageKinds);
  const found = await stat(directory).catch(() => undefined);
  if (found?.isDirectory()) return readDirectoryBlobs(directory);
  throw new StorageConfigError(`${setting}: there is no directory ${directory}`);
}

interface StorageUrls {
  readonly storageUrl: string;
  readonly fallbackUrl?: string | undefined;
  readonly storageKinds: readonly StorageKind[];
}

/**
 * A service's storage: with a fallback, both as one.
 * @param open openStorageToRead for what is read alone; rejects as it does
 */
export async function openStorages(
  { storageUrl, fallbackUrl, storageKinds }: StorageUrls,
  opening: StorageOpening = {},
  open = openStorage,
): Promise<BlobStore> {
  const options = { ...opening, storageKinds };
  const first = await open(storageUrl, options);
  if (fallbackUrl === undefined) return first;
  const setting = 'MATTING_STORAGE_FALLBACK_URL';
  return joinBlobStores(first, await open(fallbackUrl, { ...options, setting }));
}

/** The directories that opening it would make, where it is one. @throws StorageConfigError */
export async function missingOfStorage(
  storageUrl: string,
  storageKinds: readonly StorageKind[],
): Promise<readonly string[]> {
  if (storageKindOf(storageUrl, storageKinds)) return [];
  return await missingDirectories(storageDirectory(storageUrl));
}

/** What the storage can and cannot do. Rejects with StorageConfigError where the URL is none. */
export async function checkStorage(
  storageUrl: string,
  storageKinds: readonly StorageKind[],
): Promise<readonly StorageFinding[]> {
  const kind = storageKindOf(storageUrl, storageKinds);
  return kind === undefined
    ? await checkDirectory(storageDirectory(storageUrl, storageKinds))
    : await kind.check(storageUrl);
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

async function openKind(
  kind: StorageKind,
  storageUrl: string,
  options: StorageOpening,
): Promise<BlobStore> {
  const problem = kind.problemOf(storageUrl);
  if (problem !== undefined) throw new StorageConfigError(`${SETTING} must be ${problem}`);
  try {
    return await kind.open(storageUrl, options);
  } catch (error) {
    const cause = causeOf(error);
    const said = kind.describeError(cause);
    throw new StorageConfigError(`${SETTING}: the ${kind.noun} cannot be written: ${said}`, cause);
  }
}

function causeOf(error: unknown): unknown {
  const cause = error instanceof Error ? error.cause : undefined;
  if (!(cause instanceof Error)) return error;
  return cause.name === 'ContractError' ? causeOf(cause) : cause;
}
