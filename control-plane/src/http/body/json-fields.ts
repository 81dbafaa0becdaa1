/**
 * A body that is JSON, read as it arrives: one flat object whose values are strings, null or, for
 * some fields, true, false or a number. Small texts are kept; that of the image is handed on
 * unescaped and never kept, so that a body of 70 MB costs the memory of one chunk. Syntax,
 * duplicates and types are this file's, which fields there are its caller's.
 *
 * | state      | expects                       | then                                   |
 * |------------|-------------------------------|----------------------------------------|
 * | start      | `{`                           | first-key                              |
 * | first-key  | `"` or `}`                    | key, end                               |
 * | next-key   | `"`                           | key                                    |
 * | key        | the rest of a string          | colon                                  |
 * | colon      | `:`                           | value                                  |
 * | value      | `"`, `n`, or a literal | text, image, null, literal |
 * | text       | the rest of a string          | more                                   |
 * | image      | the rest of a string          | more                                   |
 * | null       | the rest of `null`            | more                                   |
 * | literal    | the rest of it                | more                                   |
 * | more       | `,` or `}`                    | next-key, end                          |
 * | end        | nothing                       | -                                      |
 *
 * White space is skipped in every state but key, text, image, null and literal.
 */
import type { ContractError } from '#contract/errors.ts';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import { OVERLONG, type TextValue } from '../../services/submission/submit-fields.ts';
import {
  beginsLiteral,
  endsLiteral,
  LITERAL_BYTES_MAX,
  type LiteralKind,
  literalText,
  typeOf,
} from './json-literal.ts';
import { givenTwice, malformed } from './malformed.ts';

/** No text within URL_LENGTH_MAX characters needs more: each is at most `\uXXXX`. */
const RAW_TEXT_BYTES_MAX = 6 * URL_LENGTH_MAX;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const NULL_LITERAL = Buffer.from('null');
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
const NOTHING = Buffer.alloc(0);

/** What may follow a backslash, but for `u`: the byte it stands for; 0 for what may not. */
const ESCAPES = new Uint8Array(128);
for (const pair of ['""', '\\\\', '//', 'b\b', 'f\f', 'n\n', 'r\r', 't\t']) {
  ESCAPES[pair.charCodeAt(0)] = pair.charCodeAt(1);
}

type State =
  | 'start'
  | 'first-key'
  | 'next-key'
  | 'key'
  | 'colon'
  | 'value'
  | 'text'
  | 'image'
  | 'null'
  | 'literal'
  | 'more'
  | 'end';

/** The fields that an object may have. */
export interface JsonFields<Text extends string> {
  /** The one whose text is Base64, which is handed on. */
  readonly image: string;
  /**
   * @param name undefined: too long to be kept
   * @returns a Text or the image's; undefined: the value is skipped, whatever its text is
   * @throws ContractError where there is no such field
   */
  fieldOf(name: string | undefined): Text | string | undefined;
  /** What a value may be besides a string and null. */
  literalsOf(field: string | undefined): readonly LiteralKind[];
}

export class JsonFieldsParser<Text extends string> {
  readonly #fields: JsonFields<Text>;
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  readonly #seen = new Set<string>();
  readonly #texts = new Map<Text, TextValue>();
  readonly #raw = Buffer.allocUnsafe(RAW_TEXT_BYTES_MAX);
  #state: State = 'start';
  #started = false;
  #imageGiven = false;
  /** undefined: one that is skipped. */
  #field: string | undefined;
  #rawLength = 0;
  #rawOverlong = false;
  /** In key and text: the byte before was a backslash. */
  #escaped = false;
  #nullAt = 0;
  /** In image: 0 outside an escape, 1 after the backslash, 2 to 5 before each digit of \uXXXX. */
  #escapeStep = 0;
  #escapeCode = 0;
  #scratch: Buffer = NOTHING;

  constructor(fields: JsonFields<Text>) {
    this.#fields = fields;
  }

  /**
   * The unescaped text of the image's field in this chunk, empty where there is none. It is valid until
   * the next push, and may be a view of `chunk`, which is never written to.
   * @throws ContractError INVALID_REQUEST
   */
  push(chunk: Buffer): Buffer {
    let image: Buffer = NOTHING;
    let at = 0;
    while (at < chunk.length) {
      switch (this.#state) {
        case 'image': {
          const run = this.#takeImage(chunk, at);
          // One field, so one run a chunk: what came before in this chunk was not image.
          image = run.text;
          at = run.next;
          break;
        }
        case 'key':
        case 'text':
          at = this.#takeText(chunk, at);
          break;
        case 'literal':
          at = this.#takeLiteral(chunk, at);
          break;
        default:
          this.#takeByte(chunk.readUInt8(at));
          at += 1;
      }
    }
    return image;
  }

