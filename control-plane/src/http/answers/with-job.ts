/** What goes wrong once a request's job exists names it: the job goes on, or stays as it is. */
import { ContractError } from '#contract/errors.ts';

export function withJob(cause: unknown, jobId: string): ContractError {
  if (!(cause instanceof ContractError)) {
    return new ContractError('INTERNAL_ERROR', 'something went wrong on our side', {
      cause,
      jobId,
    });
  }
  const { code, message, retryable, retryAfterS } = cause;
  return new ContractError(code, message, { cause, retryable, retryAfterS, jobId });
}
