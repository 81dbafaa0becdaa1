/**
 * The port of the storage: named, immutable byte strings. We choose the names (`inputs/<job id>`,
 * `results/<job id>-<fence>`), never a caller.
 */

import { createHash } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { ContractError } from '@matting/proto/contract/errors.ts';

export interface BlobWriter {
  /** Resolves when it can take more (back-pressure). */
  write(chunk: Uint8Array): Promise<void>;
  readonly bytesWritten: number;
  /** Reads back written bytes, to examine the file's header. */
  readAt(offset: number, length: number): Promise<Uint8Array>;
  /** Makes the blob visible, whole and durable. Never replaces one. */
  commit(): Promise<void>;
  abort(): Promise<void>;
}

/** Bytes [start, end] inclusive. Default: all bytes. */
export interface BlobReading {
  readonly start?: number;
  readonly end?: number;
  /** Read-ahead. Default: 256 KiB. */
  readonly pieceBytes?: number;
}

/** Part `part` (from 0) of `of` parts of all blobs, divided by name. */
export interface BlobPart {
  readonly part: number;
  readonly of: number;
}

export interface StorageRoom {
  readonly freeBytes: number;
  readonly sizeBytes: number;
}

export interface BlobStore {
  /** @param name a store may send bytes under it before the commit */
  createWriter(name: string): Promise<BlobWriter>;
  openRead(name: string, reading?: BlobReading): Promise<Readable>;
  /** From the store's own records. undefined: no such blob. */
  stat(name: string): Promise<StoredBlob | undefined>;
  remove(name: string): Promise<void>;
  /**
   * Blobs last touched and unfinished writes begun longer ago than this, by the store's clock.
   * @param part only these names
   */
  listOlderThan(olderThanMs: number, part?: BlobPart): AsyncIterable<string>;
  check(): Promise<void>;
  /** undefined: no bound is known. */
  room(): Promise<StorageRoom | undefined>;
  /**
   * Signs a secret URL that reads a blob for a limited time, even if it does not exist. Rejects
   * with BlobNotFoundError if the blob lies elsewhere; use `openRead`. Absent: the store signs
   * nothing.
   */
  signRead?: ((name: string, reading: SignedReading) => Promise<string>) | undefined;
}

export interface SignedReading {
  /** Rounded down to whole seconds, at least one. */
  readonly forMs: number;
  /** Default: GET. */
  readonly method?: 'GET' | 'HEAD';
  /** Replaces the stored header in the answer. */
  readonly contentType?: string;
  readonly disposition?: string;
}

export interface StoredBlob {
  readonly bytes: number;
  /** Hexadecimal. Absent: the store records none. */
  readonly sha256?: string;
}

export class BlobNotFoundError extends Error {
  constructor(name: string, cause?: unknown) {
    super(`blob not found: ${name}`, { cause });
    this.name = 'BlobNotFoundError';
  }
}

export const BLOB_KINDS = ['inputs', 'backgrounds', 'results'] as const;
export type BlobKind = (typeof BLOB_KINDS)[number];

/** No dot and no slash, so it cannot leave a directory and needs no escaping in a URL. */
export const BLOB_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** Names come only from this program, so a wrong one is a bug. @throws TypeError */
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

/** Codes of full file systems and object stores, or of a used up quota. */
const FULL: ReadonlySet<unknown> = new Set([
  ...['ENOSPC', 'EDQUOT', 'XMinioStorageFull', 'XMinioAdminBucketQuotaExceeded'],
  ...['QuotaExceeded', 'InsufficientStorage', 'HTTP 507'],
]);
const CAUSES_MAX = 8;

/** Examines the causes of the error, too. */
export function isStorageFull(error: unknown): boolean {
  let cause = error;
  for (let depth = 0; depth < CAUSES_MAX && cause instanceof Error; depth += 1) {
    if (FULL.has((cause as NodeJS.ErrnoException).code)) return true;
    cause = cause.cause;
  }
  return false;
}

/** Kept free for the database and the log; a sixteenth of a small disk. */
const FREE_BYTES_MIN = 64 * 1024 * 1024;
const FREE_SHARE_MIN = 1 / 16;

export async function roomOf(directory: string): Promise<StorageRoom> {
  const { bavail, blocks, bsize } = await statfs(directory);
  return { freeBytes: bavail * bsize, sizeBytes: blocks * bsize };
}

/** Rejects with `unwritable` if the disk has only its reserve left. */
export async function requireRoom(directory: string): Promise<void> {
  const { freeBytes, sizeBytes } = await roomOf(directory).catch(error => {
    throw unwritable(error);
  });
  if (freeBytes >= Math.min(FREE_BYTES_MIN, sizeBytes * FREE_SHARE_MIN)) return;
  throw unwritable(Object.assign(new Error('the disk is full'), { code: 'ENOSPC' }));
}

/** The cause is logged, never sent to callers. */
export function unwritable(cause: unknown): ContractError {
  const full = 'The storage is full.';
  const other = 'The storage cannot be written at the moment.';
  return unavailable(isStorageFull(cause) ? full : other, cause);
}

export function unreadable(cause: unknown): ContractError {
  return unavailable('The storage cannot be read at the moment.', cause);
}

function unavailable(detail: string, cause: unknown): ContractError {
  return new ContractError('SERVICE_UNAVAILABLE', detail, { cause });
}

/** Durable when it resolves. */
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
