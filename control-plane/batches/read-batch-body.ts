/** Parses the items of the JSON while they arrive. */
import type { Readable } from 'node:stream';
import { suggestField } from '@matting/core/http/field-suggestions.ts';
import { MATTING_JSON } from '@matting/core/http/read-matting-body.ts';
import { MATTING_FIELDS, type TextField } from '@matting/core/submission/matting-request.ts';
import { readBody, requireBodyHead } from '@matting/http/bodies.ts';
import { malformed, type TextValue, unknownField } from '@matting/http/body-fields.ts';
import { type JsonFields, JsonFieldsParser } from '@matting/http/json-fields.ts';
import { bodyTypeOf } from '@matting/http/request-headers.ts';
import type { HeldRoom } from '@matting/program/held-bytes.ts';
import { BATCH_ITEMS_MAX } from './batch.ts';
import type { BatchFields } from './submit-batch.ts';

/** 1,000 URLs of 2048 characters and their references, with room for escapes. */
const BATCH_BODY_BYTES_MAX = 4 * 1_048_576;

/** Fields of a single item: strokes of one picture mean nothing in another. */
const NOT_SHARED: readonly string[] = ['image_url', 'image_base64', 'reference', 'keep', 'erase'];
const KNOWN = ['items', 'name', ...MATTING_FIELDS.filter(field => !NOT_SHARED.includes(field))];

export const requireBatchBody = requireBodyHead({
  accepted: 'application/json',
  wanted: 'application/json in UTF-8',
  bytesMaxOf: request => {
    const type = bodyTypeOf(request);
    const isJson = type === 'none' || type?.type === 'application/json';
    return isJson ? BATCH_BODY_BYTES_MAX : undefined;
  },
});

const ITEM_JSON: JsonFields<string> = {
  image: '',
  fieldOf(name) {
    if (name === 'image_url' || name === 'reference') return name;
    throw unknownField(name, () => 'An item has image_url and reference.');
  },
  literalsOf: () => [],
};

function itemOf(texts: ReadonlyMap<string, TextValue>): BatchFields['items'][number] {
  const imageUrl = texts.get('image_url');
  if (imageUrl === undefined) {
    throw malformed('image_url is missing.', 'image_url', 'is missing');
  }
  return { imageUrl, reference: texts.get('reference') };
}

type BatchField = TextField | 'name';

const BATCH_JSON: JsonFields<BatchField> = {
  image: '',
  fieldOf(name = '', seen) {
    if (KNOWN.includes(name)) return name;
    const missing = seen.has('items') ? '' : 'Send the images as items: [{"image_url": "…"}].';
    throw unknownField(name, one => suggestField(one, KNOWN, missing));
  },
  literalsOf: field => MATTING_JSON.literalsOf(field),
};

/**
 * @param room for the texts of the items and of the fields
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, SERVICE_UNAVAILABLE
 */
export async function readBatchBody(body: Readable, room: HeldRoom): Promise<BatchFields> {
  const items: BatchFields['items'][number][] = [];
  const parser = new JsonFieldsParser<BatchField>(
    {
      ...BATCH_JSON,
      items: {
        field: 'items',
        itemsMax: BATCH_ITEMS_MAX,
        fields: ITEM_JSON,
        take: texts => items.push(itemOf(texts)),
      },
    },
    room,
  );
  const bounds = { bytesMax: BATCH_BODY_BYTES_MAX };
  await readBody(body, bounds, chunk => void parser.push(chunk));
  const texts = new Map(parser.finish().texts);
  const name = texts.get('name');
  texts.delete('name');
  if (items.length === 0) throw malformed('items must be an array.', 'items', 'must be an array');
  return { shared: texts as BatchFields['shared'], name, items };
}

const AGAIN_JSON: JsonFields<TextField> = {
  image: '',
  fieldOf(name = '') {
    if (name === 'callback_url' || name === 'callback_secret') return name;
    throw unknownField(name, () => 'Send callback_url and callback_secret, or no body.');
  },
  literalsOf: () => [],
};

export async function readAgainBody(
  body: Readable,
  room: HeldRoom,
): Promise<BatchFields['shared']> {
  const parser = new JsonFieldsParser<TextField>(AGAIN_JSON, room);
  let isEmpty = true;
  await readBody(body, { bytesMax: BATCH_BODY_BYTES_MAX }, chunk => {
    isEmpty = false;
    parser.push(chunk);
  });
  return isEmpty ? new Map() : parser.finish().texts;
}
