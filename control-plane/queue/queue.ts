/**
 * The queue of jobs: the table `jobs` (leases.ts, queue-reads.ts), or in memory for simulations
 * (bench/dispatch-simulator). `J` is a job with its payload, `Listed` a job as a listing shows it.
 *
 * A write under a claim succeeds only while its holder has the lease and the job's fence is the
 * claim's (lease-rules.ts). False and undefined mean that the lease is lost and nothing changed. A
 * repeated call gives the same answer and changes nothing, except `release` and `attemptLost`,
 * which gave the lease back. While the database is away, a method rejects with SERVICE_UNAVAILABLE
 * after a second or two; with `giveUp` it retries until that aborts, for two minutes at most.
 */
import type { Schema } from '@matting/database/database.ts';
import type { Updateable } from 'kysely';
import type { JobState, QueueJob } from './job.ts';
import type { JobLane, LaneRead } from './lanes.ts';
import type { Claim } from './lease-rules.ts';

export type ListedJob = Pick<QueueJob, 'id' | 'fence' | 'class' | 'accountId' | 'apiKeyId'> &
  Pick<QueueJob, 'sourceHost' | 'createdAtMs' | 'startedAtMs' | 'readAtMs' | 'takeovers'> &
  Pick<QueueJob, 'group'> & { readonly state: 'accepted' | 'fetching' | 'ready' | 'running' };

/** The result of a download or of a similar step. */
export interface Prepared<J> {
  readonly columns: Updateable<Schema['jobs']>;
  /** Host of the next download, for which the job stays fetching. Absent: the job is ready. */
  readonly nextHost?: string | undefined;
  /** Tells whether a job still held by this claim has the change: an answer may have been lost. */
  readonly happened: (job: J) => boolean;
}

export type LeaseEnded =
  | { readonly kind: 'unknown' | 'not-leased' }
  | { readonly kind: 'final'; readonly state: JobState }
  | { readonly kind: 'ended'; readonly holder: string };

export interface AccountQueue {
  readonly jobs: number;
  /** Sum of the payload's `queuedCost`. */
  readonly cost: number;
  readonly unfetched: number;
}

export interface QueuedWork {
  readonly jobs: number;
  readonly cost: number;
  readonly oldestAgeMs: number;
  /** By account id; without accounts that have nothing queued. */
  readonly byAccount: ReadonlyMap<string, AccountQueue>;
  /** Cost by the model that jobs name; null: jobs that name no model. */
  readonly byModel: ReadonlyMap<string | null, number>;
}

export interface QueueReads<Listed> {
  listLanes(): Promise<JobLane[]>;
  /**
   * Jobs without a live lease: the first of each lane, an equal share of `limit`, in queue order.
   * @param among absent: all lanes
   */
  listClaimable(limit: number, among?: readonly LaneRead[]): Promise<Listed[]>;
  /** Jobs that wait for a node or for their download. */
  queued(): Promise<QueuedWork>;
  /** Jobs that succeeded within `windowMs`; the cost is the sum of the payload's `doneCost`. */
  doneWithin(windowMs: number): Promise<Pick<QueuedWork, 'jobs' | 'cost'>>;
}

export interface JobLeases<J> {
  /**
   * Raises the fence and makes accepted fetching. Undefined: another replica was faster, or the job
   * ended.
   */
  claim(
    job: Pick<QueueJob, 'id' | 'fence'>,
    holder: string,
    leaseMs: number,
  ): Promise<{ readonly claim: Claim; readonly job: J } | undefined>;
  /**
   * Extends the lease from now on, even after it ran out, unless another holder claimed the job.
   */
  renew(claim: Claim, leaseMs: number): Promise<boolean>;
  release(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /** The holder notices at its next write or renewal. */
  endLease(jobId: string): Promise<LeaseEnded>;
  /** fetching -> ready, or to the next download. False: the row may have the change already. */
  prepared(claim: Claim, step: Prepared<J>, giveUp?: AbortSignal): Promise<boolean>;
  /** ready or running -> running; sets started_at once. */
  admitted(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /** Counts the attempt and gives the lease back. Returns the job as it is then. */
  attemptLost(claim: Claim, withProcess: boolean, giveUp?: AbortSignal): Promise<J | undefined>;
}
