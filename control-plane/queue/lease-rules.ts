/**
 * How long a lease lasts, and when a job must fail.
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
 * Holder and fence decide, not the lease's expiry: a late holder may still renew and finish until
 * another replica claims the job and raises its fence.
 */

import { isFinal, type JobFailure, type QueueJob } from './job.ts';

/** Proof of a claim: a write under it changes only a job with this fence. */
export interface Claim {
  readonly jobId: string;
  readonly holder: string;
  readonly fence: number;
}

/** Length of a claim, and the longest delay until a dead holder is replaced. */
export const LEASE_MS = 15_000;
/** Three renewals fit into a lease, so two may fail. */
const LEASE_RENEW_MS = 5_000;

export type LeaseTiming = typeof LEASE_TIMING;
export const LEASE_TIMING = { leaseMs: LEASE_MS, renewMs: LEASE_RENEW_MS };

/** Admitted attempts lost with their node or one of its processes, until the job fails. */
const LOST_ATTEMPTS_MAX = 3;
/** Lost attempts that took an engine or a worker with them, until the job fails for good. */
const LOST_WITH_PROCESS_MAX = 2;
/** Control planes that died with the job, until it fails. */
const TAKEOVERS_MAX = 10;

/** From the submission to the first admission by a node. */
const FIRST_ADMISSION_MS_MAX = 3_600_000;
export const JOB_MS_MAX = 7_200_000;

type CountedJob = Pick<QueueJob, 'state' | 'createdAtMs' | 'startedAtMs' | 'readAtMs'> &
  Pick<QueueJob, 'lostAttempts' | 'lostWithProcess' | 'takeovers'>;

/** Checks the job's own fault first: a passed deadline must not make it retryable. */
export function failureDue(job: CountedJob): JobFailure | undefined {
  if (isFinal(job)) return undefined;
  if (job.lostWithProcess >= LOST_WITH_PROCESS_MAX) {
    return processingFailed('A worker process died twice while it processed this job.', false);
  }
  if (job.lostAttempts >= LOST_ATTEMPTS_MAX) {
    return processingFailed('Every attempt was lost with its inference node.');
  }
  if (job.takeovers >= TAKEOVERS_MAX) {
    return processingFailed('The service was interrupted too often while it processed the job.');
  }
  const ageMs = job.readAtMs - job.createdAtMs;
  if (job.startedAtMs === null && ageMs >= FIRST_ADMISSION_MS_MAX) {
    return processingFailed('No inference node took the job within an hour.');
  }
  if (ageMs >= JOB_MS_MAX) {
    return processingFailed('The service did not finish the job within two hours.');
  }
  return undefined;
}

function processingFailed(detail: string, retryable = true): JobFailure {
  return { code: 'PROCESSING_FAILED', detail, retryable };
}
