/**
 * The queue of jobs: what waits, who holds it, and how it ends. It is the table `jobs` (leases.ts,
 * queue-reads.ts, core/transactions/job-completion.ts), or in memory for simulations
 * (bench/dispatch-simulator). test/queue.contract.ts tests both.
 *
 * A write under a claim is made only while its holder has the lease and its fence is the job's
 * (lease-rules.ts). False and undefined say that the lease is lost and nothing was changed. A call
 * that is repeated answers as before and changes nothing, but for `release` and `attemptLost`,
 * which gave the lease back. While the database is away a method rejects with SERVICE_UNAVAILABLE,
 * after a second or two; with `giveUp` it tries until that aborts, or for two minutes.
 */
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import type { JobFailure, JobState, QueueJob } from '@matting/queue/job.ts';
import type { JobLane, LaneRead } from '@matting/queue/lanes.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import type { Job } from '../jobs/job.ts';
import type { JobCorrection, StoredMatte } from '../jobs/job-family.ts';
import type { JobOutcome, JobResult, StageTimings } from '../jobs/job-outcome.ts';
import type { JobBackground, JobInput, JobRequest } from '../jobs/job-request.ts';
import type { AccountQueue } from './queue-bound.ts';

/** Attempts read no outcome: they make it. */
export type OpenJob = Omit<Job, keyof JobOutcome>;

export interface ClaimableJob
  extends Pick<QueueJob, 'id' | 'fence' | 'class' | 'accountId' | 'apiKeyId' | 'sourceHost'>,
    Pick<QueueJob, 'createdAtMs' | 'startedAtMs' | 'readAtMs' | 'takeovers' | 'group'>,
    Pick<JobRequest, 'input' | 'outputFormat' | 'model' | 'channels' | 'finishing' | 'hintsFile'> {
  readonly state: 'accepted' | 'fetching' | 'ready' | 'running';
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

export type LeaseEnded =
  | { readonly kind: 'unknown' | 'not-leased' }
  | { readonly kind: 'final'; readonly state: JobState }
  | { readonly kind: 'ended'; readonly holder: string };

export interface QueuedWork {
  readonly jobs: number;
  readonly megapixels: number;
  readonly oldestAgeMs: number;
  /** The key is the account id; accounts that have nothing queued are left out. */
  readonly byAccount: ReadonlyMap<string, AccountQueue>;
  /** Megapixels by the model that jobs name; null: they name none. */
  readonly byModel: ReadonlyMap<string | null, number>;
}

export interface Queue {
  /** The lanes that have an open job, leased or not. */
  listLanes(): Promise<JobLane[]>;
  /**
   * Without a live lease: the first of each lane, an equal part of `limit`, in the queue's order.
   * @param among absent: all lanes
   */
  listClaimable(limit: number, among?: readonly LaneRead[]): Promise<ClaimableJob[]>;
  /** Raises the fence, and makes accepted fetching. Undefined: somebody was faster, or it ended. */
  claim(
    job: Pick<ClaimableJob, 'id' | 'fence'>,
    holder: string,
    leaseMs: number,
  ): Promise<Claimed | undefined>;
  /** From now on, even after the lease ran out while nobody else claimed the job. */
  renew(claim: Claim, leaseMs: number): Promise<boolean>;
  /** Gives the job back as it is, for anyone to claim. */
  release(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /** The holder finds out with its next write or renewal. */
  endLease(jobId: string): Promise<LeaseEnded>;
  /** fetching -> ready, or the background is next. False: the row may still name the blob. */
  inputStored(claim: Claim, input: JobInput, options?: InputStoredOptions): Promise<boolean>;
  /** Follows the input: fetching -> ready. It works as `inputStored`. */
  backgroundStored(claim: Claim, background: JobInput, giveUp?: AbortSignal): Promise<boolean>;
  /** ready or running -> running; sets started_at once. */
  admitted(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /** Counts the attempt and gives the lease back. The job as it is then. */
  attemptLost(
    claim: Claim,
    withProcess: boolean,
    giveUp?: AbortSignal,
  ): Promise<OpenJob | undefined>;
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
  /** The jobs that wait for a node, or for their download. */
  queued(): Promise<QueuedWork>;
  /** Succeeded within the last `windowMs`, by the results' megapixels. */
  doneWithin(windowMs: number): Promise<Pick<QueuedWork, 'jobs' | 'megapixels'>>;
}
