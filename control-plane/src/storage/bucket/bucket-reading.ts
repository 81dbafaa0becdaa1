/**
 * A blob of a bucket as it is read: a stream that goes on where a connection ended, and that fails
 * rather than end with other bytes than were written.
 */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { BlobNotFoundError, type BlobReading } from '../blob-store.ts';
import { unreadable } from '../storage-errors.ts';
import type { BucketClient, BucketObject } from './bucket-client.ts';
import { isBehindTheEnd, isMissing, isPassing } from './bucket-errors.ts';

/** Read ahead of the reader where nothing is said. */
const PIECE_BYTES = 256 * 1024;
/** No byte for so long while the reader waits for one: the connection is given up. */
const SILENCE_MS_MAX = 10_000;
/** How often one reading goes on with another connection. */
const RESUMES_MAX = 3;

export interface BucketReading extends BlobReading {
  readonly silenceMsMax?: number;
}

/** Rejects with BlobNotFoundError, or SERVICE_UNAVAILABLE. */
export async function readBucketBlob(
  client: BucketClient,
  name: string,
  reading: BucketReading = {},
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
  const pieces = new Pieces(client, name, { ...reading, start }, first, ended.signal);
  const stream = Readable.from(pieces.read(), { objectMode: false, highWaterMark: pieceBytes });
  // A generator that waits for a byte hears of the end of its stream by this alone.
  stream.once('close', () => ended.abort());
  return stream;
}

function rangeOf(start: number, end: number | undefined): string {
  return `bytes=${start}-${end ?? ''}`;
}

class Pieces {
  readonly #client: BucketClient;
  readonly #name: string;
  readonly #reading: BucketReading & { readonly start: number };
  readonly #first: BucketObject;
  readonly #signal: AbortSignal;
  #received = 0;
  #resumes = 0;

  constructor(
    client: BucketClient,
    name: string,
    reading: BucketReading & { readonly start: number },
    first: BucketObject,
    signal: AbortSignal,
  ) {
    this.#client = client;
    this.#name = name;
    this.#reading = reading;
    this.#first = first;
    this.#signal = signal;
  }

  /** The last piece comes when all of them are known to be right. */
  async *read(): AsyncGenerator<Buffer> {
    const { start, end } = this.#reading;
    const { sha256 } = this.#first;
    const checked = start === 0 && end === undefined && sha256 !== undefined;
    const hash = checked ? createHash('sha256') : undefined;
    let held: Buffer | undefined;
    for await (const piece of this.#pieces()) {
      hash?.update(piece);
      if (held !== undefined) yield held;
      held = piece;
    }
    if (hash !== undefined && hash.digest('hex') !== sha256) {
      throw unreadable(new Error(`${this.#name} is not what was written: its SHA-256 differs`));
    }
    if (held !== undefined) yield held;
  }

  /** Of one connection after the other. */
  async *#pieces(): AsyncGenerator<Buffer> {
    let { body } = this.#first;
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
    const { silenceMsMax = SILENCE_MS_MAX } = this.#reading;
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
    const { start, end } = this.#reading;
    const { etag } = this.#first;
    // Without it another object could go on where this one ended.
    if (this.#resumes === RESUMES_MAX || etag === undefined) throw unreadable(cause);
    this.#resumes += 1;
    const range = rangeOf(start + this.#received, end);
    try {
      const { body } = await this.#client.get(this.#name, { range, etag, signal: this.#signal });
      return body;
    } catch (error) {
      // All of it had come when the connection ended.
      if (isBehindTheEnd(error)) return Readable.from([]);
      throw unreadable(isPassing(error) ? error : new Error('the blob has gone', { cause: error }));
    }
  }
}
