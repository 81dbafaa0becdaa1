/**
 * A blob of a bucket as it is read: a stream that goes on where a connection ended, and that fails
 * rather than end with other bytes than were written.
 */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { BlobNotFoundError, type BlobReading } from '../../core/storage/blob-store.ts';
import { unreadable } from '../../core/storage/storage-errors.ts';
import type { BucketBounds } from './bucket-bounds.ts';
import type { BucketClient, BucketObject } from './bucket-client.ts';
import { isBehindTheEnd, isMissing } from './bucket-errors.ts';

/** Read ahead of the reader where nothing is said. */
const PIECE_BYTES = 256 * 1024;

type Range = { readonly start: number; readonly end?: number | undefined };

/** Rejects with BlobNotFoundError, or SERVICE_UNAVAILABLE. */
export async function readBucketBlob(
  client: BucketClient,
  name: string,
  bounds: BucketBounds,
  reading: BlobReading = {},
): Promise<Readable> {
  const { start = 0, end, pieceBytes = PIECE_BYTES } = reading;
  const ended = new AbortController();
  const range = start === 0 && end === undefined ? undefined : rangeOf(start, end);
  let first: BucketObject;
  try {
    first = await client.get(name, { range, signal: ended.signal });
  } catch (error) {
    if (isMissing(error)) throw new BlobNotFoundError(name, error);
    if (isBehindTheEnd(error)) return Readable.from([]);
    throw unreadable(error);
  }
  const source = { client, name, range: { start, end }, first, bounds };
  const pieces = new Pieces(source, ended.signal);
  const stream = Readable.from(pieces.read(), { objectMode: false, highWaterMark: pieceBytes });
  // A generator that waits for a byte hears of the end of its stream by this alone.
  stream.once('close', () => ended.abort());
  return stream;
}

function rangeOf(start: number, end: number | undefined): string {
  return `bytes=${start}-${end ?? ''}`;
}

interface Source {
  readonly client: BucketClient;
  readonly name: string;
  readonly range: Range;
  readonly first: BucketObject;
  readonly bounds: BucketBounds;
}

class Pieces {
  readonly #source: Source;
  readonly #signal: AbortSignal;
  #received = 0;
  #resumes = 0;

  constructor(source: Source, signal: AbortSignal) {
    this.#source = source;
    this.#signal = signal;
  }

  /** The last piece comes when all of them are known to be right. */
  async *read(): AsyncGenerator<Buffer> {
    const { name, range, first } = this.#source;
    const { start, end } = range;
    const { sha256 } = first;
    const checked = start === 0 && end === undefined && sha256 !== undefined;
    const hash = checked ? createHash('sha256') : undefined;
    let held: Buffer | undefined;
    for await (const piece of this.#pieces()) {
      hash?.update(piece);
      if (held !== undefined) yield held;
      held = piece;
    }
    if (hash !== undefined && hash.digest('hex') !== sha256) {
      throw unreadable(new Error(`${name} is not what was written: its SHA-256 differs`));
    }
    if (held !== undefined) yield held;
  }

  /** Of one connection after the other. */
  async *#pieces(): AsyncGenerator<Buffer> {
    let { body } = this.#source.first;
    for (;;) {
      try {
        for await (const piece of this.#ofConnection(body)) {
          this.#received += piece.length;
          yield piece;
        }
        return;
      } catch (error) {
        if (this.#signal.aborted) return;
        body = await this.#resume(error);
      }
    }
  }

  async *#ofConnection(body: Readable): AsyncGenerator<Buffer> {
    const { silenceMsMax } = this.#source.bounds;
    const end = () => body.destroy();
    this.#signal.addEventListener('abort', end, { once: true });
    const iterator = body.iterator({ destroyOnReturn: true });
    try {
      for (;;) {
        const silent = () => body.destroy(new Error(`no byte for ${silenceMsMax} ms`));
        const timer = setTimeout(silent, silenceMsMax);
        const next = await iterator.next().finally(() => clearTimeout(timer));
        if (next.done) return;
        yield next.value;
      }
    } finally {
      this.#signal.removeEventListener('abort', end);
      body.destroy();
    }
  }

  /** @param cause why the connection before ended */
  async #resume(cause: unknown): Promise<Readable> {
    const { client, name, range, first, bounds } = this.#source;
    const { etag } = first;
    // Without it another object could go on where this one ended.
    if (this.#resumes === bounds.resumesMax || etag === undefined) throw unreadable(cause);
    this.#resumes += 1;
    const rest = rangeOf(range.start + this.#received, range.end);
    const asked = { range: rest, etag, signal: this.#signal };
    try {
      const { body } = await client.get(name, asked);
      return body;
    } catch (error) {
      // All of it had come when the connection ended.
      if (isBehindTheEnd(error)) return Readable.from([]);
      throw unreadable(error);
    }
  }
}
