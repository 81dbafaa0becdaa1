/**
 * A picture sent as Base64 or as its bytes, on its way into the blob store: decoded, counted,
 * hashed and written while it arrives, so that its size costs no memory. The caller that begins an
 * upload commits or aborts it. Without a free slot or disk space it is still hashed: a join or a
 * replay needs only the hash, and is not refused.
 *
 * | state     | entered by             | left by                                                  |
 * |-----------|------------------------|----------------------------------------------------------|
 * | empty     | begin                  | the first piece                                          |
 * | writing   | the first piece        | finish, abort, a refusal, a disk that takes no more      |
 * | unstored  | no slot, no disk       | finish, which says so; abort                             |
 * | refused   | text that is no Base64 | abort; what follows is dropped, finish throws the cause  |
 * | finished  | finish                 | commit, abort                                            |
 * | closed    | commit or abort        | -                                                        |
 */

import { createHash, type Hash, randomUUID } from 'node:crypto';
import { ContractError, type FieldError } from '#contract/errors.ts';
import type { InputFormat } from '#contract/formats.ts';
import { type Release, Semaphore, type SemaphoreOptions } from '#program/semaphore.ts';
import { Base64Decoder } from '../../http/bodies.ts';
import { backgroundBlob } from '../jobs/job.ts';
import type { BlobStore, BlobWriter } from '../storage/blob-store.ts';
import {
  BACKGROUND_IMAGE,
  type ImageRole,
  INPUT_IMAGE,
  imageTooLarge,
  requireAcceptableImage,
} from './acceptable-image.ts';

/**
 * Bytes gathered before they are written. A photo of 400 KB took 2.2 ms in the 9 pieces it came in
 * and 1.6 ms in 2 (2 cores of an AMD EPYC). One buffer of this size an upload, however small the
 * pieces are that a sender chooses.
 */
const WRITE_BYTES = 256 * 1024;

/**
 * Requests whose images are received at once: each holds a file, a second one where it has a
 * background, and a few hundred KiB of buffers. All of them together take less than 200 MB of
 * memory and 16 GB of disk. A request without a slot waits for one, its body unread.
 */
const UPLOADS_MAX = 256;
/** Each holds one chunk of its body, 64 KiB at most. */
const UPLOADS_WAITING_MAX = 2048;
/** Far above what a burst of photos takes, far below what callers and proxies wait. */
const WAIT_MS = 10_000;
const BUSY_RETRY_AFTER_S = 5;

export type UploadBounds = Partial<Omit<SemaphoreOptions, 'refusal'>>;

export interface UploadedImage {
  /** Its name in the blob store once it is committed. */
  readonly blob: string;
  readonly bytes: number;
  readonly format: InputFormat;
  /** As stored; null where the header does not show it. */
  readonly width: number | null;
  readonly height: number | null;
}

/** An upload whose bytes are known. */
export interface FinishedUpload {
  /** Hexadecimal, of the decoded bytes. */
  readonly sha256: string;
  /** What may be committed; or why there is nothing to commit: SERVICE_UNAVAILABLE. */
  readonly image: UploadedImage | ContractError;
}

export class ImageUploads {
  readonly #blobs: Pick<BlobStore, 'createWriter'>;
  readonly #slots: Semaphore;

  constructor(blobs: Pick<BlobStore, 'createWriter'>, bounds: UploadBounds = {}) {
    this.#blobs = blobs;
    this.#slots = new Semaphore({
      max: UPLOADS_MAX,
      waitingMax: UPLOADS_WAITING_MAX,
      waitMs: WAIT_MS,
      refusal: () =>
        new ContractError('SERVICE_UNAVAILABLE', 'too many uploads at once', {
          retryAfterS: BUSY_RETRY_AFTER_S,
        }),
      ...bounds,
    });
  }

  /** Uploads that hold a file now. */
  get open(): number {
    return this.#slots.held;
  }

  /** Uploads that wait for a slot, their body unread. */
  get waiting(): number {
    return this.#slots.waiting;
  }

  /**
   * The uploads of a request that may have both; they share one slot, whichever comes first, and
   * take neither it nor a file before their first piece.
   */
  beginBoth(accountId: string): RequestUploads {
    const place = new UploadPlace(this.#blobs, this.#slots, accountId);
    // Before the first byte: a blob has its name from its beginning.
    const jobId = randomUUID();
    return {
      image: new ImageUpload(place, INPUT_IMAGE, { jobId, blob: `inputs/${jobId}` }),
      background: new ImageUpload(place, BACKGROUND_IMAGE, { jobId, blob: backgroundBlob(jobId) }),
    };
  }
}

