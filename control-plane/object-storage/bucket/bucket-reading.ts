/**
 * A blob of a bucket as it is read: a stream that goes on where a connection ended, and that fails
 * rather than end with other bytes than were written.
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
import { isAlreadyThere, isBehindTheEnd, isMissing } from './bucket-error.ts';

/** So much is read ahead of the reader if the caller sets nothing. */
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

  /** @param cause why the connection before ended */
  async #resume(cause: unknown): Promise<Readable> {
    const { client, name, range, first, bounds } = this.#source;
    const { etag } = first;
    // Without it another object could continue where this one ended.
    if (this.#resumes === bounds.resumesMax || etag === undefined) throw unreadable(cause);
    this.#resumes += 1;
    const rest = rangeOf(range.start + this.#received, range.end);
    const asked = { range: rest, etag, signal: this.#signal };
    try {
      const { body } = await client.get(name, asked);
      return body;
    } catch (error) {
      if (isBehindTheEnd(error)) return Readable.from([]);
      throw unreadable(error);
    }
  }
}

/* Blobs of a bucket and unfinished multipart uploads, by their age. */

/** The ids of jobs begin with these, in the order in which a bucket lists them. */
const FIRST = '0123456789abcdef';
const UNFINISHED = 'tmp/';

function unfinishedName(key: string, uploadId: string): string {
  return `${UNFINISHED}${key}/${uploadId}`;
}

/** Undefined: the name of something else. @throws TypeError of no upload of ours */
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

/** Ages go by the store's clock: what it reports of a thing and of now. */
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
    const isBehind = (key: string) => last !== undefined && key > `${kind}/${last}`;
    for await (const { key } of older(page, olderThanMs, isBehind)) if (isOurs(key)) yield key;
  }
  // Unfinished uploads are few, so they are filtered here.
  const uploads = older(from => client.listMultipart('', from), olderThanMs);
  for await (const { key, uploadId } of uploads) {
    if (uploadId !== undefined && isOurs(key) && isInRange(key, range)) {
      yield unfinishedName(key, uploadId);
    }
  }
}

/** @param isBehind true: the walk ends before this key */
async function* older(
  page: (from?: string) => Promise<BucketListing>,
  olderThanMs: number,
  isBehind: (key: string) => boolean = () => false,
): AsyncGenerator<BucketItem> {
  let from: string | undefined;
  do {
    const { items, nowMs, next } = await page(from);
    for (const item of items) {
      if (isBehind(item.key)) return;
      if (item.atMs < nowMs - olderThanMs) yield item;
    }
    from = next;
  } while (from !== undefined);
}

/** Ids behind `after` up to `last`, as strings compare; undefined: without that end. */
interface ListedRange {
  readonly after: string | undefined;
  readonly last: string | undefined;
}

/** A part is a range, so that its listing reads no key of another but the first behind it. */
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
 * Whether the bucket can be written. Every blob that is stored proves it; where none is for a
 * while, a small object that is written as blobs are, and removed, does: each is paid for, so not
 * at every probe. A request that fails ends what was proven.
 */

const BYTES = Buffer.from('check');
const SMALL = { bytes: BYTES, sha256: createHash('sha256').update(BYTES).digest('hex') };

const ANSWERS: readonly StorageOutcome[] = ['ok', 'not-found', 'exists'];

export class BucketProof {
  readonly #bounds: BucketBounds;
  /** Each process has its own, as an object replaces none. */
  readonly #key = `tmp/check-${randomUUID()}`;
  #provenAtMs = Number.NEGATIVE_INFINITY;
  #probing: Promise<void> | undefined;

  constructor(bounds: BucketBounds) {
    this.#bounds = bounds;
  }

  /** Learns from each request, whoever sent it. */
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

  /** The same, and that a blob can be written in parts and read: for the start. */
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

  /**
   * Where it fails, the object is left, and the next proof meets it: the sweeper reports a store
   * that removes nothing.
   */
  async #remove(client: BucketClient, key: string, late?: AbortSignal): Promise<void> {
    await client.delete(key, late, client.clients.probes).catch(() => undefined);
  }
}
