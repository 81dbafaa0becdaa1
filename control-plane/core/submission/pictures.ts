/**
 * The pictures of a submission: received, judged, stored, and what of them tells a request apart.
 * One that is sent is decoded, hashed and written while it arrives, so that its size costs no
 * memory. Without a free slot or disk space it is still hashed: a join or a replay needs only that.
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

import { createHash, type Hash, hash, randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { Base64Decoder, holdBody } from '@matting/http/bodies.ts';
import { KeptBytes } from '@matting/http/kept-bytes.ts';
import { HeldBytes, type HeldRoom, UNCOUNTED } from '@matting/program/held-bytes.ts';
import { type Release, Semaphore, type SemaphoreOptions } from '@matting/program/semaphore.ts';
import { ContractError, type FieldError } from '@matting/proto/contract/errors.ts';
import { frameRange, requireFrame } from '@matting/proto/contract/finishing/frame.ts';
import type { Channels, Finishing } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import {
  type ByteReader,
  describeUnread,
  type ImageHeader,
  readImageHeader,
} from '@matting/proto/contract/image-header.ts';
import {
  BACKGROUND_BYTES_MAX,
  BACKGROUND_PIXELS_MAX,
  IMAGE_BYTES_MAX,
  IMAGE_PIXELS_MAX,
  IMAGE_SIDE_PX_MAX,
} from '@matting/proto/contract/limits.ts';
import { sizeOf } from '../dispatch/job-needs.ts';
import { backgroundBlob, type JobInput } from '../jobs/job.ts';
import type { NewJob } from '../jobs/job-transactions.ts';
import type { BlobStore, BlobWriter } from '../storage/blob-store.ts';

/**
 * Gathered before writing, for one picture of a request at a time: 400 KB took 2.2 ms in 9 pieces,
 * 1.6 ms in 2 (2 cores, AMD EPYC).
 */
export const WRITE_BYTES = 256 * 1024;

/** Requests received at once; 16 GB of disk for two files each. docs/limits.md adds their bytes up. */
export const UPLOADS_MAX = 256;
/** Each holds a chunk of its body, and no more of it is read meanwhile. */
export const UPLOADS_WAITING_MAX = 1024;
/** Far below what callers and proxies wait. */
const WAIT_MS = 10_000;
const BUSY_RETRY_AFTER_S = 5;
/**
 * What all requests keep of their texts: fields of a submission, messages to /mcp. Most keep a few
 * hundred bytes, and for no longer than it takes to read them.
 */
export const TEXT_BYTES_MAX = 32 * 1024 * 1024;

export type UploadBounds = Partial<Omit<SemaphoreOptions, 'refusal'>> & {
  readonly textBytesMax?: number;
};

interface FinishedUpload {
  readonly sha256: string;
  /** What may be committed; or why there is nothing to commit: SERVICE_UNAVAILABLE. */
  readonly image: JobInput | ContractError;
}

export class ImageUploads {
  readonly #blobs: Pick<BlobStore, 'createWriter'>;
  readonly #slots: Semaphore;
  readonly #texts: HeldBytes;

  constructor(
    blobs: Pick<BlobStore, 'createWriter'>,
    { textBytesMax = TEXT_BYTES_MAX, ...bounds }: UploadBounds = {},
  ) {
    this.#blobs = blobs;
    this.#texts = new HeldBytes({
      bytesMax: textBytesMax,
      refusal: () =>
        new ContractError(
          'SERVICE_UNAVAILABLE',
          'Too many requests with long texts arrive at once. Send the same request again later.',
          { retryAfterS: BUSY_RETRY_AFTER_S },
        ),
    });
    this.#slots = new Semaphore({
      max: UPLOADS_MAX,
      waitingMax: UPLOADS_WAITING_MAX,
      waitMs: WAIT_MS,
      refusal: () =>
        new ContractError(
          'SERVICE_UNAVAILABLE',
          'Too many uploads arrive at once. Send the same request again later.',
          {
            retryAfterS: BUSY_RETRY_AFTER_S,
          },
        ),
      ...bounds,
    });
  }

  get open(): number {
    return this.#slots.held;
  }

  get waiting(): number {
    return this.#slots.waiting;
  }

  /** Bytes of texts that are kept now. */
  get textBytes(): number {
    return this.#texts.held;
  }

  /**
   * They share one slot, and take neither it nor a file before a first piece.
   * @param body is not read on while they wait for the slot; absent: it is
   */
  beginBoth(accountId: string, body?: IncomingMessage): RequestUploads {
    const place = new UploadSlot(this.#blobs, this.#slots, { accountId, body });
    const texts = this.#texts.begin(accountId);
    // Before the first byte: a blob has its name from its beginning.
    const jobId = randomUUID();
    const image = new ImageUpload(place, INPUT_IMAGE, jobId, `inputs/${jobId}`);
    const background = new ImageUpload(place, BACKGROUND_IMAGE, jobId, backgroundBlob(jobId));
    const end = async () => {
      texts.end();
      await Promise.all([image.abort(), background.abort()]);
    };
    return { image, background, texts, end };
  }
}

