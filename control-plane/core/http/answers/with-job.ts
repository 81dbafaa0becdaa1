/** What goes wrong once a request's job exists names it: the job goes on, or stays as it is. */
import type { FastifyReply } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { isFinal, type Job } from '../../jobs/job.ts';
import type { WaitForJob } from '../../results/wait-for-job.ts';

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

/**
 * Its end, or what it is once the wait is over or the caller has hung up.
 * @throws ContractError that names the job: it exists and goes on
 */
export async function waitForEnd(
  waitForJob: WaitForJob,
  job: Job,
  waitMs: number,
  reply: FastifyReply,
): Promise<Job> {
  if (isFinal(job)) return job;
  const hangUp = new AbortController();
  const onClose = () => hangUp.abort();
  reply.raw.once('close', onClose);
  // The caller may have hung up while the body was stored.
  if (reply.raw.closed) onClose();
  try {
    return await waitForJob.wait(job, waitMs, hangUp.signal);
  } catch (cause) {
    throw withJob(cause, job.id);
  } finally {
    reply.raw.off('close', onClose);
  }
}
