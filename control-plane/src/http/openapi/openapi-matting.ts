/** The OpenAPI operations of submissions and jobs. */
import type { ErrorCode } from '#contract/errors.ts';
import { ref } from './json-schema.ts';
import * as examples from './openapi-examples.ts';
import { type HeaderName, type JsonObject, jsonResponse, keyed } from './openapi-parts.ts';

/** What the body may be refused for, and what only a new job needs. */
const SUBMISSION_CODES: readonly ErrorCode[] = [
  'INVALID_IMAGE_SOURCE',
  'UNSUPPORTED_IMAGE_FORMAT',
  'UNSUPPORTED_OUTPUT_FORMAT',
  'INVALID_CALLBACK',
  'IMAGE_RESOLUTION_TOO_LARGE',
  'INSUFFICIENT_CREDITS',
  'IDEMPOTENCY_CONFLICT',
  'IMAGE_TOO_LARGE',
  'UNSUPPORTED_MEDIA_TYPE',
];
/** A synchronous call answers with its job's own failure too. */
const JOB_END_CODES: readonly ErrorCode[] = [
  'IMAGE_DOWNLOAD_FAILED',
  'RESULT_EXPIRED',
  'PROCESSING_FAILED',
];

const DONE_HEADERS: readonly HeaderName[] = [
  'X-Credits-Charged',
  'Idempotent-Replayed?',
  'Server-Timing?',
];
const HAND_OVER_HEADERS: readonly HeaderName[] = ['Location', 'Retry-After', 'X-Credits-Charged'];
/** Where a job may be behind the answer; the same statuses are also answered without one. */
const JOB_HEADERS: readonly HeaderName[] = [
  'X-Credits-Charged?',
  'Idempotent-Replayed?',
  'Preference-Applied?',
];
const SYNC_HEADERS: Readonly<Record<number, readonly HeaderName[]>> = {
  400: JOB_HEADERS,
  410: ['X-Credits-Charged', 'Idempotent-Replayed?', 'Preference-Applied?', 'Server-Timing?'],
  413: JOB_HEADERS,
  422: ['X-Credits-Charged', 'Idempotent-Replayed?', 'Preference-Applied?'],
  500: ['X-Credits-Charged?', 'Preference-Applied?'],
  503: ['X-Credits-Charged?', 'Preference-Applied?'],
};

const prefer = { $ref: '#/components/parameters/Prefer' };

const requestBody: JsonObject = {
  required: true,
  description: 'At most 72 MiB, UTF-8, without a Content-Encoding.',
  content: {
    'application/json': {
      schema: ref('MattingRequest'),
      examples: Object.fromEntries(
        Object.entries(examples.requests).map(([name, value]) => [name, { value }]),
      ),
    },
  },
};

function submissionHeaders(status: number): readonly HeaderName[] {
  if (status === 409) return ['X-Credits-Charged'];
  return status === 415 ? ['Accept?', 'Accept-Encoding?'] : [];
}

function syncHeaders(status: number): readonly HeaderName[] {
  return [...submissionHeaders(status), ...(SYNC_HEADERS[status] ?? [])];
}

export const submitSync: JsonObject = keyed(
  {
    operationId: 'submitMatting',
    tags: ['Matting'],
    summary: 'Cut out an image and wait for the result',
    description:
      'Waits up to about 120 s, then answers 202 with the job, which goes on. A caller that hangs ' +
      'up cancels nothing: send the same request with the same Idempotency-Key to join the job. A ' +
      'job that fails meanwhile is answered with its own error, and nothing is charged.',
    parameters: [prefer],
    requestBody,
  },
  {
    200: jsonResponse(
      'Done; or, with Prefer: respond-async, a job that was final before.',
      'Job',
      [...DONE_HEADERS, 'Preference-Applied?'],
      { succeeded: examples.succeeded },
    ),
    202: jsonResponse(
      'Not done yet: read the job later.',
      'OpenJob',
      [...HAND_OVER_HEADERS, 'Preference-Applied?'],
      { timeout: examples.handedOver, respondAsync: examples.queued },
    ),
  },
  [...SUBMISSION_CODES, ...JOB_END_CODES],
  syncHeaders,
);

export const submitAsync: JsonObject = keyed(
  {
    operationId: 'submitMattingJob',
    tags: ['Matting'],
    summary: 'Cut out an image, without waiting',
    description: 'The two submission paths share their idempotency keys.',
    requestBody,
  },
  {
    200: jsonResponse(
      'This Idempotency-Key made a job before, and it is final.',
      'Job',
      DONE_HEADERS,
      { succeeded: examples.succeeded, failed: examples.failed, expired: examples.expired },
    ),
    202: jsonResponse('The job.', 'OpenJob', HAND_OVER_HEADERS, { queued: examples.queued }),
  },
  SUBMISSION_CODES,
  submissionHeaders,
);

export const readJob: JsonObject = keyed(
  {
    operationId: 'readMattingJob',
    tags: ['Matting'],
    summary: 'Read a job',
    description:
      'Always 200 for a job of this API key, whatever its state. Another key knows nothing of it.',
    parameters: [
      { name: 'job_id', in: 'path', required: true, schema: { type: 'string', format: 'uuid' } },
    ],
  },
  {
    200: jsonResponse('The job.', 'Job', ['Retry-After?', 'Server-Timing?'], {
      queued: examples.queued,
      succeeded: examples.succeeded,
      failed: examples.failed,
      expired: examples.expired,
      notified: examples.notified,
    }),
  },
  ['JOB_NOT_FOUND'],
);
