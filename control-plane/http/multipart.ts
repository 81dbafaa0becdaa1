/**
 * A strict streaming reader for multipart/form-data (RFC 7578, RFC 2046 section 5.1). A lenient
 * reader would skip or cut data, and the caller would pay for a wrong result (docs/adr/0019). Data
 * is passed on as views of the chunks and never kept.
 *
 * | state     | expects                                             | then                          |
 * |-----------|-----------------------------------------------------|-------------------------------|
 * | start     | line ends, the first delimiter                      | delimiter                     |
 * | delimiter | `--`; or blanks and a line end                      | end; head                     |
 * | head      | lines of headers, an empty line                     | data                          |
 * | data      | bytes, a line end and the delimiter                 | delimiter                     |
 * | end       | blanks and line ends                                | -                             |
 */
import { isAscii } from 'node:buffer';
import type { Readable } from 'node:stream';
import type { HeldRoom } from '@matting/program/held-bytes.ts';
import { HINT_LIST_BYTES_MAX } from '@matting/proto/contract/hints-fields.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import { type BodyBounds, readBody } from './bodies.ts';
import {
  bytesOfText,
  FIELDS_MAX,
  malformed,
  OVERLONG,
  shownName,
  type TextValue,
  tooManyFields,
} from './body-fields.ts';
import { KeptBytes, NOTHING } from './kept-bytes.ts';
import {
  type ContentType,
  charsetOf,
  extendsAscii,
  parseContentType,
  readParameters,
} from './request-headers.ts';

export interface PartHead {
  /** A client's text: never use it as a key of a plain object. */
  readonly name: string;
  /** A file name, or the type of a picture or of bytes: clients may leave out either. */
  readonly isFile: boolean;
  /** The charset agrees with UTF-8 on ASCII only. */
  readonly isAscii: boolean;
}

/** No control characters. Bytes beyond ASCII may be UTF-8. */
const HEADER = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t -~\x80-\xff]*)$/;
const DISPOSITION = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+/;
const FILE_TYPE = /^(?:image\/|(?:application|binary)\/octet-stream)/i;
/** RFC 2046 section 5.1.1, but without spaces inside. */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=?]{1,70}$/;
const UTF8_CHARSETS = ['utf-8', 'utf8', 'us-ascii', 'ascii'];
const PLAIN_ENCODINGS = ['7bit', '8bit', 'binary'];

/** Ignores a charset (RFC 7578 section 4.6). @throws ContractError INVALID_REQUEST */
export function boundaryOf({ parameters }: ContentType): string {
  const boundary = parameters?.get('boundary');
  if (boundary !== undefined && BOUNDARY.test(boundary)) return boundary;
  throw malformed(
    'The Content-Type multipart/form-data must name one boundary of 1 to 70 characters.',
  );
}

/** Ignores other headers, as RFC 7578 section 4 asks. @throws ContractError INVALID_REQUEST */
function readPartHead(head: string): PartHead {
  const headers = readHeaders(head);
  const disposition = headers.get('content-disposition') ?? '';
  const type = DISPOSITION.exec(disposition)?.[0] ?? '';
  const parameters = readParameters(disposition, type.length);
  const written = parameters?.has('name*') ? undefined : parameters?.get('name');
  if (type.toLowerCase() !== 'form-data' || parameters === undefined || written === undefined) {
    throw malformed('A part has no valid header Content-Disposition: form-data; name="…".');
  }
  const name = Buffer.from(written, 'latin1').toString();
  requirePlainBytes(name, headers.get('content-transfer-encoding') ?? 'binary');
  const contentType = headers.get('content-type') ?? '';
  const hasFileName = parameters.has('filename') || parameters.has('filename*');
  const isFile = hasFileName || FILE_TYPE.test(contentType);
  if (/^multipart\//i.test(contentType)) {
    throw malformed('A part must not be multipart itself.', shownName(name));
  }
  return { name, isFile, isAscii: !isFile && isAsciiAlone(name, contentType) };
}

/** Keys are in lower case. */
function readHeaders(head: string): ReadonlyMap<string, string> {
  const headers = new Map<string, string>();
  if (head === '') return headers;
  // A line that begins with a blank continues the one before (RFC 5322 section 2.2.3).
  for (const line of head.replaceAll(/\r\n[ \t]+/g, ' ').split('\r\n')) {
    const [, name, value] = HEADER.exec(line) ?? [];
    if (name === undefined || value === undefined) {
      throw malformed('A part has a header that is not valid.');
    }
    const key = name.toLowerCase();
    if (headers.has(key) && key.startsWith('content-')) {
      throw malformed(`A part has the header ${key} twice.`);
    }
    headers.set(key, value.trim());
  }
  return headers;
}

function requirePlainBytes(name: string, encoding: string): void {
  if (PLAIN_ENCODINGS.includes(encoding.toLowerCase())) return;
  const detail = 'A part has a Content-Transfer-Encoding. Send its bytes as they are.';
  throw malformed(detail, shownName(name));
}

