/**
 * The queue of jobs: the table `jobs` (leases.ts, queue-reads.ts), or in memory for simulations
 * (bench/dispatch-simulator). `J` is a job with its payload, `Listed` a job as a listing shows it.
 *
 * A write under a claim succeeds only while its holder has the lease and the job's fence equals the
 * claim's (lease-rules.ts). False and undefined mean that the lease is lost and nothing changed. A
 * repeated call gives the same answer and changes nothing, except for `release` and `attemptLost`,
 * which end the lease. While the database is away, a method rejects with SERVICE_UNAVAILABLE after
 * a second or two. With `giveUp` it retries until that aborts, or for two minutes.
 */
import type { Schema } from '@matting/database/database.ts';
import type { Updateable } from 'kysely';
import type { JobState, QueueJob } from './job.ts';
import type { JobLane, LaneRead } from './lanes.ts';
import type { Claim } from './lease-rules.ts';

export type ListedJob = Pick<QueueJob, 'id' | 'fence' | 'class' | 'accountId' | 'apiKeyId'> &
  Pick<QueueJob, 'sourceHost' | 'createdAtMs' | 'startedAtMs' | 'readAtMs' | 'takeovers'> &
  Pick<QueueJob, 'group'> & { readonly state: 'accepted' | 'fetching' | 'ready' | 'running' };

/** What a download, or a similar step, writes. */
export interface Prepared<J> {
  readonly columns: Updateable<Schema['jobs']>;
  /** Host of the next download, for which the job stays fetching. Absent: the job is ready. */
  readonly nextHost?: string | undefined;
  /** Whether the row already has the change, because an earlier answer was lost. */
  readonly happened: (job: J) => boolean;
}

export type LeaseEnded =
  | { readonly kind: 'unknown' | 'not-leased' }
  | { readonly kind: 'final'; readonly state: JobState }
  | { readonly kind: 'ended'; readonly holder: string };

export interface AccountQueue {
  readonly jobs: number;
  readonly cost: number;
  readonly unfetched: number;
}

export interface QueuedWork {
  readonly jobs: number;
  readonly cost: number;
  readonly oldestAgeMs: number;
  /** By account id. Accounts without queued jobs are absent. */
  readonly byAccount: ReadonlyMap<string, AccountQueue>;
  /** Cost by model. null: jobs that name no model. */
  readonly byModel: ReadonlyMap<string | null, number>;
}

export interface QueueReads<Listed> {
  listLanes(): Promise<JobLane[]>;
  /**
   * Lists jobs without a live lease: the first of each lane, an equal share of `limit`, in queue
   * order.
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
   * Raises the fence and turns accepted into fetching.
   * @returns undefined: another replica was faster, or the job ended
   */
  claim(
    job: Pick<QueueJob, 'id' | 'fence'>,
    holder: string,
    leaseMs: number,
  ): Promise<{ readonly claim: Claim; readonly job: J } | undefined>;
  /** Extends the lease from now on, even an expired one, unless another holder claimed the job. */
  renew(claim: Claim, leaseMs: number): Promise<boolean>;
  release(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /** The holder notices at its next write or renewal. */
  endLease(jobId: string): Promise<LeaseEnded>;
  /** fetching -> ready, or to the next download. False: the row may have the change already. */
  prepared(claim: Claim, step: Prepared<J>, giveUp?: AbortSignal): Promise<boolean>;
  /** ready or running -> running; sets started_at once. */
  admitted(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /**
   * Counts the attempt and gives the lease back.
   * @returns the changed job
   */
  attemptLost(claim: Claim, withProcess: boolean, giveUp?: AbortSignal): Promise<J | undefined>;
}
