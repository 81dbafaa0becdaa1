/** Downloads an image into the blob store, with the contract's checks and error codes. */
import { createHash } from 'node:crypto';
import { ContractError } from '#contract/errors.ts';
import type { ImageHeader } from '#contract/image-header.ts';
import { IMAGE_BYTES_MAX } from '#contract/limits.ts';
import type { BlobWriter } from '../storage/blob-store.ts';
import { imageTooLarge, requireAcceptableImage } from './acceptable-image.ts';
import {
  type FetchedResponse,
  FetchFailedError,
  type GuardedFetch,
} from './guard/guarded-fetch.ts';
import { ForbiddenUrlError } from './guard/outgoing-url.ts';

export interface FetchedImage {
  readonly bytes: number;
  /** SHA-256 of the file, hexadecimal. */
  readonly sha256: string;
  readonly header: ImageHeader;
}

export interface FetchImageOptions {
  /** The account that asks. */
  readonly accountId: string;
  /** The caller commits or aborts it. */
  readonly writer: BlobWriter;
  /** Its reason is what the fetch rejects with. */
  readonly signal: AbortSignal;
}

/**
 * The bound is held while the bytes come; a Content-Length over it ends the transfer at once.
 * @returns SHA-256, hexadecimal
 */
async function receive(response: FetchedResponse, writer: BlobWriter): Promise<string> {
  if (response.declaredBytes !== undefined && response.declaredBytes > IMAGE_BYTES_MAX) {
    throw imageTooLarge();
  }
  const hash = createHash('sha256');
  for await (const chunk of response.body) {
    if (writer.bytesWritten + chunk.length > IMAGE_BYTES_MAX) throw imageTooLarge();
    hash.update(chunk);
    await writer.write(chunk);
  }
  return hash.digest('hex');
}

function toContractError(error: unknown): unknown {
  if (error instanceof ForbiddenUrlError) {
    const detail = `the image's URL is not usable: ${error.message}`;
    return new ContractError('INVALID_IMAGE_SOURCE', detail, { cause: error });
  }
  if (error instanceof FetchFailedError) {
    const { retryable, message } = error;
    return new ContractError('IMAGE_DOWNLOAD_FAILED', message, { cause: error, retryable });
  }
  return error;
}

export class ImageFetcher {
  readonly #guardedFetch: GuardedFetch;

  constructor(guardedFetch: GuardedFetch) {
    this.#guardedFetch = guardedFetch;
  }

  /**
   * Streams the file into the writer and checks its header. Rejects with INVALID_IMAGE_SOURCE (the
   * URL, a redirect or an address is forbidden), IMAGE_DOWNLOAD_FAILED (`retryable` by its cause),
   * IMAGE_TOO_LARGE, UNSUPPORTED_IMAGE_FORMAT, IMAGE_RESOLUTION_TOO_LARGE, what the writer throws,
   * or the signal's reason.
   */
  async fetchImage(url: string, options: FetchImageOptions): Promise<FetchedImage> {
    const { writer, accountId, signal } = options;
    const sha256 = await this.#guardedFetch
      .get(url, { accountId, signal }, response => receive(response, writer))
      .catch(error => {
        throw toContractError(error);
      });
    const bytes = writer.bytesWritten;
    const header = await requireAcceptableImage(
      (offset, length) => writer.readAt(offset, length),
      bytes,
    );
    return { bytes, sha256, header };
  }
}
