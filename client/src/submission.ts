/** A request as it is sent: made once, so that every retry sends the same. */
import { MattingError } from './errors.ts';
import { collect } from './result-file.ts';
import type { ImageBytes, ImageSource, MattingFields } from './types.ts';

/** The service's bound on an image file. */
export const IMAGE_BYTES_MAX = 52_428_800;
/** Bytes that become text at once: arguments of a function are bounded. */
const TEXT_BYTES = 0x8000;

export interface MattingRequest extends MattingFields {
  readonly image: ImageSource;
}

export interface Submission {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** @throws MattingError IMAGE_TOO_LARGE, and whatever a stream is broken off with. */
export async function prepare({ image, ...fields }: MattingRequest): Promise<Submission> {
  const source =
    typeof image === 'string' || image instanceof URL
      ? { image_url: String(image) }
      : { image_base64: base64Of(await bytesOf(image)) };
  return {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...source, ...fields }),
  };
}

async function bytesOf(image: ImageBytes): Promise<Uint8Array> {
  if (image instanceof ArrayBuffer) return bytesOf(new Uint8Array(image));
  if (image instanceof Blob) {
    requireSize(image.size);
    return new Uint8Array(await image.arrayBuffer());
  }
  if (image instanceof Uint8Array) {
    requireSize(image.byteLength);
    return image;
  }
  if ('getReader' in image) return collect(piecesOf(image), IMAGE_BYTES_MAX);
  return collect(image, IMAGE_BYTES_MAX);
}

function requireSize(bytes: number): void {
  if (bytes <= IMAGE_BYTES_MAX) return;
  const parts = { code: 'IMAGE_TOO_LARGE', retryable: false };
  throw new MattingError(`the image has more than ${IMAGE_BYTES_MAX} bytes`, parts);
}

/** Not every runtime's streams can be iterated over. */
async function* piecesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      ended = done;
      if (done) return;
      yield value;
    }
  } finally {
    if (!ended) await reader.cancel();
  }
}

function base64Of(bytes: Uint8Array): string {
  const texts: string[] = [];
  for (let at = 0; at < bytes.byteLength; at += TEXT_BYTES) {
    texts.push(String.fromCharCode(...bytes.subarray(at, at + TEXT_BYTES)));
  }
  return btoa(texts.join(''));
}
