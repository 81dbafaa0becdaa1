/** What happens to jobs, for the metrics; no identifiers, so that no label ever holds one. */
import type { ErrorCode } from '#contract/errors.ts';
import type { Job, JobFailure } from '../../domain/job.ts';
import type { AttemptOutcome } from '../../nodes/attempt-outcome.ts';

export interface JobEnding {
  readonly outcome: 'succeeded' | 'failed';
  readonly mode: Job['mode'];
  /** Undefined for a success. */
  readonly failure: Pick<JobFailure, 'code' | 'retryable'> | undefined;
  /** From submission. */
  readonly totalMs: number;
}

export interface JobObserver {
  /** A node admitted the job for the first time, this long after its submission. */
  jobAdmitted(mode: Job['mode'], waitMs: number): void;
  /** @param reason the code that ended it; undefined for a success or our own abort. */
  attemptEnded(kind: AttemptOutcome['kind'], reason: ErrorCode | undefined): void;
  fetchEnded(outcome: 'stored' | 'failed' | 'aborted'): void;
  jobEnded(ending: JobEnding): void;
  /** Work went on under a lease that another replica has now. */
  leaseLost(): void;
  takenOver(): void;
}
