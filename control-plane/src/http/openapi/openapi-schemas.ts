/**
 * The JSON Schemas of the OpenAPI document: what callers send and get. Their properties are tied to
 * the types that the routes read and answer with: a field more or less there does not compile here.
 */
import { ERROR_CATALOGUE, type FieldError } from '#contract/errors.ts';
import { OUTPUT_FORMATS } from '#contract/formats.ts';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import type { AccountView, Credits, KeysView, PackagesView } from '../../services/account.ts';
import type { MattingField } from '../../services/submission/submit-fields.ts';
import type { Problem } from '../answers/problem.ts';
import {
  count,
  type JsonSchema,
  object,
  ref,
  retryable,
  text,
  time,
  timeOrNone,
  uri,
  uuid,
} from './json-schema.ts';
import { jobSchemas } from './openapi-job-schemas.ts';

function given(description: string, more: JsonSchema = {}): JsonSchema {
  return { type: ['string', 'null'], description, ...more };
}

/** JSON Schema's patterns have no flag for case. */
const ANY_CASE_FORMAT = `^(${OUTPUT_FORMATS.map(format =>
  [...format].map(letter => `[${letter}${letter.toUpperCase()}]`).join(''),
).join('|')})$`;

const FORMAT_NAMES = OUTPUT_FORMATS.map(format => `\`${format}\``).join(', ');

const mattingFields: Readonly<Record<MattingField, JsonSchema>> = {
  image_url: given(
    'http or https, a public address, without user name and password, on a usual port.',
    { format: 'uri', maxLength: URL_LENGTH_MAX, examples: ['https://example.com/photo.jpg'] },
  ),
  image_base64: given(
    'The file in Base64 (RFC 4648 section 4), at most 50 MB decoded, with or without a data URI ' +
      'prefix. JPEG, PNG, WebP, AVIF or JPEG XL; the bytes decide, not a media type.',
    { minLength: 1 },
  ),
  output_format: given(
    `${FORMAT_NAMES}, in whatever case; png where absent. All carry transparency.`,
    {
      pattern: ANY_CASE_FORMAT,
      default: 'png',
      examples: [...OUTPUT_FORMATS],
    },
  ),
  callback_url: given('Where to notify of the end: https, a public address, no fragment.', {
    format: 'uri',
    maxLength: URL_LENGTH_MAX,
    examples: ['https://example.com/hooks/matting'],
  }),
  callback_secret: given(
    'What notifications are signed with, printable ASCII. `whsec_` and Base64 of 24 to 64 bytes is ' +
      'decoded, anything else is used as it stands.',
    { minLength: 24, maxLength: 128, pattern: '^[ -~]*$', writeOnly: true },
  ),
};

/** null is the same as absent, so both kinds of pairs are told by type, not by presence. */
function present(field: MattingField, ...absent: MattingField[]): JsonSchema {
  const none = Object.fromEntries(absent.map(name => [name, { type: 'null' }]));
  return { required: [field], properties: { [field]: text, ...none } };
}

const mattingRequest: JsonSchema = {
  type: 'object',
  description:
    'Exactly one of image_url and image_base64; callback_url and callback_secret only together. ' +
    'null is the same as absent. Unknown fields and fields given twice are refused.',
  properties: mattingFields,
  additionalProperties: false,
  allOf: [
    { oneOf: [present('image_url', 'image_base64'), present('image_base64', 'image_url')] },
    {
      oneOf: [
        { properties: { callback_url: { type: 'null' }, callback_secret: { type: 'null' } } },
        { allOf: [present('callback_url'), present('callback_secret')] },
      ],
    },
  ],
};

const problem: JsonSchema = object<Problem>(
  {
    type: { ...uri, description: 'The documentation of the code.' },
    title: text,
    status: { type: 'integer' },
    detail: { ...text, description: 'For people; it may change.' },
    instance: { type: 'string', format: 'uri-reference', description: 'The path asked for.' },
    code: ref('ErrorCode'),
    request_id: { ...text, description: 'Also in X-Request-ID. Quote it when asking.' },
    retryable,
    job_id: { ...uuid, description: 'The job it concerns.' },
    errors: {
      type: 'array',
      items: object<FieldError>({ field: text, detail: text }),
      description: 'Which fields of the body are wrong.',
    },
  },
  ['instance', 'job_id', 'errors'],
  'RFC 9457. Tell errors apart by `code`.',
);

const publicCodes = Object.entries(ERROR_CATALOGUE)
  .filter(([, spec]) => spec.scope === 'public')
  .map(([code]) => code);

type PriceListView = PackagesView['lists'][number];
type PackageView = PriceListView['packages'][number];

const packages: JsonSchema = object<PackagesView>({
  lists: {
    type: 'array',
    items: object<PriceListView>({
      unit: { enum: ['credit', 'image'], description: 'What the prices of the list are per.' },
      currency: { const: 'CNY' },
      packages: {
        type: 'array',
        items: object<PackageView>({
          credits: { type: 'integer', minimum: 1 },
          price: { type: 'integer', minimum: 1, description: 'Of the whole package.' },
          unit_price: {
            type: 'string',
            pattern: '^\\d+(\\.\\d+)?$',
            description: 'Decimal, as listed.',
          },
        }),
      },
    }),
  },
});

const keys: JsonSchema = object<KeysView>({
  keys: {
    type: 'array',
    description: 'Oldest first, revoked ones too.',
    items: object<KeysView['keys'][number]>({
      prefix: { ...text, description: 'The part of the key that is no secret.' },
      name: text,
      created_at: time,
      revoked_at: timeOrNone,
    }),
  },
});

export const schemas: Readonly<Record<string, JsonSchema>> = {
  MattingRequest: mattingRequest,
  ...jobSchemas,
  Account: object<AccountView>({
    credits: object<Credits>({
      available: { ...count, description: 'What may still be reserved.' },
      reserved: { ...count, description: 'Held by jobs that are not final.' },
    }),
  }),
  Packages: packages,
  Keys: keys,
  Health: object<{ status: string }>({ status: { enum: ['alive', 'ready'] } }),
  ErrorCode: { enum: publicCodes },
  Problem: problem,
};