  /** The fields, after the last chunk. @throws ContractError INVALID_REQUEST */
  finish(): { readonly texts: ReadonlyMap<Text, TextValue>; readonly imageGiven: boolean } {
    if (!this.#started) throw malformed('the body is empty; a JSON object is expected');
    if (this.#state !== 'end') throw malformed('the body ends in the middle of the JSON object');
    return { texts: this.#texts, imageGiven: this.#imageGiven };
  }

  #takeByte(byte: number): void {
    if (this.#state === 'null') {
      this.#takeNull(byte);
      return;
    }
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) return;
    switch (this.#state) {
      case 'start':
        if (byte === 0xef) throw malformed('the body must be UTF-8 without a byte order mark');
        if (byte !== 0x7b) throw malformed('the body must be a JSON object');
        this.#started = true;
        this.#state = 'first-key';
        return;
      case 'first-key':
      case 'next-key':
        this.#takeKeyStart(byte);
        return;
      case 'colon':
        if (byte !== 0x3a) throw malformed('the body is not valid JSON: a colon is missing');
        this.#state = 'value';
        return;
      case 'value':
        this.#takeValueStart(byte);
        return;
      case 'more':
        if (byte === 0x2c) this.#state = 'next-key';
        else if (byte === 0x7d) this.#state = 'end';
        else throw malformed('the body is not valid JSON: a comma or a closing brace is missing');
        return;
      default:
        throw malformed('the body goes on after the JSON object');
    }
  }

  #takeKeyStart(byte: number): void {
    if (byte === QUOTE) this.#startText('key');
    else if (byte === 0x7d && this.#state === 'first-key') this.#state = 'end';
    else throw malformed('the body is not valid JSON: the name of a field is missing');
  }

  #takeValueStart(byte: number): void {
    if (byte === QUOTE) {
      if (this.#field === this.#fields.image) {
        this.#imageGiven = true;
        this.#state = 'image';
      } else {
        this.#startText('text');
      }
    } else if (byte === NULL_LITERAL[0]) {
      this.#nullAt = 1;
      this.#state = 'null';
    } else if (beginsLiteral(this.#literals, byte)) {
      this.#startText('literal');
      this.#raw[0] = byte;
      this.#rawLength = 1;
    } else if ('{[tf-0123456789'.includes(String.fromCharCode(byte))) {
      const wrong = `must be ${typeOf(this.#literals)}`;
      throw malformed(`${this.#shownField} ${wrong}`, this.#field, wrong);
    } else {
      throw malformed('the body is not valid JSON: a value is missing');
    }
  }

  #takeNull(byte: number): void {
    if (byte !== NULL_LITERAL[this.#nullAt]) {
      throw malformed('the body is not valid JSON: a value is neither a string nor null');
    }
    this.#nullAt += 1;
    if (this.#nullAt === NULL_LITERAL.length) this.#state = 'more';
  }

  #startText(state: 'key' | 'text' | 'literal'): void {
    this.#state = state;
    this.#rawLength = 0;
    this.#rawOverlong = false;
    this.#escaped = false;
  }

  /** Collects a small string up to its closing quote. The offset after what it took. */
  #takeText(chunk: Buffer, from: number): number {
    let end = from;
    let escaped = this.#escaped;
    for (; end < chunk.length; end += 1) {
      const byte = chunk[end];
      if (escaped) escaped = false;
      else if (byte === BACKSLASH) escaped = true;
      else if (byte === QUOTE) break;
    }
    this.#escaped = escaped;
    if (this.#rawLength + end - from > RAW_TEXT_BYTES_MAX) {
      this.#rawOverlong = true;
    } else if (!this.#rawOverlong) {
      chunk.copy(this.#raw, this.#rawLength, from, end);
      this.#rawLength += end - from;
    }
    if (end === chunk.length) return end;
    if (this.#state === 'key') this.#endKey();
    else this.#endValue();
    return end + 1;
  }

  /** Collects a literal up to what follows it, which is left for the next state. */
  #takeLiteral(chunk: Buffer, from: number): number {
    let end = from;
    while (end < chunk.length && !endsLiteral(chunk.readUInt8(end))) end += 1;
    const field = this.#field;
    if (this.#rawLength + end - from > LITERAL_BYTES_MAX) {
      const detail = `${this.#shownField} is over ${LITERAL_BYTES_MAX} characters`;
      throw malformed(detail, field, 'too long');
    }
    chunk.copy(this.#raw, this.#rawLength, from, end);
    this.#rawLength += end - from;
    if (end === chunk.length) return end;
    const text = literalText(this.#raw.toString('latin1', 0, this.#rawLength));
    if (text === undefined) {
      const detail = `${this.#shownField} must be ${typeOf(this.#literals)}`;
      throw malformed(detail, field, 'not valid');
    }
    if (field !== undefined) this.#texts.set(field as Text, text);
    this.#state = 'more';
    return end;
  }

  get #literals(): readonly LiteralKind[] {
    return this.#fields.literalsOf(this.#field);
  }

  /** For an error's sentence. */
  get #shownField(): string {
    return this.#field ?? 'the value of an unknown field';
  }

  #endKey(): void {
    const name = this.#rawOverlong ? undefined : this.#decodeRaw('the name of a field');
    const field = this.#fields.fieldOf(name);
    if (field !== undefined && this.#seen.has(field)) throw givenTwice(field);
    if (field !== undefined) this.#seen.add(field);
    this.#field = field;
    this.#state = 'colon';
  }

  #endValue(): void {
    const field = this.#field;
    this.#state = 'more';
    if (field === undefined) return;
    const text = this.#rawOverlong ? OVERLONG : this.#decodeRaw(field, field);
    this.#texts.set(field as Text, text);
  }

  /** JSON.parse checks escapes and control characters. */
  #decodeRaw(what: string, field?: string): string {
    let text: string;
    try {
      const raw = this.#utf8.decode(this.#raw.subarray(0, this.#rawLength));
      text = JSON.parse(`"${raw}"`) as string;
    } catch (cause) {
      throw malformed(`${what} is not a valid JSON string in UTF-8`, field, 'not valid', cause);
    }
    if (!text.isWellFormed()) {
      throw malformed(`${what} holds half of a surrogate pair`, field, 'not valid Unicode');
    }
    return text;
  }