/** @throws ContractError INVALID_REQUEST: the charset changes the meaning of ASCII bytes */
function isAsciiAlone(name: string, contentType: string): boolean {
  const type = parseContentType(contentType);
  if (type === undefined || UTF8_CHARSETS.includes(charsetOf(type))) return false;
  if (extendsAscii(type)) return true;
  throw malformed('The text of a part must be UTF-8.', shownName(name));
}

/** UTF-8 takes at most three bytes for each UTF-16 unit of URL_LENGTH_MAX. */
const TEXT_BYTES_MAX = 3 * URL_LENGTH_MAX;

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export class PartText {
  readonly #room: HeldRoom;
  readonly #raw: KeptBytes;
  #isAscii = false;
  #isOverlong = false;
  #bytesMax = TEXT_BYTES_MAX;

  constructor(room: HeldRoom) {
    this.#room = room;
    this.#raw = new KeptBytes(HINT_LIST_BYTES_MAX, room);
  }

  begin(head: Pick<PartHead, 'isAscii'>, isList = false): void {
    this.#isAscii = head.isAscii;
    this.#bytesMax = isList ? HINT_LIST_BYTES_MAX : TEXT_BYTES_MAX;
    this.#isOverlong = false;
    this.#raw.truncate(0);
  }

  take(bytes: Buffer): void {
    const isOver = this.#raw.length + bytes.length > this.#bytesMax;
    this.#isOverlong ||= isOver || !this.#raw.append(bytes);
  }

  end(field: string): TextValue {
    if (this.#isOverlong) return OVERLONG;
    const raw = this.#raw.view();
    if (this.#isAscii && !isAscii(raw)) {
      throw malformed(`${field} is not ASCII. Send it as UTF-8.`, field, 'is not ASCII');
    }
    let text: string;
    try {
      text = UTF8.decode(raw);
    } catch (cause) {
      throw malformed(`${field} is not UTF-8.`, field, 'is not UTF-8', cause);
    }
    this.#room.grow(bytesOfText(text));
    return text;
  }
}

/** A name, two file names of 255 characters and a type are far shorter. */
const PART_HEAD_BYTES_MAX = 8192;
/** Line ends before the first delimiter, blanks after a delimiter, white space after the last. */
const PADDING_BYTES_MAX = 64;
/** A head at its bound and its end. */
const HELD_BYTES_MAX = PART_HEAD_BYTES_MAX + 4;

const CR = 0x0d;
const LINE_END = Buffer.from('\r\n');
const HEAD_END = Buffer.from('\r\n\r\n');
const DELIMITER_END = /^(?:--|[ \t]*\r\n)/;
const DELIMITER_END_START = /^(?:-|[ \t]*\r?)$/;
const WHITE_SPACE = /^[ \t\r\n]*$/;

export type PartEvent =
  | { readonly kind: 'head'; readonly head: PartHead }
  /** Valid until the next event is taken. */
  | { readonly kind: 'data'; readonly bytes: Buffer }
  | { readonly kind: 'end' };

type State = 'start' | 'delimiter' | 'head' | 'data' | 'end';

interface Step {
  readonly rest: Buffer;
  readonly events?: readonly PartEvent[];
}

export class MultipartReader {
  /** Begins with the line end before the delimiter. */
  readonly #delimiter: Buffer;
  #state: State = 'start';
  /** A possible start of a delimiter or head. */
  readonly #held: KeptBytes;
  #started = false;
  #parts = 0;
  #padding = 0;

  constructor(boundary: string, room: HeldRoom) {
    this.#delimiter = Buffer.from(`\r\n--${boundary}`, 'latin1');
    this.#held = new KeptBytes(HELD_BYTES_MAX, room);
    this.#held.append(LINE_END);
  }

  /**
   * Yields the events of this chunk. Process each event before you take the next.
   * @throws ContractError INVALID_REQUEST
   */
  *push(chunk: Buffer): Generator<PartEvent, void, void> {
    this.#started ||= chunk.length > 0;
    let rest = this.#held.length === 0 ? chunk : Buffer.concat([this.#held.view(), chunk]);
    this.#held.truncate(0);
    while (rest.length > 0) {
      const step = this.#step(rest);
      if (step === undefined) {
        this.#hold(rest);
        return;
      }
      rest = step.rest;
      if (step.events !== undefined) yield* step.events;
    }
  }

  /** Call it after the last chunk. @throws ContractError INVALID_REQUEST */
  finish(): void {
    if (!this.#started) throw malformed('The body is empty. Send multipart/form-data.');
    if (this.#state !== 'end') throw malformed('The body ends before its last boundary.');
  }

  /** undefined: it needs more bytes. */
  #step(bytes: Buffer): Step | undefined {
    switch (this.#state) {
      case 'start':
        return this.#takeStart(bytes);
      case 'delimiter':
        return this.#takeDelimiterEnd(bytes);
      case 'head':
        return this.#takeHead(bytes);
      case 'data':
        return this.#takeData(bytes);
      case 'end':
        return this.#takeEnd(bytes);
    }
  }

  #takeStart(bytes: Buffer): Step | undefined {
    const known = Math.min(bytes.length, this.#delimiter.length);
    if (bytes.compare(this.#delimiter, 0, known, 0, known) === 0) {
      if (known < this.#delimiter.length) return undefined;
      this.#state = 'delimiter';
      this.#padding = 0;
      return { rest: bytes.subarray(known) };
    }
    // The constructor added the first line end, so an empty line makes two.
    const lines = Math.min(bytes.length, HEAD_END.length);
    if (bytes.compare(HEAD_END, 0, lines, 0, lines) !== 0 || this.#padding > PADDING_BYTES_MAX) {
      throw malformed('The body does not begin with the boundary that its Content-Type names.');
    }
    if (lines < HEAD_END.length) return undefined;
    this.#padding += LINE_END.length;
    return { rest: bytes.subarray(LINE_END.length) };
  }

  #takeDelimiterEnd(bytes: Buffer): Step | undefined {
    const text = bytes.toString('latin1', 0, PADDING_BYTES_MAX);
    const [end] = DELIMITER_END.exec(text) ?? [];
    if (end === undefined) {
      if (text.length < PADDING_BYTES_MAX && DELIMITER_END_START.test(text)) return undefined;
      throw malformed(
        text.startsWith('\n')
          ? 'Lines of the body end in LF. Lines of multipart/form-data end in CR LF.'
          : 'Something other than the end of the line follows a boundary.',
      );
    }
    if (end === '--') {
      this.#state = 'end';
      return { rest: bytes.subarray(end.length) };
    }
    this.#parts += 1;
    if (this.#parts > FIELDS_MAX) throw tooManyFields('The body');
    this.#state = 'head';
    // Keeps the line end: a head without headers is an empty line right after it.
    return { rest: bytes.subarray(end.length - LINE_END.length) };
  }

  #takeHead(bytes: Buffer): Step | undefined {
    const end = bytes.indexOf(HEAD_END);
    if (end > PART_HEAD_BYTES_MAX || (end === -1 && bytes.length > PART_HEAD_BYTES_MAX)) {
      throw malformed(`The headers of a part are over ${PART_HEAD_BYTES_MAX} bytes.`);
    }
    if (end === -1) return undefined;
    const head = readPartHead(bytes.toString('latin1', LINE_END.length, end));
    this.#state = 'data';
    return { rest: bytes.subarray(end + HEAD_END.length), events: [{ kind: 'head', head }] };
  }

  #takeData(bytes: Buffer): Step | undefined {
    const at = bytes.indexOf(this.#delimiter);
    if (at !== -1) {
      this.#state = 'delimiter';
      return {
        rest: bytes.subarray(at + this.#delimiter.length),
        events: [...dataOf(bytes, at), { kind: 'end' }],
      };
    }
    const end = this.#delimiterStart(bytes);
    if (end === 0) return undefined;
    this.#hold(bytes.subarray(end));
    return { rest: NOTHING, events: dataOf(bytes, end) };
  }

  #hold(bytes: Buffer): void {
    if (!this.#held.append(bytes)) throw new Error('a part of a form holds more than it may');
  }

  /** Index of a trailing piece that may begin a delimiter, or the length. */
  #delimiterStart(bytes: Buffer): number {
    let at = bytes.indexOf(CR, Math.max(0, bytes.length - this.#delimiter.length + 1));
    while (at !== -1) {
      const length = bytes.length - at;
      if (bytes.compare(this.#delimiter, 0, length, at) === 0) return at;
      at = bytes.indexOf(CR, at + 1);
    }
    return bytes.length;
  }

  #takeEnd(bytes: Buffer): Step {
    this.#padding += bytes.length;
    if (this.#padding > PADDING_BYTES_MAX || !WHITE_SPACE.test(bytes.toString('latin1'))) {
      throw malformed('The body goes on after its last boundary.');
    }
    return { rest: NOTHING };
  }
}

/** @throws ContractError as MultipartReader and readBody */
export async function readParts(
  body: Readable,
  { boundary, room }: { readonly boundary: string; readonly room: HeldRoom },
  form: { take(event: PartEvent): Promise<void> },
  bounds: BodyBounds,
): Promise<void> {
  const reader = new MultipartReader(boundary, room);
  await readBody(body, bounds, async chunk => {
    for (const event of reader.push(chunk)) await form.take(event);
  });
  reader.finish();
}

function dataOf(bytes: Buffer, end: number): PartEvent[] {
  return end === 0 ? [] : [{ kind: 'data', bytes: bytes.subarray(0, end) }];
}
