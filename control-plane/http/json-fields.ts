/**
 * A streaming reader for a JSON body: one flat object of strings, nulls and, for some fields,
 * booleans, numbers or lists. It keeps small texts and passes on the image's text unescaped, so a
 * body of 70 MB takes the memory of one chunk. It checks syntax, duplicates and types; the caller
 * knows the fields. A skipped field may be an object or an array, within a bound. One field may be
 * a list of such flat objects; the first item over its bound ends the reading.
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
  underPath,
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
const OPENING_BRACKET = 0x5b;
const CLOSING_BRACKET = 0x5d;
/** 1 for JSON's white space. A body may consist of it. */
const IS_SPACE = new Uint8Array(256);
for (const byte of ' \t\n\r') IS_SPACE[byte.charCodeAt(0)] = 1;

const IS_PLAIN = new Uint8Array(256).fill(1, 0x20, 0x80);
IS_PLAIN[BACKSLASH] = 0;

function skipSpace(chunk: Buffer, from: number): number {
  let at = from;
  while (at < chunk.length && IS_SPACE[chunk[at]!] === 1) at += 1;
  return at;
}

/** A text within URL_LENGTH_MAX needs at most `\uXXXX` a character. */
const RAW_TEXT_BYTES_MAX = 6 * URL_LENGTH_MAX;
const LITERAL_BYTES_MAX = 64;

/** Kinds of values other than string and null. Each means the same as its text. */
type LiteralKind = 'boolean' | 'number' | 'list';

/** RFC 8259 section 6. */
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const FIRST_CHARACTERS: Readonly<Record<LiteralKind, string>> = {
  boolean: 'tf',
  number: '-0123456789',
  list: '',
};
const LITERAL_ENDS = Buffer.from(' \t\r\n,}');

function typeOf(kinds: readonly LiteralKind[]): string {
  return [...kinds, 'string'].map(kind => `a ${kind}`).join(' or ');
}

/** A skipped field may be an object too. */
function isNested(field: string | undefined, kinds: readonly LiteralKind[], character: string) {
  if (field === undefined) return '{['.includes(character);
  return character === '[' && kinds.includes('list');
}

/** The canonical text: 1000 for 1e3. undefined: not JSON. */
function literalText(literal: string): string | undefined {
  if (literal === 'true' || literal === 'false') return literal;
  return NUMBER.test(literal) ? String(Number(literal)) : undefined;
}

interface Nesting {
  /** 0: the value has ended. */
  depth: number;
  inString: boolean;
  escaped: boolean;
}

/** Change of depth by each byte outside of strings. JSON.parse checks later that they match. */
const DEPTH_OF = new Int8Array(256);
for (const open of '{[') DEPTH_OF[open.charCodeAt(0)] = 1;
for (const close of '}]') DEPTH_OF[close.charCodeAt(0)] = -1;

/** Offset after the value's last byte, or the chunk's length. Updates `nesting`. */
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

export interface JsonFields<Text extends string> {
  /** The field with the Base64 text. */
  readonly image: string;
  /**
   * @param name undefined: too long to be kept
   * @returns undefined: skip the value
   * @throws ContractError: there is no such field
   */
  fieldOf(name: string | undefined, seen: ReadonlySet<string>): Text | string | undefined;
  literalsOf(field: string | undefined): readonly LiteralKind[];
  /** A field that is a list of objects. */
  readonly items?: JsonItems | undefined;
}

export interface JsonItems {
  readonly field: string;
  readonly itemsMax: number;
  readonly fields: JsonFields<string>;
  take(texts: ReadonlyMap<string, TextValue>): void;
}

/** Memory of an item without the characters of its texts. */
const ITEM_BYTES = 512;

/** Yields at the end of each chunk. Its frames hold no chunk meanwhile. */
type Reading<Taken = void> = Generator<void, Taken, void>;

interface Value {
  /** True: the value is complete. */
  take(): boolean;
  /** Absent: the value is null or not kept. */
  end?(): TextValue | undefined;
}

export class JsonFieldsParser<Text extends string> {
  readonly #room: HeldRoom;
  readonly #image: JsonImageText;
  readonly #texts = new Map<Text, TextValue>();
  readonly #reading: Reading;
  #position: 'before' | 'within' | 'after' = 'before';
  #chunk: Buffer = NOTHING;
  #at = 0;
  #imageGiven = false;
  /** The image's unescaped text in this chunk. */
  #imageRun: Buffer = NOTHING;
  readonly #raw: KeptBytes;
  #rawOverlong = false;
  /** The text has no escapes. */
  #rawPlain = true;
  #escaped = false;
  #nullLeft = '';
  #nesting: Nesting = { depth: 0, inString: false, escaped: false };

