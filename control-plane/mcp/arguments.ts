/** The tool remove_background takes the fields of POST /v1/matting under its rules, and a key. */
import { MATTING_JSON, meantField } from '@matting/core/http/matting-bodies.ts';
import {
  MATTING_FIELDS,
  type MattingFields,
  type TextField,
} from '@matting/core/submission/submission.ts';
import { malformed, OVERLONG, type TextValue, unknownField } from '@matting/http/body-fields.ts';
import { idempotencyKeyIn } from '@matting/http/request-headers.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import { TEXT_BYTES_MAX } from './read-message.ts';

/** An agent polls a job's end and has no address for a callback. */
const NOT_OF_AGENTS: readonly string[] = ['callback_url', 'callback_secret'];
export const IMAGE_FIELDS = MATTING_FIELDS.filter(field => !NOT_OF_AGENTS.includes(field));

const ARGUMENTS: readonly string[] = [...IMAGE_FIELDS, 'idempotency_key', 'preview'];

export type Arguments = Readonly<Record<string, unknown>>;

export interface ImageArguments {
  readonly fields: MattingFields;
  readonly idempotencyKey: string | undefined;
  /** Holds what is not in the upload yet; empty if the image came as a long text. */
  readonly base64: string;
}

/**
 * @param longTexts the number in the whole message; the first is in the upload
 * @throws ContractError INVALID_REQUEST, INVALID_IDEMPOTENCY_KEY
 */
export function readImageArguments(given: Arguments, longTexts: number): ImageArguments {
  const isImage = longTexts === 1 && given.image_base64 === '';
  if (longTexts > 0 && !isImage) {
    throw malformed(`A text is over ${TEXT_BYTES_MAX} bytes. Only image_base64 can be longer.`);
  }
  const { idempotency_key: key, preview: _, ...rest } = given;
  const texts = new Map<TextField, TextValue>();
  let base64: string | undefined;
  for (const [name, value] of Object.entries(rest)) {
    const field = IMAGE_FIELDS.find(known => known === name);
    if (field === undefined) throw unknownField(name, one => meantField(one, ARGUMENTS));
    const text = textOf(field, value);
    if (text === undefined) continue;
    if (field === 'image_base64') base64 = text;
    else texts.set(field as TextField, text.length > URL_LENGTH_MAX ? OVERLONG : text);
  }
  const idempotencyKey = textOf('idempotency_key', key);
  return {
    fields: { texts, imageGiven: base64 !== undefined },
    idempotencyKey: idempotencyKey === undefined ? undefined : idempotencyKeyIn([idempotencyKey]),
    base64: base64 ?? '',
  };
}

/** Whether the answer should show the result. @throws ContractError INVALID_REQUEST */
export function wantsPreview({ preview }: Arguments): boolean {
  if (preview === undefined || preview === null) return false;
  if (typeof preview === 'boolean') return preview;
  throw malformed('preview must be a boolean.', 'preview', 'must be a boolean');
}

/** Undefined: the value is absent or null. @throws ContractError INVALID_REQUEST */
function textOf(field: string, value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  const kinds: readonly string[] = ['string', ...MATTING_JSON.literalsOf(field)];
  if (!kinds.includes(typeof value)) {
    const wrong = `must be a ${kinds.join(' or a ')}`;
    throw malformed(`${field} ${wrong}.`, field, wrong);
  }
  const text = String(value);
  if (text.isWellFormed()) return text;
  throw malformed(`${field} holds half of a surrogate pair.`, field, 'is not valid Unicode');
}
