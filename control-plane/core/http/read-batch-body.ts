/** The body of a batch: JSON of at most BATCH_BODY_BYTES_MAX, kept whole while it is read. */
import type { IncomingMessage } from 'node:http';
import { readBody, requireBodyHead } from '@matting/http/bodies.ts';
import { givenTwice, malformed, type TextValue, unknownField } from '@matting/http/body-fields.ts';
import { type JsonFields, JsonFieldsParser } from '@matting/http/json-fields.ts';
import { bodyTypeOf } from '@matting/http/request-headers.ts';
import { UNCOUNTED } from '@matting/program/held-bytes.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { BATCH_ITEMS_MAX } from '../jobs/batch.ts';
import { MATTING_FIELDS, type TextField } from '../submission/matting-request.ts';
import type { BatchFields } from '../submission/submit-batch.ts';
import { meantField } from './meant-fields.ts';
import { MATTING_JSON } from './read-matting-body.ts';

/** 1,000 URLs of 2048 characters and their references, with room for escapes. */
export const BATCH_BODY_BYTES_MAX = 4 * 1_048_576;
/** Such bodies at once, over all accounts. */
const BODIES_MAX = 8;
const BUSY_RETRY_AFTER_S = 2;

/** Each item has its own, or the strokes of one picture mean nothing in another. */
const NOT_SHARED: readonly string[] = ['image_url', 'image_base64', 'reference', 'keep', 'erase'];
const KNOWN = ['items', ...MATTING_FIELDS.filter(field => !NOT_SHARED.includes(field))];

export const requireBatchBody = requireBodyHead({
  accepted: 'application/json',
  wanted: 'application/json in UTF-8',
  bytesMaxOf: request => {
    const type = bodyTypeOf(request);
    const isJson = type === 'none' || type?.type === 'application/json';
    return isJson ? BATCH_BODY_BYTES_MAX : undefined;
  },
});

const bodies = new Semaphore({
  max: BODIES_MAX,
  waitingMax: 0,
  refusal: () => {
    const detail = 'Too many batches arrive at once. Try again after Retry-After.';
    return new ContractError('SERVICE_UNAVAILABLE', detail, { retryAfterS: BUSY_RETRY_AFTER_S });
  },
});

const BATCH_JSON: JsonFields<TextField | 'items'> = {
  image: '',
  listBytesMax: BATCH_BODY_BYTES_MAX,
  fieldOf(name = '') {
    if (KNOWN.includes(name)) return name;
    throw unknownField(name, one => meantField(one, KNOWN));
  },
  literalsOf: field => (field === 'items' ? ['list'] : MATTING_JSON.literalsOf(field)),
};

/** @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, SERVICE_UNAVAILABLE */
export async function readBatchBody(request: IncomingMessage, key: string): Promise<BatchFields> {
  const leave = bodies.takeNow({ key });
  try {
    const parser = new JsonFieldsParser(BATCH_JSON, UNCOUNTED);
    const bounds = { bytesMax: BATCH_BODY_BYTES_MAX };
    await readBody(request, bounds, chunk => void parser.push(chunk));
    const { items: list, ...shared } = Object.fromEntries(parser.finish().texts);
    const items = parsedList(list);
    // Its caller says how many there may be, without a look at each.
    const some = items.slice(0, BATCH_ITEMS_MAX + 1).map(itemFields);
    return { shared: new Map(Object.entries(shared) as [TextField, TextValue][]), items: some };
  } finally {
    leave();
  }
}

/** @throws ContractError INVALID_REQUEST */
function parsedList(text: TextValue = ''): unknown[] {
  let items: unknown;
  let names = 0;
  try {
    items = JSON.parse(String(text), function count(this: unknown, name, part) {
      if (name !== '' && !Array.isArray(this)) names += 1;
      return part;
    });
  } catch {
    items = undefined;
  }
  if (!Array.isArray(items)) {
    throw malformed('items must be an array.', 'items', 'must be an array');
  }
  // JSON.parse keeps the last of two fields of one name.
  const colons =
    String(text)
      .replaceAll(/"(?:[^"\\]|\\.)*"/gs, '')
      .split(':').length - 1;
  if (colons > names) throw givenTwice('A field of an item');
  return items;
}

function itemFields(given: unknown, index: number): BatchFields['items'][number] {
  const at = `items[${index}]`;
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw malformed(`${at} must be a JSON object.`);
  }
  const { image_url: url, reference, ...rest } = given as Record<string, unknown>;
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw unknownField(`${at}.${unknown}`);
  const imageUrl = textOf(`${at}.image_url`, url);
  if (imageUrl === undefined) {
    throw malformed(`${at}.image_url is missing.`, `${at}.image_url`, 'is missing');
  }
  const named = textOf(`${at}.reference`, reference);
  return named === undefined ? { imageUrl } : { imageUrl, reference: named };
}

/** Undefined: absent or null. */
function textOf(field: string, value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'string') {
    throw malformed(`${field} must be a string.`, field, 'must be a string');
  }
  if (value.isWellFormed()) return value;
  throw malformed(`${field} holds half of a surrogate pair.`, field, 'is not valid Unicode');
}