/** What one request brings. */
export interface RequestUploads {
  readonly image: ImageUpload;
  readonly background: ImageUpload;
  /** For the texts beside them. */
  readonly texts: HeldRoom;
  /** Removes what was stored and not committed, and gives back all room. */
  end(): Promise<void>;
}

/** The slot of one request: one for each upload could leave two waiting for each other's. */
class UploadSlot {
  readonly #blobs: Pick<BlobStore, 'createWriter'>;
  readonly #slots: Semaphore;
  readonly #of: { readonly accountId: string; readonly body: IncomingMessage | undefined };
  #files = 0;
  #release: Release | undefined;
  /** The upload that has gathered something. */
  #gathering: ImageUpload | undefined;

  constructor(
    blobs: Pick<BlobStore, 'createWriter'>,
    slots: Semaphore,
    of: { readonly accountId: string; readonly body: IncomingMessage | undefined },
  ) {
    this.#blobs = blobs;
    this.#slots = slots;
    this.#of = of;
  }

  /** Of the two one gathers at a time: what the other has gathered is written first. */
  async gather(upload: ImageUpload): Promise<void> {
    const before = this.#gathering;
    this.#gathering = upload;
    if (before !== upload) await before?.writeGathered();
  }

  async #take(): Promise<Release> {
    const { accountId, body } = this.#of;
    const use = { key: accountId };
    if (body === undefined || this.#slots.mayEnter(use)) return await this.#slots.take(use);
    const goOn = holdBody(body);
    try {
      return await this.#slots.take(use);
    } finally {
      goOn();
    }
  }

