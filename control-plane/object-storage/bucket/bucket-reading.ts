/**
 * Reads a blob of a bucket. The stream resumes after a lost connection, and fails if its bytes are
 * not those that were written.
 */

import { createHash, randomUUID } from 'node:crypto';
import { addAbortListener } from 'node:events';
import { Readable } from 'node:stream';
import { boundPieces } from '@matting/program/piece-count.ts';
import {
  BLOB_KINDS,
  BlobNotFoundError,
  type BlobPart,
  type BlobReading,
  requireBlobName,
  unreadable,
  unwritable,
} from '@matting/storage/blob-store.ts';
import type { StorageOutcome, StorageRequestEnd } from '@matting/storage/storage-kind.ts';
import type { BucketClient, BucketItem, BucketListing, BucketObject } from './bucket-client.ts';
import type { BucketBounds } from './bucket-connections.ts';
import { isAlreadyThere, isMissing, isPastTheEnd } from './bucket-error.ts';

/** Default read-ahead. */
const PIECE_BYTES = 256 * 1024;

type Range = { readonly start: number; readonly end?: number | undefined };

/** Rejects with BlobNotFoundError or SERVICE_UNAVAILABLE. */
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
    if (isPastTheEnd(error)) return Readable.from([]);
    throw unreadable(error);
  }
  const source = { client, name, range: { start, end }, first, bounds };
  const pieces = new Pieces(source, ended.signal);
  const stream = Readable.from(pieces.read(), { objectMode: false, highWaterMark: pieceBytes });
  // A generator that waits for a byte learns of its stream's end only by this event.
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

  /** Yields the last piece only after the checksum of all was compared. */
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
    using _ending = addAbortListener(this.#signal, () => body.destroy());
    const iterator = boundPieces(body).iterator({ destroyOnReturn: true });
    try {
      for (;;) {
        const silent = () => body.destroy(new Error(`no byte for ${silenceMsMax} ms`));
        const timer = setTimeout(silent, silenceMsMax);
        const next = await iterator.next().finally(() => clearTimeout(timer));
        if (next.done) return;
        yield next.value;
      }
    } finally {
      body.destroy();
    }
  }

  /** @param cause the previous connection's error */
  async #resume(cause: unknown): Promise<Readable> {
    const { client, name, range, first, bounds } = this.#source;
    const { etag } = first;
    // Without an ETag the rest could come from another object.
    if (this.#resumes === bounds.resumesMax || etag === undefined) throw unreadable(cause);
    this.#resumes += 1;
    const rest = rangeOf(range.start + this.#received, range.end);
    const request = { range: rest, etag, signal: this.#signal };
    try {
      const { body } = await client.get(name, request);
      return body;
    } catch (error) {
      if (isPastTheEnd(error)) return Readable.from([]);
      throw unreadable(error);
    }
  }
}

/** First characters of job ids, in a bucket's listing order. */
const FIRST = '0123456789abcdef';
const UNFINISHED = 'tmp/';

function unfinishedName(key: string, uploadId: string): string {
  return `${UNFINISHED}${key}/${uploadId}`;
}

/** undefined: another kind of name. @throws TypeError: not an upload of ours */
export function parseUnfinished(
  name: string,
): { readonly key: string; readonly uploadId: string } | undefined {
  if (!name.startsWith(UNFINISHED)) return undefined;
  const [kind, id, ...rest] = name.slice(UNFINISHED.length).split('/');
  const key = `${kind}/${id}`;
  const uploadId = rest.join('/');
  requireBlobName(key);
  if (uploadId === '') throw new TypeError('an unfinished upload has an id');
  return { key, uploadId };
}

/** Ages follow the store's clock. */
export async function* listBucketOlderThan(
  client: BucketClient,
  olderThanMs: number,
  part?: BlobPart,
): AsyncGenerator<string> {
  const range = listedRangeOf(part);
  for (const kind of BLOB_KINDS) {
    const { after, last } = range;
    const begin = after === undefined ? undefined : `${kind}/${after}`;
    const page = (from?: string) => client.list(`${kind}/`, { from, after: begin });
    const isPastLast = (key: string) => last !== undefined && key > `${kind}/${last}`;
    for await (const { key } of older(page, olderThanMs, isPastLast)) if (isOurs(key)) yield key;
  }
  // Unfinished uploads are few, so they are filtered here.
  const uploads = older(from => client.listMultipart('', from), olderThanMs);
  for await (const { key, uploadId } of uploads) {
    if (uploadId !== undefined && isOurs(key) && isInRange(key, range)) {
      yield unfinishedName(key, uploadId);
    }
  }
}

/** @param isPastLast ends the listing before this key */
async function* older(
  page: (from?: string) => Promise<BucketListing>,
  olderThanMs: number,
  isPastLast: (key: string) => boolean = () => false,
): AsyncGenerator<BucketItem> {
  let from: string | undefined;
  do {
    const { items, nowMs, next } = await page(from);
    for (const item of items) {
      if (isPastLast(item.key)) return;
      if (item.atMs < nowMs - olderThanMs) yield item;
    }
    from = next;
  } while (from !== undefined);
}

/** Ids after `after` up to `last`, compared as strings. undefined: open end. */
interface ListedRange {
  readonly after: string | undefined;
  readonly last: string | undefined;
}

/** Each part is a range of keys, so its listing reads at most one key beyond it. */
function listedRangeOf(part: BlobPart | undefined): ListedRange {
  if (part === undefined) return { after: undefined, last: undefined };
  const boundary = (index: number) =>
    index === 0 ? undefined : FIRST[Math.floor((index * FIRST.length) / part.of)];
  return { after: boundary(part.part), last: boundary(part.part + 1) };
}

function isInRange(key: string, { after, last }: ListedRange): boolean {
  const id = key.slice(key.indexOf('/') + 1);
  return (after === undefined || id > after) && (last === undefined || id <= last);
}

function isOurs(key: string): boolean {
  try {
    requireBlobName(key);
    return true;
  } catch {
    return false;
  }
}

/*
 * Tests whether the bucket can be written. Each stored blob proves it, and a failed request ends
 * the proof. A small object is written and removed only if the last proof is old, since that costs
 * money.
 */

const BYTES = Buffer.from('check');
const SMALL = { bytes: BYTES, sha256: createHash('sha256').update(BYTES).digest('hex') };

const ANSWERS: readonly StorageOutcome[] = ['ok', 'not-found', 'exists'];

export class BucketProof {
  readonly #bounds: BucketBounds;
  /** Unique for each process, since an object is never replaced. */
  readonly #key = `tmp/check-${randomUUID()}`;
  #provenAtMs = Number.NEGATIVE_INFINITY;
  #probing: Promise<void> | undefined;

  constructor(bounds: BucketBounds) {
    this.#bounds = bounds;
  }

  /** Called for every request. */
  learn({ operation, outcome }: StorageRequestEnd): void {
    if (!ANSWERS.includes(outcome)) this.#provenAtMs = Number.NEGATIVE_INFINITY;
    else if (operation === 'put' && outcome === 'ok') this.#provenAtMs = performance.now();
  }

  async require(client: BucketClient): Promise<void> {
    if (performance.now() - this.#provenAtMs < this.#bounds.proofMs) return;
    this.#probing ??= this.#probe(client).finally(() => {
      this.#probing = undefined;
    });
    await this.#probing;
  }

  /** At the start: also tests an upload in parts and a read. */
  async requireAll(client: BucketClient): Promise<void> {
    await this.require(client);
    const key = `${this.#key}-parts`;
    const uploadId = await client.createMultipart(key, SMALL.sha256);
    try {
      const part = await client.uploadPart(key, { ...SMALL, uploadId, number: 1 });
      await client.completeMultipart(key, { uploadId, parts: [part] });
    } catch (error) {
      await client.abortMultipart(key, uploadId).catch(() => undefined);
      throw error;
    }
    await client.head(key);
    await this.#remove(client, key);
  }

  async #probe(client: BucketClient): Promise<void> {
    const late = AbortSignal.timeout(this.#bounds.probeMsMax);
    await client.put(this.#key, SMALL, late, client.clients.probes).catch(cause => {
      if (!isAlreadyThere(cause)) throw unwritable(cause);
    });
    await this.#remove(client, this.#key, late);
  }

  /** Ignores a failure: the sweeper reports a store that removes nothing. */
  async #remove(client: BucketClient, key: string, late?: AbortSignal): Promise<void> {
    await client.delete(key, late, client.clients.probes).catch(() => undefined);
  }
}