  constructor(fields: JsonFields<Text>, room: HeldRoom) {
    this.#room = room;
    this.#raw = new KeptBytes(HINT_LIST_BYTES_MAX, room);
    this.#image = new JsonImageText(fields.image);
    this.#reading = this.#body(fields);
  }

  /**
   * Returns the image's unescaped text in this chunk, possibly empty. It is valid until the next
   * push and may be a view of `chunk`.
   * @throws ContractError INVALID_REQUEST, which names an item and its field
   */
  push(chunk: Buffer): Buffer {
    this.#chunk = chunk;
    this.#at = 0;
    this.#imageRun = NOTHING;
    this.#reading.next();
    this.#chunk = NOTHING;
    const image = this.#imageRun;
    this.#imageRun = NOTHING;
    return image;
  }

  /** @throws ContractError INVALID_REQUEST */
  finish(): { readonly texts: ReadonlyMap<Text, TextValue>; readonly imageGiven: boolean } {
    if (this.#position === 'before') throw malformed('The body is empty. Send a JSON object.');
    if (this.#position === 'within')
      throw malformed('The body ends in the middle of the JSON object.');
    return { texts: this.#texts, imageGiven: this.#imageGiven };
  }

  *#body(fields: JsonFields<Text>): Reading {
    const first = this.#take() ?? (yield* this.#takeLater());
    if (first === 0xef) throw malformed('The body has a byte order mark. Send UTF-8 without one.');
    if (first !== OPENING_BRACE) throw malformed('The body must be a JSON object.');
    this.#position = 'within';
    yield* this.#object(fields, this.#texts);
    this.#position = 'after';
    if (this.#take() === undefined) yield* this.#takeLater();
    throw malformed('The body goes on after the JSON object. Send one object.');
  }

  /** Takes the next byte after white space. undefined: the chunk is used up. */
  #take(): number | undefined {
    this.#at = skipSpace(this.#chunk, this.#at);
    return this.#at < this.#chunk.length ? this.#chunk[this.#at++] : undefined;
  }

  *#takeLater(): Reading<number> {
    for (;;) {
      yield;
      const byte = this.#take();
      if (byte !== undefined) return byte;
    }
  }

  /** Reads an object after its opening brace. */
  *#object<Name extends string>(fields: JsonFields<Name>, texts: Map<Name, TextValue>): Reading {
    const seen = new Set<string>();
    for (let given = 1; ; given += 1) {
      const first = this.#take() ?? (yield* this.#takeLater());
      if (first === CLOSING_BRACE && given === 1) return;
      if (first !== QUOTE) {
        throw malformed('The body is not valid JSON: a field name in double quotes is missing.');
      }
      this.#startRaw();
      while (!this.#takeText()) yield;
      if (given > FIELDS_MAX) throw tooManyFields('The object');
      const name = this.#rawOverlong ? undefined : this.#decodeRaw('The name of a field');
      const field = fields.fieldOf(name, seen);
      if (field !== undefined && seen.has(field)) throw givenTwice(field);
      if (field !== undefined) seen.add(field);
      const colon = this.#take() ?? (yield* this.#takeLater());
      if (colon !== COLON) throw malformed('The body is not valid JSON: a colon is missing.');
      const begin = this.#take() ?? (yield* this.#takeLater());
      if (field !== undefined && fields.items?.field === field) {
        yield* this.#items(fields.items, begin);
      } else {
        const { take, end } = this.#value(fields.literalsOf(field), field, begin);
        while (!take()) yield;
        const text = end?.();
        if (text !== undefined) texts.set(field as Name, text);
      }
      const separator = this.#take() ?? (yield* this.#takeLater());
      if (separator === CLOSING_BRACE) return;
      if (separator !== COMMA) {
        throw malformed('The body is not valid JSON: a comma or a closing brace is missing.');
      }
    }
  }

  /** @param byte the value's first byte */
  #value(kinds: readonly LiteralKind[], field: string | undefined, byte: number): Value {
    const character = String.fromCharCode(byte);
    if (byte === QUOTE && field === this.#image.field) {
      this.#imageGiven = true;
      return { take: () => this.#takeImage() };
    }
    if (byte === QUOTE) {
      this.#startRaw();
      return { take: () => this.#takeText(), end: () => this.#textOf(field) };
    }
    if (character === 'n') {
      this.#nullLeft = 'ull';
      return { take: () => this.#takeNull() };
    }
    if (kinds.some(kind => FIRST_CHARACTERS[kind].includes(character))) {
      this.#startRaw(byte);
      return { take: () => this.#takeLiteral(field), end: () => this.#literalOf(field, kinds) };
    }
    if (isNested(field, kinds, character)) {
      this.#startRaw(byte);
      this.#nesting = { depth: 1, inString: false, escaped: false };
      return { take: () => this.#takeNested(field), end: () => this.#nestedOf(field) };
    }
    if (!'{[tf-0123456789'.includes(character)) {
      throw malformed('The body is not valid JSON: a value is missing.');
    }
    const wrong = `must be ${typeOf(kinds)}`;
    throw malformed(`${shown(field)} ${wrong}.`, field, wrong);
  }

  *#items({ field, itemsMax, fields, take }: JsonItems, begin: number): Reading {
    if (begin !== OPENING_BRACKET) {
      throw malformed(`${field} must be an array.`, field, 'must be an array');
    }
    for (let count = 0; ; count += 1) {
      const path = `${field}[${count}]`;
      const first = this.#take() ?? (yield* this.#takeLater());
      if (count === itemsMax || (count === 0 && first === CLOSING_BRACKET)) {
        const wrong = `must have 1 to ${itemsMax} items`;
        throw malformed(`${field} ${wrong}.`, field, wrong);
      }
      if (first !== OPENING_BRACE) {
        throw malformed(`${path} must be a JSON object.`, path, 'must be a JSON object');
      }
      this.#room.grow(ITEM_BYTES);
      const texts = new Map<string, TextValue>();
      try {
        yield* this.#object(fields, texts);
        take(texts);
      } catch (error) {
        underPath(path, () => {
          throw error;
        });
      }
      const separator = this.#take() ?? (yield* this.#takeLater());
      if (separator === CLOSING_BRACKET) return;
      if (separator !== COMMA) {
        throw malformed(`${field} has no comma between two items.`, field, 'is not valid JSON');
      }
    }
  }

  #takeNull(): boolean {
    while (this.#at < this.#chunk.length && this.#nullLeft !== '') {
      if (this.#chunk[this.#at++] !== this.#nullLeft.charCodeAt(0)) {
        throw malformed('The body is not valid JSON: a value is neither a string nor null.');
      }
      this.#nullLeft = this.#nullLeft.slice(1);
    }
    return this.#nullLeft === '';
  }

  /** This and the other readers below return true at the end of the value. */
  #takeImage(): boolean {
    const { text, next, ended } = this.#image.take(this.#chunk, this.#at);
    // There is one image field, so at most one run a chunk.
    this.#imageRun = text;
    this.#at = next;
    return ended;
  }

  #startRaw(first?: number): void {
    this.#raw.truncate(0);
    if (first !== undefined) this.#raw.append(Uint8Array.of(first));
    this.#rawOverlong = false;
    this.#rawPlain = true;
    this.#escaped = false;
  }

  /** False: the bytes exceed the bound and are dropped. */
  #keepRaw(bytesMax: number, end: number): boolean {
    const from = this.#at;
    this.#at = end;
    if (this.#raw.length + end - from > bytesMax) return false;
    return this.#raw.append(this.#chunk, from, end);
  }

  #takeText(): boolean {
    const chunk = this.#chunk;
    let end = this.#at;
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
    this.#rawOverlong ||= !this.#keepRaw(RAW_TEXT_BYTES_MAX, end);
    const isWhole = end < chunk.length;
    this.#at = isWhole ? end + 1 : end;
    return isWhole;
  }

