/**
 * Moves a body of the remove.bg interface, in whichever form it comes, into its fields and its
 * uploads, chunk by chunk. The last check that needs no body byte is here too.
 */
import type { IncomingMessage } from 'node:http';
import { REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import { bodyChunks } from '../core/http/body/body-chunks.ts';
import { requireBodyHead } from '../core/http/body/body-form.ts';
import { type JsonFields, JsonFieldsParser } from '../core/http/body/json-fields.ts';
import { readParts } from '../core/http/body/multipart-reader.ts';
import { boundaryOf } from '../core/http/body/part-head.ts';
import { bodyTypeOf, type ContentType } from '../core/http/headers/content-type.ts';
import type { ImageUpload, RequestUploads } from '../core/submission/submit-upload.ts';
import { REMOVEBG_TEXTS, type RemovebgText } from './removebg-fields.ts';
import { type RemovebgBody, RemovebgForm } from './removebg-form.ts';
import { UnknownFields } from './unknown-fields.ts';
import { UrlencodedReader } from './urlencoded-reader.ts';

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
  const unknown = new UnknownFields();
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
    unknown: unknown.names,
  };
}

/** Any value may come as JSON's own: clients send `crop: false`, `shadow_opacity: 30`. */
function jsonFields(unknown: UnknownFields): JsonFields<RemovebgText> {
  return {
    image: IMAGE_BASE64,
    fieldOf: name => {
      if (name === IMAGE_BASE64) return name;
      const field = REMOVEBG_TEXTS.find(known => known === name);
      if (field === undefined) unknown.note(name);
      return field;
    },
    literalsOf: field => (field === IMAGE_BASE64 ? [] : ['boolean', 'number']),
  };
}

/** None is taken: then there is no source. */
function isTaken(type: ContentType | 'none' | undefined): boolean {
  return type === 'none' || TYPES.includes(type?.type ?? '');
}
