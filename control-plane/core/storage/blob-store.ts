/**
 * The port of the storage, and the store that the core brings, in a directory. A store of inputs,
 * backgrounds and results has named, immutable byte strings. Names are ours (`inputs/<job id>`,
 * `results/<job id>-<fence>`), never a caller's. What a package gives so that URLs of its own open
 * one is a StorageKind.
 */

import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { constants, type Dir } from 'node:fs';
import {
  access,
  type FileHandle,
  open,
  opendir,
  rename,
  stat,
  statfs,
  unlink,
} from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { fileClockMs, makeDirectory, syncPath } from '@matting/program/files.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Logger } from 'pino';

export interface BlobWriter {
  /** Resolves when the bytes may be followed by more (back-pressure). */
  write(chunk: Uint8Array): Promise<void>;
  readonly bytesWritten: number;
  /** Reads back what was written so far, for header sniffing. */
  readAt(offset: number, length: number): Promise<Uint8Array>;
  /** Then whole and durable under its name; nothing before. Replaces nothing: names are unique. */
  commit(): Promise<void>;
  abort(): Promise<void>;
}

/** Bytes [start, end] inclusive; all bytes where absent. */
export interface BlobReading {
  readonly start?: number;
  readonly end?: number;
  /** Read ahead of the reader; 256 KiB where absent. */
  readonly pieceBytes?: number;
}

/** Part `index` (from 0) of `of` parts of all blobs, chosen by their names, always the same. */
export interface BlobPart {
  readonly part: number;
  readonly of: number;
}

export interface BlobStore {
  /** @param name that the blob will have; a store may send its bytes there before the commit */
  createWriter(name: string): Promise<BlobWriter>;
  openRead(name: string, reading?: BlobReading): Promise<Readable>;
  stat(name: string): Promise<{ readonly bytes: number } | undefined>;
  remove(name: string): Promise<void>;
  /**
   * Blobs last touched, and unfinished writes begun, before so long, by the store's own clock.
   * @param part only those of this part of all names
   */
  listOlderThan(olderThanMs: number, part?: BlobPart): AsyncIterable<string>;
  check(): Promise<void>;
  freeBytes(): Promise<number | undefined>;
  /** Undefined: the store signs nothing, so every byte goes through this process. */
  readonly signed?: SignedAccess | undefined;
}

/** Leave to read or write one blob for a time. Each URL is a secret: it needs no key. */
export interface SignedAccess {
  /** Where signed requests go: scheme://host[:port], lower case, without a default port. */
  readonly origin: string;
  /** GET, be it there or not. BlobNotFoundError: known to lie elsewhere; use `openRead`. */
  signRead(name: string, options: SignedReading): Promise<string>;
  /** PUT of these bytes, where there is none yet (412); with all of `headers` as they are. */
  signWrite(name: string, options: SignedWriting): Promise<SignedWrite>;
  /** What the store itself says of a blob; undefined: there is none. `sha256` hexadecimal. */
  stored(name: string): Promise<StoredBlob | undefined>;
}

export interface SignedReading {
  /** How long it is good for, ms; whole seconds are signed, rounded down, 1 at least. */
  readonly forMs: number;
  /** GET where absent. */
  readonly method?: 'GET' | 'HEAD';
  /** What the answer's headers say, in place of what is stored. */
  readonly contentType?: string;
  readonly disposition?: string;
}

export interface SignedWriting {
  readonly forMs: number;
  readonly bytes: number;
  readonly sha256: string;
  readonly contentType?: string;
}

