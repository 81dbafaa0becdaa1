import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { HeldBytes, type HeldRoom, type Holding } from '@matting/program/held-bytes.ts';
import { Semaphore, type SemaphoreOptions } from '@matting/program/semaphore.ts';
import { unavailable } from '@matting/proto/contract/errors.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import { BACKGROUND_IMAGE, HINTS_IMAGE, INPUT_IMAGE } from '../jobs/acceptable-image.ts';
import { backgroundBlob, hintsBlob } from '../jobs/blob-names.ts';
import { ImageUpload } from './image-upload.ts';
import { UploadSlot } from './upload-slot.ts';

/** Uploads of up to three files, 19 GB of disk together (docs/limits.md). */
export const UPLOADS_MAX = 256;
/** A waiting request holds one chunk of its body. */
export const UPLOADS_WAITING_MAX = 1024;
/** Far below the timeouts of callers and proxies. */
const WAIT_MS = 10_000;
const BUSY_RETRY_AFTER_S = 5;
/**
 * Texts of all requests: fields of a submission, items of a batch, messages to /mcp. Most requests
 * keep a few hundred bytes.
 */
export const TEXT_BYTES_MAX = 32 * 1024 * 1024;

export type UploadBounds = Partial<Omit<SemaphoreOptions, 'refusal'>> & {
  readonly textBytesMax?: number;
};

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
        unavailable(
          'Too many requests with long texts arrive at once. Send the same request again later.',
          BUSY_RETRY_AFTER_S,
        ),
    });
    this.#slots = new Semaphore({
      max: UPLOADS_MAX,
      waitingMax: UPLOADS_WAITING_MAX,
      waitMs: WAIT_MS,
      refusal: () =>
        unavailable(
          'Too many uploads arrive at once. Send the same request again later.',
          BUSY_RETRY_AFTER_S,
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

  get textBytes(): number {
    return this.#texts.held;
  }

  /** For a request without a file. The caller ends the holding. */
  beginTexts(accountId: string): Holding {
    return this.#texts.begin(accountId);
  }

  /**
   * The uploads share one slot, taken with the first piece.
   * @param body not read while they wait for the slot
   */
  beginBoth(accountId: string, body?: IncomingMessage): RequestUploads {
    const slot = new UploadSlot(this.#blobs, this.#slots, { accountId, body });
    const texts = this.beginTexts(accountId);
    const jobId = randomUUID();
    const image = new ImageUpload(slot, INPUT_IMAGE, jobId, `inputs/${jobId}`);
    const background = new ImageUpload(slot, BACKGROUND_IMAGE, jobId, backgroundBlob(jobId));
    const hints = new ImageUpload(slot, HINTS_IMAGE, jobId, hintsBlob(jobId));
    const end = async () => {
      texts.end();
      await Promise.all([image.abort(), background.abort(), hints.abort()]);
    };
    return { image, background, hints, texts, end };
  }
}

export interface RequestUploads {
  readonly image: ImageUpload;
  readonly background: ImageUpload;
  readonly hints: ImageUpload;
  readonly texts: HeldRoom;
  /** Removes what was not committed, and releases slot and memory. */
  end(): Promise<void>;
}
