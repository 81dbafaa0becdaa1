import { OVERLONG, type TextValue } from '@matting/http/body-fields.ts';
import type { CallbackPolicy } from '@matting/http/outgoing/callback-url.ts';
import type { OutgoingPolicy } from '@matting/http/outgoing/outgoing-url.ts';
import {
  ContractError,
  invalidParameter,
  unsupportedOutput,
} from '@matting/proto/contract/errors.ts';
import { type ParsedFinishing, parseFinishing } from '@matting/proto/contract/finishing/fields.ts';
import { FINISHING_FIELDS } from '@matting/proto/contract/finishing/table.ts';
import {
  type Channels,
  type Finishing,
  isOpaque,
  QUALITY_ABSENT,
} from '@matting/proto/contract/finishing.ts';
import {
  contentTypeOf,
  type OutputFormat,
  parseOutputFormat,
  TRANSPARENT_FORMATS,
} from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import { HINT_FIELDS, parseHints } from '@matting/proto/contract/hints-fields.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';
import { keptFields } from '../corrections/correctable.ts';
import { invalidCallback, requireCallbackUrl } from '../fetching/callback-check.ts';
import { requireBackgroundUrl, requireImageUrl } from './image-url.ts';

export const MATTING_FIELDS = [
  'image_url',
  'image_base64',
  'output_format',
  'model',
  'no_subject',
  'reference',
  'correctable',
  'callback_url',
  'callback_secret',
  ...HINT_FIELDS,
  ...FINISHING_FIELDS,
] as const;
type MattingField = (typeof MATTING_FIELDS)[number];
export type TextField = Exclude<MattingField, 'image_base64'>;

/** The fields as they were sent; null counts as absent. */
export interface MattingFields {
  readonly texts: ReadonlyMap<TextField, TextValue>;
  /** True even for an empty string. The bytes are in the upload. */
  readonly imageGiven: boolean;
  readonly backgroundGiven?: boolean;
  readonly hintsGiven?: boolean;
}

export interface MattingRequest {
  readonly imageUrl: string | undefined;
  readonly outputFormat: OutputFormat;
  /** Absent: the nodes' default plan. */
  readonly model?: string | undefined;
  /** Absent: a job without a subject succeeds. */
  readonly noSubject?: 'fail' | undefined;
  /** In Unicode form NFC; not in the fingerprint. */
  readonly reference?: string | undefined;
  /** Fields that corrections inherit. */
  readonly correctable?: Readonly<Record<string, string>> | undefined;
  readonly channels: Channels;
  readonly finishing: Finishing | undefined;
  readonly hints?: Hints | undefined;
  /** Undefined: no background, or a file. */
  readonly backgroundUrl: string | undefined;
  readonly callback: { readonly url: string; readonly secret: string } | undefined;
}

export interface FieldPolicy extends OutgoingPolicy, CallbackPolicy {
  readonly corrections?: boolean;
}

/** For a result without transparency, the default first. */
const OPAQUE_FORMATS: readonly OutputFormat[] = [...TRANSPARENT_FORMATS, 'jpeg'];

const CALLBACK_SECRET = /^[\x20-\x7e]{24,128}$/;

/**
 * Checks in the contract's order. @param accepts decides the format if output_format is absent
 * @throws ContractError INVALID_IMAGE_SOURCE, UNSUPPORTED_OUTPUT_FORMAT, NOT_ACCEPTABLE,
 * INVALID_PARAMETER, INVALID_CALLBACK
 */
export function requireMattingRequest(
  fields: MattingFields,
  policy: FieldPolicy,
  accepts: AcceptedAnswers = JSON_ALONE,
): MattingRequest {
  const { texts, imageGiven, backgroundGiven = false, hintsGiven = false } = fields;
  const url = texts.get('image_url');
  const backgroundUrl = texts.get('background_url');
  if ((url !== undefined) === imageGiven) throw notOneSource(imageGiven);
  const named = requireOutputFormat(texts.get('output_format'));
  const finish = (format: OutputFormat | undefined) =>
    parseFinishing(textsOf(texts, FINISHING_FIELDS), {
      outputFormat: format,
      backgroundFile: backgroundGiven,
    });
  const parsed = finish(named);
  const outputFormat = requireAcceptedFormat(named, formatsFor(parsed), accepts);
  // Accept decided the format.
  const { channels, finishing } = named === undefined ? finish(outputFormat) : parsed;
  const callback = requireCallback(texts, policy);
  return {
    imageUrl: url === undefined ? undefined : requireImageUrl(url, policy),
    outputFormat,
    model: requireShort('model', texts.get('model')),
    noSubject: requireNoSubject(texts.get('no_subject')),
    reference: requireReference(texts.get('reference')),
    correctable: wantsCorrections(texts, policy) ? keptFields(texts) : undefined,
    channels,
    finishing,
    hints: parseHints(textsOf(texts, HINT_FIELDS), hintsGiven),
    backgroundUrl:
      backgroundUrl === undefined ? undefined : requireBackgroundUrl(backgroundUrl, policy),
    callback,
  };
}