export interface SignedWrite {
  readonly url: string;
  /** Lower-case names; without `host`. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface StoredBlob {
  readonly bytes: number;
  readonly sha256?: string;
}

export class BlobNotFoundError extends Error {
  constructor(name: string, cause?: unknown) {
    super(`blob not found: ${name}`, { cause });
    this.name = 'BlobNotFoundError';
  }
}

/** The names of blobs. They come from this program only: a wrong one is a bug, not an input. */

export const BLOB_KINDS = ['inputs', 'backgrounds', 'results'] as const;
type BlobKind = (typeof BLOB_KINDS)[number];

/** No dot, no slash: no way out of a directory, and nothing to be escaped in a URL. */
const BLOB_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** @throws TypeError where it is no name of a blob that is, or will be, committed */
export function requireBlobName(name: string): { readonly kind: BlobKind; readonly id: string } {
  const [first, id = '', ...more] = name.split('/');
  const kind = BLOB_KINDS.find(known => known === first);
  if (kind === undefined || !BLOB_ID.test(id) || more.length > 0) {
    throw new TypeError('a blob is named <inputs, backgrounds or results>/<letters, digits, _, ->');
  }
  return { kind, id };
}

export interface HashedBlob {
  readonly bytes: number;
  readonly sha256: string;
}

export async function hashOf(
  store: Pick<BlobStore, 'openRead'>,
  name: string,
): Promise<HashedBlob> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const piece of (await store.openRead(name)) as AsyncIterable<Buffer>) {
    hash.update(piece);
    bytes += piece.length;
  }
  return { bytes, sha256: hash.digest('hex') };
}

/** SERVICE_UNAVAILABLE, with the store's own error as cause: it is logged, and never answered. */
export function unwritable(cause: unknown): ContractError {
  return unavailable('The storage cannot be written at the moment.', cause);
}

/** The same of reading. */
export function unreadable(cause: unknown): ContractError {
  return unavailable('The storage cannot be read at the moment.', cause);
}

function unavailable(detail: string, cause: unknown): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', detail, { cause });
}

export interface StorageFinding {
  /** What was tried, in a few words. */
  readonly ability: string;
  /** Undefined: it is as it should be. One line for the operator, without secrets. */
  readonly problem: string | undefined;
}

/** The storage's clock and this machine's: signatures and ages go by them. */
const CLOCK_OFF_MS_MAX = 30_000;

export class StorageProblem extends Error {}

export function clockProblem(theirsMs: number): string | undefined {
  const offMs = theirsMs - Date.now();
  if (Math.abs(offMs) <= CLOCK_OFF_MS_MAX) return undefined;
  const seconds = Math.round(Math.abs(offMs) / 1000);
  return `the storage's clock is ${seconds} s ${offMs > 0 ? 'ahead of' : 'behind'} this machine's`;
}

export function requireThat(holds: boolean, otherwise: string): void {
  if (!holds) throw new StorageProblem(otherwise);
}

/* A kind of storage beside directories, and what such a store says of its requests. */

export interface StorageKind {
  /** What messages call one: bucket. */
  readonly noun: string;
  /** Of its URLs, for messages: s3://bucket/prefix. */
  readonly form: string;
  isFor(storageUrl: string): boolean;
  /** What is wrong with a URL of this kind, without its value, behind "must be". */
  problemOf(storageUrl: string): string | undefined;
  open(storageUrl: string, options: StorageOpening): Promise<BlobStore>;
  /** What opening rejected with: one line for the operator, without secrets. */
  describeError(error: unknown): string;
  check(storageUrl: string): Promise<readonly StorageFinding[]>;
  /** Rules that the storage follows by itself, to be printed: they take what a sweep left. */
  lifecycle(storageUrl: string, lives: BlobLives): unknown;
}

export interface BlobLives {
  readonly resultTtlMs: number;
  /** From a submission to the end of its job, at most. */
  readonly jobMsMax: number;
}

export interface StorageOpening {
  /** Where blobs are gathered before they are sent; the system's for temporary files where absent. */
  readonly spoolDir?: string;
  readonly log?: Pick<Logger, 'warn' | 'debug'>;
  readonly observer?: StorageObserver;
}

export interface StorageObserver {
  storageRequestEnded(end: StorageRequestEnd): void;
}

export interface StorageRequestEnd {
  readonly operation: StorageOperation;
  /** All attempts and the waits between them; of a body that is read, to its beginning. */
  readonly tookMs: number;
  readonly attempts: number;
  readonly outcome: StorageOutcome;
  /** What is added to this machine's clock to be the store's, as its answers show. */
  readonly clockOffsetMs: number;
}

