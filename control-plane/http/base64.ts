/** Base64 as it arrives in the text of a field. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import { NOTHING } from './kept-bytes.ts';

/** A data URI up to its comma. Media types with parameters stay far below. */
const DATA_URI_PREFIX_LENGTH_MAX = 1024;
const DATA_SCHEME = 'data:';
const BASE64_MARK = ';base64';
const OUTSIDE_OF_ALPHABET = /[^A-Za-z0-9+/]/;

const COMMA = 0x2c;
const SPACES = Buffer.from('\t\n\f\r ');
/** 1 for a byte that is no white space. */
const NOT_SPACE = new Uint8Array(256).fill(1);
for (const space of SPACES) NOT_SPACE[space] = 0;

/** The text itself where it has no white space, as almost every piece. */
function withoutSpace(text: Uint8Array): Uint8Array {
  const piece = Buffer.from(text.buffer, text.byteOffset, text.length);
  if (!SPACES.some(space => piece.includes(space))) return text;
  const dense = Buffer.allocUnsafe(text.length);
  let length = 0;
  // The loop counts indexes, since a body can be all white space and `of` takes five times as long.
  for (let index = 0; index < piece.length; index += 1) {
    const byte = piece[index]!;
    dense[length] = byte;
    length += NOT_SPACE[byte]!;
  }
  return dense.subarray(0, length);
}

/** The index, in the text as it came, of a character that is counted without white space. */
function indexWithSpace(text: Uint8Array, index: number): number {
  let left = index;
  return text.findIndex(byte => NOT_SPACE[byte] === 1 && left-- === 0);
}

/**
 * Decodes whole groups of characters. Node's decoder skips what it does not know, so that fewer
 * bytes come out than the characters have, and knows the URL-safe alphabet too.
 * @returns undefined: not all are of the alphabet
 */
function decodeGroups(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  const isWhole = bytes.length === (text.length / 4) * 3;
  return isWhole && !text.includes('-') && !text.includes('_') ? bytes : undefined;
}

type Base64State = 'start' | 'prefix' | 'body' | 'padding' | 'ended';

/**
 * Base64 as the contract takes it, decoded while it arrives: RFC 4648 section 4, padding optional,
 * ASCII white space skipped, the URL-safe alphabet refused, a `data:<media type>;base64,` prefix
 * ignored. Bits that the last character has too many are dropped, as RFC 4648 section 3.5 allows:
 * what counts is the decoded bytes. It sets no bound on size: its caller does.
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
  /** Characters held back in the states start (white space left out) and prefix. */
  #held = '';
  /** The characters of an incomplete group. */
  #group = '';
  /** Characters before the text that is decoded now. */
  #inputOffset = 0;
  #decodedBytes = 0;

  /** @param field the request's field, for the error's `errors[]`. */
  constructor(field = 'image_base64') {
    this.#field = field;
  }

  get decodedBytes(): number {
    return this.#decodedBytes;
  }

  /**
   * The bytes that `chunk` completes: a buffer of its own, possibly empty.
   * @throws ContractError INVALID_IMAGE_SOURCE; the decoder is not to be used after that
   */
  push(chunk: Uint8Array): Uint8Array {
    const inStart = this.#state === 'start' || this.#state === 'prefix';
    return this.#decode(inStart ? this.#takeStart(chunk) : chunk);
  }

  /** The bytes still held back at the end of the text. @throws ContractError INVALID_IMAGE_SOURCE */
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

  /** The rest of the chunk, after what the states start and prefix take of it. */
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

  /** True where this character shows that the text is not a data URI. */
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

  /** The text is not a data URI: the characters held back are Base64 like the rest. */
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
      // Padding, or a character that is refused: what stands before it is decoded, whole or not.
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

  /**
   * Takes a character behind those of the alphabet.
   * @param groupLength the characters of the group that it stands in
   * @returns what is wrong with it, if it is not padding
   */
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
