/** The OpenAPI 3.1 document of the public port, by hand: a test holds real answers against it. */
import type { ErrorCode } from '#contract/errors.ts';
import {
  EVERY_CODES,
  fileResponse,
  headerRefs,
  headers,
  type JsonObject,
  jsonResponse,
  KEYED_CODES,
  parameters,
  problemResponses,
} from './openapi-parts.ts';
import { ref, schemas } from './openapi-schemas.ts';

const SUBMISSION_CODES: readonly ErrorCode[] = [
  ...EVERY_CODES,
  ...KEYED_CODES,
  'INVALID_IMAGE_SOURCE',
  'UNSUPPORTED_IMAGE_FORMAT',
  'UNSUPPORTED_OUTPUT_FORMAT',
  'INVALID_CALLBACK',
  'IMAGE_RESOLUTION_TOO_LARGE',
  'INSUFFICIENT_CREDITS',
  'IDEMPOTENCY_CONFLICT',
  'IMAGE_TOO_LARGE',
  'UNSUPPORTED_MEDIA_TYPE',
  'RATE_LIMITED',
  'SERVICE_UNAVAILABLE',
];
/** A synchronous call answers with its job's own failure. */
const SYNC_CODES: readonly ErrorCode[] = [
  ...SUBMISSION_CODES,
  'IMAGE_DOWNLOAD_FAILED',
  'RESULT_EXPIRED',
  'PROCESSING_FAILED',
];
const READ_CODES: readonly ErrorCode[] = [...EVERY_CODES, ...KEYED_CODES, 'RATE_LIMITED'];

const JOB_ID = '6f1d2c1e-8b1a-4d0e-9a57-2f2b6c3d4e5f';
const BASE_EXAMPLE = 'https://matting.example.com';

const queuedExample = {
  job_id: JOB_ID,
  status: 'queued',
  created_at: '2026-05-04T09:30:00.000Z',
  started_at: null,
  finished_at: null,
  status_url: `${BASE_EXAMPLE}/v1/matting/jobs/${JOB_ID}`,
  credits: { reserved: 1, charged: 0 },
};
const succeededExample = {
  ...queuedExample,
  status: 'succeeded',
  started_at: '2026-05-04T09:30:00.120Z',
  finished_at: '2026-05-04T09:30:01.480Z',
  credits: { reserved: 0, charged: 1 },
  result: {
    url: `${BASE_EXAMPLE}/v1/results/Jq0yq1bVZr0mY3Vd5m0l2s8qkJxv2m7b`,
    format: 'png',
    contentType: 'image/png',
    sizeBytes: 1_482_113,
    width: 2048,
    height: 1536,
    expiresAt: '2026-05-05T09:30:01.480Z',
  },
};

const submissionBody = {
  required: true,
  content: {
    'application/json': {
      schema: ref('MattingRequest'),
      examples: {
        url: { value: { image_url: 'https://example.com/photo.jpg', output_format: 'webp' } },
        base64: { value: { image_base64: 'iVBORw0KGgo=' } },
      },
    },
  },
};
const idempotencyKey = { $ref: '#/components/parameters/IdempotencyKey' };
const prefer = { $ref: '#/components/parameters/Prefer' };
const HAND_OVER_HEADERS = ['Location', 'Retry-After', 'X-Credits-Charged', 'Cache-Control'];
const DONE_HEADERS = ['X-Credits-Charged', 'Idempotent-Replayed', 'Server-Timing', 'Cache-Control'];

const submitSync: JsonObject = {
  operationId: 'submitMatting',
  summary: 'Remove the background of an image and wait for the result',
  description:
    'Waits up to about 120 s, then answers 202 with the job, which goes on. A caller that hangs up ' +
    'cancels nothing: send the same request with the same Idempotency-Key to join the job.',
  security: [{ apiKey: [] }],
  parameters: [idempotencyKey, prefer],
  requestBody: submissionBody,
  responses: {
    200: jsonResponse(
      'Done; or, with Prefer: respond-async, a job that was final before.',
      'Job',
      [...DONE_HEADERS, 'Preference-Applied'],
      succeededExample,
    ),
    202: jsonResponse(
      'Not done yet: read the job later.',
      'OpenJob',
      [...HAND_OVER_HEADERS, 'Preference-Applied'],
      { ...queuedExample, sync_timeout: true },
    ),
    ...problemResponses(SYNC_CODES),
  },
};

const submitAsync: JsonObject = {
  operationId: 'submitMattingJob',
  summary: 'Remove the background of an image, without waiting',
  security: [{ apiKey: [] }],
  parameters: [idempotencyKey],
  requestBody: submissionBody,
  responses: {
    200: jsonResponse(
      'This Idempotency-Key made a job before, and it is final.',
      'Job',
      DONE_HEADERS,
      succeededExample,
    ),
    202: jsonResponse('The job.', 'OpenJob', HAND_OVER_HEADERS, queuedExample),
    ...problemResponses(SUBMISSION_CODES),
  },
};

