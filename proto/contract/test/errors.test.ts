/** The public codes that callers rely on. A release must not change them. */
import test from 'ava';
import { ERROR_CATALOGUE, type ErrorSpec } from '../errors.ts';

type Promised = readonly [http: number, retry: ErrorSpec['retry'], about: ErrorSpec['about']];

const PROMISED: Readonly<Record<string, Promised>> = {
  INVALID_REQUEST: [400, 'never', 'all'],
  INVALID_IMAGE_SOURCE: [400, 'never', 'picture'],
  INVALID_IDEMPOTENCY_KEY: [400, 'never', 'all'],
  UNSUPPORTED_IMAGE_FORMAT: [400, 'never', 'picture'],
  UNSUPPORTED_OUTPUT_FORMAT: [400, 'never', 'options'],
  INVALID_PARAMETER: [400, 'never', 'options'],
  INVALID_CALLBACK: [400, 'never', 'options'],
  IMAGE_RESOLUTION_TOO_LARGE: [400, 'never', 'picture'],
  IMAGE_DOWNLOAD_FAILED: [400, 'never', 'picture'],
  MISSING_API_KEY: [401, 'never', 'all'],
  INVALID_API_KEY: [401, 'never', 'all'],
  INSUFFICIENT_CREDITS: [402, 'never', 'all'],
  KEY_CAP_REACHED: [402, 'never', 'all'],
  KEY_NOT_ALLOWED: [403, 'never', 'all'],
  JOB_NOT_FOUND: [404, 'never', 'job'],
  BATCH_NOT_FOUND: [404, 'never', 'job'],
  NOT_FOUND: [404, 'never', 'all'],
  METHOD_NOT_ALLOWED: [405, 'never', 'all'],
  NOT_ACCEPTABLE: [406, 'never', 'all'],
  IDEMPOTENCY_CONFLICT: [409, 'never', 'job'],
  JOB_CANCELLED: [409, 'never', 'job'],
  JOB_NOT_CANCELLABLE: [409, 'later', 'job'],
  BATCH_NOT_REPEATABLE: [409, 'never', 'job'],
  JOB_NOT_CORRECTABLE: [409, 'never', 'job'],
  CORRECTIONS_EXHAUSTED: [409, 'never', 'job'],
  RESULT_EXPIRED: [410, 'never', 'job'],
  PRECONDITION_FAILED: [412, 'never', 'job'],
  IMAGE_TOO_LARGE: [413, 'never', 'picture'],
  UNSUPPORTED_MEDIA_TYPE: [415, 'never', 'all'],
  RANGE_NOT_SATISFIABLE: [416, 'never', 'job'],
  PROCESSING_FAILED: [422, 'never', 'picture'],
  NO_SUBJECT: [422, 'never', 'picture'],
  RATE_LIMITED: [429, 'later', 'all'],
  RESULT_LOST: [500, 'never', 'job'],
  INTERNAL_ERROR: [500, 'later', 'all'],
  SERVICE_UNAVAILABLE: [503, 'later', 'all'],
};

test('every public code has the status, the retry rule and the subject that were promised', t => {
  const rows = Object.entries<ErrorSpec>(ERROR_CATALOGUE)
    .filter(([, { scope }]) => scope === 'public')
    .map(([code, { http, retry, about }]) => [code, [http, retry, about]]);
  t.deepEqual(Object.fromEntries(rows), PROMISED);
});

test('an error for nodes and operators alone is never about an image', t => {
  for (const [code, { scope, about }] of Object.entries<ErrorSpec>(ERROR_CATALOGUE)) {
    if (scope !== 'public') t.is(about, 'all', code);
  }
});
