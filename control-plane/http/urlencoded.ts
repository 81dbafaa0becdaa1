import { UNCOUNTED } from '@matting/program/held-bytes.ts';
import { FIELDS_MAX, malformed, shownName, tooManyFields } from './body-fields.ts';
import { KeptBytes } from './kept-bytes.ts';
import type { PartEvent } from './multipart.ts';

export const NOT_HEX = 16;

/** A table, since a body can be all escapes. */
export const HEX_VALUES = new Uint8Array(256).fill(NOT_HEX);
for (let value = 0; value < 16; value += 1) {
  const digit = value.toString(16);
  HEX_VALUES[digit.charCodeAt(0)] = value;
  HEX_VALUES[digit.toUpperCase().charCodeAt(0)] = value;
}

const NAME_BYTES_MAX = 256;

const AMPERSAND = 0x26;
const EQUALS = 0x3d;
const PERCENT = 0x25;
const PLUS = 0x2b;
const SPACE = 0x20;
const UTF8 = new TextDecoder('utf-8', { fatal: true });

/**
 * A streaming reader for application/x-www-form-urlencoded (WHATWG URL, section 5.1): a picture in
 * Base64 may be as long as the body. A plain `+` means a space here, so it refuses `+` in Base64.
 *
 * | state | expects                            | then        |
 * |-------|------------------------------------|-------------|
 * | name  | bytes, `=`; or `&`: an empty value | value; name |
 * | value | bytes, `&`                         | name        |
 */
export class UrlencodedReader {
  readonly #base64Field: string;
  readonly #name = new KeptBytes(NAME_BYTES_MAX, UNCOUNTED);
  #state: 'name' | 'value' = 'name';
  #isBase64 = false;
  #field = '';
  /** Including empty pairs. */
  #pairs = 1;
  /** Bytes that the current escape still needs. */
  #escapeLeft = 0;
  #escapeValue = 0;

  constructor(base64Field: string) {
    this.#base64Field = base64Field;
  }

  /**
   * Yields the events of this chunk. Process each event before you take the next.
   * @throws ContractError INVALID_REQUEST
   */
  *push(chunk: Buffer): Generator<PartEvent, void, void> {
    let at = 0;
    while (at < chunk.length) {
      const ampersand = chunk.indexOf(AMPERSAND, at);
      const pairEnd = ampersand === -1 ? chunk.length : ampersand;
      if (this.#state === 'name') {
        const equals = chunk.subarray(at, pairEnd).indexOf(EQUALS);
        const nameEnd = equals === -1 ? pairEnd : at + equals;
        this.#takeName(this.#decoded(chunk.subarray(at, nameEnd)));
        at = nameEnd;
        if (equals !== -1) {
          yield this.#head();
          at += 1;
        }
      } else {
        const bytes = this.#decoded(chunk.subarray(at, pairEnd));
        if (bytes.length > 0) yield { kind: 'data', bytes };
        at = pairEnd;
      }
      if (at === ampersand) {
        yield* this.#endPair();
        at += 1;
        this.#pairs += 1;
        if (this.#pairs > FIELDS_MAX) throw tooManyFields('The body');
      }
    }
  }

  *finish(): Generator<PartEvent, void, void> {
    yield* this.#endPair();
  }

  #takeName(bytes: Buffer): void {
    if (this.#name.append(bytes)) return;
    throw malformed(`The name of a field is over ${NAME_BYTES_MAX} bytes.`);
  }

  #head(): PartEvent {
    this.#requireWhole();
    let name: string;
    try {
      name = UTF8.decode(this.#name.view());
    } catch (cause) {
      throw malformed('The name of a field is not UTF-8.', undefined, undefined, cause);
    }
    this.#name.truncate(0);
    this.#state = 'value';
    this.#field = name;
    this.#isBase64 = name === this.#base64Field;
    return { kind: 'head', head: { name, isFile: false, isAscii: false } };
  }

  *#endPair(): Generator<PartEvent, void, void> {
    this.#requireWhole();
    if (this.#state === 'value') yield { kind: 'end' };
    // A name without a value counts as absent.
    this.#state = 'name';
    this.#name.truncate(0);
    this.#isBase64 = false;
    this.#field = '';
  }

  #requireWhole(): void {
    if (this.#escapeLeft > 0) throw this.#badEscape();
  }

  /** Returns `bytes` itself if nothing is escaped, else a new buffer. */
  #decoded(bytes: Buffer): Buffer {
    const hasPlus = bytes.includes(PLUS);
    if (hasPlus && this.#isBase64) {
      const detail = `${this.#base64Field} has a space or a plain +. Write + as %2B.`;
      throw malformed(detail, this.#base64Field, 'has a + that is not written as %2B');
    }
    if (this.#escapeLeft === 0 && !hasPlus && !bytes.includes(PERCENT)) return bytes;
    // A kept buffer would stay for as long as the caller is silent.
    const out = Buffer.allocUnsafe(bytes.length);
    let [left, value, length] = [this.#escapeLeft, this.#escapeValue, 0];
    // Indexes, because a body can be all escapes and `for…of` takes five times as long.
    for (let index = 0; index < bytes.length; index += 1) {
      const byte = bytes[index]!;
      if (left > 0) {
        const digit = HEX_VALUES[byte]!;
        if (digit === NOT_HEX) throw this.#badEscape();
        value = (value << 4) | digit;
        left -= 1;
        if (left === 0) out[length++] = value;
      } else if (byte === PERCENT) {
        left = 2;
        value = 0;
      } else {
        out[length++] = byte === PLUS ? SPACE : byte;
      }
    }
    this.#escapeLeft = left;
    this.#escapeValue = value;
    return out.subarray(0, length);
  }

  #badEscape() {
    const detail = 'The body is not percent-encoded. Write a percent sign as %25.';
    return malformed(detail, this.#field === '' ? undefined : shownName(this.#field));
  }
}