const readJob: JsonObject = {
  operationId: 'readMattingJob',
  summary: 'Read a job',
  description: 'Always 200 for a job of this API key, whatever its state.',
  security: [{ apiKey: [] }],
  parameters: [
    idempotencyKey,
    { name: 'job_id', in: 'path', required: true, schema: { type: 'string', format: 'uuid' } },
  ],
  responses: {
    200: {
      ...jsonResponse('The job.', 'Job', ['Server-Timing', 'Cache-Control'], succeededExample),
      headers: {
        ...headerRefs(['Server-Timing', 'Cache-Control']),
        'Retry-After': {
          description: 'While the job is not final.',
          schema: { type: 'integer', minimum: 0 },
        },
      },
    },
    ...problemResponses([...READ_CODES, 'JOB_NOT_FOUND']),
  },
};

const FILE_HEADERS = [
  'ETag',
  'Accept-Ranges',
  'Cache-Control',
  'Content-Length',
  'Content-Disposition',
];

function resultOperation(method: 'GET' | 'HEAD'): JsonObject {
  const description = 'The link is the capability: no header is needed.';
  const responses = {
    200: fileResponse('The file.', FILE_HEADERS),
    304: {
      description: 'The copy named in If-None-Match is current.',
      headers: headerRefs(['ETag', 'Cache-Control']),
    },
    ...problemResponses([...EVERY_CODES, 'NOT_FOUND', 'RESULT_EXPIRED']),
  };
  const token = { name: 'token', in: 'path', required: true, schema: { type: 'string' } };
  if (method === 'HEAD') {
    const summary = 'What a result link leads to';
    return { operationId: 'headResult', summary, description, parameters: [token], responses };
  }
  return {
    operationId: 'downloadResult',
    summary: 'Download a result',
    description,
    parameters: [token, { name: 'Range', in: 'header', schema: { type: 'string' } }],
    responses: {
      ...responses,
      206: fileResponse('The range asked for.', [...FILE_HEADERS, 'Content-Range']),
      416: {
        description: 'The range lies outside of the file.',
        headers: headerRefs(['Content-Range']),
      },
    },
  };
}

const readAccount: JsonObject = {
  operationId: 'readAccount',
  summary: "The account's credits",
  security: [{ apiKey: [] }],
  parameters: [idempotencyKey],
  responses: {
    200: jsonResponse('The account.', 'Account', ['Cache-Control'], {
      credits: { available: 97, reserved: 3 },
    }),
    ...problemResponses(READ_CODES),
  },
};

function health(operationId: string, summary: string, status: string, codes: ErrorCode[]) {
  return {
    operationId,
    summary,
    responses: {
      200: jsonResponse(summary, 'Health', ['Cache-Control'], { status }),
      ...problemResponses([...EVERY_CODES, ...codes]),
    },
  };
}

const readDocument: JsonObject = {
  operationId: 'readOpenApi',
  summary: 'This document',
  responses: {
    200: {
      description: 'OpenAPI 3.1.',
      headers: headerRefs(['Cache-Control']),
      content: { 'application/json': { schema: { type: 'object' } } },
    },
    ...problemResponses(EVERY_CODES),
  },
};

/** @param options.baseUrl without a trailing slash */
export function openApiDocument(options: { baseUrl: string; version: string }): JsonObject {
  return {
    openapi: '3.1.0',
    info: {
      title: 'Matting service',
      version: options.version,
      summary: 'Removes the background of images.',
      description:
        'One credit is reserved at submission, charged when matting succeeds and returned when it ' +
        'fails. Every error is application/problem+json.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: options.baseUrl }],
    paths: {
      '/v1/matting': { post: submitSync },
      '/v1/matting/jobs': { post: submitAsync },
      '/v1/matting/jobs/{job_id}': { get: readJob },
      '/v1/results/{token}': { get: resultOperation('GET'), head: resultOperation('HEAD') },
      '/v1/account': { get: readAccount },
      '/v1/openapi.json': { get: readDocument },
      '/livez': { get: health('livez', 'The process lives.', 'alive', []) },
      '/readyz': {
        get: health('readyz', 'The process can take work.', 'ready', ['SERVICE_UNAVAILABLE']),
      },
    },
    components: {
      securitySchemes: {
        apiKey: { type: 'http', scheme: 'bearer', description: 'An API key of the account.' },
      },
      parameters,
      headers,
      schemas,
    },
  };
}
