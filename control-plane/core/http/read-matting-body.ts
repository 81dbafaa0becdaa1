/** Streams a body into fields and uploads. Judges names and forms of fields, not values. */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { type BodyBounds, readBody, requireBodyHead } from '@matting/http/bodies.ts';
import {
  givenTwice,
  malformed,
  OVERLONG,
  parametersOf,
  type TextValue,
  unknownField,
} from '@matting/http/body-fields.ts';
import { type JsonFields, JsonFieldsParser } from '@matting/http/json-fields.ts';
import {
  boundaryOf,
  type PartEvent,
  type PartHead,
  PartText,
  readParts,
} from '@matting/http/multipart.ts';
import { bodyTypeOf } from '@matting/http/request-headers.ts';
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import { fieldKind } from '@matting/proto/contract/finishing/table.ts';
import { isHintList } from '@matting/proto/contract/hints-fields.ts';
import {
  IMAGE_BYTES_MAX,
  REQUEST_BODY_BYTES_MAX,
  URL_LENGTH_MAX,
} from '@matting/proto/contract/limits.ts';
import { NOT_IN_A_CORRECTION } from '../corrections/correctable.ts';
import type { ImageUpload } from '../submission/image-upload.ts';
import type { RequestUploads } from '../submission/image-uploads.ts';
import {
  MATTING_FIELDS,
  type MattingFields,
  type TextField,
} from '../submission/matting-request.ts';
import { suggestField } from './field-suggestions.ts';

const FILE_FIELDS = ['image_file', 'background_file', 'hints_file'] as const;
type FileField = (typeof FILE_FIELDS)[number];
type FormField = TextField | FileField | 'image_base64';

const FORM_FIELDS: readonly FormField[] = [...FILE_FIELDS, ...MATTING_FIELDS];

/** The fields of a query, if the body is the picture itself. */
const QUERY_FIELDS = MATTING_FIELDS.filter(field => field !== 'image_base64');

const SOURCES = ['image_file', 'image_url', 'image_base64'] as const;

function unknownIn(
  known: readonly string[],
  name: string | undefined,
  seen: ReadonlySet<string>,
  refused: readonly string[],
): ContractError {
  const hasImage = [...seen, ...refused].some(one => SOURCES.some(source => source === one));
  const missing = 'Send the image as image_file (in a form), image_url or image_base64.';
  return unknownField(name, one => suggestField(one, known, hasImage ? '' : missing));
}

type Target = { readonly text: TextField } | { readonly upload: ImageUpload };

export class MattingForm {
  readonly #uploads: RequestUploads;
  readonly #seen = new Set<FormField>();
  readonly #texts = new Map<TextField, TextValue>();
  readonly #text: PartText;
  readonly #refused: readonly string[];
  #target: Target | undefined;

  /** @param refused fields, such as the image in a correction */
  constructor(uploads: RequestUploads, refused: readonly string[] = []) {
    this.#uploads = uploads;
    this.#refused = refused;
    this.#text = new PartText(uploads.texts);
  }

  async take(event: PartEvent): Promise<void> {
    const target = this.#target;
    if (event.kind === 'head') {
      this.#target = this.#begin(event.head);
    } else if (target === undefined) {
      throw new Error('a part has bytes before its head');
    } else if ('upload' in target) {
      if (event.kind === 'data') await target.upload.write(event.bytes);
    } else if (event.kind === 'data') {
      this.#text.take(event.bytes);
    } else {
      this.#texts.set(target.text, this.#text.end(target.text));
    }
  }

