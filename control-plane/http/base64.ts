import { ContractError } from '@matting/proto/contract/errors.ts';
import { NOTHING } from './kept-bytes.ts';

/** A data URI up to its comma. */
const DATA_URI_PREFIX_LENGTH_MAX = 1024;
const DATA_SCHEME = 'data:';
const BASE64_MARK = ';base64';
const OUTSIDE_OF_ALPHABET = /[^A-Za-z0-9+/]/;

const COMMA = 0x2c;
const SPACES = Buffer.from('\t\n\f\r ');
const NOT_SPACE = new Uint8Array(256).fill(1);
for (const space of SPACES) NOT_SPACE[space] = 0;

function withoutSpace(text: Uint8Array): Uint8Array {
  const piece = Buffer.from(text.buffer, text.byteOffset, text.length);
  if (!SPACES.some(space => piece.includes(space))) return text;
  const dense = Buffer.allocUnsafe(text.length);
  let length = 0;
  // Indexes, because a body can be all white space and `for…of` takes five times as long.
  for (let index = 0; index < piece.length; index += 1) {
    const byte = piece[index]!;
    dense[length] = byte;
    length += NOT_SPACE[byte]!;
  }
  return dense.subarray(0, length);
}

/** Converts an index that does not count white space. */
function indexWithSpace(text: Uint8Array, index: number): number {
  let left = index;
  return text.findIndex(byte => NOT_SPACE[byte] === 1 && left-- === 0);
}

/**
 * Checks the length and `-_`: Node's decoder skips unknown characters and takes the URL-safe
 * alphabet.
 */
function decodeGroups(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  const isWhole = bytes.length === (text.length / 4) * 3;
  return isWhole && !text.includes('-') && !text.includes('_') ? bytes : undefined;
}

type Base64State = 'start' | 'prefix' | 'body' | 'padding' | 'ended';

/**
 * A streaming decoder for Base64 as the contract takes it: RFC 4648 section 4 with optional
 * padding. It skips ASCII white space, refuses the URL-safe alphabet, ignores a `data:<media
 * type>;base64,` prefix and drops surplus bits of the last character (section 3.5). The caller
 * bounds the size.
 *
 * | state   | meaning                                 | left by                                   |
 * |---------|-----------------------------------------|-------------------------------------------|
 * | start   | the text so far may be a `data:` prefix | its colon, or the first other character   |
 * | prefix  | inside the data URI's media type        | its comma                                 |
 * | body    | characters of the alphabet              | `=`                                       |
 * | padding | one `=` came, a second is due           | `=`                                       |
 * | ended   | only white space may follow             | -                                         |
 */
export class Base64Decoder {
  readonly #field: string;
  #state: Base64State = 'start';
  /** Characters held back in the states start (without white space) and prefix. */
  #held = '';
  #group = '';
  /** Characters before this chunk, for error positions. */
  #inputOffset = 0;
  #decodedBytes = 0;

  constructor(field = 'image_base64') {
    this.#field = field;
  }

  get decodedBytes(): number {
    return this.#decodedBytes;
  }

  /**
   * Returns the bytes that `chunk` completes, in a buffer of its own, possibly empty.
   * @throws ContractError INVALID_IMAGE_SOURCE; the decoder cannot be used after that
   */
  push(chunk: Uint8Array): Uint8Array {
    const inStart = this.#state === 'start' || this.#state === 'prefix';
    return this.#decode(inStart ? this.#takeStart(chunk) : chunk);
  }

