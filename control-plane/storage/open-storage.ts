import { randomBytes, randomUUID } from 'node:crypto';
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { EnvOptions, EnvReader } from '@matting/program/env.ts';
import { fileClockMs } from '@matting/program/files.ts';
import { BlobNotFoundError, type BlobStore, writeBlob } from './blob-store.ts';
import {
  missingDirectories,
  openDirectoryBlobStore,
  readDirectoryBlobs,
} from './directory-store.ts';
import {
  clockProblem,
  problemOf,
  requireThat,
  type StorageFinding,
  StorageProblem,
} from './storage-finding.ts';
import type { StorageKind, StorageOpening } from './storage-kind.ts';

const STORAGE = 'MATTING_STORAGE_URL';
/** Blobs move from or to it. */
const FALLBACK = 'MATTING_STORAGE_FALLBACK_URL';
const RESULT_DOWNLOADS = ['stream', 'redirect'] as const;

export function readStorage(
  reader: EnvReader,
  dataDir: string,
  storageKinds: readonly StorageKind[],
) {
  const storageUrl = readStorageUrl(reader, STORAGE, storageKinds, {
    about:
      'The storage of inputs and results: a directory that all control planes share, or a bucket.',
    required: 'for several control planes',
    otherwise: '`MATTING_DATA_DIR`',
    default: pathToFileURL(dataDir).href,
  });
  const fallbackUrl = readStorageUrl(reader, FALLBACK, storageKinds, {
    about: `A second storage, only read, while you
      [move to a bucket](storage.md#move-to-a-bucket) or back.`,
    default: undefined,
  });
  if (fallbackUrl === storageUrl) reader.problem(FALLBACK, `another than ${STORAGE}`);
  const isDirectory = storageKindOf(storageUrl, storageKinds) === undefined;
  const resultDownloads = readResultDownloads(reader, isDirectory);
  return { storageUrl, fallbackUrl, storageKinds, resultDownloads };
}

function readResultDownloads(reader: EnvReader, isDirectory: boolean) {
  const variable = 'MATTING_RESULT_DOWNLOADS';
  const downloads = reader.oneOf(variable, RESULT_DOWNLOADS, {
    about: `\`redirect\`: with a bucket, a result link answers 302 to a URL that the bucket signed for at
      most 60 s. Callers must reach the bucket. Answers that are a picture
      stay streams.`,
    default: 'stream' as const,
  });
  if (downloads === 'redirect' && isDirectory) {
    reader.problem(variable, `stream where ${STORAGE} is a directory, which signs no URL`);
  }
  return downloads;
}

function readStorageUrl<D extends string | undefined>(
  reader: EnvReader,
  variable: string,
  storageKinds: readonly StorageKind[],
  options: EnvOptions<D>,
): string | D {
  const forms = ['file:///path/of/a/directory', ...storageKinds.map(({ form }) => form)];
  const url = reader.parsed<string, D>(
    variable,
    `a URL of the form ${forms.join(' or ')}`,
    text => (isFileUrl(text) || storageKindOf(text, storageKinds) ? text : undefined),
    options,
  );
  const problem = url === undefined ? undefined : storageKindOf(url, storageKinds)?.problemOf(url);
  if (problem !== undefined) reader.problem(variable, problem);
  return url;
}

function isFileUrl(text: string): boolean {
  return /^file:\/\/\/./i.test(text) && URL.canParse(text);
}

/*
 * Joins two stores while blobs move between them. Writes go to the first, reads come from either,
 * removals apply to both. A mover copies before it removes, so a reader that finds a blob in
 * neither tries the first again.
 */

/** Prefix of unfinished writes of the second store. */
const OF_SECOND = 'fallback:';
const UNFINISHED = /^tmp\//;

