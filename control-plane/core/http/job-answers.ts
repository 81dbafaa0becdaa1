/** What goes wrong once a request's job exists names it: the job goes on, or stays as it is. */
import type { FastifyReply } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import type { Sight } from '#contract/finishing.ts';
import { isFinal, type Job } from '../jobs/job.ts';
import type { WaitForJob } from '../results/job-view.ts';

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

/* What a node saw in the picture, in headers: where the picture itself is the answer. */

/** Enough for a pixel of the largest picture. */
const SHARE_DIGITS = 6;

/**
 * `X-Subject-Box` (left, top, width and height in pixels of the input) and `X-Subject-Share` (of the
 * input's area). Without a subject the share alone, 0; neither where the node did not say.
 */
export function subjectHeaders(sight: Sight | null): Record<string, string> {
  if (sight === null) return {};
  if (sight.subject === null) return { 'x-subject-share': '0' };
  const { inputBox, share } = sight.subject;
  const { left, top, width, height } = inputBox;
  return {
    'x-subject-box': [left, top, width, height].join(','),
    'x-subject-share': String(Number(share.toPrecision(SHARE_DIGITS))),
  };
}

/* Server-Timing: how long each stage of a finished job took. */

/** The header; empty while the job has no stage times. */
export function serverTimingOf({ timings }: Job): Record<string, string> {
  const stages = Object.entries(timings ?? {});
  if (stages.length === 0) return {};
  const metrics = stages.map(([stage, ms]) => {
    const token = stage.replaceAll(/[^A-Za-z0-9_-]/g, '_');
    return `${token};dur=${Number(ms.toFixed(1))}`;
  });
  return { 'server-timing': metrics.join(', ') };
}