/** The default first. */
function formatsFor({ finishing }: ParsedFinishing): readonly OutputFormat[] {
  const formats = isOpaque(finishing) ? OPAQUE_FORMATS : TRANSPARENT_FORMATS;
  if (finishing?.quality === undefined) return formats;
  return formats.filter(format => QUALITY_ABSENT[format] !== undefined);
}

function notOneSource(bothGiven: boolean): ContractError {
  const given = bothGiven ? 'more than one image' : 'no image';
  const detail = `The request has ${given}. Send one of image_url, image_base64.`;
  const wrong = bothGiven ? 'is not the only image' : 'is missing';
  const fieldErrors = ['image_url', 'image_base64'].map(field => ({ field, detail: wrong }));
  return new ContractError('INVALID_IMAGE_SOURCE', detail, { fieldErrors });
}

function requireOutputFormat(given: TextValue | undefined): OutputFormat | undefined {
  if (given === undefined) return undefined;
  const format = given === OVERLONG ? undefined : parseOutputFormat(given);
  // Only the remove.bg interface and gRPC offer the archive.
  if (format !== undefined && format !== 'zip') return format;
  const known = TRANSPARENT_FORMATS.join(', ');
  throw unsupportedOutput(`must be one of ${known}, or jpeg with an opaque background`);
}

function textsOf<Field extends TextField>(
  texts: MattingFields['texts'],
  fields: readonly Field[],
): Map<Field, string> {
  const given = new Map<Field, string>();
  for (const field of fields) {
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

/** In code points. */
const REFERENCE_LENGTH_MAX = 128;
/** Controls, line ends, and changes of text direction. */
const NOT_IN_A_REFERENCE = /[\p{Cc}\p{Zl}\p{Zp}\p{Cs}\p{Bidi_Control}]/u;

/** @throws ContractError INVALID_PARAMETER */
export function requireReference(
  text: TextValue | undefined,
  field = 'reference',
): string | undefined {
  if (text === undefined) return undefined;
  const reference = text === OVERLONG ? '' : text.normalize('NFC');
  const { length } = [...reference];
  if (length >= 1 && length <= REFERENCE_LENGTH_MAX && !NOT_IN_A_REFERENCE.test(reference)) {
    return reference;
  }
  const form = `must be 1 to ${REFERENCE_LENGTH_MAX} characters without control characters`;
  throw invalidParameter(field, form);
}

function wantsCorrections(texts: MattingFields['texts'], { corrections }: FieldPolicy): boolean {
  const text = texts.get('correctable');
  const value = text === OVERLONG ? text : text?.toLowerCase();
  if (value === undefined || value === 'false') return false;
  if (value !== 'true') throw invalidParameter('correctable', 'must be true or false');
  if (corrections) return true;
  throw invalidParameter(
    'correctable',
    'is not available: this service keeps nothing. Leave it out',
  );
}

/** @throws ContractError INVALID_CALLBACK */
export function requireCallback(
  texts: MattingFields['texts'],
  policy: FieldPolicy,
): MattingRequest['callback'] {
  const url = texts.get('callback_url');
  const secret = texts.get('callback_secret');
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

export interface AcceptedAnswers {
  /**
   * @param formats the service's preferred one first. 'none': the caller accepts pictures, but none
   * of these.
   */
  prefer(formats: readonly OutputFormat[]): OutputFormat | 'json' | 'none';
}

export const JSON_ALONE: AcceptedAnswers = { prefer: () => 'json' };

const DEFAULT_FORMAT: OutputFormat = 'png';

/** @throws ContractError NOT_ACCEPTABLE */
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
    const jpeg = formats.includes('jpeg') ? '' : ' JPEG needs an opaque background.';
    throw new ContractError(
      'NOT_ACCEPTABLE',
      `Accept takes neither JSON nor an image type that this request can produce. Add one of ${types}.${jpeg}`,
    );
  }
  const detail = `Accept does not take ${contentTypeOf(named)}, which output_format asks for. Name one format in both.`;
  const fieldErrors = [{ field: 'output_format', detail }];
  throw new ContractError('NOT_ACCEPTABLE', detail, { fieldErrors });
}