export const STORAGE_OPERATIONS = [
  'put',
  'get',
  'head',
  'delete',
  'list',
  'multipart-create',
  'multipart-part',
  'multipart-complete',
  'multipart-abort',
  'multipart-list',
] as const;
export type StorageOperation = (typeof STORAGE_OPERATIONS)[number];

/** How a request ended, for metrics: few, whatever a store calls its errors. */
export const STORAGE_OUTCOMES = [
  'ok',
  'not-found',
  'exists',
  'denied',
  'clock',
  'slow-down',
  'timeout',
  'unavailable',
  'other',
] as const;
export type StorageOutcome = (typeof STORAGE_OUTCOMES)[number];

/*
 * Blobs as files of one directory, which all replicas share:
 *
 *     <root>/tmp/<random>      unfinished writes
 *     <root>/inputs/<id>       committed blobs, by the first part of their name
 *     <root>/backgrounds/<id>
 *     <root>/results/<id>
 *
 * A blob appears under its name whole and durable: written to tmp, synced, renamed, the directory
 * synced. Flat directories: ext4 and XFS index them, and a day's results are some hundred thousand.
 * Only the owner may read and write. It knows nothing of jobs.
 */

/** Rejects with SERVICE_UNAVAILABLE where the work does, the file system's error as its cause. */
function writing<T>(work: Promise<T>): Promise<T> {
  return work.catch(cause => {
    throw unwritable(cause);
  });
}

/** The same of reading. */
function reading<T>(work: Promise<T>): Promise<T> {
  return work.catch(cause => {
    throw unreadable(cause);
  });
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === 'ENOENT';
}

const UNFINISHED = 'tmp';
const ENTRIES_READ = 256;
const DIRECTORY_MODE = 0o700;
const FILE_MODE = 0o600;
/** A piece of a file that is read for sending: as large as a chunk of the gRPC API. */
const READ_BYTES = 256 * 1024;

/** Of a blob, or of an unfinished write. @throws TypeError another name */
function fileOf(root: string, name: string): string {
  const unfinished = name.startsWith(`${UNFINISHED}/`) ? name.slice(UNFINISHED.length + 1) : '';
  if (!BLOB_ID.test(unfinished)) requireBlobName(name);
  return path.join(root, name);
}

class DirectoryBlobStore implements BlobStore {
  readonly #root: string;
  readonly #nowMs: () => number | Promise<number>;
  readonly #mayLack: boolean;
  readonly #syncs: Readonly<Record<BlobKind, DirectorySync>>;

