/** test/queue.contract.ts tests each implementation. */
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import type { HoldLimits } from '@matting/queue/funding/funding.ts';
import type { IdempotencyKey } from '@matting/queue/idempotency.ts';
import type { JobFailure } from '@matting/queue/job.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import type { JobLeases, ListedJob, QueueReads } from '@matting/queue/queue.ts';
import type { SubmitOutcome } from '@matting/queue/submit-job.ts';
import type { Job } from '../jobs/job.ts';
import type { JobCorrection, StoredMatte } from '../jobs/job-family.ts';
import type { JobOutcome, JobResult, StageTimings } from '../jobs/job-outcome.ts';
import type { JobBackground, JobInput, JobRequest } from '../jobs/job-request.ts';
import type { NewJob } from './matting-submission.ts';

/** A job without its outcome, which exists only after an attempt. */
export type OpenJob = Omit<Job, keyof JobOutcome>;

export interface ClaimableJob
  extends ListedJob,
    Pick<JobRequest, 'input' | 'outputFormat' | 'model' | 'channels' | 'finishing' | 'hintsFile'> {
  readonly background: Pick<JobBackground, 'input'> | null;
  /** `true`: the job has hints. A round lists many jobs, so it does not read the hints' shapes. */
  readonly hints: Hints | true | null;
  readonly correction: Pick<JobCorrection, 'cropRun'> | null;
}

export interface Claimed {
  readonly claim: Claim;
  readonly job: OpenJob;
}

export interface InputStoredOptions {
  readonly giveUp?: AbortSignal | undefined;
  /** The job's finishing. With the input it decides what the job costs in the queue. */
  readonly finishing?: Finishing | null;
  /** The job stays fetching and downloads this next. */
  readonly backgroundUrl?: string | undefined;
}

export interface JobSuccess {
  readonly result: JobResult;
  readonly resultTtlMs: number;
  readonly timings: StageTimings;
  /** For corrections. */
  readonly matte?: StoredMatte | undefined;
}

export interface EndedFamily {
  /** Corrections that failed with the job. */
  readonly ended: readonly Pick<Job, 'id' | 'callback'>[];
  /** Blobs that jobs of the family share. Erase them once no row names them. */
  readonly shared: readonly string[];
}

export interface Deletion {
  readonly kind: 'cancelled' | 'deleted' | 'processing' | 'unchanged';
  readonly job: Job;
  /** Blobs that no row needs any more. */
  readonly blobs: readonly string[];
  readonly family?: EndedFamily;
}

export interface Queue extends QueueReads<ClaimableJob>, Omit<JobLeases<OpenJob>, 'prepared'> {
  submit(job: NewJob, limits: HoldLimits): Promise<SubmitOutcome<Job>>;
  /** Whether a package uses the Idempotency-Key for something other than a job. */
  isKeyTaken(apiKeyId: string, keyHash: string): Promise<boolean>;
  findByKey(apiKeyId: string, key: IdempotencyKey): Promise<Job | undefined>;
  /**
   * Cancels a waiting job, or expires a result (deletion/remove-job.ts). A repeated call gives the
   * same answer.
   * @returns undefined: the API key has no such job
   */
  remove(
    jobId: string,
    apiKeyId: string,
    options?: { readonly keepReference?: boolean },
  ): Promise<Deletion | undefined>;
  /** fetching -> ready, or to the background's download. False: the row may still name the blob. */
  inputStored(claim: Claim, input: JobInput, options?: InputStoredOptions): Promise<boolean>;
  backgroundStored(claim: Claim, background: JobInput, giveUp?: AbortSignal): Promise<boolean>;
  /**
   * Stores the result, charges the credit, adds to the outbox, ends the lease and removes the
   * input, in one transaction.
   */
  succeed(claim: Claim, success: JobSuccess, giveUp?: AbortSignal): Promise<boolean>;
  /** Fails any open job and releases its credit. A retryable failure frees the Idempotency-Key. */
  fail(claim: Claim, failure: JobFailure, giveUp?: AbortSignal): Promise<boolean>;
}

export type WorkerQueue = Omit<Queue, 'submit' | 'isKeyTaken' | 'findByKey' | 'remove'>;
