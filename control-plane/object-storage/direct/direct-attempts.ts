/**
 * One attempt whose files go straight: references to its inputs, one place for its result, and what
 * the storage says is there. Everything it signs is good for one object and for as long as the
 * attempt may take.
 *
 * | state   | entered by | what may be in the storage under the result's name          |
 * |---------|------------|-------------------------------------------------------------|
 * | begun   | begin      | nothing: nobody may put it                                  |
 * | placed  | place      | nothing, or exactly the bytes that were placed              |
 * | there   | verify     | exactly those bytes, which nothing can replace              |
 * | removed | abort      | nothing, or what a late node puts: the sweeper removes it   |
 */

import { buffer } from 'node:stream/consumers';
import type { DirectAttempt, DirectAttempts } from '@matting/core/attempts/direct-attempts.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { contentTypeOf, type OutputFormat } from '@matting/proto/contract/formats.ts';
import { type ByteReader, readImageHeader } from '@matting/proto/contract/image-header.ts';
import type { DirectInput, ResultPlace } from '@matting/proto/gen/matting/v1/matte_service.ts';
import {
  BlobNotFoundError,
  type BlobStore,
  type HashedBlob,
  hashOf,
  type SignedAccess,
} from '@matting/storage/blob-store.ts';
import type { Logger } from 'pino';

/** Whole seconds are signed. */
const VALID_MIN_MS = 1000;

interface DirectParts {
  readonly signed: SignedAccess;
  readonly blobs: BlobStore;
  readonly now: () => number;
  readonly log: Logger;
}

type DirectNode = Parameters<DirectAttempts['begin']>[0];
type DirectAttemptOrder = Parameters<DirectAttempts['begin']>[1];

class SignedAttempt implements DirectAttempt {
  readonly origin: string;
  readonly #parts: DirectParts;
  readonly #order: DirectAttemptOrder;
  readonly #endsAtMs: number;
  #placed: HashedBlob | undefined;
  #elsewhere = false;

  constructor(parts: DirectParts, order: DirectAttemptOrder) {
    this.origin = parts.signed.origin;
    this.#parts = parts;
    this.#order = order;
    this.#endsAtMs = parts.now() + order.timeoutMs;
  }

  get blob(): string {
    return this.#order.resultBlob;
  }

  get placed(): boolean {
    return this.#placed !== undefined;
  }

  get elsewhere(): boolean {
    return this.#elsewhere;
  }

  async refer(): Promise<DirectInput> {
    const { inputBlob, backgroundBlob, hintsBlob } = this.#order;
    const { signed } = this.#parts;
    const forMs = this.#leftMs();
    try {
      const url = await signed.signRead(inputBlob, { forMs });
      const signIf = async (blob: string | null) =>
        blob === null ? '' : await signed.signRead(blob, { forMs });
      const backgroundUrl = await signIf(backgroundBlob);
      return { url, backgroundUrl, hintsUrl: await signIf(hintsBlob), matteUrl: '' };
    } catch (error) {
      if (!(error instanceof BlobNotFoundError)) throw error;
      this.#elsewhere = true;
      const detail = 'a file of the job is not in the storage that signs';
      throw new ContractError('STORAGE_UNREACHABLE', detail, { cause: error });
    }
  }