  /** @param mayLack a kind's directory that is missing is an empty one */
  constructor(root: string, nowMs: (() => number) | undefined, mayLack = false) {
    this.#root = root;
    this.#mayLack = mayLack;
    this.#nowMs = nowMs ?? (() => fileClockMs(path.join(root, UNFINISHED, randomUUID())));
    this.#syncs = {
      inputs: new DirectorySync(path.join(root, 'inputs')),
      backgrounds: new DirectorySync(path.join(root, 'backgrounds')),
      results: new DirectorySync(path.join(root, 'results')),
    };
  }

  async createWriter(name: string): Promise<BlobWriter> {
    const target = path.join(this.#root, name);
    const sync = this.#syncs[requireBlobName(name).kind];
    const temporary = path.join(this.#root, UNFINISHED, randomUUID());
    const file = await writing(open(temporary, 'wx+', FILE_MODE));
    return new DirectoryBlobWriter({ temporary, file, target, sync });
  }

  async openRead(name: string, reading: BlobReading = {}): Promise<Readable> {
    const file = await open(fileOf(this.#root, name), 'r').catch(async error => {
      if (!isMissing(error)) throw unreadable(error);
      await this.#requireDirectoryOf(name);
      throw new BlobNotFoundError(name, error);
    });
    const { pieceBytes = READ_BYTES, ...range } = reading;
    return file.createReadStream({ ...range, highWaterMark: pieceBytes });
  }

  async stat(name: string): Promise<{ readonly bytes: number } | undefined> {
    const file = fileOf(this.#root, name);
    const found = await stat(file).catch(async error => {
      if (!isMissing(error)) throw unreadable(error);
      await this.#requireDirectoryOf(name);
      return undefined;
    });
    return found && { bytes: found.size };
  }

  /** A file is missing only where its directory is there: a disk may not be mounted. */
  async #requireDirectoryOf(name: string): Promise<void> {
    if (!this.#mayLack) await reading(stat(path.dirname(fileOf(this.#root, name))));
  }

  async remove(name: string): Promise<void> {
    await writing(unlinkIfThere(fileOf(this.#root, name)));
  }

  async *listOlderThan(olderThanMs: number, part?: BlobPart): AsyncGenerator<string> {
    const before = (await writing(Promise.resolve(this.#nowMs()))) - olderThanMs;
    for (const kind of [UNFINISHED, ...BLOB_KINDS]) {
      const directory = await this.#open(kind);
      for await (const entry of directory ?? []) {
        if (part !== undefined && entry.name.charCodeAt(0) % part.of !== part.part) continue;
        if (!entry.isFile() || !BLOB_ID.test(entry.name)) continue;
        const name = `${kind}/${entry.name}`;
        const touchedMs = await this.#touchedMs(name);
        if (touchedMs !== undefined && touchedMs < before) yield name;
      }
    }
  }

  async #open(kind: string): Promise<Dir | undefined> {
    try {
      return await opendir(path.join(this.#root, kind), { bufferSize: ENTRIES_READ });
    } catch (error) {
      if (this.#mayLack && isMissing(error)) return undefined;
      throw error;
    }
  }

  async #touchedMs(name: string): Promise<number | undefined> {
    try {
      const { mtimeMs, ctimeMs } = await stat(fileOf(this.#root, name));
      return Math.max(mtimeMs, ctimeMs);
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  async check(): Promise<void> {
    // The final directories too: otherwise a failing rename would show only after the inference.
    for (const kind of BLOB_KINDS) {
      await writing(access(path.join(this.#root, kind), constants.W_OK | constants.X_OK));
    }
    const writer = await this.createWriter(`inputs/${randomUUID()}`);
    try {
      await writer.write(Buffer.from('check'));
    } finally {
      await writer.abort();
    }
  }

  async freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.#root);
    return bavail * bsize;
  }
}

/**
 * To read from: it proves nothing and writes nothing; ages go by this machine's clock. What carries
 * files elsewhere and back (`aws s3 sync`, rclone) leaves empty directories behind: they may lack.
 */
export function readDirectoryBlobs(root: string): BlobStore {
  return new DirectoryBlobStore(root, () => Date.now(), true);
}

export async function missingDirectories(root: string): Promise<readonly string[]> {
  const missing: string[] = [];
  for (const directory of [
    root,
    ...[UNFINISHED, ...BLOB_KINDS].map(kind => path.join(root, kind)),
  ]) {
    await stat(directory).catch(error => {
      if (isMissing(error) || error.code === 'ENOTDIR') missing.push(directory);
    });
  }
  return missing;
}

/** Makes missing directories. @throws ContractError where they cannot be written */
export async function openDirectoryBlobStore(
  root: string,
  nowMs?: () => number,
): Promise<BlobStore> {
  for (const kind of [UNFINISHED, ...BLOB_KINDS]) {
    const directory = path.join(root, kind);
    await writing((async () => makeDirectory(directory, DIRECTORY_MODE))());
  }
  await writing(syncPath(root));
  const store = new DirectoryBlobStore(root, nowMs);
  await store.check();
  return store;
}

/* A blob of a directory while it is written: a file in tmp, renamed by its commit. */

/** Syncs of one directory: one sync serves all calls made before it began. */
class DirectorySync {
  readonly #directory: string;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Resolves when what was renamed into it before the call is durable. */
  sync(): Promise<void> {
    this.#next ??= this.#after(this.#running);
    return this.#next;
  }

  async #after(running: Promise<void> | undefined): Promise<void> {
    await running?.catch(() => undefined);
    this.#running = this.#next;
    this.#next = undefined;
    await syncPath(this.#directory);
  }
}

async function unlinkIfThere(file: string): Promise<void> {
  await unlink(file).catch(error => {
    if (!isMissing(error)) throw error;
  });
}

async function writeFully(file: FileHandle, chunk: Uint8Array, position: number): Promise<void> {
  let done = 0;
  while (done < chunk.length) {
    const left = chunk.length - done;
    done += (await file.write(chunk, done, left, position + done)).bytesWritten;
  }
}

interface DirectoryWriting {
  readonly temporary: string;
  readonly file: FileHandle;
  readonly target: string;
  readonly sync: DirectorySync;
}

/**
 * | state     | entered by         | left by                       |
 * |-----------|--------------------|-------------------------------|
 * | open      | createWriter       | commit, abort                 |
 * | committed | commit             | -; abort does nothing         |
 * | aborted   | abort              | -; a second abort does nothing |
 *
 * A commit that fails leaves it open: the caller aborts.
 */
class DirectoryBlobWriter implements BlobWriter {
  readonly #writing: DirectoryWriting;
  readonly #file: FileHandle;
  #state: 'open' | 'committed' | 'aborted' = 'open';
  #bytesWritten = 0;

  constructor(writing: DirectoryWriting) {
    this.#writing = writing;
    this.#file = writing.file;
  }

  get bytesWritten(): number {
    return this.#bytesWritten;
  }

  async write(chunk: Uint8Array): Promise<void> {
    await writing(writeFully(this.#file, chunk, this.#bytesWritten));
    this.#bytesWritten += chunk.length;
  }

  async readAt(offset: number, length: number): Promise<Uint8Array> {
    const available = Math.max(0, Math.min(length, this.#bytesWritten - offset));
    const buffer = Buffer.allocUnsafe(available);
    let done = 0;
    while (done < available) {
      const left = available - done;
      const reads = this.#file.read(buffer, done, left, offset + done);
      const { bytesRead } = await reading(reads);
      if (bytesRead === 0) break;
      done += bytesRead;
    }
    return buffer.subarray(0, done);
  }

  async commit(): Promise<void> {
    await writing(this.#commit());
    this.#state = 'committed';
  }

  async #commit(): Promise<void> {
    const { temporary, target, sync } = this.#writing;
    // Data and length are all a new file needs: fdatasync writes both.
    await this.#file.datasync();
    await rename(temporary, target);
    await sync.sync();
    await this.#file.close();
  }

  async abort(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#state = 'aborted';
    await writing(this.#discard());
  }

  async #discard(): Promise<void> {
    try {
      await this.#file.close();
    } finally {
      await unlinkIfThere(this.#writing.temporary);
    }
  }
}

/* Proves what the service asks of a directory, by doing it. Removes what it wrote. */

/** So far ahead that nothing is too young to be listed. */
const AHEAD_MS = 3_600_000;

/** Never rejects because of the directory: what is wrong is in the findings. */
export async function checkDirectory(root: string): Promise<readonly StorageFinding[]> {
  const findings: StorageFinding[] = [];
  const attempt = async (ability: string, run: () => Promise<void>) => {
    const problem = await run().then(() => undefined, problemOf);
    findings.push({ ability, problem });
  };
  let store: BlobStore | undefined;
  await attempt('open', async () => {
    // Trying it would make it, with this user's rights in place of the service's.
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

/** Whole and durable when it resolves. */
export async function writeBlob(
  blobs: Pick<BlobStore, 'createWriter'>,
  name: string,
  bytes: Buffer,
): Promise<void> {
  const writer = await blobs.createWriter(name);
  try {
    await writer.write(bytes);
    await writer.commit();
  } finally {
    await writer.abort();
  }
}

function problemOf(error: unknown): string {
  if (error instanceof StorageProblem) return error.message;
  const { message, cause } = error as Error;
  const { code } = (cause ?? error) as NodeJS.ErrnoException;
  return code === undefined ? message : `${message} (${code})`;
}