  /** @throws ContractError INVALID_IMAGE_SOURCE */
  finish(): Uint8Array {
    if (this.#state === 'prefix') throw this.#error('the data URI has no comma');
    const out = this.#state === 'start' ? this.#decode(this.#releaseHeld()) : NOTHING;
    if (this.#state === 'padding') throw this.#error('the padding is incomplete');
    if (this.#group.length === 1)
      throw this.#error('the text ends inside a group of four characters');
    const rest = Buffer.from(this.#group, 'base64');
    this.#decodedBytes += rest.length;
    if (this.#decodedBytes === 0) throw this.#error('the text is empty');
    return rest.length === 0 ? out : Buffer.concat([out, rest]);
  }

  #takeStart(chunk: Uint8Array): Uint8Array {
    for (let index = 0; index < chunk.length; index += 1) {
      const byte = chunk[index]!;
      if (this.#state === 'prefix') {
        this.#takePrefixCharacter(byte);
      } else if (this.#state !== 'start') {
        this.#inputOffset += index;
        return chunk.subarray(index);
      } else if (this.#startsBody(byte)) {
        const held = this.#releaseHeld();
        this.#inputOffset += index + 1 - held.length;
        return Buffer.concat([held, chunk.subarray(index + 1)]);
      }
    }
    this.#inputOffset += chunk.length;
    return NOTHING;
  }

  #startsBody(byte: number): boolean {
    if (NOT_SPACE[byte] === 0) return false;
    this.#held += String.fromCharCode(byte);
    const start = this.#held.toLowerCase();
    if (start !== DATA_SCHEME) return !DATA_SCHEME.startsWith(start);
    this.#held = '';
    this.#state = 'prefix';
    return false;
  }

  #takePrefixCharacter(byte: number): void {
    if (byte === COMMA) {
      this.#endPrefix();
      return;
    }
    if (this.#held.length === DATA_URI_PREFIX_LENGTH_MAX) {
      throw this.#error(
        `the data URI has a prefix of over ${DATA_URI_PREFIX_LENGTH_MAX} characters`,
      );
    }
    this.#held += String.fromCharCode(byte);
  }

  #endPrefix(): void {
    if (!this.#held.toLowerCase().trimEnd().endsWith(BASE64_MARK)) {
      throw this.#error('the data URI has no ;base64');
    }
    this.#held = '';
    this.#state = 'body';
  }

  #releaseHeld(): Buffer {
    const held = Buffer.from(this.#held, 'latin1');
    this.#held = '';
    this.#state = 'body';
    return held;
  }

  #decode(spaced: Uint8Array): Uint8Array {
    const dense = withoutSpace(spaced);
    const added = Buffer.from(dense.buffer, dense.byteOffset, dense.length).toString('latin1');
    const before = this.#group.length;
    const text = this.#group + added;
    const wholeLength = text.length & ~3;
    const whole = this.#state === 'body' ? decodeGroups(text.slice(0, wholeLength)) : undefined;
    let end = wholeLength;
    if (whole === undefined || OUTSIDE_OF_ALPHABET.test(text.slice(end))) {
      // Padding or a wrong character: decode what precedes it, even an incomplete group.
      end = this.#state === 'body' ? text.search(OUTSIDE_OF_ALPHABET) : 0;
      for (let at = end; at < text.length; at += 1) {
        const wrong = this.#takeOther(text[at]!, end % 4);
        if (wrong === undefined) continue;
        const position = this.#inputOffset + indexWithSpace(spaced, at - before) + 1;
        throw this.#error(`character ${position} ${wrong}`);
      }
    }
    this.#group = this.#state === 'body' ? text.slice(end) : '';
    const out = end === wholeLength && whole ? whole : Buffer.from(text.slice(0, end), 'base64');
    this.#inputOffset += spaced.length;
    this.#decodedBytes += out.length;
    return out;
  }

  /** @returns the fault, or undefined for valid padding */
  #takeOther(character: string, groupLength: number): string | undefined {
    if (character === '=') {
      const isFirst = this.#state === 'body' && groupLength >= 2;
      if (!isFirst && this.#state !== 'padding') return 'is misplaced padding';
      this.#state = isFirst && groupLength === 2 ? 'padding' : 'ended';
      return undefined;
    }
    if (character === ':') return 'is a colon. Send an address as image_url';
    if (OUTSIDE_OF_ALPHABET.test(character)) return 'is not in the Base64 alphabet';
    return 'follows the padding';
  }

  #error(cause: string): ContractError {
    const wrong = `is not Base64: ${cause}`;
    const fieldErrors = [{ field: this.#field, detail: wrong }];
    return new ContractError('INVALID_IMAGE_SOURCE', `${this.#field} ${wrong}.`, { fieldErrors });
  }
}
