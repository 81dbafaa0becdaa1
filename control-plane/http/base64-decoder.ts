/**
 * Base64 as the contract takes it, decoded while it arrives: RFC 4648 section 4, padding optional,
 * ASCII white space skipped, the URL-safe alphabet refused, a `data:<media type>;base64,` prefix
 * ignored. Bits that the last character has too many are dropped, as RFC 4648 section 3.5 allows:
 * what counts is the decoded bytes. It knows nothing of images and sets no bound on size: its
 * caller does.
 *
 * | state   | meaning                                 | left by                                   |
 * |---------|-----------------------------------------|-------------------------------------------|
 * | start   | the text so far may be a `data:` prefix | its colon, or the first other character   |
 * | prefix  | inside the data URI's media type        | its comma                                 |
 * | body    | characters of the alphabet              | `=`                                       |
 * | padding | one `=` came, a second is due           | `=`                                       |
 * | ended   | only white space may follow             | -                                         |
 */
import { ContractError } from '#contract/errors.ts';

/** A data URI up to its comma. Media types with parameters stay far below. */
const DATA_URI_PREFIX_LENGTH_MAX = 1024;
const DATA_SCHEME = 'data:';
const BASE64_MARK = ';base64';
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

const COMMA = 0x2c;
const HYPHEN = 0x2d;
const EQUALS = 0x3d;
const UNDERSCORE = 0x5f;
/** Below it the call costs more than it saves. */
const NATIVE_LENGTH_MIN = 256;
const INVALID = 0x40;
const SPACE = 0x41;
const PAD = 0x42;
/** Table entry of a byte that is not in the alphabet. */
const NOT_A_DIGIT = 1 << 24;

/** For each byte its 6-bit value, or INVALID, SPACE or PAD. */
const VALUES = new Uint8Array(256).fill(INVALID);
for (let value = 0; value < ALPHABET.length; value += 1) VALUES[ALPHABET.charCodeAt(value)] = value;
const SPACES = Buffer.from('\t\n\f\r ');
for (const space of SPACES) VALUES[space] = SPACE;
const NOT_SPACE = VALUES.map(value => (value === SPACE ? 0 : 1));
VALUES['='.charCodeAt(0)] = PAD;

/** The same values shifted to their place among 24 bits: four look-ups and one test a group. */
function shiftedValues(shift: number): Int32Array {
  return Int32Array.from(VALUES, value => (value < 64 ? value << shift : NOT_A_DIGIT));
}
const FIRST = shiftedValues(18);
const SECOND = shiftedValues(12);
const THIRD = shiftedValues(6);
const FOURTH = shiftedValues(0);

/** The text itself where it has no white space, as almost every piece. */
function withoutSpace(text: Uint8Array): Uint8Array {
  const piece = Buffer.from(text.buffer, text.byteOffset, text.length);
  if (!SPACES.some(space => piece.includes(space))) return text;
  const dense = Buffer.allocUnsafe(text.length);
  let length = 0;
  // By indexes below the length: a body may be made of white space, and `of` takes five times as long.
  for (let index = 0; index < piece.length; index += 1) {
    const byte = piece[index]!;
    dense[length] = byte;
    length += NOT_SPACE[byte]!;
  }
  return dense.subarray(0, length);
}

/** Where the character of that index without white space is. */
function indexWithSpace(text: Uint8Array, index: number): number {
  let left = index;
  return text.findIndex(byte => VALUES[byte] !== SPACE && left-- === 0);
}

/**
 * All whole groups, by Node's decoder, which takes a third of the time. It skips what it does not
 * know, so that fewer bytes come out than the characters have, and knows the URL-safe alphabet too.
 * @returns how many groups; 0: not all are of the alphabet
 */
function nativeGroups(text: Uint8Array, index: number, out: Buffer, written: number): number {
  let length = (text.length - index) & ~3;
  if (text[index + length - 1] === EQUALS) length -= 4;
  if (length < NATIVE_LENGTH_MIN) return 0;
  const piece = Buffer.from(text.buffer, text.byteOffset + index, length);
  if (piece.includes(HYPHEN) || piece.includes(UNDERSCORE)) return 0;
  const bytes = out.write(piece.toString('latin1'), written, 'base64');
  return bytes === (length / 4) * 3 ? length / 4 : 0;
}

/** Groups from `index` until another character comes. @returns how many */
function tableGroups(text: Uint8Array, index: number, out: Buffer, written: number): number {
  const last = text.length - 4;
  let from = index;
  let to = written;
  // Every index is below its length: four characters are left, and the tables have all 256 bytes.
  for (; from <= last; from += 4) {
    const bits =
      FIRST[text[from]!]! |
      SECOND[text[from + 1]!]! |
      THIRD[text[from + 2]!]! |
      FOURTH[text[from + 3]!]!;
    if (bits >= NOT_A_DIGIT) break;
    out[to] = bits >>> 16;
    out[to + 1] = bits >>> 8;
    out[to + 2] = bits;
    to += 3;
  }
  return (from - index) / 4;
}

