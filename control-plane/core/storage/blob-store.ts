/**
 * The port of the storage. A store of inputs, backgrounds and results has named, immutable byte
 * strings. Names are ours (`inputs/<job id>`, `results/<job id>-<fence>`), never a caller's. What a
 * package gives so that URLs of its own open one is a StorageKind.
 */

import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { Logger } from 'pino';
import { ContractError } from '#contract/errors.ts';

export interface BlobWriter {
  /** Resolves when the bytes may be followed by more (back-pressure). */
  write(chunk: Uint8Array): Promise<void>;
  readonly bytesWritten: number;
  /** Reads back what was written so far, for header sniffing. */
  readAt(offset: number, length: number): Promise<Uint8Array>;
  /**
   * Under its name whole and durable once it resolves, and nothing under it before. Replaces
   * nothing: names are unique.
   */
  commit(): Promise<void>;
  /** Removes what was written. After commit does nothing. */
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
   * All blobs last touched before `olderThanMs` (length of time), and unfinished writes older than
   * that; by the store's own clock, never by this process's.
   * @param part only those of this part of all names
   */
  listOlderThan(olderThanMs: number, part?: BlobPart): AsyncIterable<string>;
  check(): Promise<void>;
  /** Free space in bytes; undefined where the store has no such number. */
  freeBytes(): Promise<number | undefined>;
  /** Undefined: the store signs nothing, so every byte goes through this process. */
  readonly signed?: SignedAccess | undefined;
}

/**
 * Leave for others to read or write one blob by themselves, for a time. Each URL is a secret of its
 * own: whoever has it needs no key. Never logged.
 */
export interface SignedAccess {
  /** Where signed requests go: scheme://host[:port], lower case, without a default port. */
  readonly origin: string;
  /**
   * GET of one blob, ranges too. Nothing says whether it is there; but where it is known to lie
   * elsewhere, as while blobs move here, it rejects with BlobNotFoundError: read it by `openRead`.
   */
  signRead(name: string, options: SignedReading): Promise<string>;
  /**
   * PUT of one blob: of exactly these bytes, and only where there is none yet (412 otherwise).
   * `headers` are signed: the request needs all of them as they are.
   */
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
  /** As for reading. */
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

/** The first part of a name. */
export const BLOB_KINDS = ['inputs', 'backgrounds', 'results'] as const;
export type BlobKind = (typeof BLOB_KINDS)[number];

/** No dot, no slash: no way out of a directory, and nothing to be escaped in a URL. */
export const BLOB_ID = /^[A-Za-z0-9_-]{1,128}$/;

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

/** Reads all of it. Rejects with BlobNotFoundError. */
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
  return unavailable('the storage cannot be written at the moment', cause);
}

/** The same of reading. */
export function unreadable(cause: unknown): ContractError {
  return unavailable('the storage cannot be read at the moment', cause);
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

/** Says what is wrong instead of throwing it. */
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
