/**
 * Reads a JSON-RPC message as it arrives. The first long text is unescaped into the upload, so a
 * picture costs the memory of a chunk. The rest is small, and is parsed at the end with an empty
 * text in place of each long one.
 *
 * | state | expects                                       | then                        |
 * |-------|-----------------------------------------------|-----------------------------|
 * | plain | bytes outside strings, up to an opening `"`   | text                        |
 * | text  | the rest of a string                          | plain; long, if it is long  |
 * | long  | the rest of a string, for the upload          | plain                       |
 */
import type { Readable } from 'node:stream';
import type { RequestUploads } from '@matting/core/submission/image-uploads.ts';
import { readBody } from '@matting/http/bodies.ts';
import { malformed } from '@matting/http/body-fields.ts';
import { JsonImageText } from '@matting/http/json-fields.ts';
import { KeptBytes } from '@matting/http/kept-bytes.ts';
import type { HeldRoom } from '@matting/program/held-bytes.ts';
import { HINT_LIST_BYTES_MAX } from '@matting/proto/contract/hints-fields.ts';
import { REQUEST_BODY_BYTES_MAX } from '@matting/proto/contract/limits.ts';

const MESSAGE_BYTES_MAX = 2 * HINT_LIST_BYTES_MAX + 64 * 1024;
/**
 * Most strings of a message, with the names of its members. 320 KiB of names block the event loop
 * for 100 ms, as many bytes of numbers for 6 ms.
 */
const TEXTS_MAX = 2048;
/** Measured before unescaping. Enough for the longest URL with every character escaped. */
export const TEXT_BYTES_MAX = 16 * 1024;
/** A call with image_url has a few hundred bytes. */
export const SMALL_MESSAGE_BYTES_MAX = 16 * 1024;
/** From the headers to the last byte, as for a form. */
const SMALL_MESSAGE_MS_MAX = 5000;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

interface ReadMessage {
  readonly message: unknown;
  /** The number of texts over TEXT_BYTES_MAX. The upload takes the first. */
  readonly longTexts: number;
}

/**
 * @param admitLarge runs once, when more than SMALL_MESSAGE_BYTES_MAX came
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, SERVICE_UNAVAILABLE; that of `admitLarge`
 */
export async function readMessage(
  body: Readable,
  { image, texts }: Pick<RequestUploads, 'image' | 'texts'>,
  { isLarge, admitLarge }: { readonly isLarge: boolean; readonly admitLarge: () => Promise<void> },
): Promise<ReadMessage> {
  const reader = new MessageReader(piece => image.write(piece), texts);
  const bounds = {
    bytesMax: REQUEST_BODY_BYTES_MAX,
    ...(!isLarge && {
      wholeMsMax: SMALL_MESSAGE_MS_MAX,
      smallBytesMax: SMALL_MESSAGE_BYTES_MAX,
    }),
  };
  let receivedBytes = 0;
  await readBody(body, bounds, async chunk => {
    const wasSmall = receivedBytes <= SMALL_MESSAGE_BYTES_MAX;
    receivedBytes += chunk.length;
    if (wasSmall && receivedBytes > SMALL_MESSAGE_BYTES_MAX) await admitLarge();
    await reader.push(chunk);
  });
  return reader.finish();
}

export class MessageReader {
  readonly #write: (piece: Buffer) => Promise<void>;
  readonly #long = new JsonImageText('image_base64');
  readonly #kept: KeptBytes;
  #state: 'plain' | 'text' | 'long' = 'plain';
  #textAt = 0;
  #escaped = false;
  #texts = 0;
  #longTexts = 0;

  /**
   * @param write may keep the piece only until it resolves
   * @param room holds all but the long texts
   */
  constructor(write: (piece: Buffer) => Promise<void>, room: HeldRoom) {
    this.#write = write;
    this.#kept = new KeptBytes(MESSAGE_BYTES_MAX, room);
  }

  async push(chunk: Buffer): Promise<void> {
    let at = 0;
    while (at < chunk.length) {
      if (this.#state === 'plain') at = this.#takePlain(chunk, at);
      else if (this.#state === 'text') at = await this.#takeText(chunk, at);
      else at = await this.#takeLong(chunk, at);
    }
  }

  finish(): ReadMessage {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    let message: unknown;
    try {
      message = JSON.parse(text.decode(this.#kept.view()));
    } catch {
      message = null;
    }
    return { message, longTexts: this.#longTexts };
  }

  #keep(bytes: Buffer, from: number, end: number): void {
    if (this.#kept.append(bytes, from, end)) return;
    throw malformed(
      `The message without image_base64 is too long. The limit is ${MESSAGE_BYTES_MAX} bytes.`,
    );
  }

  #takePlain(chunk: Buffer, from: number): number {
    const quote = chunk.indexOf(QUOTE, from);
    const end = quote === -1 ? chunk.length : quote + 1;
    this.#keep(chunk, from, end);
    if (quote !== -1) {
      this.#state = 'text';
      this.#texts += 1;
      if (this.#texts > TEXTS_MAX) {
        throw malformed(`The message has too many strings. The limit is ${TEXTS_MAX}.`);
      }
    }
    this.#textAt = this.#kept.length;
    return end;
  }

  async #takeText(chunk: Buffer, from: number): Promise<number> {
    const left = TEXT_BYTES_MAX - (this.#kept.length - this.#textAt);
    const limit = Math.min(chunk.length, from + left);
    let end = from;
    for (; end < limit; end += 1) {
      const byte = chunk[end];
      if (this.#escaped) this.#escaped = false;
      else if (byte === BACKSLASH) this.#escaped = true;
      else if (byte === QUOTE) break;
    }
    if (end < limit) {
      this.#state = 'plain';
      end += 1;
    }
    this.#keep(chunk, from, end);
    if (this.#state === 'text' && end - from === left) await this.#beginLong();
    return end;
  }

  /** The kept bytes of the text are the picture's first piece. */
  async #beginLong(): Promise<void> {
    const begun = this.#kept.view(this.#textAt);
    this.#kept.truncate(this.#textAt);
    this.#escaped = false;
    this.#state = 'long';
    this.#longTexts += 1;
    await this.#takeLong(begun, 0);
  }

  async #takeLong(chunk: Buffer, from: number): Promise<number> {
    const { text, next, ended } = this.#long.take(chunk, from);
    if (this.#longTexts === 1 && text.length > 0) await this.#write(text);
    if (ended) {
      this.#state = 'plain';
      this.#keep(chunk, next - 1, next);
    }
    return next;
  }
}
