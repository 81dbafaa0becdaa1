/** The uploads of all requests: how many at once, and what they keep of their texts. */

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

/** Requests received at once; 19 GB of disk for three files each. docs/limits.md adds their bytes up. */
export const UPLOADS_MAX = 256;
/** Each holds a chunk of its body, and no more of it is read meanwhile. */
export const UPLOADS_WAITING_MAX = 1024;
/** The wait is far below that of callers and proxies. */
const WAIT_MS = 10_000;
const BUSY_RETRY_AFTER_S = 5;
/**
 * All requests together keep so much of their texts: fields of a submission, items of a batch,
 * messages to /mcp. Most keep a few hundred bytes, and for no longer than it takes to read them.
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

  /** Bytes of texts that are kept now. */
  get textBytes(): number {
    return this.#texts.held;
  }

  /** The room for the texts of a request without a file. Its caller ends it. */
  beginTexts(accountId: string): Holding {
    return this.#texts.begin(accountId);
  }

  /**
   * Both share one slot, and take neither it nor a file before a first piece.
   * @param body is not read on while they wait for the slot; absent: it is
   */
  beginBoth(accountId: string, body?: IncomingMessage): RequestUploads {
    const place = new UploadSlot(this.#blobs, this.#slots, { accountId, body });
    const texts = this.beginTexts(accountId);
    // The id comes before the first byte: a blob has its name from its beginning.
    const jobId = randomUUID();
    const image = new ImageUpload(place, INPUT_IMAGE, jobId, `inputs/${jobId}`);
    const background = new ImageUpload(place, BACKGROUND_IMAGE, jobId, backgroundBlob(jobId));
    const hints = new ImageUpload(place, HINTS_IMAGE, jobId, hintsBlob(jobId));
    const end = async () => {
      texts.end();
      await Promise.all([image.abort(), background.abort(), hints.abort()]);
    };
    return { image, background, hints, texts, end };
  }
}

/** One request brings these uploads. */
export interface RequestUploads {
  readonly image: ImageUpload;
  readonly background: ImageUpload;
  readonly hints: ImageUpload;
  /** The room is for the texts beside them. */
  readonly texts: HeldRoom;
  /** Removes what was stored and not committed, and gives back all room. */
  end(): Promise<void>;
}