  #textOf(field: string | undefined): TextValue | undefined {
    if (field === undefined) return undefined;
    const text = this.#rawOverlong ? OVERLONG : this.#decodeRaw(field, field);
    this.#room.grow(bytesOfText(text));
    return text;
  }

  #takeLiteral(field: string | undefined): boolean {
    let end = this.#at;
    while (end < this.#chunk.length && !LITERAL_ENDS.includes(this.#chunk[end]!)) end += 1;
    if (!this.#keepRaw(LITERAL_BYTES_MAX, end)) {
      const detail = `${shown(field)} is over ${LITERAL_BYTES_MAX} characters.`;
      throw malformed(detail, field, 'is too long');
    }
    return end < this.#chunk.length;
  }

  #literalOf(field: string | undefined, kinds: readonly LiteralKind[]): string | undefined {
    const text = literalText(this.#raw.view().toString('latin1'));
    if (text === undefined) {
      throw malformed(`${shown(field)} must be ${typeOf(kinds)}.`, field, 'is not valid');
    }
    return field === undefined ? undefined : text;
  }

  /** A skipped value is kept only to check its syntax. */
  #takeNested(field: string | undefined): boolean {
    const bytesMax = field === undefined ? RAW_TEXT_BYTES_MAX : HINT_LIST_BYTES_MAX;
    if (!this.#keepRaw(bytesMax, endOfNested(this.#nesting, this.#chunk, this.#at))) {
      throw malformed(`${shown(field)} is over ${bytesMax} bytes.`, field, 'is too long');
    }
    return this.#nesting.depth === 0;
  }

  #nestedOf(field: string | undefined): string | undefined {
    let text: string;
    try {
      text = UTF8.decode(this.#raw.view());
      JSON.parse(text);
    } catch (cause) {
      throw malformed(`${shown(field)} is not valid JSON.`, field, 'is not valid', cause);
    }
    if (field === undefined) return undefined;
    this.#room.grow(bytesOfText(text));
    return text;
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

function shown(field: string | undefined): string {
  return field ?? 'The value of an unknown field';
}

/**
 * JSON forbids these unescaped in a string, but the Base64 decoder would skip them as white space.
 * It refuses the other control characters.
 */
const RAW_WHITE_SPACE = [0x09, 0x0a, 0x0b, 0x0c, 0x0d];
const IS_SPECIAL = new Uint8Array(256);
for (const byte of [QUOTE, BACKSLASH, ...RAW_WHITE_SPACE]) IS_SPECIAL[byte] = 1;
/** Replaces an escaped character beyond ASCII. It is outside of every Base64 alphabet. */
const NOT_ASCII = 0xff;

/** The byte of each escape except `u`. 0: not an escape. */
const ESCAPES = new Uint8Array(256);
for (const pair of ['""', '\\\\', '//', 'b\b', 'f\f', 'n\n', 'r\r', 't\t']) {
  ESCAPES[pair.charCodeAt(0)] = pair.charCodeAt(1);
}

interface Run {
  /** Valid until the next run. May be a view of the chunk. */
  readonly text: Buffer;
  /** Offset after the run. */
  readonly next: number;
  readonly ended: boolean;
}

/** Unescapes the image's text, of any length. */
export class JsonImageText {
  readonly field: string;
  /** 0 outside an escape, 1 after the backslash, 2 to 5 before each digit of \uXXXX. */
  #escapeStep = 0;
  #escapeCode = 0;

  constructor(field: string) {
    this.field = field;
  }

  take(chunk: Buffer, from: number): Run {
    const quote = chunk.indexOf(QUOTE, from);
    const end = quote === -1 ? chunk.length : quote;
    const text = chunk.subarray(from, end);
    if (this.#escapeStep !== 0 || text.includes(BACKSLASH)) return this.#unescape(chunk, from);
    // memchr scans gigabytes a second, a loop over the bytes a tenth of that.
    if (RAW_WHITE_SPACE.some(byte => text.includes(byte))) throw this.#controlCharacter();
    return quote === -1 ? { text, next: end, ended: false } : { text, next: end + 1, ended: true };
  }

  /**
   * By indexes, because a large body may pass byte by byte: some encoders write each slash as `\/`.
   */
  #unescape(chunk: Buffer, from: number): Run {
    // A kept buffer would stay for as long as the caller is silent.
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
        const unescaped = ESCAPES[byte]!;
        if (unescaped === 0 && byte !== LETTER_U) throw this.#badEscape();
        step = byte === LETTER_U ? 2 : 0;
        code = 0;
        if (step === 0) out[length++] = unescaped;
      } else if (IS_SPECIAL[byte] === 0) {
        out[length++] = byte;
      } else if (byte === BACKSLASH) {
        // The usual case: a simple escape in one chunk.
        const unescaped = at + 1 < chunk.length ? ESCAPES[chunk[at + 1]!]! : 0;
        if (unescaped === 0) {
          step = 1;
        } else {
          out[length++] = unescaped;
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
    const detail = `${this.field} holds a control character. Escape it.`;
    return malformed(detail, this.field, 'holds a control character');
  }

  #badEscape(): ContractError {
    return malformed(`${this.field} holds a wrong escape.`, this.field, 'holds a wrong escape');
  }
}
