/** The headers, parameters and answers that the operations of the OpenAPI document share. */
import { ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import { OUTPUT_FORMATS } from '#contract/formats.ts';
import { IDEMPOTENCY_KEY_LENGTH_MAX } from '#contract/limits.ts';
import { type JsonSchema, ref } from './openapi-schemas.ts';
import { PROBLEM_TYPE } from './problem.ts';

export type JsonObject = { readonly [name: string]: unknown };

const text: JsonSchema = { type: 'string' };
const integer: JsonSchema = { type: 'integer', minimum: 0 };

function header(description: string, schema: JsonSchema = text, required = false): JsonObject {
  return { description, schema, required };
}

export const headers: Record<string, JsonObject> = {
  'X-Request-ID': header('Names this request in our logs.', text, true),
  'X-Credits-Charged': header(
    '1 on the synchronous 200 of the request that made the job, otherwise 0.',
    { enum: [0, 1] },
    true,
  ),
  'Idempotent-Replayed': header('The job was final before this request came.', { const: true }),
  Location: header('The status_url of the job.', { type: 'string', format: 'uri' }, true),
  'Retry-After': header('Seconds after which to ask again.', integer, true),
  'Preference-Applied': header('What of Prefer was honoured (RFC 7240).'),
  'Server-Timing': header("Where a finished job's time went, in milliseconds."),
  'WWW-Authenticate': header('Bearer.', { const: 'Bearer' }, true),
  'Cache-Control': header('Whether and how long the answer may be kept.', text, true),
  ETag: header("The file's entity tag, for If-None-Match and If-Range.", text, true),
  'Accept-Ranges': header('bytes.', { const: 'bytes' }, true),
  'Content-Range': header('The bytes sent, of how many.', text, true),
  'Content-Length': header('Bytes of the body.', integer, true),
  'Content-Disposition': header('attachment, with a name for the file.', text, true),
};

/** References to the headers of an answer; X-Request-ID is on every one. */
export function headerRefs(names: readonly string[]): JsonObject {
  const all = ['X-Request-ID', ...names];
  return Object.fromEntries(all.map(name => [name, { $ref: `#/components/headers/${name}` }]));
}

export const parameters: Record<string, JsonObject> = {
  IdempotencyKey: {
    name: 'Idempotency-Key',
    in: 'header',
    required: true,
    description:
      'One key per business image, the same one on every retry. Printable ASCII. On reads it is ' +
      'required, but neither stored nor compared.',
    schema: { type: 'string', minLength: 1, maxLength: IDEMPOTENCY_KEY_LENGTH_MAX },
    example: 'order-4711-photo-2',
  },
  Prefer: {
    name: 'Prefer',
    in: 'header',
    required: false,
    description:
      'RFC 7240. `respond-async`: the job at once, as from /v1/matting/jobs. `wait=n`: wait at most ' +
      'n seconds. Both: at most n seconds, then the job.',
    schema: text,
    examples: { async: { value: 'respond-async' }, wait: { value: 'wait=30' } },
  },
};

/** Codes that any call may meet, by status. */
export const KEYED_CODES: readonly ErrorCode[] = [
  'INVALID_IDEMPOTENCY_KEY',
  'MISSING_API_KEY',
  'INVALID_API_KEY',
];
export const EVERY_CODES: readonly ErrorCode[] = ['INVALID_REQUEST', 'INTERNAL_ERROR'];

/** One answer a status, with an example for each code. */
export function problemResponses(codes: readonly ErrorCode[]): Record<string, JsonObject> {
  const byStatus = Map.groupBy(codes, code => ERROR_CATALOGUE[code].http);
  const answers = [...byStatus].map(([status, group]) => [String(status), problem(status, group)]);
  return Object.fromEntries(answers);
}

const EXTRA_HEADERS: Readonly<Record<number, readonly string[]>> = {
  401: ['WWW-Authenticate'],
  429: ['Retry-After'],
  503: ['Retry-After'],
};

function problem(status: number, codes: readonly ErrorCode[]): JsonObject {
  return {
    description: codes.map(code => `${code}: ${ERROR_CATALOGUE[code].title}.`).join(' '),
    headers: headerRefs(EXTRA_HEADERS[status] ?? []),
    content: {
      [PROBLEM_TYPE]: {
        schema: {
          allOf: [
            ref('Problem'),
            { properties: { code: { enum: codes }, status: { const: status } } },
          ],
        },
        examples: Object.fromEntries(codes.map(code => [code, { value: problemExample(code) }])),
      },
    },
  };
}

function problemExample(code: ErrorCode): JsonObject {
  const spec = ERROR_CATALOGUE[code];
  return {
    type: `https://matting.example.com/docs/errors#${code.toLowerCase()}`,
    title: spec.title,
    status: spec.http,
    detail: spec.title,
    instance: '/v1/matting',
    code,
    request_id: 'req_0a6f2f0e-6a0e-4f0b-8f0d-6a9d3c5b1e42',
    retryable: spec.retry !== 'never',
  };
}

export function jsonResponse(
  description: string,
  schema: string,
  headerNames: readonly string[],
  example: JsonObject,
): JsonObject {
  return {
    description,
    headers: headerRefs(headerNames),
    content: { 'application/json': { schema: ref(schema), example } },
  };
}

/** The file itself, or a part of it. */
export function fileResponse(description: string, headerNames: readonly string[]): JsonObject {
  const file = { schema: { type: 'string', format: 'binary' } };
  return {
    description,
    headers: headerRefs(headerNames),
    content: Object.fromEntries(OUTPUT_FORMATS.map(format => [`image/${format}`, file])),
  };
}