/** Each is to be committed or aborted. */
export interface RequestUploads {
  readonly image: ImageUpload;
  readonly background: ImageUpload;
}

/**
 * The slot of one request, held as long as one of its uploads has a file. The parts of a body come
 * one after the other, so one of them at a time is written; a slot each could leave two requests
 * waiting for each other's.
 */
class UploadPlace {
  readonly #blobs: Pick<BlobStore, 'createWriter'>;
  readonly #slots: Semaphore;
  readonly #accountId: string;
  #files = 0;
  #release: Release | undefined;

  constructor(blobs: Pick<BlobStore, 'createWriter'>, slots: Semaphore, accountId: string) {
    this.#blobs = blobs;
    this.#slots = slots;
    this.#accountId = accountId;
  }

  /** Each writer is to be closed once. @throws ContractError SERVICE_UNAVAILABLE */
  async openWriter(blob: string): Promise<BlobWriter> {
    if (this.#files === 0) this.#release = await this.#slots.take({ key: this.#accountId });
    this.#files += 1;
    try {
      return await this.#blobs.createWriter(blob);
    } catch (error) {
      this.closed();
      throw error;
    }
  }

  closed(): void {
    this.#files -= 1;
    if (this.#files === 0) this.#release?.();
  }
}

/** What makes the file's bytes of the pieces that are sent. */
type PieceReader = Pick<Base64Decoder, 'decodedBytes' | 'push' | 'finish'>;

export class ImageUpload {
  /** The id of the job that this request may make: its blobs are named after it. */
  readonly jobId: string;
  readonly #blob: string;
  readonly #place: UploadPlace;
  readonly #role: ImageRole;
  readonly #hash: Hash = createHash('sha256');
  #reader: PieceReader = new Base64Decoder();
  #writer: BlobWriter | undefined;
  #gathered: Buffer | undefined;
  #gatheredBytes = 0;
  #refusal: ContractError | undefined;
  #unstored: ContractError | undefined;

  constructor(
    place: UploadPlace,
    role: ImageRole,
    { jobId, blob }: { readonly jobId: string; readonly blob: string },
  ) {
    this.jobId = jobId;
    this.#blob = blob;
    this.#place = place;
    this.#role = role;
  }

  /**
   * Its pieces are the file's bytes, not Base64; before the first one.
   * @param field the request's field, for errors; absent: the whole body
   */
  takeBytes(field?: string): void {
    this.#reader = new RawBytes(field);
  }

  /**
   * Takes the next piece: Base64 text, at once with its data URI prefix, or bytes. It may be
   * written over once this resolves. Text that is no Base64 is remembered for `finish`, since the
   * body around it is judged first; size is not.
   * @throws ContractError IMAGE_TOO_LARGE
   */
  async write(piece: Uint8Array): Promise<void> {
    if (this.#refusal !== undefined) return;
    await this.#store(() => this.#reader.push(piece));
    if (this.#refusal !== undefined) await this.abort();
  }

  /**
   * The whole image, judged by its header bytes where it is stored.
   * @throws ContractError INVALID_IMAGE_SOURCE, IMAGE_TOO_LARGE, UNSUPPORTED_IMAGE_FORMAT,
   * IMAGE_RESOLUTION_TOO_LARGE
   */
  async finish(): Promise<FinishedUpload> {
    await this.#store(() => this.#reader.finish());
    if (this.#refusal !== undefined) throw this.#refusal;
    await this.#storing(() => this.#flush());
    const image = this.#unstored ?? (await this.#judge());
    return { sha256: this.#hash.digest('hex'), image };
  }

  async #judge(): Promise<UploadedImage> {
    const writer = this.#writer;
    if (writer === undefined) throw new Error('an upload without bytes passed its decoder');
    const header = await requireAcceptableImage(
      (offset, length) => writer.readAt(offset, length),
      writer.bytesWritten,
      this.#role,
    );
    return {
      blob: this.#blob,
      bytes: writer.bytesWritten,
      format: header.format,
      width: header.width ?? null,
      height: header.height ?? null,
    };
  }

  /** Durable under its name once it resolves. Only after `finish`. */
  async commit(): Promise<void> {
    if (this.#writer === undefined)
      throw new Error('an upload was committed that was not finished');
    await this.#writer.commit();
    this.#forget();
    this.#place.closed();
  }

  /** Removes what was written. After commit, and a second time, does nothing. */
  async abort(): Promise<void> {
    const writer = this.#writer;
    if (writer === undefined) return;
    this.#forget();
    try {
      await writer.abort();
    } finally {
      this.#place.closed();
    }
  }

  async #store(decode: () => Uint8Array): Promise<void> {
    const bytes = this.#decode(decode);
    if (this.#reader.decodedBytes > this.#role.bytesMax) throw imageTooLarge(this.#role);
    if (bytes === undefined || bytes.length === 0) return;
    this.#hash.update(bytes);
    await this.#storing(() => this.#gather(bytes));
  }

  async #gather(bytes: Uint8Array): Promise<void> {
    this.#writer ??= await this.#place.openWriter(this.#blob);
    this.#gathered ??= Buffer.allocUnsafe(WRITE_BYTES);
    let taken = 0;
    while (taken < bytes.length) {
      const piece = bytes.subarray(taken, taken + WRITE_BYTES - this.#gatheredBytes);
      this.#gathered.set(piece, this.#gatheredBytes);
      this.#gatheredBytes += piece.length;
      taken += piece.length;
      if (this.#gatheredBytes === WRITE_BYTES) await this.#flush();
    }
  }

  async #storing(work: () => Promise<void>): Promise<void> {
    if (this.#unstored !== undefined) return;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE')) throw error;
      this.#unstored = error;
      await this.abort();
    }
  }

  async #flush(): Promise<void> {
    const bytes = this.#gathered?.subarray(0, this.#gatheredBytes);
    this.#gatheredBytes = 0;
    if (bytes !== undefined && bytes.length > 0) await this.#writer?.write(bytes);
  }

  #decode(decode: () => Uint8Array): Uint8Array | undefined {
    if (this.#refusal !== undefined) return undefined;
    try {
      return decode();
    } catch (error) {
      if (!(error instanceof ContractError)) throw error;
      this.#refusal = error;
      return undefined;
    }
  }

  #forget(): void {
    this.#writer = undefined;
    this.#gathered = undefined;
    this.#gatheredBytes = 0;
  }
}

/* Bytes that are the file itself: what the Base64 reader is to text, without anything to decode. */

export class RawBytes {
  readonly #field: string | undefined;
  #decodedBytes = 0;

  /** @param field the request's field, for the error's `errors[]`; absent: the whole body. */
  constructor(field?: string) {
    this.#field = field;
  }

  get decodedBytes(): number {
    return this.#decodedBytes;
  }

  /** The same bytes, not copied. */
  push(chunk: Uint8Array): Uint8Array {
    this.#decodedBytes += chunk.length;
    return chunk;
  }

  /** Nothing is held back. @throws ContractError INVALID_IMAGE_SOURCE: there was none */
  finish(): Uint8Array {
    if (this.#decodedBytes > 0) return Buffer.alloc(0);
    const detail = `${this.#field ?? 'the body'} is empty`;
    const fieldErrors: FieldError[] =
      this.#field === undefined ? [] : [{ field: this.#field, detail: 'the file is empty' }];
    throw new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
  }
}