export function joinBlobStores(first: BlobStore, second: BlobStore): BlobStore {
  return {
    signRead: first.signRead && signReadWhereStored(first, first.signRead),
    createWriter: name => first.createWriter(name),
    async openRead(name, reading) {
      for (const store of [first, second]) {
        try {
          return await store.openRead(name, reading);
        } catch (error) {
          if (!(error instanceof BlobNotFoundError)) throw error;
        }
      }
      return await first.openRead(name, reading);
    },
    stat: async name =>
      (await first.stat(name)) ?? (await second.stat(name)) ?? (await first.stat(name)),
    async remove(name) {
      if (name.startsWith(OF_SECOND)) return second.remove(name.slice(OF_SECOND.length));
      await first.remove(name);
      if (!UNFINISHED.test(name)) await second.remove(name);
    },
    async *listOlderThan(olderThanMs, part) {
      yield* first.listOlderThan(olderThanMs, part);
      for await (const name of second.listOlderThan(olderThanMs, part)) {
        yield UNFINISHED.test(name) ? OF_SECOND + name : name;
      }
    },
    /** The second is only read: it may be full or read-only. */
    async check() {
      await first.check();
      await second.stat('inputs/none');
    },
    room: () => first.room(),
  };
}

/** Only for blobs of the first store: BlobNotFoundError otherwise. */
function signReadWhereStored(
  first: BlobStore,
  signRead: NonNullable<BlobStore['signRead']>,
): NonNullable<BlobStore['signRead']> {
  return async (name, reading) => {
    if ((await first.stat(name)) === undefined) throw new BlobNotFoundError(name);
    return await signRead(name, reading);
  };
}

const HAS_SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i;

export class StorageConfigError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'StorageConfigError';
  }
}

interface OpenStorageOptions extends StorageOpening {
  readonly storageKinds?: readonly StorageKind[];
  /** Named in errors. Default: MATTING_STORAGE_URL. */
  readonly setting?: string;
}

/** undefined: a directory. */
export function storageKindOf(
  storageUrl: string,
  storageKinds: readonly StorageKind[] = [],
): StorageKind | undefined {
  return storageKinds.find(kind => kind.isFor(storageUrl));
}

/** The directory of a path or a file URL. @throws StorageConfigError */
export function storageDirectory(
  storageUrl: string,
  storageKinds: readonly StorageKind[] = [],
  setting = STORAGE,
): string {
  if (!HAS_SCHEME.test(storageUrl)) return storageUrl;
  try {
    return fileURLToPath(storageUrl);
  } catch (error) {
    const forms = ['a directory, a file:// URL of one', ...storageKinds.map(({ form }) => form)];
    throw new StorageConfigError(`${setting}: must be ${forms.join(', or ')}`, error);
  }
}

export function absoluteStorage(
  storageUrl: string,
  storageKinds: readonly StorageKind[] = [],
): string {
  const isUrl =
    HAS_SCHEME.test(storageUrl) || storageKindOf(storageUrl, storageKinds) !== undefined;
  return isUrl ? storageUrl : path.resolve(storageUrl);
}

/** Rejects with StorageConfigError, also if the storage cannot be reached or written. */
export async function openStorage(
  storageUrl: string,
  { setting = STORAGE, storageKinds, ...options }: OpenStorageOptions = {},
): Promise<BlobStore> {
  const kind = storageKindOf(storageUrl, storageKinds);
  return kind === undefined
    ? await openDirectory(storageDirectory(storageUrl, storageKinds, setting), setting)
    : await openKind(kind, storageUrl, setting, options);
}

