import { URL_LENGTH_MAX } from '#contract/limits.ts';
import { JsonImageText } from './json-image-text.ts';
import {
  FIELDS_MAX,
  givenTwice,
  malformed,
  OVERLONG,
  type TextValue,
  tooManyFields,
} from './malformed.ts';

/**
 * The values of a JSON body that are no strings in every caller's mind: a switch may be true or
 * false, lengths may be numbers. They mean what the same text means.
 */

/** Any number that means something is shorter. */
const LITERAL_BYTES_MAX = 64;

export type LiteralKind = 'boolean' | 'number';

/** RFC 8259 section 6. */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const FIRST_CHARACTERS: Readonly<Record<LiteralKind, string>> = {
  boolean: 'tf',
  number: '-0123456789',
};
/** What may follow a literal: white space, a comma, a brace. */
const ENDS = Buffer.from(' \t\r\n,}');

/** Whether this byte begins a literal of these kinds. */
function beginsLiteral(kinds: readonly LiteralKind[], byte: number): boolean {
  return kinds.some(kind => FIRST_CHARACTERS[kind].includes(String.fromCharCode(byte)));
}

function endsLiteral(byte: number): boolean {
  return ENDS.includes(byte);
}

/** What a value must be, for an error's sentence. */
function typeOf(kinds: readonly LiteralKind[]): string {
  return [...kinds, 'string'].map(kind => `a ${kind}`).join(' or ');
}

/**
 * The text that the literal stands for: 1e3 and 1000.0 are 1000.
 * @returns undefined: not JSON
 */
function literalText(literal: string): string | undefined {
  if (literal === 'true' || literal === 'false') return literal;
  return NUMBER.test(literal) ? String(Number(literal)) : undefined;
}

/** Where an object or an array ends, which arrives in pieces and of which nothing is needed. Pure. */

/** Where its reader is. */
interface Nesting {
  /** Braces and brackets that are open; 0: it has ended. */
  depth: number;
  inString: boolean;
  /** In a string: the byte before was a backslash. */
  escaped: boolean;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** What a byte outside of strings does to the depth; whether it is the right one, JSON.parse says. */
const DEPTH_OF = new Int8Array(256);
for (const open of '{[') DEPTH_OF[open.charCodeAt(0)] = 1;
for (const close of '}]') DEPTH_OF[close.charCodeAt(0)] = -1;

/** The offset behind its last byte, or the chunk's length. @param nesting is moved on */
function endOfNested(nesting: Nesting, chunk: Buffer, from: number): number {
  for (let at = from; at < chunk.length; at += 1) {
    const byte = chunk[at]!;
    if (nesting.escaped) nesting.escaped = false;
    else if (nesting.inString) {
      if (byte === BACKSLASH) nesting.escaped = true;
      else if (byte === QUOTE) nesting.inString = false;
    } else if (byte === QUOTE) nesting.inString = true;
    else nesting.depth += DEPTH_OF[byte]!;
    if (nesting.depth === 0) return at + 1;
  }
  return chunk.length;
}

/*
 * A body that is JSON, read as it arrives: one flat object whose values are strings, null or, for
 * some fields, true, false or a number. Small texts are kept; that of the image is handed on
 * unescaped and never kept, so that a body of 70 MB costs the memory of one chunk. Syntax,
 * duplicates and types are this file's, which fields there are its caller's. A field that is skipped
 * may be an object or an array, within a bound.
 *
 * | state      | expects                       | then                                   |
 * |------------|-------------------------------|----------------------------------------|
 * | start      | `{`                           | first-key                              |
 * | first-key  | `"` or `}`                    | key, end                               |
 * | next-key   | `"`                           | key                                    |
 * | key        | the rest of a string          | colon                                  |
 * | colon      | `:`                           | value                                  |
 * | value      | `"`, `n`, a literal, `{` or `[` | text, image, null, literal, nested |
 * | text       | the rest of a string          | more                                   |
 * | image      | the rest of a string          | more                                   |
 * | null       | the rest of `null`            | more                                   |
 * | literal    | the rest of it                | more                                   |
 * | nested     | the rest of it                | more                                   |
 * | more       | `,` or `}`                    | next-key, end                          |
 * | end        | nothing                       | -                                      |
 *
 * White space is skipped in every state but key, text, image, null, literal and nested.
 */

/** No text within URL_LENGTH_MAX characters needs more: each is at most `\uXXXX`. */
const RAW_TEXT_BYTES_MAX = 6 * URL_LENGTH_MAX;

const NULL_LITERAL = Buffer.from('null');
const NOTHING = Buffer.alloc(0);
/** 1 for what JSON has as white space: a body may be made of it. */
const IS_SPACE = new Uint8Array(256);
for (const byte of ' \t\n\r') IS_SPACE[byte.charCodeAt(0)] = 1;

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
  | 'nested'
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
  #nesting: Nesting = { depth: 0, inString: false, escaped: false };
  #given = 0;
  readonly #image: JsonImageText;

  constructor(fields: JsonFields<Text>) {
    this.#fields = fields;
    this.#image = new JsonImageText(fields.image);
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
          const run = this.#image.take(chunk, at);
          // One field, so one run a chunk: what came before in this chunk was not image.
          image = run.text;
          at = run.next;
          if (run.ended) this.#state = 'more';
          break;
        }
        case 'key':
        case 'text':
          at = this.#takeText(chunk, at);
          break;
        case 'literal':
          at = this.#takeLiteral(chunk, at);
          break;
        case 'nested':
          at = this.#takeNested(chunk, at);
          break;
        case 'null':
          this.#takeNull(chunk[at]!);
          at += 1;
          break;
        default:
          while (at < chunk.length && IS_SPACE[chunk[at]!] === 1) at += 1;
          if (at < chunk.length) this.#takeByte(chunk[at]!);
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
    } else if (this.#field === undefined && (byte === 0x7b || byte === 0x5b)) {
      this.#startText('nested');
      this.#nesting = { depth: 1, inString: false, escaped: false };
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

  #startText(state: 'key' | 'text' | 'literal' | 'nested'): void {
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

  /** Kept only to see that it is JSON: what cannot be read must not be skipped. */
  #takeNested(chunk: Buffer, from: number): number {
    const end = endOfNested(this.#nesting, chunk, from);
    if (this.#rawLength + end - from > RAW_TEXT_BYTES_MAX) {
      throw malformed(`the value of an unknown field is over ${RAW_TEXT_BYTES_MAX} bytes`);
    }
    chunk.copy(this.#raw, this.#rawLength, from, end);
    this.#rawLength += end - from;
    if (this.#nesting.depth > 0) return end;
    try {
      JSON.parse(this.#utf8.decode(this.#raw.subarray(0, this.#rawLength)));
    } catch (cause) {
      throw malformed(
        'the value of an unknown field is not valid JSON',
        undefined,
        undefined,
        cause,
      );
    }
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
    this.#given += 1;
    if (this.#given > FIELDS_MAX) throw tooManyFields('the object');
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
}
