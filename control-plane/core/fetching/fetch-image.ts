import {
  FetchFailedError,
  FetchTooLargeError,
  type GuardedFetch,
} from '@matting/http/outgoing/guarded-fetch.ts';
import { ForbiddenUrlError } from '@matting/http/outgoing/outgoing-url.ts';
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import type { BlobWriter } from '@matting/storage/blob-store.ts';
import {
  BACKGROUND_IMAGE,
  type ImageRole,
  INPUT_IMAGE,
  imageTooLarge,
  requireAcceptableImage,
  SEND_ITSELF,
} from '../jobs/acceptable-image.ts';

interface FetchImageOptions {
  readonly accountId: string;
  readonly writer: BlobWriter;
  /** The fetch rejects with its reason. */
  readonly signal: AbortSignal;
  readonly kind?: 'image' | 'background';
}

function toContractError(error: unknown, role: ImageRole): unknown {
  if (error instanceof FetchTooLargeError) return imageTooLarge(role);
  const isBackground = role === BACKGROUND_IMAGE;
  if (error instanceof ForbiddenUrlError) {
    const { message } = error;
    if (isBackground) return invalidParameter('background_url', `is not usable: ${message}`);
    const detail = `image_url is not usable: ${message}. ${SEND_ITSELF}`;
    return new ContractError('INVALID_IMAGE_SOURCE', detail, { cause: error });
  }
  if (error instanceof FetchFailedError) {
    const { retryable, message } = error;
    const detail = `${isBackground ? 'background_url' : 'image_url'}: ${message}.`;
    return new ContractError('IMAGE_DOWNLOAD_FAILED', detail, { cause: error, retryable });
  }
  return error;
}

export class ImageFetcher {
  readonly #guardedFetch: GuardedFetch;

  constructor(guardedFetch: GuardedFetch) {
    this.#guardedFetch = guardedFetch;
  }

  /** Streams the file into the writer and checks its header. @throws ContractError */
  async fetchImage(url: string, options: FetchImageOptions) {
    const { writer, accountId, signal, kind = 'image' } = options;
    const role = kind === 'image' ? INPUT_IMAGE : BACKGROUND_IMAGE;
    const { bytesMax } = role;
    const contentType = await this.#guardedFetch
      .get(url, { accountId, signal, bytesMax }, async response => {
        for await (const piece of response.body) await writer.write(piece);
        return response.contentType;
      })
      .catch(error => {
        throw toContractError(error, role);
      });
    const bytes = writer.bytesWritten;
    const header = await requireAcceptableImage(
      (offset, length) => writer.readAt(offset, length),
      bytes,
      role,
      contentType,
    );
    return { bytes, header };
  }
}
