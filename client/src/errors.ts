import type { FieldError, JobError, Problem } from './types.ts';

/** See docs/errors.md. A later service may have more. */
export const ERROR_CODES = [
  'INVALID_REQUEST',
  'INVALID_IMAGE_SOURCE',
  'INVALID_IDEMPOTENCY_KEY',
  'UNSUPPORTED_IMAGE_FORMAT',
  'UNSUPPORTED_OUTPUT_FORMAT',
  'INVALID_PARAMETER',
  'INVALID_CALLBACK',
  'IMAGE_RESOLUTION_TOO_LARGE',
  'IMAGE_DOWNLOAD_FAILED',
  'MISSING_API_KEY',
  'INVALID_API_KEY',
  'INSUFFICIENT_CREDITS',
  'KEY_CAP_REACHED',
  'KEY_NOT_ALLOWED',
  'JOB_NOT_FOUND',
  'BATCH_NOT_FOUND',
  'NOT_FOUND',
  'METHOD_NOT_ALLOWED',
  'NOT_ACCEPTABLE',
  'IDEMPOTENCY_CONFLICT',
  'JOB_CANCELLED',
  'JOB_NOT_CANCELLABLE',
  'BATCH_NOT_REPEATABLE',
  'JOB_NOT_CORRECTABLE',
  'CORRECTIONS_EXHAUSTED',
  'RESULT_EXPIRED',
  'PRECONDITION_FAILED',
  'IMAGE_TOO_LARGE',
  'UNSUPPORTED_MEDIA_TYPE',
  'RANGE_NOT_SATISFIABLE',
  'PROCESSING_FAILED',
  'NO_SUBJECT',
  'RATE_LIMITED',
  'RESULT_LOST',
  'INTERNAL_ERROR',
  'SERVICE_UNAVAILABLE',
] as const;

export type ErrorCode = (typeof ERROR_CODES)[number];

/**
 * `NO_ANSWER`: no connection, a broken one, or no answer in time. `UNREADABLE_ANSWER`: the answer
 * is not the service's, but for example a proxy's page.
 */
export type ClientErrorCode = 'NO_ANSWER' | 'UNREADABLE_ANSWER';

export interface MattingErrorParts {
  readonly code: ErrorCode | ClientErrorCode | (string & {});
  readonly status?: number | undefined;
  readonly retryable: boolean;
  readonly jobId?: string | undefined;
  readonly requestId?: string | undefined;
  readonly fieldErrors?: readonly FieldError[] | undefined;
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** Distinguish errors by `code`. The message is for people and may change. */
export class MattingError extends Error {
  readonly code: MattingErrorParts['code'];
  /** undefined: no HTTP answer, or the job failed after it. */
  readonly status: number | undefined;
  /**
   * The same request may succeed later. True only after the call's time or retries are used up:
   * continue with the same Idempotency-Key, and nothing is charged twice.
   */
  readonly retryable: boolean;
  readonly jobId: string | undefined;
  /** For questions to the service's operator. */
  readonly requestId: string | undefined;
  readonly fieldErrors: readonly FieldError[];
  /** From Retry-After. */
  readonly retryAfterMs: number | undefined;

  constructor(detail: string, parts: MattingErrorParts) {
    super(detail, parts.cause === undefined ? undefined : { cause: parts.cause });
    this.name = 'MattingError';
    this.code = parts.code;
    this.status = parts.status;
    this.retryable = parts.retryable;
    this.jobId = parts.jobId;
    this.requestId = parts.requestId;
    this.fieldErrors = parts.fieldErrors ?? [];
    this.retryAfterMs = parts.retryAfterMs;
  }
}

export function isProblem(body: unknown): body is Problem {
  const { code, detail, retryable } = (body ?? {}) as Partial<Problem>;
  return typeof code === 'string' && typeof detail === 'string' && typeof retryable === 'boolean';
}

export function errorOfProblem(
  status: number,
  problem: Problem,
  retryAfterMs?: number,
): MattingError {
  const { code, detail, retryable, job_id: jobId, request_id: requestId, errors } = problem;
  const parts = { code, status, retryable, jobId, requestId, fieldErrors: errors, retryAfterMs };
  return new MattingError(detail, parts);
}

export function errorOfJob(jobId: string, { code, detail, retryable }: JobError): MattingError {
  return new MattingError(detail, { code, retryable, jobId });
}

export function noAnswer(
  detail: string,
  more: Pick<MattingErrorParts, 'cause' | 'jobId'> = {},
): MattingError {
  return new MattingError(detail, { ...more, code: 'NO_ANSWER', retryable: true });
}
