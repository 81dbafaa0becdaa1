/**
 * The fields of a submission and the rules that need neither the image's bytes nor the network nor
 * the database.
 */
import { ContractError, invalidParameter } from '#contract/errors.ts';
import {
  FINISHING_FIELDS,
  type FinishingField,
  isOpaque,
  parseFinishing,
} from '#contract/finishing/fields.ts';
import type { Channels, Finishing } from '#contract/finishing.ts';
import {
  contentTypeOf,
  type OutputFormat,
  parseOutputFormat,
  TRANSPARENT_FORMATS,
} from '#contract/formats.ts';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import { OVERLONG, type TextValue } from '../../http/bodies.ts';
import { requireCallbackUrl } from '../fetching/guarded-post.ts';
import type { CallbackPolicy, OutgoingPolicy } from '../fetching/outgoing-url.ts';
import { requireBackgroundUrl, requireImageUrl } from './image-url.ts';

export const MATTING_FIELDS = [
  'image_url',
  'image_base64',
  'output_format',
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
  /** Whether there was a part `background_file`, whose bytes are in an upload of their own. */
  readonly backgroundGiven?: boolean;
}

export interface MattingRequest {
  /** Undefined: the image came as Base64. */
  readonly imageUrl: string | undefined;
  readonly outputFormat: OutputFormat;
  readonly channels: Channels;
  /** Undefined: nothing was asked for. */
  readonly finishing: Finishing | undefined;
  /** Undefined: none, or it came as a file. */
  readonly backgroundUrl: string | undefined;
  /** Undefined: no notification. */
  readonly callback: CallbackRequest | undefined;
}

/** As they were sent. */
interface CallbackRequest {
  readonly url: string;
  /** Never to be logged. */
  readonly secret: string;
}

export interface FieldPolicy extends OutgoingPolicy, CallbackPolicy {}

/** What a result without transparency may be made in, the default first. */
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
  const backgroundUrl = texts.get('background_url');
  const { channels, finishing } = parseFinishing(finishingTexts(texts), {
    // Where none is named, one of those below, each of which goes with what is asked for.
    outputFormat: named ?? DEFAULT_FORMAT,
    backgroundFile: backgroundGiven,
  });
  const formats = isOpaque(finishing?.background) ? OPAQUE_FORMATS : TRANSPARENT_FORMATS;
  const outputFormat = requireAcceptedFormat(named, formats, accepts);
  const callback = requireCallback(texts.get('callback_url'), texts.get('callback_secret'), policy);
  return {
    imageUrl: url === undefined ? undefined : requireUrl(url, policy),
    outputFormat,
    channels,
    finishing,
    backgroundUrl:
      backgroundUrl === undefined ? undefined : requireBackground(backgroundUrl, policy),
    callback,
  };
}

function notOneSource(bothGiven: boolean): ContractError {
  const detail = bothGiven
    ? 'image_url and image_base64 exclude each other'
    : 'one of image_url and image_base64 is required';
  const fieldErrors = [
    { field: 'image_url', detail },
    { field: 'image_base64', detail },
  ];
  return new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
}

function requireOutputFormat(given: TextValue | undefined): OutputFormat | undefined {
  if (given === undefined) return undefined;
  const format = given === OVERLONG ? undefined : parseOutputFormat(given);
  // The archive is of the other interface and of gRPC.
  if (format !== undefined && format !== 'zip') return format;
  const detail = `output_format must be one of ${TRANSPARENT_FORMATS.join(', ')}`;
  const fieldErrors = [{ field: 'output_format', detail }];
  throw new ContractError('UNSUPPORTED_OUTPUT_FORMAT', detail, { fieldErrors });
}

/** @throws ContractError INVALID_PARAMETER where one is over every rule's length */
function finishingTexts(texts: MattingFields['texts']): Map<FinishingField, string> {
  const given = new Map<FinishingField, string>();
  for (const field of FINISHING_FIELDS) {
    const text = texts.get(field);
    if (text === OVERLONG) throw invalidParameter(field, 'is too long');
    if (text !== undefined) given.set(field, text);
  }
  return given;
}

function requireBackground(url: TextValue, policy: OutgoingPolicy): string {
  if (url === OVERLONG) throw invalidParameter('background_url', 'is too long');
  requireBackgroundUrl(url, policy);
  return url;
}

function requireUrl(url: TextValue, policy: OutgoingPolicy): string {
  if (url === OVERLONG) {
    const detail = `image_url is over ${URL_LENGTH_MAX} characters`;
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
): CallbackRequest | undefined {
  if (url === undefined && secret === undefined) return undefined;
  const pair = 'callback_url and callback_secret come together';
  if (url === undefined) throw invalidCallback('callback_url', `missing: ${pair}`);
  if (secret === undefined) throw invalidCallback('callback_secret', `missing: ${pair}`);
  if (url === OVERLONG) {
    throw invalidCallback('callback_url', `must be at most ${URL_LENGTH_MAX} characters`);
  }
  requireCallbackUrl(url, policy);
  if (secret === OVERLONG || !CALLBACK_SECRET.test(secret)) {
    throw invalidCallback('callback_secret', 'must be 24 to 128 printable ASCII characters');
  }
  return { url, secret };
}

function invalidCallback(field: 'callback_url' | 'callback_secret', wrong: string): ContractError {
  const fieldErrors = [{ field, detail: wrong }];
  return new ContractError('INVALID_CALLBACK', `${field}: ${wrong}`, { fieldErrors });
}

/** What a caller takes as its answer. The same answer for the same formats, whatever their order. */
export interface AcceptedAnswers {
  /**
   * The caller's choice among JSON and the picture in one of these formats, the service's
   * favourite first. 'none': the caller takes a picture, but in none of these formats.
   */
  prefer(formats: readonly OutputFormat[]): OutputFormat | 'json' | 'none';
}

export const JSON_ALONE: AcceptedAnswers = { prefer: () => 'json' };

/** Of a request that names none and whose caller takes JSON. */
export const DEFAULT_FORMAT: OutputFormat = 'png';

/**
 * The format of a request's result: the one it names, else the one its caller takes, else PNG.
 * @param formats what the request may be made in where it names none, the default first
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
    throw new ContractError('NOT_ACCEPTABLE', `Accept takes neither JSON nor one of ${types}`);
  }
  const detail = `output_format makes ${contentTypeOf(named)}, which Accept does not take`;
  const fieldErrors = [{ field: 'output_format', detail }];
  throw new ContractError('NOT_ACCEPTABLE', detail, { fieldErrors });
}
