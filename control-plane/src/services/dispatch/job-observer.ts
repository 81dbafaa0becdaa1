/** What happens to jobs, for the metrics; no identifiers, so that no label ever holds one. */
import type { ErrorCode } from '#contract/errors.ts';
import type { Job, JobFailure } from '../../domain/job.ts';
import type { AttemptOutcome } from '../../nodes/attempt-outcome.ts';

/** What a job is counted as: how it was submitted, or that nobody pays for it. */
export const COUNTED_MODES = ['sync', 'async', 'playground'] as const;
export type CountedMode = (typeof COUNTED_MODES)[number];

export function countedModeOf(job: Pick<Job, 'mode' | 'playgroundDayMs'>): CountedMode {
  return job.playgroundDayMs === null ? job.mode : 'playground';
}

/** How the download of a picture ended. */
export const FETCH_OUTCOMES = ['stored', 'failed', 'aborted'] as const;
export type FetchOutcome = (typeof FETCH_OUTCOMES)[number];

export interface JobEnding {
  readonly outcome: 'succeeded' | 'failed';
  readonly mode: CountedMode;
  /** Undefined for a success. */
  readonly failure: Pick<JobFailure, 'code' | 'retryable'> | undefined;
  /** From submission. */
  readonly totalMs: number;
}

export interface JobObserver {
  /** A node admitted the job for the first time, this long after its submission. */
  jobAdmitted(mode: CountedMode, waitMs: number): void;
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
