/** The fields of a submission: which there are, and what a request asks by them. */
import { OVERLONG, type TextValue } from '@matting/http/body-fields.ts';
import type { CallbackPolicy } from '@matting/http/outgoing/callback-url.ts';
import type { OutgoingPolicy } from '@matting/http/outgoing/outgoing-url.ts';
import {
  ContractError,
  invalidParameter,
  unsupportedOutput,
} from '@matting/proto/contract/errors.ts';
import {
  FINISHING_FIELDS,
  type FinishingField,
  parseFinishing,
} from '@matting/proto/contract/finishing/fields.ts';
import { type Channels, type Finishing, isOpaque } from '@matting/proto/contract/finishing.ts';
import {
  contentTypeOf,
  type OutputFormat,
  parseOutputFormat,
  TRANSPARENT_FORMATS,
} from '@matting/proto/contract/formats.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import { requireCallbackUrl } from '../fetching/callback-check.ts';
import { requireBackgroundUrl, requireImageUrl } from './image-url.ts';

export const MATTING_FIELDS = [
  'image_url',
  'image_base64',
  'output_format',
  'model',
  'no_subject',
  'callback_url',
  'callback_secret',
  ...FINISHING_FIELDS,
] as const;
type MattingField = (typeof MATTING_FIELDS)[number];
export type TextField = Exclude<MattingField, 'image_base64'>;

/** A body's fields as they were sent; absent and null are the same. */
export interface MattingFields {
  readonly texts: ReadonlyMap<TextField, TextValue>;
  /** Whether image_base64 was a string, an empty one too. Its bytes go into the upload. */
  readonly imageGiven: boolean;
  readonly backgroundGiven?: boolean;
}

export interface MattingRequest {
  readonly imageUrl: string | undefined;
  readonly outputFormat: OutputFormat;
  /** A plan or a model that nodes have; absent: the nodes' own plan. */
  readonly model?: string | undefined;
  /** This is what happens if no subject is seen; absent: the job succeeds. */
  readonly noSubject?: 'fail' | undefined;
  readonly channels: Channels;
  readonly finishing: Finishing | undefined;
  /** Undefined: none, or it came as a file. */
  readonly backgroundUrl: string | undefined;
  readonly callback: { readonly url: string; readonly secret: string } | undefined;
}

export interface FieldPolicy extends OutgoingPolicy, CallbackPolicy {}

/** A result without transparency may have these formats, the default first. */
const OPAQUE_FORMATS: readonly OutputFormat[] = [...TRANSPARENT_FORMATS, 'jpeg'];

const CALLBACK_SECRET = /^[\x20-\x7e]{24,128}$/;

/**
 * Checks in the contract's order: one source, the output format, what is made of the cut-out,
 * whether that is accepted, the callback pair, the URLs' texts.
 * @param accepts decides the output format where none is named
 * @throws ContractError INVALID_IMAGE_SOURCE, UNSUPPORTED_OUTPUT_FORMAT, NOT_ACCEPTABLE,
 *   INVALID_PARAMETER, INVALID_CALLBACK
 */
export function requireMattingRequest(
  fields: MattingFields,
  policy: FieldPolicy,
  accepts: AcceptedAnswers = JSON_ALONE,
): MattingRequest {
  const { texts, imageGiven, backgroundGiven = false } = fields;
  const url = texts.get('image_url');
  if ((url !== undefined) === imageGiven) throw notOneSource(imageGiven);
  const named = requireOutputFormat(texts.get('output_format'));
  const { channels, finishing } = parseFinishing(finishingTexts(texts), {
    // If no format is named, it is one of those below, each of which fits the finishing.
    outputFormat: named ?? DEFAULT_FORMAT,
    backgroundFile: backgroundGiven,
  });
  const formats = isOpaque(finishing) ? OPAQUE_FORMATS : TRANSPARENT_FORMATS;
  const outputFormat = requireAcceptedFormat(named, formats, accepts);
  const callback = requireCallback(texts.get('callback_url'), texts.get('callback_secret'), policy);
  return {
    imageUrl: url === undefined ? undefined : requireUrl(url, policy),
    outputFormat,
    model: requireShort('model', texts.get('model')),
    noSubject: requireNoSubject(texts.get('no_subject')),
    channels,
    finishing,
    backgroundUrl: requireBackground(texts.get('background_url'), policy),
    callback,
  };
}

function notOneSource(bothGiven: boolean): ContractError {
  const given = bothGiven ? 'more than one image' : 'no image';
  const detail = `The request has ${given}. Send one of image_url, image_base64.`;
  const fieldErrors = ['image_url', 'image_base64'].map(field => ({ field, detail }));
  return new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
}