  /** @throws ContractError INVALID_IMAGE_SOURCE */
  finish(): MattingFields {
    const imageGiven = this.#seen.has('image_file') || this.#seen.has('image_base64');
    const isWanted = this.#refused.length === 0;
    if (isWanted && imageGiven === this.#seen.has('image_url')) throw notOneSource(this.#seen);
    const backgroundGiven = this.#seen.has('background_file');
    const hintsGiven = this.#seen.has('hints_file');
    return { texts: this.#texts, imageGiven, backgroundGiven, hintsGiven };
  }

  #begin(head: PartHead): Target {
    const { name, isFile } = head;
    const field = FORM_FIELDS.find(known => known === name);
    if (field === undefined || this.#refused.includes(name)) {
      throw unknownIn(FORM_FIELDS, name, this.#seen, this.#refused);
    }
    if (this.#seen.has(field)) throw givenTwice(field);
    this.#seen.add(field);
    if (holdsFile(field)) {
      if (!isFile) {
        throw wrongKind(field, `must be a file. With curl, send -F ${field}=@photo.jpg`);
      }
      const upload = this.#uploadOf(field);
      upload.takeBytes(field);
      return { upload };
    }
    if (isFile) throw wrongKind(field, 'must be text. Send it as a part without a file name');
    if (field === 'image_base64') return { upload: this.#image() };
    this.#text.begin(head, isHintList(field));
    return { text: field };
  }

  #uploadOf(field: FileField): ImageUpload {
    if (field === 'image_file') return this.#image();
    return field === 'hints_file' ? this.#uploads.hints : this.#uploads.background;
  }

  /** A second source would be written into the same upload. */
  #image(): ImageUpload {
    const isSecond = this.#seen.has('image_file') && this.#seen.has('image_base64');
    if (isSecond) throw notOneSource(this.#seen);
    return this.#uploads.image;
  }
}

function holdsFile(field: FormField): field is FileField {
  return FILE_FIELDS.some(known => known === field);
}

function wrongKind(field: FormField, wrong: string): ContractError {
  return malformed(`${field} ${wrong}.`, field, wrong);
}

function notOneSource(seen: ReadonlySet<FormField>): ContractError {
  const given = SOURCES.filter(field => seen.has(field));
  const seenOf = given.length > 0 ? 'more than one image' : 'no image';
  const detail = `The request has ${seenOf}. Send one of ${SOURCES.join(', ')}.`;
  const fields = given.length > 0 ? given : SOURCES;
  const wrong = given.length > 0 ? 'is not the only image' : 'is missing';
  const fieldErrors = fields.map(field => ({ field, detail: wrong }));
  return new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
}

type QueryFields = ReadonlyMap<TextField, TextValue>;

/** Proxies log queries, so a query takes nothing secret or signed. */
export const NOT_IN_A_QUERY: readonly string[] = [
  'image_url',
  'image_base64',
  'background_url',
  'callback_url',
  'callback_secret',
  'keep',
  'erase',
  ...FILE_FIELDS,
];

/**
 * @throws ContractError INVALID_REQUEST: a field is unknown, given twice, or not percent-encoded
 * UTF-8; INVALID_PARAMETER: a URL, a secret or a file
 */
export function readQueryFields(target: string): QueryFields {
  const texts = new Map<TextField, TextValue>();
  for (const { name, text } of parametersOf(target)) {
    if (NOT_IN_A_QUERY.includes(name)) {
      throw invalidParameter(name, 'must not be in the query. Send multipart/form-data or JSON');
    }
    const field = MATTING_FIELDS.find((known): known is TextField => known === name);
    if (field === undefined) throw unknownField(name, one => suggestField(one, QUERY_FIELDS));
    if (texts.has(field)) throw givenTwice(field);
    texts.set(field, text.length > URL_LENGTH_MAX ? OVERLONG : text);
  }
  return texts;
}

function requireNoQueryFields(target: string): void {
  for (const { name } of parametersOf(target)) {
    const isField = [...MATTING_FIELDS, ...FILE_FIELDS].some(known => known === name);
    throw isField
      ? invalidParameter(name, 'must be a part of the form')
      : unknownField(name, one => suggestField(one, FORM_FIELDS));
  }
}

export const MATTING_JSON = jsonWithout([]);

function jsonWithout(refused: readonly string[]): JsonFields<TextField> {
  return {
    image: 'image_base64',
    fieldOf(name, seen) {
      const field = MATTING_FIELDS.find(known => known === name);
      if (field === undefined || refused.includes(field)) {
        throw unknownIn(MATTING_FIELDS, name, seen, refused);
      }
      return field;
    },
    literalsOf(field = '') {
      if (isHintList(field)) return ['list'];
      const kind = field === 'correctable' ? 'boolean' : fieldKind(field);
      return kind === 'text' ? [] : [kind];
    },
  };
}

/** Any image type: the first bytes show the format. */
const PICTURE_TYPE = /^(?:image\/.|application\/octet-stream$)/;
type BodyForm =
  | { readonly kind: 'json' }
  | { readonly kind: 'multipart'; readonly boundary: string }
  | { readonly kind: 'picture' };

/**
 * An onRequest hook. @throws ContractError as bodyFormOf; UNSUPPORTED_MEDIA_TYPE, IMAGE_TOO_LARGE
 */
export const requireBodyForm = requireBodyHead({
  accepted: 'application/json, multipart/form-data, image/*, application/octet-stream',
  wanted: 'application/json in UTF-8, multipart/form-data or the image itself',
  bytesMaxOf: request => {
    const form = bodyFormOf(request);
    return form && bodyBytesMax(form);
  },
});

/** Undefined: an unsupported type. @throws ContractError INVALID_REQUEST: no usable boundary */
export function bodyFormOf(request: IncomingMessage): BodyForm | undefined {
  const type = bodyTypeOf(request);
  if (type === 'none' || type?.type === 'application/json') return { kind: 'json' };
  if (type === undefined) return undefined;
  if (type.type === 'multipart/form-data') return { kind: 'multipart', boundary: boundaryOf(type) };
  return PICTURE_TYPE.test(type.type) ? { kind: 'picture' } : undefined;
}

function bodyBytesMax({ kind }: BodyForm): number {
  return kind === 'picture' ? IMAGE_BYTES_MAX : REQUEST_BODY_BYTES_MAX;
}

/**
 * Call it after `requireBodyForm`. The caller commits or aborts the uploads.
 * @throws ContractError INVALID_REQUEST, INVALID_PARAMETER: the query is wrong
 */
export function mattingBodyReaderOf(
  request: IncomingMessage,
): (uploads: RequestUploads) => Promise<MattingFields> {
  const form = bodyFormOf(request);
  if (form === undefined) throw new Error('a body of an unsupported type is to be read');
  const bounds = { bytesMax: bodyBytesMax(form) };
  const target = request.url ?? '';
  switch (form.kind) {
    case 'json':
      return uploads => readMattingJson(request, uploads, bounds);
    case 'multipart':
      requireNoQueryFields(target);
      return uploads => readMattingForm(request, { ...form, uploads }, bounds);
    case 'picture': {
      const texts = readQueryFields(target);
      return ({ image }) => readPicture(request, { texts, image }, bounds);
    }
  }
}

const CORRECTION_JSON = jsonWithout(NOT_IN_A_CORRECTION);

/** @throws ContractError as mattingBodyReaderOf; UNSUPPORTED_MEDIA_TYPE */
export function correctionBodyReaderOf(
  request: IncomingMessage,
): (uploads: RequestUploads) => Promise<MattingFields> {
  const form = bodyFormOf(request);
  if (form === undefined || form.kind === 'picture') {
    const detail = 'A correction has no image of its own. Send JSON or multipart/form-data.';
    throw new ContractError('UNSUPPORTED_MEDIA_TYPE', detail);
  }
  const bounds = { bytesMax: bodyBytesMax(form) };
  if (form.kind === 'json') {
    return uploads => readMattingJson(request, uploads, bounds, CORRECTION_JSON);
  }
  requireNoQueryFields(request.url ?? '');
  return uploads => readMattingForm(request, { ...form, uploads }, bounds, NOT_IN_A_CORRECTION);
}

/** @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE */
export async function readMattingJson(
  body: Readable,
  { image, texts }: Pick<RequestUploads, 'image' | 'texts'>,
  bounds: BodyBounds,
  fields = MATTING_JSON,
): Promise<MattingFields> {
  const parser = new JsonFieldsParser(fields, texts);
  await readBody(body, bounds, async chunk => {
    const text = parser.push(chunk);
    if (text.length > 0) await image.write(text);
  });
  return parser.finish();
}

/** @throws ContractError INVALID_REQUEST, INVALID_IMAGE_SOURCE, IMAGE_TOO_LARGE */
export async function readMattingForm(
  body: Readable,
  { boundary, uploads }: { readonly boundary: string; readonly uploads: RequestUploads },
  bounds: BodyBounds,
  refused: readonly string[] = [],
): Promise<MattingFields> {
  const form = new MattingForm(uploads, refused);
  await readParts(body, { boundary, room: uploads.texts }, form, bounds);
  return form.finish();
}

/** @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE */
export async function readPicture(
  body: Readable,
  { texts, image }: { readonly texts: QueryFields; readonly image: ImageUpload },
  bounds: BodyBounds,
): Promise<MattingFields> {
  image.takeBytes();
  await readBody(body, bounds, chunk => image.write(chunk));
  return { texts, imageGiven: true };
}