  /** Each writer is to be closed once. @throws ContractError SERVICE_UNAVAILABLE */
  async openWriter(blob: string): Promise<BlobWriter> {
    if (this.#files === 0) this.#release = await this.#take();
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

type PieceReader = Pick<Base64Decoder, 'decodedBytes' | 'push' | 'finish'>;

export class ImageUpload {
  /** Of the job that this request may make: its blobs are named after it. */
  readonly jobId: string;
  readonly #blob: string;
  readonly #place: UploadSlot;
  readonly #role: ImageRole;
  readonly #hash: Hash = createHash('sha256');
  #reader: PieceReader = new Base64Decoder();
  #writer: BlobWriter | undefined;
  #gathered = new KeptBytes(WRITE_BYTES, UNCOUNTED);
  #refusal: ContractError | undefined;
  #unstored: ContractError | undefined;

  constructor(place: UploadSlot, role: ImageRole, jobId: string, blob: string) {
    this.jobId = jobId;
    this.#blob = blob;
    this.#place = place;
    this.#role = role;
  }

  /** Before the first piece. @param field the request's field, for errors; absent: the whole body */
  takeBytes(field?: string): void {
    this.#reader = new RawBytes(field);
  }

  /**
   * The piece may be written over once this resolves. Text that is no Base64 is remembered for
   * `finish`, since the body around it is judged first; size is not.
   * @throws ContractError IMAGE_TOO_LARGE
   */
  async write(piece: Uint8Array): Promise<void> {
    if (this.#refusal !== undefined) return;
    // Before anything is made of it: who waits for a slot holds the piece alone.
    if (piece.length > 0) await this.#storing(() => this.#open());
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
    await this.writeGathered();
    const image = this.#unstored ?? (await this.#judge());
    return { sha256: this.#hash.digest('hex'), image };
  }

  async #judge(): Promise<JobInput> {
    const writer = this.#writer;
    if (writer === undefined) throw new Error('an upload without bytes passed its decoder');
    const bytes = writer.bytesWritten;
    const read: ByteReader = (offset, length) => writer.readAt(offset, length);
    const header = await requireAcceptableImage(read, bytes, this.#role);
    const { format, width = null, height = null } = header;
    return { blob: this.#blob, bytes, format, width, height };
  }

  /** Durable under its name once it resolves. Only after `finish`. */
  async commit(): Promise<void> {
    if (this.#writer === undefined)
      throw new Error('an upload was committed that was not finished');
    await this.#writer.commit();
    this.#forget();
    this.#place.closed();
  }

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

  /** What it gathered goes to its file, and its memory to whoever gathers next. */
  async writeGathered(): Promise<void> {
    await this.#storing(() => this.#flush());
    this.#gathered = new KeptBytes(WRITE_BYTES, UNCOUNTED);
  }

  async #open(): Promise<void> {
    this.#writer ??= await this.#place.openWriter(this.#blob);
  }

  async #gather(bytes: Uint8Array): Promise<void> {
    await this.#open();
    await this.#place.gather(this);
    let taken = 0;
    while (taken < bytes.length) {
      const end = Math.min(bytes.length, taken + WRITE_BYTES - this.#gathered.length);
      this.#gathered.append(bytes, taken, end);
      taken = end;
      if (this.#gathered.length === WRITE_BYTES) await this.#flush();
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
    const bytes = this.#gathered.view();
    this.#gathered.truncate(0);
    if (bytes.length > 0) await this.#writer?.write(bytes);
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
    this.#gathered = new KeptBytes(WRITE_BYTES, UNCOUNTED);
  }
}

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

  push(chunk: Uint8Array): Uint8Array {
    this.#decodedBytes += chunk.length;
    return chunk;
  }

  /** Nothing is held back. @throws ContractError INVALID_IMAGE_SOURCE: there was none */
  finish(): Uint8Array {
    if (this.#decodedBytes > 0) return Buffer.alloc(0);
    const detail = `${this.#field ?? 'The body'} is empty. Send the bytes of an image.`;
    const fieldErrors: FieldError[] =
      this.#field === undefined ? [] : [{ field: this.#field, detail: 'is empty' }];
    throw new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
  }
}

export interface ImageRole {
  readonly noun: string;
  readonly bytesMax: number;
  readonly pixelsMax: number;
}

export const INPUT_IMAGE: ImageRole = {
  noun: 'The image',
  bytesMax: IMAGE_BYTES_MAX,
  pixelsMax: IMAGE_PIXELS_MAX,
};
export const BACKGROUND_IMAGE: ImageRole = {
  noun: 'The background',
  bytesMax: BACKGROUND_BYTES_MAX,
  pixelsMax: BACKGROUND_PIXELS_MAX,
};

/** What can be done about an address that is not for this service. */
export const SEND_ITSELF = 'Send the image itself, for example as image_base64.';
const ANIMATED = 'The image is animated. Send one frame of it, as PNG or JPEG.';
const MIB = 1_048_576;

export function imageTooLarge({ noun, bytesMax } = INPUT_IMAGE): ContractError {
  const limit = `${bytesMax / MIB} MiB (${bytesMax} bytes)`;
  const detail = `${noun} is too large. The limit is ${limit}.`;
  return new ContractError('IMAGE_TOO_LARGE', detail);
}

function requireResolution(width: number, height: number, { noun, pixelsMax }: ImageRole): void {
  const sideOk = width <= IMAGE_SIDE_PX_MAX && height <= IMAGE_SIDE_PX_MAX;
  if (sideOk && width * height <= pixelsMax) return;
  throw new ContractError(
    'IMAGE_RESOLUTION_TOO_LARGE',
    `${noun} is ${width}x${height} pixels. The limit is ${IMAGE_SIDE_PX_MAX} pixels per side ` +
      `and ${pixelsMax / 1e6} megapixels in all. Scale it down.`,
  );
}

/**
 * A known format whose dimensions cannot be read is accepted: its job finds out.
 * @param served of `describeUnread`
 */
export async function requireAcceptableImage(
  read: ByteReader,
  sizeBytes: number,
  role = INPUT_IMAGE,
  served?: string,
): Promise<ImageHeader> {
  if (sizeBytes > role.bytesMax) throw imageTooLarge(role);
  const header = await readImageHeader(read, sizeBytes);
  if (header === undefined) throw unsupported(role, await describeUnread(read, sizeBytes, served));
  if (header.animated) throw unsupported(role, ANIMATED);
  if (header.width !== undefined && header.height !== undefined) {
    requireResolution(header.width, header.height, role);
  }
  return header;
}

function unsupported(role: ImageRole, wrong: string): ContractError {
  const detail = role === INPUT_IMAGE ? wrong : `${role.noun} cannot be used. ${wrong}`;
  return new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
}

export interface SentPictures {
  readonly upload: ImageUpload;
  /** The same of `background_file`; absent where the form of the body can hold none. */
  readonly backgroundUpload?: ImageUpload;
}

type Picture = FinishedUpload | { readonly url: string };

export interface Pictures {
  readonly image: Picture;
  readonly background?: Picture;
}

interface PicturedRequest {
  readonly imageUrl: string | undefined;
  readonly backgroundUrl: string | undefined;
  readonly finishing: Finishing | undefined;
}

type AskedOfPictures = Omit<FingerprintedRequest, 'source' | 'background'>;

/** @throws ContractError as an upload's `finish`; INVALID_PARAMETER: too large a frame */
export async function finishPictures(
  { upload, backgroundUpload }: SentPictures,
  { imageUrl, backgroundUrl, finishing }: PicturedRequest,
  backgroundGiven: boolean,
): Promise<Pictures> {
  const image = imageUrl === undefined ? await upload.finish() : { url: imageUrl };
  const background =
    backgroundUrl === undefined
      ? backgroundGiven && (await backgroundUpload?.finish())
      : { url: backgroundUrl };
  const uploaded = uploadedOf(image);
  const size = uploaded && sizeOf(uploaded);
  if (finishing !== undefined && size !== undefined) {
    requireFrame(finishing, size, frameRange(finishing, size, { turned: true }).least);
  }
  return { image, ...(background ? { background } : {}) };
}

export function fingerprintOfPictures(
  request: AskedOfPictures,
  { image, background }: Pictures,
): string {
  return fingerprintOf({
    ...request,
    source: 'url' in image ? image : { imageSha256: image.sha256 },
    background,
  });
}

export function uploadedOf(picture: Picture): JobInput | undefined {
  if ('url' in picture || picture.image instanceof ContractError) return undefined;
  return picture.image;
}

/** undefined: there is none, or a URL. @throws ContractError SERVICE_UNAVAILABLE: not stored */
export function requireStored(picture: Picture | undefined): JobInput | undefined {
  if (picture === undefined || 'url' in picture) return undefined;
  if (picture.image instanceof ContractError) throw picture.image;
  return picture.image;
}

type Blobs = Pick<BlobStore, 'remove'>;

/** Durable before any answer names the job. */
export async function commitPictures(
  blobs: Blobs,
  job: NewJob,
  { upload, backgroundUpload }: SentPictures,
): Promise<void> {
  if (job.input !== null) await upload.commit();
  if (job.background?.input == null) return;
  try {
    await backgroundUpload?.commit();
  } catch (error) {
    if (job.input !== null) await blobs.remove(job.input.blob);
    throw error;
  }
}

export async function removePictures(blobs: Blobs, { input, background }: NewJob): Promise<void> {
  if (input !== null) await blobs.remove(input.blob);
  if (background?.input) await blobs.remove(background.input.blob);
}

export interface FingerprintedRequest {
  /** SHA-256 of the decoded bytes, hexadecimal; or the URL's text as it was sent. */
  readonly source: { readonly imageSha256: string } | { readonly url: string };
  readonly outputFormat: OutputFormat;
  readonly channels?: Channels | undefined;
  /** Absent, or empty: nothing that could change the fingerprint. */
  readonly finishing?: Finishing | undefined;
  readonly background?: { readonly sha256: string } | { readonly url: string } | undefined;
  readonly model?: string | undefined;
  readonly noSubject?: 'fail' | undefined;
  readonly callback: { readonly url: string; readonly secret: string } | undefined;
}

/**
 * SHA-256, hexadecimal, over the fields that are there, each as `tag:length in bytes:value` and a
 * new line, so that no two different requests make the same text. What a later release adds is
 * there only where it is asked for, so that a repetition is known across an upgrade.
 */
export function fingerprintOf(request: FingerprintedRequest): string {
  const { source, outputFormat, channels = 'rgba', finishing = {}, background } = request;
  const { model, noSubject, callback } = request;
  const fields: [tag: string, value: string][] = [
    'url' in source ? ['image_url', source.url] : ['image_sha256', source.imageSha256],
    ['output_format', outputFormat],
  ];
  if (channels !== 'rgba') fields.push(['channels', channels]);
  if (Object.keys(finishing).length > 0) fields.push(['finishing', canonicalText(finishing)]);
  if (background !== undefined) {
    fields.push(
      'url' in background
        ? ['background_url', background.url]
        : ['background_sha256', background.sha256],
    );
  }
  if (model !== undefined) fields.push(['model', model]);
  if (noSubject !== undefined) fields.push(['no_subject', noSubject]);
  if (callback !== undefined) {
    fields.push(['callback_url', callback.url]);
    fields.push(['callback_secret_sha256', sha256(callback.secret)]);
  }
  return sha256(
    fields.map(([tag, value]) => `${tag}:${Buffer.byteLength(value)}:${value}\n`).join(''),
  );
}

function canonicalText(value: Finishing): string {
  return JSON.stringify(value, (_name, part: unknown) =>
    typeof part === 'object' && part !== null
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}

export function idempotencyKeyHash(idempotencyKey: string): string {
  return sha256(idempotencyKey);
}

/** For a request without a key: a hash that no caller's key has, since line ends are in none. */
export function derivedKeyHash(namespace: string, apiKeyId: string, fingerprint: string): string {
  return sha256(`derived\n${namespace}\n${apiKeyId}\n${fingerprint}\n`);
}

function sha256(text: string): string {
  return hash('sha256', text, 'hex');
}
