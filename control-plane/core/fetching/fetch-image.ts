/** Downloads an image into the blob store, with the contract's checks and error codes. */
import { ContractError, invalidParameter } from '#contract/errors.ts';
import type { BlobWriter } from '../storage/blob-store.ts';
import {
  BACKGROUND_IMAGE,
  type ImageRole,
  INPUT_IMAGE,
  imageTooLarge,
  requireAcceptableImage,
} from '../submission/acceptable-image.ts';
import { type FetchedResponse, FetchFailedError, type GuardedFetch } from './guarded-fetch.ts';
import { ForbiddenUrlError } from './outgoing-url.ts';

export interface FetchImageOptions {
  /** The account that asks. */
  readonly accountId: string;
  /** The caller commits or aborts it. */
  readonly writer: BlobWriter;
  /** Its reason is what the fetch rejects with. */
  readonly signal: AbortSignal;
  /** What the picture is for; image where absent. */
  readonly kind?: 'image' | 'background';
}

/** The bound is held while the bytes come; a Content-Length over it ends the transfer at once. */
async function receive(
  response: FetchedResponse,
  writer: BlobWriter,
  role: ImageRole,
): Promise<void> {
  if (response.declaredBytes !== undefined && response.declaredBytes > role.bytesMax) {
    throw imageTooLarge(role);
  }
  for await (const chunk of response.body) {
    if (writer.bytesWritten + chunk.length > role.bytesMax) throw imageTooLarge(role);
    await writer.write(chunk);
  }
}

function toContractError(error: unknown, role: ImageRole): unknown {
  const isBackground = role === BACKGROUND_IMAGE;
  if (error instanceof ForbiddenUrlError) {
    const { message } = error;
    if (isBackground) return invalidParameter('background_url', `is not usable: ${message}`);
    const detail = `the image's URL is not usable: ${message}`;
    return new ContractError('INVALID_IMAGE_SOURCE', detail, { cause: error });
  }
  if (error instanceof FetchFailedError) {
    const { retryable, message } = error;
    const detail = isBackground ? `background_url: ${message}` : message;
    return new ContractError('IMAGE_DOWNLOAD_FAILED', detail, { cause: error, retryable });
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
   * URL, a redirect or an address is forbidden; INVALID_PARAMETER for a background), IMAGE_DOWNLOAD_FAILED (`retryable` by its cause),
   * IMAGE_TOO_LARGE, UNSUPPORTED_IMAGE_FORMAT, IMAGE_RESOLUTION_TOO_LARGE, what the writer throws,
   * or the signal's reason.
   */
  async fetchImage(url: string, options: FetchImageOptions) {
    const { writer, accountId, signal, kind = 'image' } = options;
    const role = kind === 'image' ? INPUT_IMAGE : BACKGROUND_IMAGE;
    await this.#guardedFetch
      .get(url, { accountId, signal }, response => receive(response, writer, role))
      .catch(error => {
        throw toContractError(error, role);
      });
    const bytes = writer.bytesWritten;
    const header = await requireAcceptableImage(
      (offset, length) => writer.readAt(offset, length),
      bytes,
      role,
    );
    return { bytes, header };
  }
}