  async place(result: HashedBlob): Promise<ResultPlace> {
    const forMs = this.#leftMs();
    const contentType = contentTypeOf(this.#order.format);
    // A node may have it from here on, even if this fails.
    this.#placed = result;
    const { signed } = this.#parts;
    const { url, headers } = await signed.signWrite(this.blob, { ...result, forMs, contentType });
    return { url, headers: { ...headers }, validMs: forMs };
  }

  async verify(announced: { readonly width: number; readonly height: number }) {
    const placed = this.#placed;
    if (placed === undefined) return 'nothing was placed';
    const { signed, blobs } = this.#parts;
    const stored = await signed.stored(this.blob);
    if (stored === undefined) return 'the storage has no result';
    if (stored.bytes !== placed.bytes) return 'the storage has a result of another length';
    // A store that keeps no checksum of its own has to show the bytes.
    const sha256 = stored.sha256 ?? (await hashOf(blobs, this.blob)).sha256;
    if (sha256 !== placed.sha256) return 'the storage has another result';
    const head = await readResultHead(blobs, this.blob, placed.bytes);
    if (head?.format !== this.#order.format) return 'the result is of another format';
    if (head.width !== announced.width || head.height !== announced.height) {
      return 'the result has another size than announced';
    }
    return this.#isOfInput(announced) ? undefined : 'the result has another size than the input';
  }

  /** The result is stored since it was verified. */
  async commit(): Promise<void> {
    if (this.#placed === undefined) throw new Error('a result without a place');
  }

  /** The sweeper removes what comes later or cannot be removed here. */
  async abort(): Promise<void> {
    if (this.#placed === undefined) return;
    const { blobs, log } = this.#parts;
    await blobs
      .remove(this.blob)
      .catch(err => log.warn({ err, blob: this.blob }, 'blob not removed'));
  }

  #isOfInput({ width, height }: { readonly width: number; readonly height: number }): boolean {
    const { size } = this.#order;
    if (size === undefined) return true;
    const upright = width === size.width && height === size.height;
    return upright || (width === size.height && height === size.width);
  }

  #leftMs(): number {
    const leftMs = this.#endsAtMs - this.#parts.now();
    return Math.max(VALID_MIN_MS, Math.floor(leftMs / VALID_MIN_MS) * VALID_MIN_MS);
  }
}

/** One request reads this: the readers' own window, behind the header of an archive. */
const HEAD_BYTES = 4096 + 64;
/** Requests for one result: a hostile one may have a header that is spread all over it. */
const HEAD_READS_MAX = 8;

/** An archive's first entry is stored: color.jpg, behind its own header. */
const ZIP_ENTRY = Buffer.from('PK\x03\x04', 'latin1');
const ZIP_NAME = Buffer.from('color.jpg', 'latin1');
const ZIP_NAME_AT = 30;

interface ResultHead {
  readonly format: OutputFormat;
  readonly width: number | undefined;
  readonly height: number | undefined;
}

/** Undefined: of none of the formats, or no still picture. */
async function readResultHead(
  blobs: Pick<BlobStore, 'openRead'>,
  blob: string,
  bytes: number,
): Promise<ResultHead | undefined> {
  let reads = 0;
  const read = async (start: number, length: number): Promise<Buffer> => {
    if (reads === HEAD_READS_MAX) return Buffer.alloc(0);
    reads += 1;
    return await buffer(await blobs.openRead(blob, { start, end: start + length - 1 }));
  };
  const head = await read(0, Math.min(bytes, HEAD_BYTES));
  const behindHead: ByteReader = (offset, length) =>
    offset + length <= head.length ? head.subarray(offset, offset + length) : read(offset, length);
  const from = archivedFrom(head);
  const header = await readImageHeader(
    (offset, length) => behindHead(from + offset, length),
    bytes - from,
  );
  if (header === undefined || header.animated) return undefined;
  const { format, width, height } = header;
  if (format === 'heic') return undefined;
  if (from === 0) return { format, width, height };
  return format === 'jpeg' ? { format: 'zip', width, height } : undefined;
}

/** Finds where the picture of an archive begins; 0: it is none. */
function archivedFrom(head: Buffer): number {
  const nameEnd = ZIP_NAME_AT + ZIP_NAME.length;
  if (head.length < nameEnd || !head.subarray(0, ZIP_ENTRY.length).equals(ZIP_ENTRY)) return 0;
  if (!head.subarray(ZIP_NAME_AT, nameEnd).equals(ZIP_NAME)) return 0;
  return nameEnd + head.readUInt16LE(28);
}

/** After a node could not reach the storage its attempts are streamed so long, doubling. */
const PAUSE_MIN_MS = 30_000;
const PAUSE_MAX_MS = 600_000;
/** The bound is beyond any fleet; the nodes remembered longest go first. */
const NODES_MAX = 1000;
const JOBS_MAX = 10_000;

interface Pause {
  readonly untilMs: number;
  readonly lengthMs: number;
}

export function openDirectPaths(blobs: BlobStore, log: Logger): DirectAttempts | undefined {
  const { signed } = blobs;
  return signed && new DirectPaths({ signed, blobs, log, now: () => performance.now() });
}

/**
 * Which attempts let their files go straight between node and storage. It is asked for each one:
 * the node must list the storage's origin, and neither it nor the job may have met trouble on that
 * way lately. All it remembers is a shortcut: a replica that starts anew learns it again, by
 * attempts that count for nothing.
 */
class DirectPaths implements DirectAttempts {
  readonly #options: DirectParts;
  readonly #pauses = new Map<string, Pause>();
  readonly #streamedJobs = new Set<string>();

  constructor(options: DirectParts) {
    this.#options = options;
  }

  begin(node: DirectNode, order: DirectAttemptOrder): SignedAttempt | undefined {
    const { signed, now } = this.#options;
    if (!node.directOrigins.includes(signed.origin)) return undefined;
    if (this.#streamedJobs.has(order.jobId)) return undefined;
    if (now() < (this.#pauses.get(node.bootId)?.untilMs ?? 0)) return undefined;
    return new SignedAttempt(this.#options, order);
  }

  worked({ bootId }: DirectNode): void {
    this.#pauses.delete(bootId);
  }

  failed(node: DirectNode | undefined, jobId: string): void {
    forgetOldest(this.#streamedJobs, JOBS_MAX);
    this.#streamedJobs.add(jobId);
    if (node !== undefined) this.#pause(node);
  }

  #pause({ bootId }: DirectNode): void {
    const before = this.#pauses.get(bootId);
    const lengthMs = before === undefined ? PAUSE_MIN_MS : before.lengthMs * 2;
    // The node moves to the end: the node that was paused last is forgotten last.
    this.#pauses.delete(bootId);
    forgetOldest(this.#pauses, NODES_MAX);
    const paused = Math.min(PAUSE_MAX_MS, lengthMs);
    this.#pauses.set(bootId, { untilMs: this.#options.now() + paused, lengthMs: paused });
  }
}

function forgetOldest(entries: Map<string, unknown> | Set<string>, max: number): void {
  for (const oldest of entries.keys()) {
    if (entries.size < max) return;
    entries.delete(oldest);
  }
}
