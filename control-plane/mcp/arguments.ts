/** The arguments of the tools: fields under the rules of /v1, and a few of their own. */

import { NOT_IN_A_CORRECTION } from '@matting/core/corrections/correctable.ts';
import { similarName } from '@matting/core/http/field-suggestions.ts';
import { MATTING_JSON } from '@matting/core/http/read-matting-body.ts';
import {
  MATTING_FIELDS,
  type MattingFields,
  type TextField,
} from '@matting/core/submission/matting-request.ts';
import { malformed, OVERLONG, type TextValue, unknownField } from '@matting/http/body-fields.ts';
import { idempotencyKeyIn } from '@matting/http/request-headers.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { FINISHING_FIELDS, fieldKind, rowOf } from '@matting/proto/contract/finishing/table.ts';
import { isHintList } from '@matting/proto/contract/hints-fields.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import { TEXT_BYTES_MAX } from './read-message.ts';

/**
 * Agents poll for a job's end, cannot receive callbacks, and keep no lists that need references.
 */
const NOT_OF_AGENTS: readonly string[] = ['callback_url', 'callback_secret', 'reference'];
const FIELDS_OF_AGENTS = MATTING_FIELDS.filter(field => !NOT_OF_AGENTS.includes(field));

/** Agents send hints with a correction, after they saw the result. */
export const IMAGE_FIELDS = FIELDS_OF_AGENTS.filter(field => !isHintList(field));
export const CORRECTION_FIELDS = FIELDS_OF_AGENTS.filter(
  field => !NOT_IN_A_CORRECTION.includes(field),
);

const OTHER_ARGUMENTS = {
  remove_background: ['image_id', 'idempotency_key', 'preview'],
  correct_cutout: ['job_id', 'idempotency_key', 'preview'],
  get_job: ['job_id', 'preview'],
} as const;

const FIELDS: Readonly<Record<keyof typeof OTHER_ARGUMENTS, readonly string[]>> = {
  remove_background: IMAGE_FIELDS,
  correct_cutout: CORRECTION_FIELDS,
  get_job: [],
};

export type Arguments = Readonly<Record<string, unknown>>;

/** REST takes these as texts, so a number becomes its text. */
const MEASURES: readonly string[] = FINISHING_FIELDS.filter(field => fieldKind(field) === 'text');
/** For these 0 is a value, not an absent argument. Another argument may give it an effect. */
const ZERO_IS_A_VALUE: readonly string[] = [
  ...['crop_margin', 'position'],
  ...FINISHING_FIELDS.filter(field => rowOf(field).number?.min === 0),
];
const PERCENTAGES: readonly string[] = ['scale', 'position'];

export interface ReadArguments {
  readonly fields: MattingFields;
  readonly zeros: readonly TextField[];
  readonly idempotencyKey: string | undefined;
  /** The image in Base64, if read-message.ts did not write it into the upload. Else empty. */
  readonly base64: string;
  readonly imageId: string | undefined;
  readonly preview: boolean;
  readonly jobId: string;
}

export function argumentsOf(tool: keyof typeof OTHER_ARGUMENTS): readonly string[] {
  return [...FIELDS[tool], ...OTHER_ARGUMENTS[tool]];
}

/**
 * @param longTexts of the whole message; the image upload takes the first
 * @throws ContractError INVALID_REQUEST, INVALID_IDEMPOTENCY_KEY, INVALID_IMAGE_SOURCE
 */
export function readArguments(
  tool: keyof typeof OTHER_ARGUMENTS,
  given: Arguments,
  longTexts: number,
): ReadArguments {
  const isImage = longTexts === 1 && given.image_base64 === '';
  if (tool !== 'get_job' && longTexts > 0 && !isImage) {
    throw malformed(`A text is over ${TEXT_BYTES_MAX} bytes. Only image_base64 can be longer.`);
  }
  const known = argumentsOf(tool);
  const texts = new Map<TextField, TextValue>();
  const zeros: TextField[] = [];
  const others: Partial<Record<string, unknown>> = {};
  let base64: string | undefined;
  for (const [name, value] of Object.entries(given)) {
    if (!known.includes(name)) {
      if (tool === 'get_job') continue;
      throw unknownField(name, one => meantArgument(one, known));
    }
    const isLong = isImage && name === 'image_base64';
    if (isEmpty(name, value) && !isLong) continue;
    const text = FIELDS[tool].includes(name) ? textOf(name, value) : undefined;
    if (text === undefined) others[name] = value;
    else if (name === 'image_base64') base64 = text;
    else texts.set(name as TextField, isTooLong(name, text) ? OVERLONG : text);
    if (value === 0) zeros.push(name as TextField);
  }
  const key = textOf('idempotency_key', others.idempotency_key);
  const imageId = textOf('image_id', others.image_id);
  const sources = [texts.get('image_url'), base64, imageId].filter(one => one !== undefined);
  if (tool === 'remove_background' && sources.length !== 1) throw notOneSource(sources.length);
  return {
    fields: { texts, imageGiven: (base64 ?? imageId) !== undefined },
    zeros,
    imageId,
    idempotencyKey: key === undefined ? undefined : idempotencyKeyIn([key]),
    base64: base64 ?? '',
    preview: wantsPreview(others.preview),
    jobId: known.includes('job_id') ? requireJobId(others.job_id) : '',
  };
}

