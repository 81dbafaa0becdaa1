/** Counts what happens to jobs. No label may hold an identifier. */

import type { AttemptOutcome } from '@matting/nodes/attempt-outcome.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { JobClass, JobFailure } from '@matting/queue/job.ts';

export const FETCH_OUTCOMES = ['stored', 'failed', 'aborted'] as const;
type FetchOutcome = (typeof FETCH_OUTCOMES)[number];

export interface JobEnding {
  readonly outcome: 'succeeded' | 'failed';
  /** A job's class. The label of the metrics, `mode`, is older than classes. */
  readonly mode: JobClass;
  readonly failure: Pick<JobFailure, 'code' | 'retryable'> | undefined;
  readonly totalMs: number;
}

export interface JobObserver {
  jobAdmitted(mode: JobClass, waitMs: number): void;
  /** @param reason the error code; undefined: a success, or this replica aborted */
  attemptEnded(kind: AttemptOutcome['kind'], reason: ErrorCode | undefined): void;
  /** Call it once for a job that nodes refused many times for other reasons than room. */
  jobRefused(): void;
  fetchEnded(outcome: FetchOutcome): void;
  jobEnded(ending: JobEnding): void;
  leaseLost(): void;
  takenOver(): void;
  /** @param ms from the node's admission until the result is stored */
  modelTimed(model: string, ms: number): void;
}
