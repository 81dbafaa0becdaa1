/**
 * A body that is JSON, read as it arrives: one flat object whose values are strings, null or, for
 * some fields, true, false or a number. Small texts are kept; that of the image is handed on
 * unescaped and never kept, so that a body of 70 MB costs the memory of one chunk. Syntax,
 * duplicates and types are this file's, which fields there are its caller's. A field that is
 * skipped may be an object or an array, within a bound. One field may be a list of such flat
 * objects, which json-items.ts reads.
 *
 * | state      | expects                         | then                                      |
 * |------------|---------------------------------|-------------------------------------------|
 * | start      | `{`                             | first-key                                 |
 * | first-key  | `"` or `}`                      | key, end                                  |
 * | next-key   | `"`                             | key                                       |
 * | key        | the rest of a string            | colon                                     |
 * | colon      | `:`                             | value                                     |
 * | value      | `"`, `n`, a literal, `{` or `[` | text, image, null, literal, nested, items |
 * | text       | the rest of a string            | more                                      |
 * | image      | the rest of a string            | more                                      |
 * | null       | the rest of `null`              | more                                      |
 * | literal    | the rest of it                  | more                                      |
 * | nested     | the rest of it                  | more                                      |
 * | items      | the rest of the list            | more                                      |
 * | more       | `,` or `}`                      | next-key, end                             |
 * | end        | nothing                         | -                                         |
 *
 * White space is skipped in every state but key, text, image, null, literal, nested and items.
 */
import type { HeldRoom } from '@matting/program/held-bytes.ts';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { HINT_LIST_BYTES_MAX } from '@matting/proto/contract/hints-fields.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import {
  bytesOfText,
  FIELDS_MAX,
  givenTwice,
  malformed,
  OVERLONG,
  type TextValue,
  tooManyFields,
} from './body-fields.ts';
import { KeptBytes, NOTHING } from './kept-bytes.ts';
import { HEX_VALUES, NOT_HEX } from './urlencoded.ts';

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;
const NULL_LITERAL = Buffer.from('null');
/** 1 for what JSON has as white space: a body may be made of it. */
const IS_SPACE = new Uint8Array(256);
for (const byte of ' \t\n\r') IS_SPACE[byte.charCodeAt(0)] = 1;

/** 1 for ASCII that needs no escape. Most names and texts consist of it. */
const IS_PLAIN = new Uint8Array(256).fill(1, 0x20, 0x80);
IS_PLAIN[BACKSLASH] = 0;

/** The offset of what follows the white space, or the chunk's length. */
export function behindSpace(chunk: Buffer, from: number): number {
  let at = from;
  while (at < chunk.length && IS_SPACE[chunk[at]!] === 1) at += 1;
  return at;
}

/** No text within URL_LENGTH_MAX characters needs more: each is at most `\uXXXX`. */
const RAW_TEXT_BYTES_MAX = 6 * URL_LENGTH_MAX;
/** Any number that means something is shorter. */
const LITERAL_BYTES_MAX = 64;

/** A value can be of these kinds beside a string and null. It means the same as its text. */
type LiteralKind = 'boolean' | 'number' | 'list';

/** RFC 8259 section 6. */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const FIRST_CHARACTERS: Readonly<Record<LiteralKind, string>> = {
  boolean: 'tf',
  number: '-0123456789',
  list: '',
};
/** White space, a comma or a brace can follow a literal. */
const LITERAL_ENDS = Buffer.from(' \t\r\n,}');

/** The type that a value must have, for an error's sentence. */
function typeOf(kinds: readonly LiteralKind[]): string {
  return [...kinds, 'string'].map(kind => `a ${kind}`).join(' or ');
}

/** A field that is skipped may be an object too. */
function isNested(field: string | undefined, kinds: readonly LiteralKind[], character: string) {
  if (field === undefined) return '{['.includes(character);
  return character === '[' && kinds.includes('list');
}

/** The text that it stands for: 1e3 and 1000.0 are 1000. Undefined: not JSON. */
function literalText(literal: string): string | undefined {
  if (literal === 'true' || literal === 'false') return literal;
  return NUMBER.test(literal) ? String(Number(literal)) : undefined;
}

/** The position of the reader in an object or an array. */
interface Nesting {
  /** Braces and brackets that are open; 0: it has ended. */
  depth: number;
  inString: boolean;
  /** Whether, in a string, the byte before was a backslash. */
  escaped: boolean;
}

