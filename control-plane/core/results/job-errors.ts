import { ContractError } from '@matting/proto/contract/errors.ts';
import { type JobStatus, publicState } from '@matting/queue/job.ts';
import type { JobOutcome } from '../jobs/job-outcome.ts';

/** HTTP libraries retry an answer below 500 only if it has a Retry-After. */
const FAILED_RETRY_AFTER_S = 10;

/** Undefined: the job is open, or its result is there. */
export function jobErrorOf(job: JobStatus & JobOutcome): ContractError | undefined {
  if (job.failure !== null) {
    const { code, detail, retryable } = job.failure;
    const retryAfterS = retryable ? FAILED_RETRY_AFTER_S : undefined;
    return new ContractError(code, detail, { retryable, retryAfterS, jobId: job.id });
  }
  if (publicState(job) !== 'expired') return undefined;
  const detail =
    'The result of this job has expired or was deleted. Submit the image again under another Idempotency-Key.';
  return new ContractError('RESULT_EXPIRED', detail, { jobId: job.id });
}

export function noSuchJob(): ContractError {
  return new ContractError(
    'JOB_NOT_FOUND',
    'This API key has no job with this id. Use the status_url and the key of the submission.',
  );
}

export function withJob(cause: unknown, jobId: string): ContractError {
  if (!(cause instanceof ContractError)) {
    const detail = 'Something went wrong on our side. Send the same request again.';
    return new ContractError('INTERNAL_ERROR', detail, { cause, jobId });
  }
  const { code, message, retryable, retryAfterS } = cause;
  return new ContractError(code, message, { cause, retryable, retryAfterS, jobId });
}
