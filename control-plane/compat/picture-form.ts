/**
 * Reads a body of another service's interface in any of its forms. Pictures stream into their
 * uploads. An empty field counts as absent, since clients send every field that they know. Unknown
 * fields are skipped, and the answer names them.
 */
import type { IncomingMessage } from 'node:http';
import type { ImageUpload } from '@matting/core/submission/image-upload.ts';
import type { RequestUploads } from '@matting/core/submission/image-uploads.ts';
import { readBody, requireBodyHead } from '@matting/http/bodies.ts';
import { givenTwice, type TextValue } from '@matting/http/body-fields.ts';
import { type JsonFields, JsonFieldsParser } from '@matting/http/json-fields.ts';
import { boundaryOf, type PartEvent, PartText, readParts } from '@matting/http/multipart.ts';
import { bodyTypeOf } from '@matting/http/request-headers.ts';
import { UrlencodedReader } from '@matting/http/urlencoded.ts';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { REQUEST_BODY_BYTES_MAX } from '@matting/proto/contract/limits.ts';

export interface FormFields<Text extends string, Picture extends string> {
  readonly texts: readonly Text[];
  readonly pictures: Readonly<Record<Picture, 'image' | 'base64' | 'background'>>;
  /** Makes the error for a second image. @param field the second one's */
  readonly manyImages: (field: Picture) => ContractError;
}

export interface FormBody<Text extends string, Picture extends string> {
  readonly texts: ReadonlyMap<Text, TextValue>;
  /** Pictures of at least one byte. At most one of them is the image. */
  readonly pictures: ReadonlySet<Picture>;
  /** Names of fields that the interface does not have. */
  readonly unknown: readonly string[];
}

type Target<Text, Picture> =
  | { readonly kind: 'text'; readonly field: Text }
  | { readonly kind: 'picture'; readonly field: Picture }
  | { readonly kind: 'skipped' };

class PictureForm<Text extends string, Picture extends string> {
  readonly #fields: FormFields<Text, Picture>;
  readonly #uploads: RequestUploads;
  readonly #texts = new Map<Text, TextValue>();
  readonly #pictures = new Set<Picture>();
  readonly #unknown = new Set<string>();
  readonly #text: PartText;
  #target: Target<Text, Picture> = { kind: 'skipped' };
  #isEmpty = true;

  constructor(fields: FormFields<Text, Picture>, uploads: RequestUploads) {
    this.#fields = fields;
    this.#uploads = uploads;
    this.#text = new PartText(uploads.texts);
  }

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

  finish(): FormBody<Text, Picture> {
    return { texts: this.#texts, pictures: this.#pictures, unknown: [...this.#unknown] };
  }

  #targetOf(name: string): Target<Text, Picture> {
    const { texts, pictures } = this.#fields;
    if (Object.hasOwn(pictures, name)) return { kind: 'picture', field: name as Picture };
    const text = texts.find(known => known === name);
    if (text !== undefined) return { kind: 'text', field: text };
    noteIgnored(this.#unknown, name);
    return { kind: 'skipped' };
  }

  async #takeBytes(target: Target<Text, Picture>, bytes: Buffer): Promise<void> {
    const isFirst = this.#isEmpty;
    this.#isEmpty = false;
    if (target.kind === 'text') {
      if (isFirst && this.#texts.has(target.field)) throw givenTwice(target.field);
      this.#text.take(bytes);
    } else if (target.kind === 'picture') {
      const upload = this.#uploadOf(target.field);
      if (isFirst) this.#beginPicture(target.field, upload);
      await upload.write(bytes);
    }
  }

  #uploadOf(field: Picture): ImageUpload {
    const { image, background } = this.#uploads;
    return this.#fields.pictures[field] === 'background' ? background : image;
  }

