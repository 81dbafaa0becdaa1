/** The headers, parameters and answers that the operations of the OpenAPI document share. */
import { ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import { OUTPUT_FORMATS } from '#contract/formats.ts';
import { IDEMPOTENCY_KEY_LENGTH_MAX } from '#contract/limits.ts';
import { ERROR_DOCS_PATH, PROBLEM_TYPE } from '../answers/problem.ts';
import { count, type JsonSchema, ref, text, uri } from './json-schema.ts';

export type JsonObject = { readonly [name: string]: unknown };

interface HeaderSpec {
  readonly description: string;
  readonly schema: JsonSchema;
  readonly example?: unknown;
}

const HEADERS = {
  'X-Request-ID': {
    description: 'Names this request in our logs: yours where you sent a well-formed one.',
    schema: { type: 'string', pattern: '^[A-Za-z0-9][A-Za-z0-9._~:+/=@-]{0,127}$' },
    example: 'req_0a6f2f0e-6a0e-4f0b-8f0d-6a9d3c5b1e42',
  },
  'Cache-Control': {
    description: 'Whether and how long the answer may be kept.',
    schema: text,
    example: 'no-store',
  },
  Vary: {
    description: 'What else decides the answer.',
    schema: { type: 'string', const: 'accept' },
  },
  'X-Credits-Charged': {
    description:
      'On every answer to a submission that names a job: 1 on the synchronous 200 of the request ' +
      'that made the job, otherwise 0.',
    schema: { type: 'integer', enum: [0, 1] },
    example: 1,
  },
  'Idempotent-Replayed': {
    description: 'The job was final before this request came.',
    schema: { type: 'boolean', const: true },
    example: true,
  },
  Location: { description: 'The status_url of the job.', schema: uri },
  'Retry-After': {
    description: 'Seconds after which to ask again; on a job, while it is not final.',
    schema: count,
    example: 2,
  },
  'RateLimit-Policy': {
    description: "The account's quota and its window in seconds (RateLimit draft 11).",
    schema: text,
    example: '"submissions";q=1200;w=60',
  },
  RateLimit: {
    description: 'What is left of the quota, and the seconds until there is more.',
    schema: text,
    example: '"submissions";r=1199;t=60',
  },
  'Preference-Applied': {
    description: 'What of Prefer was honoured (RFC 7240).',
    schema: text,
    example: 'wait=30',
  },
  'Server-Timing': {
    description: "Where a finished job's time went, in milliseconds.",
    schema: text,
    example: 'decode;dur=41.2, infer;dur=251.9',
  },
  'WWW-Authenticate': { description: 'The scheme.', schema: { type: 'string', const: 'Bearer' } },
  Allow: {
    description: 'The methods of this path.',
    schema: text,
    example: 'GET, HEAD',
  },
  Accept: {
    description: 'The one media type taken.',
    schema: { type: 'string', const: 'application/json' },
  },
  'Accept-Encoding': {
    description: 'Where a Content-Encoding was sent: none is taken.',
    schema: { type: 'string', const: 'identity' },
  },
  ETag: {
    description: "The file's entity tag, for If-Match, If-None-Match and If-Range.",
    schema: text,
    example: '"3b7d1f0c"',
  },
  'Last-Modified': {
    description: 'When the job succeeded; the file never changes after.',
    schema: text,
    example: 'Mon, 04 May 2026 09:30:01 GMT',
  },
  'Accept-Ranges': {
    description: 'Ranges are served.',
    schema: { type: 'string', const: 'bytes' },
  },
  'Content-Range': {
    description: 'The bytes sent, of how many.',
    schema: text,
    example: 'bytes 0-1023/482113',
  },
  'Content-Length': { description: 'Bytes of the body.', schema: count },
  'Content-Disposition': {
    description: 'attachment, with a name for the file.',
    schema: text,
    example: 'attachment; filename="cutout-6f1d2c1e.png"',
  },
} as const satisfies Record<string, HeaderSpec>;

type Name = keyof typeof HEADERS;
/** With a question mark: not on every such answer. */
export type HeaderName = Name | `${Name}?`;

/** The headers that `description` refers to, each as it is where every answer has it. */
export function headersOf(description: unknown): JsonObject {
  const text = JSON.stringify(description);
  const used = Object.entries(HEADERS).filter(([name]) => text.includes(`"${headerRef(name)}"`));
  return Object.fromEntries(used.map(([name, spec]) => [name, { ...spec, required: true }]));
}

function headerRef(name: string): string {
  return `#/components/headers/${name}`;
}

const EVERY_HEADER: readonly HeaderName[] = ['X-Request-ID', 'Cache-Control'];

/** The headers of an answer, with those that every answer has. */
export function headerRefs(names: readonly HeaderName[]): JsonObject {
  const named = [...EVERY_HEADER, ...names].map(name => {
    if (!name.endsWith('?')) return [name, { $ref: headerRef(name) }];
    const plain = name.slice(0, -1) as Name;
    return [plain, HEADERS[plain]];
  });
  return Object.fromEntries(named);
}

export const parameters: Readonly<Record<string, JsonObject>> = {
  IdempotencyKey: {
    name: 'Idempotency-Key',
    in: 'header',
    required: true,
    description:
      'One key per business image, the same one on every retry. Printable ASCII. On reads it is ' +
      'required, but neither stored nor compared.',
    schema: {
      type: 'string',
      minLength: 1,
      maxLength: IDEMPOTENCY_KEY_LENGTH_MAX,
      pattern: '^[ -~]*$',
    },
    example: 'order-4711-photo-2',
  },
  Prefer: {
    name: 'Prefer',
    in: 'header',
    required: false,
    description:
      'RFC 7240. `respond-async`: the job at once, as from /v1/matting/jobs. `wait=n`: wait at most ' +
      'n seconds. Both: at most n seconds, then the job. What cannot be read is ignored.',
    schema: text,
    examples: { async: { value: 'respond-async' }, wait: { value: 'wait=30' } },
  },
};

/** What the headers alone may be refused for, on every call with a key. */
const KEYED_CODES: readonly ErrorCode[] = [
  'INVALID_REQUEST',
  'INVALID_IDEMPOTENCY_KEY',
  'MISSING_API_KEY',
  'INVALID_API_KEY',
  'RATE_LIMITED',
  'INTERNAL_ERROR',
  'SERVICE_UNAVAILABLE',
];

/**
 * Quotas are counted behind the API key and the Idempotency-Key: an answer before names none.
 * @param hasBody of the request, whose refusals come after.
 */
function quotaHeaders(status: number, hasBody: boolean): readonly HeaderName[] {
  // A key that was revoked while the body came is refused behind the quota.
  if ((status === 401 || status === 400) && !hasBody) return [];
  const always = ![400, 401, 500, 503].includes(status);
  return always ? ['RateLimit', 'RateLimit-Policy'] : ['RateLimit?', 'RateLimit-Policy?'];
}

/** The rest of every call with an API key. */
export function keyed(
  operation: JsonObject & {
    readonly parameters?: readonly JsonObject[];
    readonly requestBody?: JsonObject;
  },
  responses: Record<string, JsonObject>,
  codes: readonly ErrorCode[],
  moreHeaders: (status: number) => readonly HeaderName[] = () => [],
): JsonObject {
  const hasBody = operation.requestBody !== undefined;
  const answers = Object.entries(responses).map(([status, response]) => {
    const named = {
      ...headerRefs(quotaHeaders(Number(status), hasBody)),
      ...(response.headers as JsonObject),
    };
    return [status, { ...response, headers: named }];
  });
  return {
    ...operation,
    security: [{ apiKey: [] }],
    parameters: [
      { $ref: '#/components/parameters/IdempotencyKey' },
      ...(operation.parameters ?? []),
    ],
    responses: {
      ...Object.fromEntries(answers),
      ...problemResponses([...KEYED_CODES, ...codes], status => [
        ...quotaHeaders(status, hasBody),
        ...moreHeaders(status),
      ]),
    },
  };
}

/** One answer a status, with an example for each code. */
export function problemResponses(
  codes: readonly ErrorCode[],
  moreHeaders: (status: number) => readonly HeaderName[] = () => [],
): Record<string, JsonObject> {
  const byStatus = Map.groupBy(codes, code => ERROR_CATALOGUE[code].http as number);
  const answers = [...byStatus].map(([status, group]) => [
    String(status),
    problemResponse(status, group, moreHeaders(status)),
  ]);
  return Object.fromEntries(answers);
}

/** What belongs to the status, whatever the operation. */
const STATUS_HEADERS: Readonly<Record<number, readonly HeaderName[]>> = {
  401: ['WWW-Authenticate'],
  405: ['Allow'],
  429: ['Retry-After'],
  503: ['Retry-After'],
};

function problemResponse(
  status: number,
  codes: readonly ErrorCode[],
  more: readonly HeaderName[],
): JsonObject {
  return {
    description: codes.map(code => `${code}: ${ERROR_CATALOGUE[code].title}.`).join(' '),
    headers: headerRefs([...(STATUS_HEADERS[status] ?? []), ...more]),
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
    type: `https://matting.example.com${ERROR_DOCS_PATH}#${code.toLowerCase()}`,
    title: spec.title,
    status: spec.http,
    detail: spec.title,
    instance: '/v1/matting',
    code,
    request_id: HEADERS['X-Request-ID'].example,
    retryable: spec.retry !== 'never',
  };
}

export function jsonResponse(
  description: string,
  schema: string,
  headerNames: readonly HeaderName[],
  examples: JsonObject,
): JsonObject {
  const named = Object.entries(examples).map(([name, value]) => [name, { value }]);
  return {
    description,
    headers: headerRefs(headerNames),
    content: {
      'application/json': { schema: ref(schema), examples: Object.fromEntries(named) },
    },
  };
}

/** The file itself, or a part of it. */
export function fileResponse(description: string, headerNames: readonly HeaderName[]): JsonObject {
  const file = { schema: { type: 'string', format: 'binary' } };
  return {
    description,
    headers: headerRefs(headerNames),
    content: Object.fromEntries(OUTPUT_FORMATS.map(format => [`image/${format}`, file])),
  };
}