/** The change of depth by a byte outside of strings. JSON.parse judges whether it fits. */
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
  | 'items'
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
  literalsOf(field: string | undefined): readonly LiteralKind[];
  /** Reads the field that is a list of objects. Absent: there is none. */
  readonly items?: ItemsReader | undefined;
}

/** Reads a list from behind its opening bracket. */
export interface ItemsReader {
  readonly field: string;
  /** @returns the offset behind what it took, at most the list's end */
  take(chunk: Buffer, from: number): number;
  readonly ended: boolean;
}

/** The buffer for one text, literal or nested value. */
export function rawBytes(room: HeldRoom): KeptBytes {
  return new KeptBytes(HINT_LIST_BYTES_MAX, room);
}

export class JsonFieldsParser<Text extends string> {
  readonly #fields: JsonFields<Text>;
  readonly #image: JsonImageText;
  readonly #room: HeldRoom;
  readonly #seen = new Set<string>();
  readonly #texts = new Map<Text, TextValue>();
  /** The text, literal or nested value that is read now. */
  readonly #raw: KeptBytes;
  #state: State = 'start';
  #imageGiven = false;
  /** Decoded bytes of the image in this chunk. */
  #imageRun: Buffer = NOTHING;
  /** undefined: one that is skipped. */
  #field: string | undefined;
  #rawOverlong = false;
  /** Whether the text stands for itself. */
  #rawPlain = true;
  /** Whether, in a key or a text, the byte before was a backslash. */
  #escaped = false;
  #nullAt = 0;
  #nesting: Nesting = { depth: 0, inString: false, escaped: false };
  #given = 0;

  /**
   * @param room for the texts that are kept
   * @param raw objects that are read one behind the other share it
   */
  constructor(fields: JsonFields<Text>, room: HeldRoom, raw = rawBytes(room)) {
    this.#fields = fields;
    this.#room = room;
    this.#raw = raw;
    this.#image = new JsonImageText(fields.image);
  }

  /**
   * The unescaped text of the image's field in this chunk, empty where there is none. It is valid
   * until the next push, and may be a view of `chunk`, which is never written to.
   * @throws ContractError INVALID_REQUEST
   */
  push(chunk: Buffer): Buffer {
    const end = behindSpace(chunk, this.takeObject(chunk, 0));
    if (end < chunk.length) {
      throw malformed('The body goes on after the JSON object. Send one object.');
    }
    const image = this.#imageRun;
    this.#imageRun = NOTHING;
    return image;
  }

