import { createHash } from 'node:crypto';
import {
  BlobNotFoundError,
  type BlobStore,
  type HashedBlob,
  hashOf,
} from '@matting/storage/blob-store.ts';

const MOVES_AT_ONCE_MAX = 8;
/** A service keeps adding blobs to the first store, so the list is read again. */
const PASSES_MAX = 10;
/** The command gives up after this many. */
const FAILURES_MAX = 20;
/** Added to the clock, so that no blob is too young for the list. */
const AHEAD_MS = 86_400_000;
const UNFINISHED = /^(tmp|fallback:)/;

interface MoveOptions {
  /** Removes each blob from the first store after its copy was verified. */
  readonly remove?: boolean;
  /** False: does not compare existing blobs. Default: true. */
  readonly prove?: boolean;
  readonly onProgress?: (progress: MoveSummary) => void;
  readonly signal?: AbortSignal;
}

interface MoveFailure {
  readonly name: string;
  readonly error: unknown;
}

export interface MoveSummary {
  readonly copied: number;
  readonly copiedBytes: number;
  /** Already in the second store, with the same checksum. */
  readonly alreadyThere: number;
  /** Removed by the service meanwhile. */
  readonly gone: number;
  readonly removed: number;
  /** Blobs whose copy failed or differs. */
  readonly failures: readonly MoveFailure[];
  readonly complete: boolean;
}

export class CopyDiffersError extends Error {
  constructor(name: string) {
    super(`${name} has other bytes at the destination`);
    this.name = 'CopyDiffersError';
  }
}

export type MovedFrom = Pick<BlobStore, 'listOlderThan' | 'openRead' | 'remove'>;

/**
 * Copies every blob to another store while both are in use. It replaces nothing, compares each
 * copy's checksum, and removes a blob only after that. An interrupted run can be repeated.
 *
 * Rejects if the list cannot be read. Failures of single blobs are in the summary.
 */
export async function moveBlobs(
  from: MovedFrom,
  to: BlobStore,
  options: MoveOptions = {},
): Promise<MoveSummary> {
  const move = new Move(from, to, options);
  for (let pass = 1; pass <= PASSES_MAX; pass += 1) {
    const copied = await move.pass(pass === 1 && options.prove !== false);
    if (copied === 0 || move.stopped) break;
  }
  return move.summary();
}

class Move {
  readonly #from: MovedFrom;
  readonly #to: BlobStore;
  readonly #options: MoveOptions;
  readonly #failures: MoveFailure[] = [];
  #counts = { copied: 0, copiedBytes: 0, alreadyThere: 0, gone: 0, removed: 0 };
  #lastPassCopied = 0;

  constructor(from: MovedFrom, to: BlobStore, options: MoveOptions) {
    this.#from = from;
    this.#to = to;
    this.#options = options;
  }

  get stopped(): boolean {
    return this.#options.signal?.aborted === true || this.#failures.length >= FAILURES_MAX;
  }

  summary(): MoveSummary {
    const complete = !this.stopped && this.#lastPassCopied === 0 && this.#failures.length === 0;
    return { ...this.#counts, failures: this.#failures, complete };
  }

  /** @param prove also compares existing blobs @returns number of copied blobs */
  async pass(prove: boolean): Promise<number> {
    const before = this.#counts.copied;
    const names = this.#from.listOlderThan(-AHEAD_MS)[Symbol.asyncIterator]();
    const work = async () => {
      while (!this.stopped) {
        const next = await names.next();
        if (next.done) return;
        if (!UNFINISHED.test(next.value)) await this.#try(next.value, prove);
      }
    };
    try {
      await Promise.all(Array.from({ length: MOVES_AT_ONCE_MAX }, work));
    } finally {
      await names.return?.();
    }
    this.#lastPassCopied = this.#counts.copied - before;
    return this.#lastPassCopied;
  }

  async #try(name: string, prove: boolean): Promise<void> {
    try {
      await this.#move(name, prove || this.#options.remove === true);
    } catch (error) {
      if (error instanceof BlobNotFoundError) this.#counts.gone += 1;
      else if (this.#failures.every(failure => failure.name !== name)) {
        this.#failures.push({ name, error });
      }
    }
    this.#options.onProgress?.(this.summary());
  }

  async #move(name: string, prove: boolean): Promise<void> {
    const there = await this.#to.stat(name);
    if (there === undefined) await this.#copy(name);
    else if (prove) await this.#prove(name);
    if (this.#options.remove !== true) return;
    await this.#from.remove(name);
    this.#counts.removed += 1;
  }

  async #copy(name: string): Promise<void> {
    const stream = await this.#from.openRead(name);
    const writer = await this.#to.createWriter(name);
    const hash = createHash('sha256');
    try {
      for await (const piece of stream as AsyncIterable<Buffer>) {
        hash.update(piece);
        await writer.write(piece);
      }
      await writer.commit();
    } finally {
      stream.destroy();
      await writer.abort();
    }
    const { bytesWritten } = writer;
    await this.#requireSame(name, { bytes: bytesWritten, sha256: hash.digest('hex') });
    this.#counts.copied += 1;
    this.#counts.copiedBytes += bytesWritten;
  }

  async #prove(name: string): Promise<void> {
    await this.#requireSame(name, await hashOf(this.#from, name));
    this.#counts.alreadyThere += 1;
  }

  /** Uses the second store's own checksum if there is one; otherwise it reads the blob. */
  async #requireSame(name: string, expected: HashedBlob): Promise<void> {
    const stored = await this.#to.stat(name);
    const { bytes, sha256 } =
      stored?.sha256 === undefined
        ? await hashOf(this.#to, name)
        : { bytes: stored.bytes, sha256: stored.sha256 };
    if (bytes !== expected.bytes || sha256 !== expected.sha256) throw new CopyDiffersError(name);
  }
}
