/**
 * A body of the remove.bg interface, in whichever form it comes, moved into its fields and uploads
 * chunk by chunk. Texts are kept, pictures go into their uploads as they arrive, and what is empty
 * is absent: clients send every field they know. Fields that this interface does not have are
 * skipped, and named in the answer.
 */
import type { IncomingMessage } from 'node:http';
import type { ImageUpload, RequestUploads } from '@matting/core/submission/pictures.ts';
import {
  bodyChunks,
  FIELDS_MAX,
  givenTwice,
  HEX_VALUES,
  malformed,
  NOT_HEX,
  requireBodyHead,
  shownName,
  type TextValue,
  tooManyFields,
} from '@matting/http/bodies.ts';
import { type JsonFields, JsonFieldsParser } from '@matting/http/json-fields.ts';
import { boundaryOf, type PartEvent, PartText, readParts } from '@matting/http/multipart.ts';
import { bodyTypeOf, type ContentType } from '@matting/http/request-headers.ts';
import { REQUEST_BODY_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import { RemovebgRefusal } from './removebg-errors.ts';
import {
  REMOVEBG_PICTURES,
  REMOVEBG_TEXTS,
  type RemovebgFields,
  type RemovebgPicture,
  type RemovebgText,
} from './removebg-values.ts';

/** Far above any field's name. */
const NAME_BYTES_MAX = 256;

const AMPERSAND = 0x26;
const EQUALS = 0x3d;
const PERCENT = 0x25;
const PLUS = 0x2b;
const SPACE = 0x20;

/**
 * application/x-www-form-urlencoded (the WHATWG URL standard, section 5.1), read as it arrives, as
 * the parts that multipart/form-data would have: a picture in Base64 may have the length of a body.
 * It is strict where a lenient reader would change a picture: a `+` in Base64 that was sent as it is
 * means a space here, and is refused.
 *
 * | state | expects                            | then        |
 * |-------|------------------------------------|-------------|
 * | name  | bytes, `=`; or `&`: an empty value | value; name |
 * | value | bytes, `&`                         | name        |
 */
export class UrlencodedReader {
  readonly #base64Field: string;
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true });
  readonly #name = Buffer.allocUnsafe(NAME_BYTES_MAX);
  #nameBytes = 0;
  #state: 'name' | 'value' = 'name';
  #isBase64 = false;
  #field = '';
  /** Begun, empty ones too. */
  #pairs = 1;
  /** Bytes of an escape that are missing still: 2 behind the per cent sign. */
  #escapeLeft = 0;
  #escapeValue = 0;
  #scratch = Buffer.alloc(0);

  /** @param base64Field whose value is Base64 */
  constructor(base64Field: string) {
    this.#base64Field = base64Field;
  }

  /**
   * What happens in this chunk, in order. Each event is to be dealt with before the next is asked
   * for. @throws ContractError INVALID_REQUEST
   */
  *push(chunk: Buffer): Generator<PartEvent, void, void> {
    let at = 0;
    while (at < chunk.length) {
      const ampersand = chunk.indexOf(AMPERSAND, at);
      const pairEnd = ampersand === -1 ? chunk.length : ampersand;
      if (this.#state === 'name') {
        const equals = chunk.subarray(at, pairEnd).indexOf(EQUALS);
        const nameEnd = equals === -1 ? pairEnd : at + equals;
        this.#takeName(this.#decoded(chunk.subarray(at, nameEnd)));
        at = nameEnd;
        if (equals !== -1) {
          yield this.#head();
          at += 1;
        }
      } else {
        const bytes = this.#decoded(chunk.subarray(at, pairEnd));
        if (bytes.length > 0) yield { kind: 'data', bytes };
        at = pairEnd;
      }
      if (at === ampersand) {
        yield* this.#endPair();
        at += 1;
        this.#pairs += 1;
        if (this.#pairs > FIELDS_MAX) throw tooManyFields('the body');
      }
    }
  }

  *finish(): Generator<PartEvent, void, void> {
    yield* this.#endPair();
  }

  #takeName(bytes: Buffer): void {
    if (this.#nameBytes + bytes.length > NAME_BYTES_MAX) {
      throw malformed(`the name of a field is over ${NAME_BYTES_MAX} bytes`);
    }
    this.#name.set(bytes, this.#nameBytes);
    this.#nameBytes += bytes.length;
  }

  #head(): PartEvent {
    this.#requireWhole();
    let name: string;
    try {
      name = this.#utf8.decode(this.#name.subarray(0, this.#nameBytes));
    } catch (cause) {
      throw malformed('the name of a field is not UTF-8', undefined, undefined, cause);
    }
    this.#nameBytes = 0;
    this.#state = 'value';
    this.#field = name;
    this.#isBase64 = name === this.#base64Field;
    return { kind: 'head', head: { name, isFile: false, isAscii: false } };
  }

  *#endPair(): Generator<PartEvent, void, void> {
    this.#requireWhole();
    if (this.#state === 'value') yield { kind: 'end' };
    // A name without a value: an empty one, which is absent.
    this.#state = 'name';
    this.#nameBytes = 0;
    this.#isBase64 = false;
    this.#field = '';
  }

  #requireWhole(): void {
    if (this.#escapeLeft > 0) throw this.#badEscape();
  }

  /** A view of `bytes` where nothing is escaped, else of a buffer that the next call writes over. */
  #decoded(bytes: Buffer): Buffer {
    const hasPlus = bytes.includes(PLUS);
    if (hasPlus && this.#isBase64) {
      const detail = `${this.#base64Field} has a space, or a + that is not written %2B`;
      throw malformed(detail, this.#base64Field, 'a + is not written %2B');
    }
    if (this.#escapeLeft === 0 && !hasPlus && !bytes.includes(PERCENT)) return bytes;
    if (this.#scratch.length < bytes.length) this.#scratch = Buffer.allocUnsafe(bytes.length);
    const out = this.#scratch;
    let [left, value, length] = [this.#escapeLeft, this.#escapeValue, 0];
    // By indexes below the length: a body may be made of escapes, and `of` takes five times as long.
    for (let index = 0; index < bytes.length; index += 1) {
      const byte = bytes[index]!;
      if (left > 0) {
        const digit = HEX_VALUES[byte]!;
        if (digit === NOT_HEX) throw this.#badEscape();
        value = (value << 4) | digit;
        left -= 1;
        if (left === 0) out[length++] = value;
      } else if (byte === PERCENT) {
        left = 2;
        value = 0;
      } else {
        out[length++] = byte === PLUS ? SPACE : byte;
      }
    }
    this.#escapeLeft = left;
    this.#escapeValue = value;
    return out.subarray(0, length);
  }

  #badEscape() {
    const detail = 'the body is not percent-encoded: a per cent sign is written %25';
    return malformed(detail, this.#field === '' ? undefined : shownName(this.#field));
  }
}

type Target =
  | { readonly kind: 'text'; readonly field: RemovebgText }
  | { readonly kind: 'picture'; readonly field: RemovebgPicture }
  | { readonly kind: 'skipped' };

interface RemovebgBody extends RemovebgFields {
  readonly unknown: readonly string[];
}

class RemovebgForm {
  readonly #uploads: RequestUploads;
  readonly #texts = new Map<RemovebgText, TextValue>();
  readonly #pictures = new Set<RemovebgPicture>();
  readonly #unknown = new Set<string>();
  readonly #text = new PartText();
  #target: Target = { kind: 'skipped' };
  #isEmpty = true;

  constructor(uploads: RequestUploads) {
    this.#uploads = uploads;
  }

  /** @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE; RemovebgRefusal multiple_sources */
  async take(event: PartEvent): Promise<void> {
    if (event.kind === 'head') {
      this.#target = this.#targetOf(event.head.name);
      this.#text.begin(event.head);
      this.#isEmpty = true;
    } else if (event.kind === 'end') {
      this.#end(this.#target);
    } else if (event.bytes.length > 0) {
      await this.#takeBytes(this.#target, event.bytes);
    }
  }

  finish(): RemovebgBody {
    return { texts: this.#texts, pictures: this.#pictures, unknown: [...this.#unknown] };
  }

  #targetOf(name: string): Target {
    const picture = REMOVEBG_PICTURES.find(known => known === name);
    if (picture !== undefined) return { kind: 'picture', field: picture };
    const text = REMOVEBG_TEXTS.find(known => known === name);
    if (text !== undefined) return { kind: 'text', field: text };
    noteUnknown(this.#unknown, name);
    return { kind: 'skipped' };
  }

  async #takeBytes(target: Target, bytes: Buffer): Promise<void> {
    const isFirst = this.#isEmpty;
    this.#isEmpty = false;
    if (target.kind === 'text') {
      if (isFirst && this.#texts.has(target.field)) throw givenTwice(target.field);
      this.#text.take(bytes);
    } else if (target.kind === 'picture') {
      if (isFirst) this.#beginPicture(target.field);
      const { image, background } = this.#uploads;
      await (target.field === 'bg_image_file' ? background : image).write(bytes);
    }
  }

  /** Two sources would be written into one upload, so the second is not begun. */
  #beginPicture(field: RemovebgPicture): void {
    if (this.#pictures.has(field)) throw givenTwice(field);
    this.#pictures.add(field);
    if (this.#pictures.has('image_file') && this.#pictures.has('image_file_b64')) {
      const detail = 'image_file, image_url and image_file_b64 exclude each other';
      throw new RemovebgRefusal('multiple_sources', field, detail);
    }
    if (field === 'image_file') this.#uploads.image.takeBytes(field);
    if (field === 'bg_image_file') this.#uploads.background.takeBytes(field);
  }

  #end(target: Target): void {
    if (target.kind !== 'text' || this.#isEmpty) return;
    this.#texts.set(target.field, this.#text.end(target.field));
  }
}

const IMAGE_BASE64 = 'image_file_b64';
const TYPES = ['multipart/form-data', 'application/x-www-form-urlencoded', 'application/json'];
const BOUNDS = { bytesMax: REQUEST_BODY_BYTES_MAX };

/** The onRequest hook. @throws ContractError UNSUPPORTED_MEDIA_TYPE, IMAGE_TOO_LARGE */
export const requireRemovebgBody = requireBodyHead({
  accepted: TYPES.join(', '),
  wanted: `one of ${TYPES.join(', ')}`,
  bytesMaxOf: request => (isTaken(bodyTypeOf(request)) ? REQUEST_BODY_BYTES_MAX : undefined),
});

/**
 * Resolves at the end of the body. Only where the hook above has passed.
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE; RemovebgRefusal multiple_sources
 */
export async function readRemovebgBody(
  request: IncomingMessage,
  uploads: RequestUploads,
): Promise<RemovebgBody> {
  const type = bodyTypeOf(request);
  if (type === 'none') return { texts: new Map(), pictures: new Set(), unknown: [] };
  switch (type?.type) {
    case 'multipart/form-data': {
      const form = new RemovebgForm(uploads);
      await readParts(request, boundaryOf(type), form, BOUNDS);
      return form.finish();
    }
    case 'application/x-www-form-urlencoded':
      return await readUrlencoded(request, uploads);
    case 'application/json':
      return await readJson(request, uploads.image);
    default:
      throw new Error('a body of an unsupported type is to be read');
  }
}

async function readUrlencoded(request: IncomingMessage, uploads: RequestUploads) {
  const reader = new UrlencodedReader(IMAGE_BASE64);
  const form = new RemovebgForm(uploads);
  for await (const chunk of bodyChunks(request, BOUNDS)) {
    for (const event of reader.push(chunk)) await form.take(event);
  }
  for (const event of reader.finish()) await form.take(event);
  return form.finish();
}

async function readJson(request: IncomingMessage, image: ImageUpload): Promise<RemovebgBody> {
  const unknown = new Set<string>();
  const parser = new JsonFieldsParser<RemovebgText>(jsonFields(unknown));
  let hasImage = false;
  for await (const chunk of bodyChunks(request, BOUNDS)) {
    const text = parser.push(chunk);
    if (text.length === 0) continue;
    hasImage = true;
    await image.write(text);
  }
  const given = [...parser.finish().texts].filter(([, text]) => text !== '');
  return {
    texts: new Map(given),
    pictures: new Set(hasImage ? [IMAGE_BASE64] : []),
    unknown: [...unknown],
  };
}

/** Any value may come as JSON's own: clients send `crop: false`, `shadow_opacity: 30`. */
function jsonFields(unknown: Set<string>): JsonFields<RemovebgText> {
  return {
    image: IMAGE_BASE64,
    fieldOf: name => {
      if (name === IMAGE_BASE64) return name;
      const field = REMOVEBG_TEXTS.find(known => known === name);
      if (field === undefined) noteUnknown(unknown, name);
      return field;
    },
    literalsOf: field => (field === IMAGE_BASE64 ? [] : ['boolean', 'number']),
  };
}

/** None is taken: then there is no source. */
function isTaken(type: ContentType | 'none' | undefined): boolean {
  return type === 'none' || TYPES.includes(type?.type ?? '');
}

/** Unknown names that the answer lists: more than any client sends; the header stays small. */
const NAMES_MAX = 16;
const NAME = /^[A-Za-z0-9_.[\]-]{1,64}$/;

/** A name that no header should carry is left out. @param name undefined: too long to be kept. */
function noteUnknown(names: Set<string>, name: string | undefined): void {
  if (name !== undefined && NAME.test(name) && names.size < NAMES_MAX) names.add(name);
}
