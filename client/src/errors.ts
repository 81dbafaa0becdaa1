/** One class for the errors of the service and of this client. */
import type { FieldError, JobError, Problem } from './types.ts';

/** The service's codes; docs/errors.md has a heading for each. A later service may add some. */
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
 * Codes of this client. `NO_ANSWER`: no connection, a broken one, half an answer, or no answer in
 * time. `UNREADABLE_ANSWER`: somebody else answered, such as a proxy with a page.
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

/** The message is for people and may change: recognise errors by `code`. */
export class MattingError extends Error {
  readonly code: MattingErrorParts['code'];
  /** The status of the HTTP answer. undefined: there was none, or the job failed after it. */
  readonly status: number | undefined;
  /**
   * Whether the same request may succeed later. The client has already retried such errors until
   * the call's time was over. Continue with the same Idempotency-Key, and nothing is charged twice.
   */
  readonly retryable: boolean;
  /** The job of the error, if there is one. */
  readonly jobId: string | undefined;
  /** Quote it when you ask the operator of the service. */
  readonly requestId: string | undefined;
  readonly fieldErrors: readonly FieldError[];
  /** The wait that Retry-After requests. */
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
