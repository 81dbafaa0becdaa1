/** The queue of matting jobs: their payload, and how they end. test/queue.contract.ts tests each kind. */
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

/** Attempts read no outcome: they make it. */
export type OpenJob = Omit<Job, keyof JobOutcome>;

export interface ClaimableJob
  extends ListedJob,
    Pick<JobRequest, 'input' | 'outputFormat' | 'model' | 'channels' | 'finishing' | 'hintsFile'> {
  readonly background: Pick<JobBackground, 'input'> | null;
  /** Not the shapes themselves: many jobs are read in each round. */
  readonly hints: Hints | true | null;
  readonly correction: Pick<JobCorrection, 'cropRun'> | null;
}

export interface Claimed {
  readonly claim: Claim;
  readonly job: OpenJob;
}

export interface InputStoredOptions {
  readonly giveUp?: AbortSignal | undefined;
  /** The job's: it counts in the queue by what that makes of this input. */
  readonly finishing?: Finishing | null;
  /** The job downloads this next, and stays fetching. */
  readonly backgroundUrl?: string | undefined;
}

export interface EndedFamily {
  /** Corrections that failed with it. */
  readonly ended: readonly Pick<Job, 'id' | 'callback'>[];
  /** Blobs to erase once no row names them: jobs of a family share them. */
  readonly shared: readonly string[];
}

export interface Deletion {
  readonly kind: 'cancelled' | 'deleted' | 'processing' | 'unchanged';
  readonly job: Job;
  /** No row needs these blobs any more. */
  readonly blobs: readonly string[];
  /** For a job of a family (deletion/family-deletion.ts). */
  readonly family?: EndedFamily;
}

export interface Queue extends QueueReads<ClaimableJob>, Omit<JobLeases<OpenJob>, 'prepared'> {
  /** Holds what the job's funding takes, and makes the job (control-plane/queue/submit-job.ts). */
  submit(job: NewJob, limits: HoldLimits): Promise<SubmitOutcome<Job>>;
  /** Whether something else of a package has the Idempotency-Key. */
  isKeyTaken(apiKeyId: string, keyHash: string): Promise<boolean>;
  /** The job that answers for the key. */
  findByKey(apiKeyId: string, key: IdempotencyKey): Promise<Job | undefined>;
  /**
   * Cancels a job that waits, and expires a result (deletion/remove-job.ts). Undefined: the API key has no
   * such job. A repetition answers as the first call.
   */
  remove(
    jobId: string,
    apiKeyId: string,
    options?: { readonly keepReference?: boolean },
  ): Promise<Deletion | undefined>;
  /** fetching -> ready, or the background is next. False: the row may still name the blob. */
  inputStored(claim: Claim, input: JobInput, options?: InputStoredOptions): Promise<boolean>;
  /** Follows the input: fetching -> ready. It works as `inputStored`. */
  backgroundStored(claim: Claim, background: JobInput, giveUp?: AbortSignal): Promise<boolean>;
  /** In one transaction: result, charge, outbox, lease and input gone. `matte`: for corrections. */
  succeed(
    claim: Claim,
    result: JobResult,
    resultTtlMs: number,
    timings: StageTimings,
    options?: { readonly giveUp?: AbortSignal; readonly matte?: StoredMatte },
  ): Promise<boolean>;
  /** The same of any open job, with the credit's release; a retryable failure frees its key. */
  fail(claim: Claim, failure: JobFailure, giveUp?: AbortSignal): Promise<boolean>;
}

/** A replica that works on jobs uses this part. */
export type WorkerQueue = Omit<Queue, 'submit' | 'isKeyTaken' | 'findByKey' | 'remove'>;
