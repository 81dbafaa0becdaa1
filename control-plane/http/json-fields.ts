/**
 * A body that is JSON, read as it arrives: one flat object whose values are strings, null or, for
 * some fields, true, false or a number. Small texts are kept; that of the image is handed on
 * unescaped and never kept, so that a body of 70 MB costs the memory of one chunk. Syntax,
 * duplicates and types are this file's, which fields there are its caller's. A field that is
 * skipped may be an object or an array, within a bound. One field may be a list of such flat
 * objects: only the texts of an item are kept, and the first item over the bound ends the reading.
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
/** 1 for what JSON has as white space: a body may be made of it. */
const IS_SPACE = new Uint8Array(256);
for (const byte of ' \t\n\r') IS_SPACE[byte.charCodeAt(0)] = 1;

/** 1 for ASCII that needs no escape. Most names and texts consist of it. */
const IS_PLAIN = new Uint8Array(256).fill(1, 0x20, 0x80);
IS_PLAIN[BACKSLASH] = 0;

/** The offset of what follows the white space, or the chunk's length. */
function behindSpace(chunk: Buffer, from: number): number {
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

/** The fields that an object may have. */
export interface JsonFields<Text extends string> {
  /** The one whose text is Base64, which is handed on. */
  readonly image: string;
  /**
   * @param name undefined: too long to be kept
   * @param seen fields of the object so far
   * @returns a Text or the image's; undefined: the value is skipped, whatever its text is
   * @throws ContractError where there is no such field
   */
  fieldOf(name: string | undefined, seen: ReadonlySet<string>): Text | string | undefined;
  literalsOf(field: string | undefined): readonly LiteralKind[];
  /** One of the fields is a list of objects. Absent: none is. */
  readonly items?: JsonItems | undefined;
}

export interface JsonItems {
  readonly field: string;
  readonly itemsMax: number;
  readonly fields: JsonFields<string>;
  /** Takes the next item. @throws ContractError of a field of the item */
  take(texts: ReadonlyMap<string, TextValue>): void;
}

/** Memory of an item beside the characters of its texts. */
const ITEM_BYTES = 512;

/** Ends each chunk with a yield, and goes on in the next. Its frames hold no chunk meanwhile. */
type Reading<Taken = void> = Generator<void, Taken, void>;

interface Value {
  /** Takes what the chunk has of it. True: it is whole. */
  take(): boolean;
  /** Absent: it is null, or kept by nobody here. */
  end?(): TextValue | undefined;
}

export class JsonFieldsParser<Text extends string> {
  readonly #room: HeldRoom;
  readonly #image: JsonImageText;
  readonly #texts = new Map<Text, TextValue>();
  readonly #reading: Reading;
  #place: 'before' | 'within' | 'behind' = 'before';
  #chunk: Buffer = NOTHING;
  /** The offset in the chunk of what comes next. */
  #at = 0;
  #imageGiven = false;
  /** Decoded bytes of the image in this chunk. */
  #imageRun: Buffer = NOTHING;
  /** The text, literal or nested value that is read now. */
  readonly #raw: KeptBytes;
  #rawOverlong = false;
  /** Whether the text stands for itself. */
  #rawPlain = true;
  /** Whether, in a key or a text, the byte before was a backslash. */
  #escaped = false;
  #nullLeft = '';
  #nesting: Nesting = { depth: 0, inString: false, escaped: false };

  /** @param room for the texts that are kept */
  constructor(fields: JsonFields<Text>, room: HeldRoom) {
    this.#room = room;
    this.#raw = new KeptBytes(HINT_LIST_BYTES_MAX, room);
    this.#image = new JsonImageText(fields.image);
    this.#reading = this.#body(fields);
  }

  /**
   * The unescaped text of the image's field in this chunk, empty where there is none. It is valid
   * until the next push, and may be a view of `chunk`, which is never written to.
   * @throws ContractError INVALID_REQUEST; of an item, it names the item and its field
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

  /** The fields, after the last chunk. @throws ContractError INVALID_REQUEST */
  finish(): { readonly texts: ReadonlyMap<Text, TextValue>; readonly imageGiven: boolean } {
    if (this.#place === 'before') throw malformed('The body is empty. Send a JSON object.');
    if (this.#place === 'within')
      throw malformed('The body ends in the middle of the JSON object.');
    return { texts: this.#texts, imageGiven: this.#imageGiven };
  }

  *#body(fields: JsonFields<Text>): Reading {
    const first = this.#take() ?? (yield* this.#takeLater());
    if (first === 0xef) throw malformed('The body has a byte order mark. Send UTF-8 without one.');
    if (first !== OPENING_BRACE) throw malformed('The body must be a JSON object.');
    this.#place = 'within';
    yield* this.#object(fields, this.#texts);
    this.#place = 'behind';
    if (this.#take() === undefined) yield* this.#takeLater();
    throw malformed('The body goes on after the JSON object. Send one object.');
  }

  /** Takes the next byte that is no white space. Undefined: the chunk is used up. */
  #take(): number | undefined {
    this.#at = behindSpace(this.#chunk, this.#at);
    return this.#at < this.#chunk.length ? this.#chunk[this.#at++] : undefined;
  }

  /** Takes it from the chunks to come. */
  *#takeLater(): Reading<number> {
    for (;;) {
      yield;
      const byte = this.#take();
      if (byte !== undefined) return byte;
    }
  }

  /** Reads what stands behind the opening brace. */
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
      const behind = this.#take() ?? (yield* this.#takeLater());
      if (behind === CLOSING_BRACE) return;
      if (behind !== COMMA) {
        throw malformed('The body is not valid JSON: a comma or a closing brace is missing.');
      }
    }
  }

  /** @param byte its first */
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
      const behind = this.#take() ?? (yield* this.#takeLater());
      if (behind === CLOSING_BRACKET) return;
      if (behind !== COMMA) {
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

  /** Takes what the chunk has of it. True: the closing quote came; so for the others below. */
  #takeImage(): boolean {
    const { text, next, ended } = this.#image.take(this.#chunk, this.#at);
    // One field, so one run a chunk: what came before in this chunk was not image.
    this.#imageRun = text;
    this.#at = next;
    return ended;
  }

  /** @param first its first byte, where that is kept */
  #startRaw(first?: number): void {
    this.#raw.truncate(0);
    if (first !== undefined) this.#raw.append(Uint8Array.of(first));
    this.#rawOverlong = false;
    this.#rawPlain = true;
    this.#escaped = false;
  }

  /** Moves on to `end`. False: the bytes until there do not fit, and are dropped. */
  #keepRaw(bytesMax: number, end: number): boolean {
    const from = this.#at;
    this.#at = end;
    if (this.#raw.length + end - from > bytesMax) return false;
    return this.#raw.append(this.#chunk, from, end);
  }

  /** Collects a small string. */
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

  /** Collects a literal up to what follows it. */
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

  /** Collects an object or an array. One that is skipped is kept only to see that it is JSON. */
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

/** The field's name for an error's sentence. */
function shown(field: string | undefined): string {
  return field ?? 'The value of an unknown field';
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
  readonly field: string;
  /** 0 outside an escape, 1 after the backslash, 2 to 5 before each digit of \uXXXX. */
  #escapeStep = 0;
  #escapeCode = 0;

  constructor(field: string) {
    this.field = field;
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
    const detail = `${this.field} holds a control character. Escape it.`;
    return malformed(detail, this.field, 'holds a control character');
  }

  #badEscape(): ContractError {
    return malformed(`${this.field} holds a wrong escape.`, this.field, 'holds a wrong escape');
  }
}