/**
 * Agents and proxies fill in every argument that they know, so here empty values count as absent.
 */
function isEmpty(name: string, value: unknown): boolean {
  if (value === 0) return !ZERO_IS_A_VALUE.includes(name);
  return value === null || value === '' || (Array.isArray(value) && value.length === 0);
}

/**
 * Makes a call's request. If `make` refuses a 0 because the argument that it depends on is missing,
 * an agent filled the 0 in. The function then retries without the 0.
 * @throws the errors of `make`
 */
export async function withoutIdleZeros<T>(
  { fields, zeros }: Pick<ReadArguments, 'fields' | 'zeros'>,
  make: (fields: MattingFields) => T,
): Promise<Awaited<T>> {
  try {
    return await make(fields);
  } catch (error) {
    const wrong = error instanceof ContractError ? error.fieldErrors : [];
    const idle = zeros.find(zero => wrong.some(({ field }) => field === zero));
    if (idle === undefined) throw error;
    const texts = new Map([...fields.texts].filter(([field]) => field !== idle));
    const rest = { fields: { ...fields, texts }, zeros: zeros.filter(zero => zero !== idle) };
    return await withoutIdleZeros(rest, make);
  }
}

function notOneSource(count: number): ContractError {
  const many = 'more than one image. Send one of image_url, image_base64, image_id';
  const detail = `The call has ${count === 0 ? 'no image' : many}.`;
  const fieldErrors = ['image_url', 'image_base64', 'image_id'].map(field => ({ field, detail }));
  return new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
}

function meantArgument(name: string, known: readonly string[]): string {
  const meant = similarName(name, known);
  return meant === undefined ? `The arguments are ${known.join(', ')}.` : `Did you mean ${meant}?`;
}

function isTooLong(name: string, text: string): boolean {
  return !isHintList(name) && text.length > URL_LENGTH_MAX;
}

function wantsPreview(preview: unknown): boolean {
  if (preview === undefined) return false;
  if (typeof preview === 'boolean') return preview;
  throw malformed('preview must be a boolean.', 'preview', 'must be a boolean');
}

function requireJobId(given: unknown): string {
  const id = textOf('job_id', given);
  if (id !== undefined) return id;
  throw malformed(
    'job_id is missing. Send that of the answer of remove_background.',
    'job_id',
    'is missing',
  );
}

/**
 * The levels are shapes, a shape, its line, a point, a number. JSON.stringify overflows the stack
 * at 20,000 levels.
 */
const SHAPES_DEPTH = 5;

function isDeeper(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return depth === 0 || Object.values(value).some(part => isDeeper(part, depth - 1));
}

/** Undefined: the value is absent. @throws ContractError INVALID_REQUEST */
function textOf(field: string, value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (isHintList(field) && Array.isArray(value)) {
    if (!isDeeper(value, SHAPES_DEPTH)) return JSON.stringify(value);
    throw malformed(`${field} must be a list of shapes.`, field, 'must be a list of shapes');
  }
  const isMeasure = MEASURES.includes(field);
  const kinds = ['string', ...(isMeasure ? ['number'] : MATTING_JSON.literalsOf(field))];
  if (!kinds.includes(typeof value)) {
    const wrong = `must be a ${kinds.join(' or a ')}`;
    throw malformed(`${field} ${wrong}.`, field, wrong);
  }
  const text = String(value);
  if (!text.isWellFormed()) {
    throw malformed(`${field} holds half of a surrogate pair.`, field, 'is not valid Unicode');
  }
  return PERCENTAGES.includes(field) && /^[0-9.]+$/.test(text) ? `${text}%` : text;
}