/** Opens a copy on a possibly read-only disk. A missing directory is a StorageConfigError. */
export async function openStorageToRead(
  storageUrl: string,
  options: OpenStorageOptions = {},
): Promise<BlobStore> {
  const { setting = STORAGE, storageKinds } = options;
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

export async function openStorages(
  { storageUrl, fallbackUrl, storageKinds }: StorageUrls,
  opening: StorageOpening = {},
  open = openStorage,
): Promise<BlobStore> {
  const options = { ...opening, storageKinds };
  const first = await open(storageUrl, options);
  if (fallbackUrl === undefined) return first;
  return joinBlobStores(first, await open(fallbackUrl, { ...options, setting: FALLBACK }));
}

/** The directories that a start would create. @throws StorageConfigError */
export async function missingOfStorage(
  storageUrl: string,
  storageKinds: readonly StorageKind[],
): Promise<readonly string[]> {
  if (storageKindOf(storageUrl, storageKinds)) return [];
  return await missingDirectories(storageDirectory(storageUrl));
}

/** Rejects with StorageConfigError if the URL is invalid. */
export async function checkStorage(
  storageUrl: string,
  storageKinds: readonly StorageKind[],
): Promise<readonly StorageFinding[]> {
  const kind = storageKindOf(storageUrl, storageKinds);
  return kind === undefined
    ? await checkDirectory(storageDirectory(storageUrl, storageKinds))
    : await kind.check(storageUrl);
}

async function openDirectory(directory: string, setting: string): Promise<BlobStore> {
  try {
    return await openDirectoryBlobStore(directory);
  } catch (error) {
    const cause = causeOf(error);
    const code = (cause as NodeJS.ErrnoException).code ?? 'unknown error';
    const message = `${setting}: the directory ${directory} cannot be written (${code})`;
    throw new StorageConfigError(message, cause);
  }
}

async function openKind(
  kind: StorageKind,
  storageUrl: string,
  setting: string,
  options: StorageOpening,
): Promise<BlobStore> {
  const problem = kind.problemOf(storageUrl);
  if (problem !== undefined) throw new StorageConfigError(`${setting} must be ${problem}`);
  try {
    return await kind.open(storageUrl, options);
  } catch (error) {
    const cause = causeOf(error);
    const description = kind.describeError(cause);
    throw new StorageConfigError(
      `${setting}: the ${kind.noun} cannot be written: ${description}`,
      cause,
    );
  }
}

function causeOf(error: unknown): unknown {
  const cause = error instanceof Error ? error.cause : undefined;
  if (!(cause instanceof Error)) return error;
  return cause.name === 'ContractError' ? causeOf(cause) : cause;
}

/** Nothing is too young for a listing by this clock. */
const AHEAD_MS = 3_600_000;

/** Tests all that the service does, and removes what it wrote. Problems become findings. */
async function checkDirectory(root: string): Promise<readonly StorageFinding[]> {
  const findings: StorageFinding[] = [];
  const attempt = async (ability: string, run: () => Promise<void>) => {
    const problem = await run().then(() => undefined, problemOf);
    findings.push({ ability, problem });
  };
  let store: BlobStore | undefined;
  await attempt('open', async () => {
    // An attempt would create it with this user's rights instead of the service's.
    const [missing] = await missingDirectories(root);
    requireThat(missing === undefined, `${missing} does not exist; a control plane makes it`);
    store = await openDirectoryBlobStore(root);
  });
  if (store === undefined) return findings;
  const blobs = store;
  const name = `results/check-${randomUUID()}`;
  const bytes = randomBytes(1000);
  await attempt('clock', async () => {
    const problem = clockProblem(await fileClockMs(path.join(root, 'tmp', randomUUID())));
    if (problem !== undefined) throw new StorageProblem(problem);
  });
  await attempt('write', () => writeBlob(blobs, name, bytes));
  await attempt('read', async () => {
    const read = await buffer(await blobs.openRead(name));
    requireThat(read.equals(bytes), 'other bytes were read');
  });
  await attempt('range', async () => {
    const read = await buffer(await blobs.openRead(name, { start: 10, end: 19 }));
    requireThat(read.equals(bytes.subarray(10, 20)), 'a range gave other bytes');
  });
  await attempt('list', async () => {
    for await (const found of blobs.listOlderThan(-AHEAD_MS)) if (found === name) return;
    throw new StorageProblem('what was written is not listed');
  });
  await attempt('remove', async () => {
    await blobs.remove(name);
    requireThat((await blobs.stat(name)) === undefined, 'what was removed is still there');
  });
  return findings;
}
