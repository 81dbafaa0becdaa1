/** The JSON Schemas (2020-12) of the OpenAPI document: what callers send and get. */
import { ERROR_CATALOGUE } from '#contract/errors.ts';
import { OUTPUT_FORMATS } from '#contract/formats.ts';
import { IMAGE_SIDE_PX_MAX, URL_LENGTH_MAX } from '#contract/limits.ts';

export type JsonSchema = { readonly [keyword: string]: unknown };

const time: JsonSchema = {
  type: 'string',
  format: 'date-time',
  description: 'ISO 8601 in UTC.',
  examples: ['2026-05-04T09:30:00.000Z'],
};
const noTime: JsonSchema = { type: 'null', description: 'Not yet.' };
const uuid: JsonSchema = {
  type: 'string',
  format: 'uuid',
  examples: ['6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f'],
};

export function ref(name: string): JsonSchema {
  return { $ref: `#/components/schemas/${name}` };
}

/** Every property is required but those named in `optional`. */
function object(properties: Record<string, JsonSchema>, optional: string[] = []): JsonSchema {
  const required = Object.keys(properties).filter(name => !optional.includes(name));
  return { type: 'object', required, properties };
}

function credits(reserved: 0 | 1, charged: 0 | 1): JsonSchema {
  return object({ reserved: { const: reserved }, charged: { const: charged } });
}

interface JobState {
  readonly status: string;
  readonly startedAt: JsonSchema;
  readonly finishedAt: JsonSchema;
  readonly credits: JsonSchema;
  readonly more?: Record<string, JsonSchema>;
  readonly optional?: string[];
}

function job({ status, startedAt, finishedAt, credits, more, optional }: JobState): JsonSchema {
  const properties = {
    job_id: uuid,
    status: { const: status },
    created_at: time,
    started_at: startedAt,
    finished_at: finishedAt,
    status_url: { type: 'string', format: 'uri', description: 'Where the job is read.' },
    credits,
    ...more,
  };
  return object(properties, optional);
}

const syncTimeout = {
  sync_timeout: {
    const: true,
    description: 'Only in the 202 of the synchronous endpoint: the wait ended, the job goes on.',
  },
};

const jobSchemas: Record<string, JsonSchema> = {
  QueuedJob: job({
    status: 'queued',
    startedAt: noTime,
    finishedAt: noTime,
    credits: credits(1, 0),
    more: syncTimeout,
    optional: ['sync_timeout'],
  }),
  ProcessingJob: job({
    status: 'processing',
    startedAt: time,
    finishedAt: noTime,
    credits: credits(1, 0),
    more: syncTimeout,
    optional: ['sync_timeout'],
  }),
  SucceededJob: job({
    status: 'succeeded',
    startedAt: time,
    finishedAt: time,
    credits: credits(0, 1),
    more: { result: ref('Result') },
  }),
  ExpiredJob: job({
    status: 'expired',
    startedAt: time,
    finishedAt: time,
    credits: credits(0, 1),
  }),
  FailedJob: job({
    status: 'failed',
    startedAt: { oneOf: [time, noTime] },
    finishedAt: time,
    credits: credits(0, 0),
    more: { error: ref('JobError') },
  }),
  Job: {
    description: 'One cut-out, from its submission on.',
    oneOf: ['QueuedJob', 'ProcessingJob', 'SucceededJob', 'ExpiredJob', 'FailedJob'].map(ref),
  },
  OpenJob: {
    description: 'A job that is not final.',
    oneOf: ['QueuedJob', 'ProcessingJob'].map(ref),
  },
};

function text(description: string, more: JsonSchema = {}): JsonSchema {
  return { type: ['string', 'null'], description, ...more };
}

const mattingRequest: JsonSchema = {
  type: 'object',
  description: 'Exactly one of image_url and image_base64. null is the same as absent.',
  properties: {
    image_url: text('http or https, a public address, without user name and password.', {
      maxLength: URL_LENGTH_MAX,
      examples: ['https://example.com/photo.jpg'],
    }),
    image_base64: text(
      'The file in Base64 (RFC 4648 section 4), at most 50 MB decoded, with or without a data URI ' +
        'prefix. JPEG, PNG, WebP, AVIF or JPEG XL; the bytes decide, not a media type.',
    ),
    output_format: text('In whatever case; png where absent. All carry transparency.', {
      default: 'png',
      examples: [...OUTPUT_FORMATS],
    }),
    callback_url: text('https; together with callback_secret. Not available yet.', {
      maxLength: URL_LENGTH_MAX,
    }),
    callback_secret: text('24 to 128 printable ASCII characters. Not available yet.', {
      minLength: 24,
      maxLength: 128,
    }),
  },
  additionalProperties: false,
};

const pixels: JsonSchema = { type: 'integer', minimum: 1, maximum: IMAGE_SIDE_PX_MAX };

const publicCodes = Object.entries(ERROR_CATALOGUE)
  .filter(([, spec]) => spec.scope === 'public')
  .map(([code]) => code);

export const schemas: Record<string, JsonSchema> = {
  MattingRequest: mattingRequest,
  ...jobSchemas,
  Result: object({
    url: { type: 'string', format: 'uri', description: 'A download link; needs no header.' },
    format: { enum: [...OUTPUT_FORMATS] },
    contentType: { enum: OUTPUT_FORMATS.map(format => `image/${format}`) },
    sizeBytes: { type: 'integer', minimum: 1 },
    width: { ...pixels, description: "The input's, after its orientation was applied." },
    height: pixels,
    expiresAt: { ...time, description: 'From then on the link answers 410.' },
  }),
  JobError: object({
    code: ref('ErrorCode'),
    detail: { type: 'string' },
    retryable: { type: 'boolean', description: 'Whether the same request may succeed later.' },
  }),
  Account: object({
    credits: object({
      available: { type: 'integer', minimum: 0 },
      reserved: { type: 'integer', minimum: 0, description: 'Held by jobs that are not final.' },
    }),
  }),
  Health: object({ status: { enum: ['alive', 'ready'] } }),
  ErrorCode: { enum: publicCodes },
  Problem: {
    description: 'RFC 9457. Tell errors apart by `code`.',
    ...object(
      {
        type: { type: 'string', format: 'uri', description: 'The documentation of the code.' },
        title: { type: 'string' },
        status: { type: 'integer' },
        detail: { type: 'string', description: 'For people; it may change.' },
        instance: { type: 'string', format: 'uri-reference' },
        code: ref('ErrorCode'),
        request_id: { type: 'string', description: 'Also in X-Request-ID. Quote it when asking.' },
        retryable: { type: 'boolean', description: 'Whether the same request may succeed later.' },
        job_id: { ...uuid, description: 'The job it concerns.' },
        errors: {
          type: 'array',
          items: object({ field: { type: 'string' }, detail: { type: 'string' } }),
          description: 'Which fields of the body are wrong.',
        },
      },
      ['instance', 'job_id', 'errors'],
    ),
  },
};
