/**
 * The store of inputs, backgrounds and results: named, immutable byte strings. Names are ours
 * (`inputs/<job id>`, `results/<job id>-<fence>`), never a caller's.
 */
import type { Readable } from 'node:stream';

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
  /** Rejects with BlobNotFoundError. */
  openRead(name: string, reading?: BlobReading): Promise<Readable>;
  stat(name: string): Promise<{ readonly bytes: number } | undefined>;
  /** Does nothing where there is none. */
  remove(name: string): Promise<void>;
  /**
   * All blobs last touched before `olderThanMs` (length of time), and unfinished writes older than
   * that; by the store's own clock, never by this process's.
   * @param part only those of this part of all names
   */
  listOlderThan(olderThanMs: number, part?: BlobPart): AsyncIterable<string>;
  /** Rejects where the store cannot be written. */
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
  /** Hexadecimal. */
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
  /** Of all bytes, computed by the store when they came in; absent where it has none. */
  readonly sha256?: string;
}

export class BlobNotFoundError extends Error {
  constructor(name: string, cause?: unknown) {
    super(`blob not found: ${name}`, { cause });
    this.name = 'BlobNotFoundError';
  }
}