function requireOutputFormat(given: TextValue | undefined): OutputFormat | undefined {
  if (given === undefined) return undefined;
  const format = given === OVERLONG ? undefined : parseOutputFormat(given);
  // The archive is of the other interface and of gRPC.
  if (format !== undefined && format !== 'zip') return format;
  throw unsupportedOutput(`must be one of ${TRANSPARENT_FORMATS.join(', ')}`);
}

/** @throws ContractError INVALID_PARAMETER where one is over every rule's length */
function finishingTexts(texts: MattingFields['texts']): Map<FinishingField, string> {
  const given = new Map<FinishingField, string>();
  for (const field of FINISHING_FIELDS) {
    const text = requireShort(field, texts.get(field));
    if (text !== undefined) given.set(field, text);
  }
  return given;
}

function requireShort(field: string, text: TextValue | undefined): string | undefined {
  if (text === OVERLONG) throw invalidParameter(field, 'is too long');
  return text;
}

function requireNoSubject(text: TextValue | undefined): MattingRequest['noSubject'] {
  if (text === undefined || text === 'fail') return text;
  throw invalidParameter(
    'no_subject',
    'must be fail. Leave it out to get a result without a subject',
  );
}

function requireBackground(given: TextValue | undefined, policy: OutgoingPolicy) {
  const url = requireShort('background_url', given);
  if (url !== undefined) requireBackgroundUrl(url, policy);
  return url;
}

function requireUrl(url: TextValue, policy: OutgoingPolicy): string {
  if (url === OVERLONG) {
    const detail = `image_url is too long. The limit is ${URL_LENGTH_MAX} characters.`;
    const fieldErrors = [{ field: 'image_url', detail }];
    throw new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
  }
  requireImageUrl(url, policy);
  return url;
}

function requireCallback(
  url: TextValue | undefined,
  secret: TextValue | undefined,
  policy: FieldPolicy,
): MattingRequest['callback'] {
  if (url === undefined && secret === undefined) return undefined;
  const pair = 'is missing. Send callback_url and callback_secret together';
  if (url === undefined) throw invalidCallback('callback_url', pair);
  if (secret === undefined) throw invalidCallback('callback_secret', pair);
  if (url === OVERLONG) {
    throw invalidCallback('callback_url', `must be at most ${URL_LENGTH_MAX} characters`);
  }
  requireCallbackUrl(url, policy);
  if (secret === OVERLONG || !CALLBACK_SECRET.test(secret)) {
    throw invalidCallback('callback_secret', 'must be 24 to 128 printable ASCII characters');
  }
  return { url, secret };
}

export function invalidCallback(
  field: 'callback_url' | 'callback_secret',
  wrong: string,
): ContractError {
  const fieldErrors = [{ field, detail: wrong }];
  return new ContractError('INVALID_CALLBACK', `${field} ${wrong}.`, { fieldErrors });
}

export interface AcceptedAnswers {
  /**
   * The caller's choice among JSON and the picture in one of these formats, the service's
   * favourite first. 'none': the caller takes a picture, but in none of these formats.
   */
  prefer(formats: readonly OutputFormat[]): OutputFormat | 'json' | 'none';
}

export const JSON_ALONE: AcceptedAnswers = { prefer: () => 'json' };

/** A request that names none has this format, if its caller takes JSON. */
const DEFAULT_FORMAT: OutputFormat = 'png';

/**
 * Returns the named format, else one that the caller takes, else PNG.
 * @throws ContractError NOT_ACCEPTABLE
 */
function requireAcceptedFormat(
  named: OutputFormat | undefined,
  formats: readonly OutputFormat[],
  accepts: AcceptedAnswers,
): OutputFormat {
  const choice = accepts.prefer(named === undefined ? formats : [named]);
  if (choice === 'json') return named ?? DEFAULT_FORMAT;
  if (choice !== 'none') return choice;
  if (named === undefined) {
    const types = formats.map(contentTypeOf).join(', ');
    throw new ContractError(
      'NOT_ACCEPTABLE',
      `Accept takes neither JSON nor an image type that this request can produce. Add one of ${types}.`,
    );
  }
  const detail = `Accept does not take ${contentTypeOf(named)}, which output_format asks for. Name one format in both.`;
  const fieldErrors = [{ field: 'output_format', detail }];
  throw new ContractError('NOT_ACCEPTABLE', detail, { fieldErrors });
}
