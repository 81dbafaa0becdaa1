/**
 * The arithmetic of leases and of what an open job may still cost: how long a lease lasts, and
 * which failure, if any, a job must end with now. Pure: it knows neither database nor clock; the
 * instant is the `readAtMs` of the row, taken from the database's clock.
 *
 * | event                | lease                  | fence | counts                               |
 * |----------------------|------------------------|-------|--------------------------------------|
 * | claim of a free job  | holder, now + LEASE_MS | + 1   |                                      |
 * | claim, lease run out | holder, now + LEASE_MS | + 1   | takeovers + 1                        |
 * | renew                | now + LEASE_MS         |       |                                      |
 * | release (refused)    | none                   |       |                                      |
 * | the operator's retry | none                   |       |                                      |
 * | attempt lost         | none                   |       | lost_attempts + 1; with an engine or |
 * |                      |                        |       | worker lost_with_process + 1 too     |
 * | succeed, fail        | none, for good         |       |                                      |
 *
 * Holder and fence decide, not the lease's expiry: a late holder that was not replaced may
 * still renew and finish; once another replica claimed the job, its fence has moved and the old one
 * is void.
 */
import type { Job, JobFailure } from '../jobs/job.ts';

/** A claim's length. A holder that dies is replaced after this much at most. */
export const LEASE_MS = 15_000;
/** Three renewals fit into a lease, so that two may fail. */
export const LEASE_RENEW_MS = 5_000;

/** How leases of jobs are kept; a test that waits for one to run out takes shorter ones. */
export type LeaseTiming = typeof LEASE_TIMING;

export const LEASE_TIMING = { leaseMs: LEASE_MS, renewMs: LEASE_RENEW_MS };

/** Admitted attempts lost with their node, engine or picture worker; this many end the job. */
export const LOST_ATTEMPTS_MAX = 3;
/**
 * Lost attempts that took an engine or a worker with them: such an image gets no third attempt.
 */
export const LOST_WITH_PROCESS_MAX = 2;
/** Control planes that died holding the job; this many end it. */
export const TAKEOVERS_MAX = 10;

/** From submission to the first admission by a node. */
export const FIRST_ADMISSION_MS_MAX = 3_600_000;
/** From submission to the end, whatever happens in between. */
export const JOB_MS_MAX = 7_200_000;

type CountedJob = Pick<
  Job,
  | 'state'
  | 'createdAtMs'
  | 'startedAtMs'
  | 'readAtMs'
  | 'lostAttempts'
  | 'lostWithProcess'
  | 'takeovers'
>;

/**
 * The failure an open job must end with as it was read, or undefined while it may go on. The
 * claimer asks before any work. The verdict about the image comes first: it is the one that is
 * not retryable, and it must not be softened by a deadline that has passed as well.
 */
export function failureDue(job: CountedJob): JobFailure | undefined {
  if (job.state === 'succeeded' || job.state === 'failed') return undefined;
  if (job.lostWithProcess >= LOST_WITH_PROCESS_MAX) {
    return processingFailed(
      'an engine or picture worker was lost while processing this image, twice',
      false,
    );
  }
  if (job.lostAttempts >= LOST_ATTEMPTS_MAX) {
    return processingFailed('every attempt was lost with its node', true);
  }
  if (job.takeovers >= TAKEOVERS_MAX) {
    return processingFailed('the service was interrupted too often while processing', true);
  }
  const ageMs = job.readAtMs - job.createdAtMs;
  if (job.startedAtMs === null && ageMs >= FIRST_ADMISSION_MS_MAX) {
    return processingFailed('no node took the image within an hour', true);
  }
  if (ageMs >= JOB_MS_MAX) {
    return processingFailed('the image was not finished within two hours', true);
  }
  return undefined;
}

function processingFailed(detail: string, retryable: boolean): JobFailure {
  return { code: 'PROCESSING_FAILED', detail, retryable };
}
