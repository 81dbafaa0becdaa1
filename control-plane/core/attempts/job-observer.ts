/** What happens to jobs, for the metrics; no identifiers, so that no label ever holds one. */
import type { ErrorCode } from '#contract/errors.ts';
import type { JobClass, JobFailure } from '../jobs/job.ts';
import type { AttemptOutcome } from '../nodes/matte-exchange.ts';

/** How the download of a picture ended. */
export const FETCH_OUTCOMES = ['stored', 'failed', 'aborted'] as const;
export type FetchOutcome = (typeof FETCH_OUTCOMES)[number];

export interface JobEnding {
  readonly outcome: 'succeeded' | 'failed';
  /** The label of the metrics is older than the classes. */
  readonly mode: JobClass;
  /** Undefined for a success. */
  readonly failure: Pick<JobFailure, 'code' | 'retryable'> | undefined;
  /** From submission. */
  readonly totalMs: number;
}

export interface JobObserver {
  /** A node admitted the job for the first time, this long after its submission. */
  jobAdmitted(mode: JobClass, waitMs: number): void;
  /** @param reason the code that ended it; undefined for a success or our own abort. */
  attemptEnded(kind: AttemptOutcome['kind'], reason: ErrorCode | undefined): void;
  /** The same of an attempt whose files went straight between node and storage, besides. */
  directAttemptEnded(kind: AttemptOutcome['kind']): void;
  fetchEnded(outcome: FetchOutcome): void;
  jobEnded(ending: JobEnding): void;
  /** Work went on under a lease that another replica has now. */
  leaseLost(): void;
  takenOver(): void;
}
