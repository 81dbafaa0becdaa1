/** Base64 as it arrives in the text of a field. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import { NOTHING } from './kept-bytes.ts';

/** A data URI up to its comma. Media types with parameters stay far below. */
const DATA_URI_PREFIX_LENGTH_MAX = 1024;
const DATA_SCHEME = 'data:';
const BASE64_MARK = ';base64';
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

const COMMA = 0x2c;
const COLON = 0x3a;
const HYPHEN = 0x2d;
const EQUALS = 0x3d;
const UNDERSCORE = 0x5f;
/** Below it the call costs more than it saves. */
const NATIVE_LENGTH_MIN = 256;
const INVALID = 0x40;
const SPACE = 0x41;
const PAD = 0x42;
/** Each byte's 6-bit value, or INVALID, SPACE or PAD. */
const VALUES = new Uint8Array(256).fill(INVALID);
for (let value = 0; value < ALPHABET.length; value += 1) VALUES[ALPHABET.charCodeAt(value)] = value;
const SPACES = Buffer.from('\t\n\f\r ');
for (const space of SPACES) VALUES[space] = SPACE;
const NOT_SPACE = VALUES.map(value => (value === SPACE ? 0 : 1));
VALUES['='.charCodeAt(0)] = PAD;

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
    if (this.#groupLength === 1)
      throw this.#error('the text ends inside a group of four characters');
    const rest = this.#takeGroup();
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
    const text = withoutSpace(spaced);
    const out = Buffer.allocUnsafe(Math.ceil((this.#groupLength + text.length) / 4) * 3);
    let written = 0;
    let index = 0;
    let isFresh = true;
    const refuse = (wrong: string) => {
      const position = this.#inputOffset + indexWithSpace(spaced, index) + 1;
      return this.#error(`character ${position} ${wrong}`);
    };
    while (index < text.length) {
      if (isFresh && this.#groupLength === 0 && this.#state === 'body') {
        // Once: what is left then is a few characters, or has one that is refused.
        isFresh = false;
        const groups = nativeGroups(text, index, out, written);
        index += 4 * groups;
        written += 3 * groups;
        if (index === text.length) break;
      }
      // Below the length, by the conditions above.
      const group = this.#decodeOne(text[index]!, refuse);
      if (group !== undefined) {
        out.set(group, written);
        written += group.length;
      }
      index += 1;
    }
    this.#inputOffset += spaced.length;
    this.#decodedBytes += written;
    return out.subarray(0, written);
  }

  /** The group that the character completes. */
  #decodeOne(byte: number, refuse: (wrong: string) => ContractError): Uint8Array | undefined {
    const value = VALUES[byte]!;
    if (value === PAD) {
      this.#takePadding(refuse);
      return this.#state === 'ended' ? this.#takeGroup() : undefined;
    }
    if (byte === COLON) throw refuse('is a colon. Send an address as image_url');
    if (value >= 64) throw refuse('is not in the Base64 alphabet');
    if (this.#state !== 'body') throw refuse('follows the padding');
    this.#group = (this.#group << 6) | value;
    this.#groupLength += 1;
    return this.#groupLength === 4 ? this.#takeGroup() : undefined;
  }

  #takePadding(refuse: (wrong: string) => ContractError): void {
    if (this.#state === 'padding') {
      this.#state = 'ended';
      return;
    }
    if (this.#state !== 'body' || this.#groupLength < 2) {
      throw refuse('is misplaced padding');
    }
    this.#state = this.#groupLength === 2 ? 'padding' : 'ended';
  }

  /** The bytes of a group, all of its characters or the last two or three of the text. */
  #takeGroup(): Uint8Array {
    const bits = this.#group << (6 * (4 - this.#groupLength));
    const bytes = Math.max(0, this.#groupLength - 1);
    this.#group = 0;
    this.#groupLength = 0;
    return Uint8Array.of(bits >>> 16, bits >>> 8, bits).subarray(0, bytes);
  }

  #error(cause: string): ContractError {
    const wrong = `is not Base64: ${cause}`;
    const fieldErrors = [{ field: this.#field, detail: wrong }];
    return new ContractError('INVALID_IMAGE_SOURCE', `${this.#field} ${wrong}.`, { fieldErrors });
  }
}
