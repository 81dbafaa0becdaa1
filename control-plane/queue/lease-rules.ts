/**
 * How long a lease lasts, and when a job must fail.
 *
 * | event                | lease                  | fence | counts                               |
 * |----------------------|------------------------|-------|--------------------------------------|
 * | claim of a free job  | holder, now + LEASE_MS | + 1   |                                      |
 * | claim, lease expired | holder, now + LEASE_MS | + 1   | takeovers + 1                        |
 * | renew                | now + LEASE_MS         |       |                                      |
 * | release (refused)    | none                   |       |                                      |
 * | the operator's retry | none                   |       |                                      |
 * | attempt lost         | none                   |       | lost_attempts + 1; with an engine or |
 * |                      |                        |       | worker lost_with_process + 1 too     |
 * | succeed, fail        | none                   |       |                                      |
 *
 * Holder and fence decide, not the lease's expiry: a late holder may still renew and finish until
 * another replica claims the job and raises its fence.
 */

import { isFinal, type JobFailure, type QueueJob } from './job.ts';

export interface Claim {
  readonly jobId: string;
  readonly holder: string;
  readonly fence: number;
}

/** The longest delay until another replica takes over from a dead holder. */
export const LEASE_MS = 15_000;
/** A third of LEASE_MS, so two renewals may fail. */
const LEASE_RENEW_MS = 5_000;

export type LeaseTiming = typeof LEASE_TIMING;
export const LEASE_TIMING = { leaseMs: LEASE_MS, renewMs: LEASE_RENEW_MS };

/**
 * The job fails after this many admitted attempts were lost with their node or one of its
 * processes.
 */
const LOST_ATTEMPTS_MAX = 3;
/** The job fails for good after this many attempts lost with an engine or a worker. */
const LOST_WITH_PROCESS_MAX = 2;
/** The job fails after this many control planes died with it. */
const TAKEOVERS_MAX = 10;

/** From the submission to the first admission by a node. */
const FIRST_ADMISSION_MS_MAX = 3_600_000;
export const JOB_MS_MAX = 7_200_000;

type CountedJob = Pick<QueueJob, 'state' | 'createdAtMs' | 'startedAtMs' | 'readAtMs'> &
  Pick<QueueJob, 'lostAttempts' | 'lostWithProcess' | 'takeovers'>;

/** The job's own fault comes first: a passed deadline must not make the failure retryable. */
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
