/**
 * The port of the storage. A store of inputs, backgrounds and results has named, immutable byte
 * strings. Names are ours (`inputs/<job id>`, `results/<job id>-<fence>`), never a caller's. What a
 * package gives so that URLs of its own open a store is a StorageKind.
 */

import { createHash } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { ContractError } from '@matting/proto/contract/errors.ts';

export interface BlobWriter {
  /** Resolves when the bytes may be followed by more (back-pressure). */
  write(chunk: Uint8Array): Promise<void>;
  readonly bytesWritten: number;
  /** Reads back what was written so far, for header sniffing. */
  readAt(offset: number, length: number): Promise<Uint8Array>;
  /**
   * Makes it whole and durable under its name; before, nothing is there. Replaces nothing: names
   * are unique.
   */
  commit(): Promise<void>;
  abort(): Promise<void>;
}

/** Bytes [start, end] inclusive; all bytes where absent. */
export interface BlobReading {
  readonly start?: number;
  readonly end?: number;
  /** So much is read ahead of the reader; 256 KiB if it is absent. */
  readonly pieceBytes?: number;
}

/** Part `index` (from 0) of `of` parts of all blobs, chosen by their names, always the same. */
export interface BlobPart {
  readonly part: number;
  readonly of: number;
}

export interface StorageRoom {
  readonly freeBytes: number;
  readonly sizeBytes: number;
}

export interface BlobStore {
  /** @param name that the blob will have; a store may send its bytes there before the commit */
  createWriter(name: string): Promise<BlobWriter>;
  openRead(name: string, reading?: BlobReading): Promise<Readable>;
  /** Reads what the store itself has noted of a blob; undefined: there is none. */
  stat(name: string): Promise<StoredBlob | undefined>;
  remove(name: string): Promise<void>;
  /**
   * Blobs last touched, and unfinished writes begun, before so long, by the store's own clock.
   * @param part only those of this part of all names
   */
  listOlderThan(olderThanMs: number, part?: BlobPart): AsyncIterable<string>;
  check(): Promise<void>;
  /** Undefined: it has no bound that can be read. */
  room(): Promise<StorageRoom | undefined>;
  /**
   * Signs a URL that reads one blob for a time, be it there or not. It is a secret: it needs no
   * key. BlobNotFoundError: known to lie elsewhere; use `openRead`. Undefined: the store signs
   * nothing.
   */
  signRead?: ((name: string, reading: SignedReading) => Promise<string>) | undefined;
}

export interface SignedReading {
  /** How long the link is good. Whole seconds are signed, rounded down, 1 at least. */
  readonly forMs: number;
  /** GET where absent. */
  readonly method?: 'GET' | 'HEAD';
  /** The answer's header has this instead of what is stored. */
  readonly contentType?: string;
  readonly disposition?: string;
}

export interface StoredBlob {
  readonly bytes: number;
  /** Hexadecimal; absent: the store keeps none. */
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

/** Codes of file systems and object stores that have no room, or whose quota is used up. */
const FULL: ReadonlySet<unknown> = new Set([
  ...['ENOSPC', 'EDQUOT', 'XMinioStorageFull', 'XMinioAdminBucketQuotaExceeded'],
  ...['QuotaExceeded', 'InsufficientStorage', 'HTTP 507'],
]);
const CAUSES_MAX = 8;

/** Whether an error, or one of its causes, says that the storage is full. */
export function isStorageFull(error: unknown): boolean {
  let cause = error;
  for (let depth = 0; depth < CAUSES_MAX && cause instanceof Error; depth += 1) {
    if (FULL.has((cause as NodeJS.ErrnoException).code)) return true;
    cause = cause.cause;
  }
  return false;
}

/** A disk keeps so much free, a small one a 16th: the database and the log may be on it too. */
const FREE_BYTES_MIN = 64 * 1024 * 1024;
const FREE_SHARE_MIN = 1 / 16;

export async function roomOf(directory: string): Promise<StorageRoom> {
  const { bavail, blocks, bsize } = await statfs(directory);
  return { freeBytes: bavail * bsize, sizeBytes: blocks * bsize };
}

/** Rejects as `unwritable` if the disk has no more room than what it keeps. */
export async function requireRoom(directory: string): Promise<void> {
  const { freeBytes, sizeBytes } = await roomOf(directory).catch(error => {
    throw unwritable(error);
  });
  if (freeBytes >= Math.min(FREE_BYTES_MIN, sizeBytes * FREE_SHARE_MIN)) return;
  throw unwritable(Object.assign(new Error('the disk is full'), { code: 'ENOSPC' }));
}

/** SERVICE_UNAVAILABLE, with the store's own error as cause: it is logged, and never answered. */
export function unwritable(cause: unknown): ContractError {
  const full = 'The storage is full.';
  const other = 'The storage cannot be written at the moment.';
  return unavailable(isStorageFull(cause) ? full : other, cause);
}

/** As `unwritable`, for reading. */
export function unreadable(cause: unknown): ContractError {
  return unavailable('The storage cannot be read at the moment.', cause);
}

function unavailable(detail: string, cause: unknown): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', detail, { cause });
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