  /** The offset behind the object, or the chunk's length. @throws ContractError INVALID_REQUEST */
  takeObject(chunk: Buffer, from: number): number {
    let at = from;
    while (at < chunk.length && this.#state !== 'end') {
      switch (this.#state) {
        case 'image': {
          const run = this.#image.take(chunk, at);
          // One field, so one run a chunk: what came before in this chunk was not image.
          this.#imageRun = run.text;
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
        case 'items':
          at = this.#takeItems(chunk, at);
          break;
        case 'null':
          this.#takeNull(chunk[at]!);
          at += 1;
          break;
        default:
          at = behindSpace(chunk, at);
          if (at < chunk.length) this.#takeByte(chunk[at++]!);
      }
    }
    return at;
  }

  get ended(): boolean {
    return this.#state === 'end';
  }

  /** The fields, after the last chunk. @throws ContractError INVALID_REQUEST */
  finish(): { readonly texts: ReadonlyMap<Text, TextValue>; readonly imageGiven: boolean } {
    if (this.#state === 'start') throw malformed('The body is empty. Send a JSON object.');
    if (this.#state !== 'end') throw malformed('The body ends in the middle of the JSON object.');
    return { texts: this.#texts, imageGiven: this.#imageGiven };
  }

  #takeByte(byte: number): void {
    switch (this.#state) {
      case 'start':
        if (byte === 0xef)
          throw malformed('The body has a byte order mark. Send UTF-8 without one.');
        if (byte !== OPENING_BRACE) throw malformed('The body must be a JSON object.');
        this.#state = 'first-key';
        return;
      case 'first-key':
      case 'next-key':
        if (byte === QUOTE) this.#startRaw('key');
        else if (byte === CLOSING_BRACE && this.#state === 'first-key') this.#state = 'end';
        else
          throw malformed('The body is not valid JSON: a field name in double quotes is missing.');
        return;
      case 'colon':
        if (byte !== COLON) throw malformed('The body is not valid JSON: a colon is missing.');
        this.#state = 'value';
        return;
      case 'value':
        this.#takeValueStart(byte);
        return;
      case 'more':
        if (byte === COMMA) this.#state = 'next-key';
        else if (byte === CLOSING_BRACE) this.#state = 'end';
        else throw malformed('The body is not valid JSON: a comma or a closing brace is missing.');
        return;
      default:
        throw new Error(`a byte of its own came in the state ${this.#state}`);
    }
  }

  #takeValueStart(byte: number): void {
    const field = this.#field;
    const character = String.fromCharCode(byte);
    const { items } = this.#fields;
    if (items !== undefined && items.field === field) {
      if (character !== '[')
        throw malformed(`${field} must be an array.`, field, 'must be an array');
      this.#state = 'items';
      return;
    }
    const literals = this.#fields.literalsOf(field);
    if (byte === QUOTE && field === this.#fields.image) {
      this.#imageGiven = true;
      this.#state = 'image';
    } else if (byte === QUOTE) {
      this.#startRaw('text');
    } else if (byte === NULL_LITERAL[0]) {
      this.#nullAt = 1;
      this.#state = 'null';
    } else if (literals.some(kind => FIRST_CHARACTERS[kind].includes(character))) {
      this.#startRaw('literal', byte);
    } else if (isNested(field, literals, character)) {
      this.#nesting = { depth: 1, inString: false, escaped: false };
      this.#startRaw('nested', byte);
    } else if ('{[tf-0123456789'.includes(character)) {
      const wrong = `must be ${typeOf(literals)}`;
      throw malformed(`${this.#shownField} ${wrong}.`, field, wrong);
    } else {
      throw malformed('The body is not valid JSON: a value is missing.');
    }
  }

  #takeNull(byte: number): void {
    if (byte !== NULL_LITERAL[this.#nullAt]) {
      throw malformed('The body is not valid JSON: a value is neither a string nor null.');
    }
    this.#nullAt += 1;
    if (this.#nullAt === NULL_LITERAL.length) this.#state = 'more';
  }

  /** @param first its first byte, where that is kept */
  #startRaw(state: 'key' | 'text' | 'literal' | 'nested', first?: number): void {
    this.#state = state;
    this.#raw.truncate(0);
    if (first !== undefined) this.#raw.append(Uint8Array.of(first));
    this.#rawOverlong = false;
    this.#rawPlain = true;
    this.#escaped = false;
  }

  /** False: they do not fit, and are dropped. */
  #keepRaw(bytesMax: number, chunk: Buffer, from: number, end: number): boolean {
    if (this.#raw.length + end - from > bytesMax) return false;
    return this.#raw.append(chunk, from, end);
  }

  /** Collects a small string up to its closing quote. The offset after what it took. */
  #takeText(chunk: Buffer, from: number): number {
    let end = from;
    let escaped = this.#escaped;
    let plain = this.#rawPlain;
    for (; end < chunk.length; end += 1) {
      const byte = chunk[end]!;
      if (escaped) escaped = false;
      else if (byte === BACKSLASH) escaped = true;
      else if (byte === QUOTE) break;
      if (IS_PLAIN[byte] === 0) plain = false;
    }
    this.#escaped = escaped;
    this.#rawPlain = plain;
    this.#rawOverlong ||= !this.#keepRaw(RAW_TEXT_BYTES_MAX, chunk, from, end);
    if (end === chunk.length) return end;
    if (this.#state === 'key') this.#endKey();
    else this.#endValue();
    return end + 1;
  }

  /** Collects a literal up to what follows it, which is left for the next state. */
  #takeLiteral(chunk: Buffer, from: number): number {
    let end = from;
    while (end < chunk.length && !LITERAL_ENDS.includes(chunk[end]!)) end += 1;
    const field = this.#field;
    if (!this.#keepRaw(LITERAL_BYTES_MAX, chunk, from, end)) {
      const detail = `${this.#shownField} is over ${LITERAL_BYTES_MAX} characters.`;
      throw malformed(detail, field, 'is too long');
    }
    if (end === chunk.length) return end;
    const text = literalText(this.#raw.view().toString('latin1'));
    if (text === undefined) {
      const detail = `${this.#shownField} must be ${typeOf(this.#fields.literalsOf(field))}.`;
      throw malformed(detail, field, 'is not valid');
    }
    if (field !== undefined) this.#texts.set(field as Text, text);
    this.#state = 'more';
    return end;
  }

  /** One that is skipped is kept only to see that it is JSON; a list's text is kept. */
  #takeNested(chunk: Buffer, from: number): number {
    const field = this.#field;
    const bytesMax = field === undefined ? RAW_TEXT_BYTES_MAX : HINT_LIST_BYTES_MAX;
    const end = endOfNested(this.#nesting, chunk, from);
    if (!this.#keepRaw(bytesMax, chunk, from, end)) {
      throw malformed(`${this.#shownField} is over ${bytesMax} bytes.`, field, 'is too long');
    }
    if (this.#nesting.depth > 0) return end;
    let text: string;
    try {
      text = UTF8.decode(this.#raw.view());
      JSON.parse(text);
    } catch (cause) {
      throw malformed(`${this.#shownField} is not valid JSON.`, field, 'is not valid', cause);
    }
    if (field !== undefined) {
      this.#room.grow(bytesOfText(text));
      this.#texts.set(field as Text, text);
    }
    this.#state = 'more';
    return end;
  }

  #takeItems(chunk: Buffer, from: number): number {
    const { items } = this.#fields;
    if (items === undefined) throw new Error('a list without a reader has begun');
    const end = items.take(chunk, from);
    if (items.ended) this.#state = 'more';
    return end;
  }

  /** The field's name for an error's sentence. */
  get #shownField(): string {
    return this.#field ?? 'The value of an unknown field';
  }

  #endKey(): void {
    this.#given += 1;
    if (this.#given > FIELDS_MAX) throw tooManyFields('The object');
    const name = this.#rawOverlong ? undefined : this.#decodeRaw('The name of a field');
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
    this.#room.grow(bytesOfText(text));
    this.#texts.set(field as Text, text);
  }

  /** JSON.parse checks escapes and control characters. */
  #decodeRaw(what: string, field?: string): string {
    if (this.#rawPlain) return this.#raw.view().toString('latin1');
    let text: string;
    try {
      const raw = UTF8.decode(this.#raw.view());
      text = JSON.parse(`"${raw}"`) as string;
    } catch (cause) {
      throw malformed(`${what} is not a valid JSON string in UTF-8.`, field, 'is not valid', cause);
    }
    if (!text.isWellFormed()) {
      throw malformed(`${what} holds half of a surrogate pair.`, field, 'is not valid Unicode');
    }
    return text;
  }
}

/**
 * A Base64 reader would skip these as white space, but JSON forbids them unescaped in a string. The
 * Base64 reader refuses the other control characters.
 */
const RAW_WHITE_SPACE = [0x09, 0x0a, 0x0b, 0x0c, 0x0d];
/** 1 for each byte of a string that does not stand for itself. */
const IS_SPECIAL = new Uint8Array(256);
for (const byte of [QUOTE, BACKSLASH, ...RAW_WHITE_SPACE]) IS_SPECIAL[byte] = 1;
/** Stands for an escaped character that is not ASCII: in no Base64 alphabet either. */
const NOT_ASCII = 0xff;

/** The byte that each escape but `u` stands for. 0: it is not an escape. */
const ESCAPES = new Uint8Array(256);
for (const pair of ['""', '\\\\', '//', 'b\b', 'f\f', 'n\n', 'r\r', 't\t']) {
  ESCAPES[pair.charCodeAt(0)] = pair.charCodeAt(1);
}

interface Run {
  /** Valid until the next one, and perhaps a view of the chunk, which is never written to. */
  readonly text: Buffer;
  /** The offset behind it. */
  readonly next: number;
  /** The text's closing quote came. */
  readonly ended: boolean;
}

/** The text of the image's field, of any length. Whether it is Base64, the reader of that says. */
export class JsonImageText {
  readonly #field: string;
  /** 0 outside an escape, 1 after the backslash, 2 to 5 before each digit of \uXXXX. */
  #escapeStep = 0;
  #escapeCode = 0;

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
   * The path of a chunk with escapes: some encoders write `\/` for every slash. By indexes below
   * the length, since a large body goes through here byte by byte.
   */
  #unescape(chunk: Buffer, from: number): Run {
    // The buffer is of this call alone. A kept one would stay as long as the caller is silent.
    const out = Buffer.allocUnsafe(chunk.length - from);
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
        // The escape is mostly a letter in the same chunk.
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
    const detail = `${this.#field} holds a control character. Escape it.`;
    return malformed(detail, this.#field, 'holds a control character');
  }

  #badEscape(): ContractError {
    return malformed(`${this.#field} holds a wrong escape.`, this.#field, 'holds a wrong escape');
  }
}