  #takeImage(chunk: Buffer, from: number): { text: Buffer; next: number } {
    const quote = chunk.indexOf(QUOTE, from);
    const end = quote === -1 ? chunk.length : quote;
    const text = chunk.subarray(from, end);
    if (this.#escapeStep !== 0 || text.includes(BACKSLASH)) return this.#unescapeImage(chunk, from);
    // Passes of memchr run at gigabytes a second, a loop over the bytes at a tenth of it.
    if (RAW_WHITE_SPACE.some(byte => text.includes(byte)))
      throw controlCharacter(this.#fields.image);
    if (quote === -1) return { text, next: end };
    this.#state = 'more';
    return { text, next: end + 1 };
  }

  /** The path of a chunk with escapes: some encoders write `\/` for every slash. */
  #unescapeImage(chunk: Buffer, from: number): { text: Buffer; next: number } {
    if (this.#scratch.length < chunk.length) this.#scratch = Buffer.allocUnsafe(chunk.length);
    const out = this.#scratch;
    let length = 0;
    let at = from;
    while (at < chunk.length) {
      if (this.#escapeStep !== 0) {
        const meant = this.#takeEscape(chunk.readUInt8(at++));
        if (meant !== undefined) out[length++] = meant;
        continue;
      }
      // A tight loop: a large body goes through here byte by byte, each index below the length.
      while (at < chunk.length && IS_SPECIAL[chunk[at]!] === 0) out[length++] = chunk[at++]!;
      if (at === chunk.length) break;
      const special = chunk[at++];
      if (special === QUOTE) {
        this.#state = 'more';
        break;
      }
      if (special !== BACKSLASH) throw controlCharacter(this.#fields.image);
      this.#escapeStep = 1;
    }
    return { text: out.subarray(0, length), next: at };
  }

  /** A byte inside an escape: what the escape stands for, once it is complete. */
  #takeEscape(byte: number): number | undefined {
    if (this.#escapeStep === 1) {
      if (byte === 0x75) {
        this.#escapeStep = 2;
        this.#escapeCode = 0;
        return undefined;
      }
      const meant = ESCAPES[byte] ?? 0;
      if (meant === 0) throw badEscape(this.#fields.image);
      this.#escapeStep = 0;
      return meant;
    }
    const digit = Number.parseInt(String.fromCharCode(byte), 16);
    if (Number.isNaN(digit)) throw badEscape(this.#fields.image);
    this.#escapeCode = this.#escapeCode * 16 + digit;
    this.#escapeStep = this.#escapeStep === 5 ? 0 : this.#escapeStep + 1;
    if (this.#escapeStep !== 0) return undefined;
    return this.#escapeCode < 0x80 ? this.#escapeCode : NOT_ASCII;
  }
}

function controlCharacter(field: string): ContractError {
  const detail = `${field} holds an unescaped control character`;
  return malformed(detail, field, 'an unescaped control character');
}

function badEscape(field: string): ContractError {
  return malformed(`${field} holds a wrong escape`, field, 'a wrong escape');
}