  /** Two images would go into one upload, so the second is refused at its head. */
  #beginPicture(field: Picture, upload: ImageUpload): void {
    const { pictures, manyImages } = this.#fields;
    if (this.#pictures.has(field)) throw givenTwice(field);
    this.#pictures.add(field);
    const images = [...this.#pictures].filter(given => pictures[given] !== 'background');
    if (images.length > 1) throw manyImages(field);
    if (pictures[field] !== 'base64') upload.takeBytes(field);
  }

  #end(target: Target<Text, Picture>): void {
    if (target.kind !== 'text' || this.#isEmpty) return;
    this.#texts.set(target.field, this.#text.end(target.field));
  }
}

const FILES_TYPE = 'multipart/form-data';
const PAIRS_TYPE = 'application/x-www-form-urlencoded';
const JSON_TYPE = 'application/json';
const BOUNDS = { bytesMax: REQUEST_BODY_BYTES_MAX };

function base64FieldsOf<Picture extends string>({
  pictures,
}: FormFields<string, Picture>): Picture[] {
  return (Object.keys(pictures) as Picture[]).filter(field => pictures[field] === 'base64');
}

/**
 * An onRequest hook. It accepts a request without a body.
 * @throws ContractError UNSUPPORTED_MEDIA_TYPE, IMAGE_TOO_LARGE
 */
export function requireFormBody<Picture extends string>(fields: FormFields<string, Picture>) {
  const hasBase64 = base64FieldsOf(fields).length > 0;
  const types = hasBase64 ? [FILES_TYPE, PAIRS_TYPE, JSON_TYPE] : [FILES_TYPE];
  return requireBodyHead({
    accepted: types.join(', '),
    wanted: types.length === 1 ? FILES_TYPE : `one of ${types.join(', ')}`,
    bytesMaxOf: request => {
      const type = bodyTypeOf(request);
      const isTaken = type === 'none' || types.includes(type?.type ?? '');
      return isTaken ? REQUEST_BODY_BYTES_MAX : undefined;
    },
  });
}

/**
 * Reads the whole body. The route also needs the hook `requireFormBody`, which checks the headers.
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, and that of `manyImages`
 */
export async function readFormBody<Text extends string, Picture extends string>(
  request: IncomingMessage,
  uploads: RequestUploads,
  fields: FormFields<Text, Picture>,
): Promise<FormBody<Text, Picture>> {
  const type = bodyTypeOf(request);
  const form = new PictureForm(fields, uploads);
  if (type === 'none') return form.finish();
  switch (type?.type) {
    case FILES_TYPE:
      await readParts(request, { boundary: boundaryOf(type), room: uploads.texts }, form, BOUNDS);
      return form.finish();
    case PAIRS_TYPE: {
      const reader = new UrlencodedReader(base64FieldsOf(fields)[0] ?? '');
      await readBody(request, BOUNDS, async chunk => {
        for (const event of reader.push(chunk)) await form.take(event);
      });
      for (const event of reader.finish()) await form.take(event);
      return form.finish();
    }
    case JSON_TYPE:
      return await readJson(request, uploads, fields);
    default:
      throw new Error('a body of an unsupported type is to be read');
  }
}

async function readJson<Text extends string, Picture extends string>(
  request: IncomingMessage,
  { image, texts }: RequestUploads,
  fields: FormFields<Text, Picture>,
): Promise<FormBody<Text, Picture>> {
  const unknown = new Set<string>();
  const parser = new JsonFieldsParser<Text>(jsonFields(fields, unknown), texts);
  let hasImage = false;
  await readBody(request, BOUNDS, async chunk => {
    const text = parser.push(chunk);
    if (text.length === 0) return;
    hasImage = true;
    await image.write(text);
  });
  const given = [...parser.finish().texts].filter(([, text]) => text !== '');
  return {
    texts: new Map(given),
    pictures: new Set(hasImage ? base64FieldsOf(fields) : []),
    unknown: [...unknown],
  };
}

/** Values may have JSON's own types: clients send `crop: false`, `shadow_opacity: 30`. */
function jsonFields<Text extends string, Picture extends string>(
  fields: FormFields<Text, Picture>,
  unknown: Set<string>,
): JsonFields<Text> {
  const [base64Field = ''] = base64FieldsOf(fields);
  return {
    image: base64Field,
    fieldOf: name => {
      if (name === base64Field) return name;
      const field = fields.texts.find(known => known === name);
      if (field === undefined) noteIgnored(unknown, name);
      return field;
    },
    literalsOf: field => (field === base64Field ? [] : ['boolean', 'number']),
  };
}

/** X-Ignored-Fields: first unknown names, then known fields without effect. */
export function ignoredOf<Text extends string>(
  {
    unknown,
    texts,
  }: { readonly unknown: readonly string[]; readonly texts: ReadonlyMap<Text, unknown> },
  withoutEffect: readonly Text[],
): string[] {
  return [...unknown, ...withoutEffect.filter(name => texts.has(name))];
}

/** More than any client sends. Keeps the header small. */
const NAMES_MAX = 16;
const NAME = /^[A-Za-z0-9_.[\]-]{1,64}$/;

export function noteIgnored(names: Set<string>, name: string | undefined): void {
  if (name !== undefined && NAME.test(name) && names.size < NAMES_MAX) names.add(name);
}