type State = 'start' | 'prefix' | 'body' | 'padding' | 'ended';

export class Base64Decoder {
  readonly #field: string;
  #state: State = 'start';
  /** Characters held back in the states start (white space left out) and prefix. */
  #held = '';
  /** Bits of an incomplete group, and the number of its characters. */
  #group = 0;
  #groupLength = 0;
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
   * The bytes that `chunk` completes: a buffer of its own, possibly empty. Throws
   * INVALID_IMAGE_SOURCE; the decoder is not to be used after that.
   */
  push(chunk: Uint8Array): Uint8Array {
    const inStart = this.#state === 'start' || this.#state === 'prefix';
    return this.#decode(inStart ? this.#takeStart(chunk) : chunk);
  }

  /** The bytes still held back at the end of the text. Throws INVALID_IMAGE_SOURCE. */
  finish(): Uint8Array {
    if (this.#state === 'prefix') throw this.#error('the data URI has no comma');
    const out = this.#state === 'start' ? this.#decode(this.#releaseHeld()) : Buffer.alloc(0);
    if (this.#state === 'padding') throw this.#error('the padding is incomplete');
    if (this.#groupLength === 1) throw this.#error('the text ends inside a group of four');
    const rest = this.#flushGroup();
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
    return Buffer.alloc(0);
  }

  /** True where this character shows that the text is not a data URI. */
  #startsBody(byte: number): boolean {
    if (VALUES[byte] === SPACE) return false;
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
      throw this.#error(`the data URI's prefix is over ${DATA_URI_PREFIX_LENGTH_MAX} characters`);
    }
    this.#held += String.fromCharCode(byte);
  }

  #endPrefix(): void {
    if (!this.#held.toLowerCase().trimEnd().endsWith(BASE64_MARK)) {
      throw this.#error('the data URI is not marked ;base64');
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
    const text = withoutSpace(spaced);
    const out = Buffer.allocUnsafe(Math.ceil((this.#groupLength + text.length) / 4) * 3);
    let written = 0;
    let index = 0;
    const positionOf = (at: number) => this.#inputOffset + indexWithSpace(spaced, at) + 1;
    while (index < text.length) {
      if (this.#groupLength === 0 && this.#state === 'body') {
        const native = nativeGroups(text, index, out, written);
        const groups = native || tableGroups(text, index, out, written);
        index += 4 * groups;
        written += 3 * groups;
        if (index === text.length) break;
      }
      // Below the length, by the loop's condition.
      written = this.#decodeOne(text[index]!, () => positionOf(index), out, written);
      index += 1;
    }
    this.#inputOffset += spaced.length;
    this.#decodedBytes += written;
    return out.subarray(0, written);
  }

  /** One character at a time: around padding and the edges of chunks. */
  #decodeOne(byte: number, position: () => number, out: Buffer, written: number): number {
    const value = VALUES[byte]!;
    if (value === PAD) {
      this.#takePadding(position);
      if (this.#state !== 'ended') return written;
      const rest = this.#takeGroup();
      out.set(rest, written);
      return written + rest.length;
    }
    if (value >= 64) throw this.#error(`character ${position()} is not in the Base64 alphabet`);
    if (this.#state !== 'body') throw this.#error(`character ${position()} follows the padding`);
    this.#group = (this.#group << 6) | value;
    this.#groupLength += 1;
    if (this.#groupLength < 4) return written;
    out.writeUIntBE(this.#group, written, 3);
    this.#group = 0;
    this.#groupLength = 0;
    return written + 3;
  }

  #takePadding(position: () => number): void {
    if (this.#state === 'padding') {
      this.#state = 'ended';
      return;
    }
    if (this.#state !== 'body' || this.#groupLength < 2) {
      throw this.#error(`character ${position()} is padding where none belongs`);
    }
    this.#state = this.#groupLength === 2 ? 'padding' : 'ended';
  }

  /** The one or two bytes of the last group of two or three characters. */
  #takeGroup(): Uint8Array {
    const bits = this.#group << (6 * (4 - this.#groupLength));
    const bytes = Math.max(0, this.#groupLength - 1);
    this.#group = 0;
    this.#groupLength = 0;
    return Uint8Array.of(bits >>> 16, bits >>> 8).subarray(0, bytes);
  }

  #flushGroup(): Uint8Array {
    const rest = this.#takeGroup();
    this.#decodedBytes += rest.length;
    return rest;
  }

  #error(detail: string): ContractError {
    return new ContractError('INVALID_IMAGE_SOURCE', `${this.#field} is not usable Base64`, {
      fieldErrors: [{ field: this.#field, detail }],
    });
  }
}
