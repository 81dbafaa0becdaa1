/**
 * A queue of jobs: what waits, and who holds it. It is the table `jobs` (leases.ts, queue-reads.ts),
 * or in memory for simulations (bench/dispatch-simulator). `J` is a job with its payload, `Listed`
 * what a listing has of one.
 *
 * A write under a claim is made only while its holder has the lease and its fence is the job's
 * (lease-rules.ts). False and undefined say that the lease is lost and nothing was changed. A call
 * that is repeated answers as before and changes nothing, but for `release` and `attemptLost`,
 * which gave the lease back. While the database is away a method rejects with SERVICE_UNAVAILABLE,
 * after a second or two; with `giveUp` it tries until that aborts, or for two minutes.
 */
import type { Schema } from '@matting/database/database.ts';
import type { Updateable } from 'kysely';
import type { JobState, QueueJob } from './job.ts';
import type { JobLane, LaneRead } from './lanes.ts';
import type { Claim } from './lease-rules.ts';

export type ListedJob = Pick<QueueJob, 'id' | 'fence' | 'class' | 'accountId' | 'apiKeyId'> &
  Pick<QueueJob, 'sourceHost' | 'createdAtMs' | 'startedAtMs' | 'readAtMs' | 'takeovers'> &
  Pick<QueueJob, 'group'> & { readonly state: 'accepted' | 'fetching' | 'ready' | 'running' };

/** What a download or a like step brought. */
export interface Prepared<J> {
  /** The columns of the payload that it sets. */
  readonly columns: Updateable<Schema['jobs']>;
  /** The job downloads from this host next, and stays fetching; absent: it is ready. */
  readonly nextHost?: string | undefined;
  /** Whether a job that this claim still holds has it: an answer may have been lost. */
  readonly happened: (job: J) => boolean;
}

export type LeaseEnded =
  | { readonly kind: 'unknown' | 'not-leased' }
  | { readonly kind: 'final'; readonly state: JobState }
  | { readonly kind: 'ended'; readonly holder: string };

export interface AccountQueue {
  readonly jobs: number;
  /** Each job as the payload's `queuedCost` counts it. */
  readonly cost: number;
  /** Jobs that are to be downloaded. */
  readonly unfetched: number;
}

export interface QueuedWork {
  readonly jobs: number;
  readonly cost: number;
  readonly oldestAgeMs: number;
  /** The key is the account id; accounts that have nothing queued are left out. */
  readonly byAccount: ReadonlyMap<string, AccountQueue>;
  /** Cost by the model that jobs name; null: they name none. */
  readonly byModel: ReadonlyMap<string | null, number>;
}

export interface QueueReads<Listed> {
  /** The lanes that have an open job, leased or not. */
  listLanes(): Promise<JobLane[]>;
  /**
   * Without a live lease: the first of each lane, an equal part of `limit`, in the queue's order.
   * @param among absent: all lanes
   */
  listClaimable(limit: number, among?: readonly LaneRead[]): Promise<Listed[]>;
  /** The jobs that wait for a node, or for their download. */
  queued(): Promise<QueuedWork>;
  /** Succeeded within the last `windowMs`, each as the payload's `doneCost` counts it. */
  doneWithin(windowMs: number): Promise<Pick<QueuedWork, 'jobs' | 'cost'>>;
}

export interface JobLeases<J> {
  /** Raises the fence, and makes accepted fetching. Undefined: somebody was faster, or it ended. */
  claim(
    job: Pick<QueueJob, 'id' | 'fence'>,
    holder: string,
    leaseMs: number,
  ): Promise<{ readonly claim: Claim; readonly job: J } | undefined>;
  /** From now on, even after the lease ran out while nobody else claimed the job. */
  renew(claim: Claim, leaseMs: number): Promise<boolean>;
  /** Gives the job back as it is, for anyone to claim. */
  release(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /** The holder finds out with its next write or renewal. */
  endLease(jobId: string): Promise<LeaseEnded>;
  /** fetching -> ready, or the next download. False: the row may still have it. */
  prepared(claim: Claim, step: Prepared<J>, giveUp?: AbortSignal): Promise<boolean>;
  /** ready or running -> running; sets started_at once. */
  admitted(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /** Counts the attempt and gives the lease back. The job as it is then. */
  attemptLost(claim: Claim, withProcess: boolean, giveUp?: AbortSignal): Promise<J | undefined>;
}
