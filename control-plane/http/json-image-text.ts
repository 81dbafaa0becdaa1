/**
 * The text of the image's field, unescaped as it arrives and never kept. What stands unescaped in it
 * but must not is refused; whether it is Base64, its own reader says.
 */
import type { ContractError } from '#contract/errors.ts';
import { HEX_VALUES, NOT_HEX } from './hex-values.ts';
import { malformed } from './malformed.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
/**
 * What a Base64 reader would skip as white space, but JSON forbids unescaped in a string. The other
 * control characters are left to the Base64 reader, which refuses them.
 */
const RAW_WHITE_SPACE = [0x09, 0x0a, 0x0b, 0x0c, 0x0d];
/** 1 for each byte of a string that does not stand for itself. */
const IS_SPECIAL = new Uint8Array(256);
for (const byte of [QUOTE, BACKSLASH, ...RAW_WHITE_SPACE]) IS_SPECIAL[byte] = 1;
/** Stands for an escaped character that is not ASCII: in no Base64 alphabet either. */
const NOT_ASCII = 0xff;

/** What may follow a backslash, but for `u`: the byte it stands for; 0 for what may not. */
const ESCAPES = new Uint8Array(256);
for (const pair of ['""', '\\\\', '//', 'b\b', 'f\f', 'n\n', 'r\r', 't\t']) {
  ESCAPES[pair.charCodeAt(0)] = pair.charCodeAt(1);
}

interface Run {
  /** Valid until the next one, and perhaps a view of the chunk, which is never written to. */
  readonly text: Buffer;
  /** The offset behind it. */
  readonly next: number;
  /** Its closing quote came. */
  readonly ended: boolean;
}

export class JsonImageText {
  readonly #field: string;
  /** 0 outside an escape, 1 after the backslash, 2 to 5 before each digit of \uXXXX. */
  #escapeStep = 0;
  #escapeCode = 0;
  #scratch = Buffer.alloc(0);

  /** @param field for an error's sentence */
  constructor(field: string) {
    this.#field = field;
  }

  /** @throws ContractError INVALID_REQUEST */
  take(chunk: Buffer, from: number): Run {
    const quote = chunk.indexOf(QUOTE, from);
    const end = quote === -1 ? chunk.length : quote;
    const text = chunk.subarray(from, end);
    if (this.#escapeStep !== 0 || text.includes(BACKSLASH)) return this.#unescape(chunk, from);
    // Passes of memchr run at gigabytes a second, a loop over the bytes at a tenth of it.
    if (RAW_WHITE_SPACE.some(byte => text.includes(byte))) throw this.#controlCharacter();
    return quote === -1 ? { text, next: end, ended: false } : { text, next: end + 1, ended: true };
  }

  /**
   * The path of a chunk with escapes: some encoders write `\/` for every slash. By indexes below the
   * length, since a large body goes through here byte by byte.
   */
  #unescape(chunk: Buffer, from: number): Run {
    if (this.#scratch.length < chunk.length) this.#scratch = Buffer.allocUnsafe(chunk.length);
    const out = this.#scratch;
    let [step, code, length, at] = [this.#escapeStep, this.#escapeCode, 0, from];
    for (; at < chunk.length; at += 1) {
      const byte = chunk[at]!;
      if (step > 1) {
        const digit = HEX_VALUES[byte]!;
        if (digit === NOT_HEX) throw this.#badEscape();
        code = (code << 4) | digit;
        step = step === 5 ? 0 : step + 1;
        if (step === 0) out[length++] = code < 0x80 ? code : NOT_ASCII;
      } else if (step === 1) {
        const meant = ESCAPES[byte]!;
        if (meant === 0 && byte !== LETTER_U) throw this.#badEscape();
        step = byte === LETTER_U ? 2 : 0;
        code = 0;
        if (step === 0) out[length++] = meant;
      } else if (IS_SPECIAL[byte] === 0) {
        out[length++] = byte;
      } else if (byte === BACKSLASH) {
        // As a rule the escape is a letter, and in the same chunk.
        const meant = at + 1 < chunk.length ? ESCAPES[chunk[at + 1]!]! : 0;
        if (meant === 0) {
          step = 1;
        } else {
          out[length++] = meant;
          at += 1;
        }
      } else if (byte === QUOTE) {
        break;
      } else {
        throw this.#controlCharacter();
      }
    }
    this.#escapeStep = step;
    this.#escapeCode = code;
    const ended = at < chunk.length;
    return { text: out.subarray(0, length), next: ended ? at + 1 : at, ended };
  }

  #controlCharacter(): ContractError {
    const detail = `${this.#field} holds an unescaped control character`;
    return malformed(detail, this.#field, 'an unescaped control character');
  }

  #badEscape(): ContractError {
    return malformed(`${this.#field} holds a wrong escape`, this.#field, 'a wrong escape');
  }
}
