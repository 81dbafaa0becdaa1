/**
 * Jobs, their leases and the money that moves with them, as the services see them. The other files
 * of this folder implement it, each the part whose statements it has; stores.ts joins the parts.
 * While the database is away every method rejects with SERVICE_UNAVAILABLE.
 */
import type { Channels, Finishing } from '#contract/finishing.ts';
import type { OutputFormat } from '#contract/formats.ts';
import type { JobLane, LaneRead } from '../../domain/dispatch/job-turns.ts';
import type {
  Job,
  JobBackground,
  JobFailure,
  JobInput,
  JobResult,
  JobState,
  StageTimings,
} from '../../domain/job.ts';
import type { AccountQueue } from '../../domain/queue-share.ts';

/** Where the end of a job is announced, and the secret that signs it. */
export interface NewJobCallback {
  readonly url: string;
  /** Encrypted; null: none. */
  readonly secret: Uint8Array | null;
  /** Names the key it is encrypted with; null exactly where `secret` is. */
  readonly secretKeyId: string | null;
}

export interface NewJob {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  /** The key had a cap when it was read last: what it has counted is read in the transaction. */
  readonly keyHasCap?: boolean;
  readonly idempotencyKeyHash: string;
  readonly fingerprint: string;
  readonly mode: 'sync' | 'async';
  readonly outputFormat: OutputFormat;
  /** Exactly one of the two: a stored input makes the job ready, a URL accepted. */
  readonly input: JobInput | null;
  readonly sourceUrl: string | null;
  /** rgba where absent. */
  readonly channels?: Channels;
  /** As in domain/job.ts; absent: every node can do it. */
  readonly finishing?: Finishing;
  /** Either its URL or what is stored; given exactly where `finishing` has a background picture. */
  readonly background?: JobBackground;
  /** Absent: no notification is sent. */
  readonly callback?: NewJobCallback;
  /** The trace of its submission, as program/tracing/kept-context.ts writes it; absent: none. */
  readonly traceContext?: string | undefined;
}

export interface SubmitLimits {
  /** Open jobs of the account. */
  readonly jobsInFlightMax: number;
}

export type SubmittedJob =
  | { readonly kind: 'created'; readonly job: Job }
  /** Another request with the key was first; the caller compares fingerprints. */
  | { readonly kind: 'exists'; readonly job: Job };

export type SubmitOutcome =
  | SubmittedJob
  | { readonly kind: 'insufficient-credits' }
  | { readonly kind: 'too-many-in-flight' }
  /** `detail` tells the caller when it begins again. */
  | { readonly kind: 'key-cap-reached'; readonly detail: string };

/** Proof of a claim: nothing below changes a job whose fence has moved on. */
export interface Claim {
  readonly jobId: string;
  readonly holder: string;
  readonly fence: number;
}

/** What the dispatcher needs to choose among the open jobs. */
export interface ClaimableJob {
  readonly id: string;
  readonly fence: number;
  readonly state: 'accepted' | 'fetching' | 'ready' | 'running';
  readonly mode: 'sync' | 'async';
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly input: JobInput | null;
  /** As domain/job.ts has it; null once nothing is to be downloaded. */
  readonly sourceHost: string | null;
  readonly outputFormat: OutputFormat;
  readonly finishing: Finishing | null;
  readonly channels: Channels;
  /** Of its background what is stored, if there is one. */
  readonly background: Pick<JobBackground, 'input'> | null;
  /** It is of the playground: it goes behind what is paid for. */
  readonly playground: boolean;
  /** Its lease ran out rather than being free: claiming it is a take-over. */
  readonly leaseExpired: boolean;
  readonly takeovers: number;
  readonly readAtMs: number;
}

/** Which jobs the operator wants to see. */
export interface JobFilter {
  /** open: by their place in the queue. final: the latest to end first. */
  readonly states: readonly JobState[];
  readonly accountId?: string | undefined;
  /** Of this key alone; only with its account. */
  readonly apiKeyId?: string | undefined;
  /** How long ago final jobs may have ended. */
  readonly endedWithinMs: number;
  readonly limit: number;
  /** `cursor` of the last job of the page before; absent: from the beginning. */
  readonly after?: string | undefined;
}

export interface OpenJob {
  readonly id: string;
  readonly state: JobState;
  readonly createdAtMs: number;
}

export interface ListedJob extends Job {
  /** Its place in the list: `JobFilter.after` goes on behind it, whatever became of it since. */
  readonly cursor: string;
}

/** What a sweep of old jobs removed. */
export interface RemovedJobs {
  readonly rows: number;
  /** Results that those rows still named: no row names them now. */
  readonly blobs: readonly string[];
}

/** What waits, as domain/queue-share.ts counts it. */
export interface QueuedWork {
  readonly jobs: number;
  readonly megapixels: number;
  /** Since its submission, by the database's clock; 0 where nothing waits. */
  readonly oldestAgeMs: number;
  /** By account id; those that have nothing queued are not in it. */
  readonly byAccount: ReadonlyMap<string, AccountQueue>;
}

export interface InputStoredOptions {
  readonly giveUp?: AbortSignal | undefined;
  /** The job's: from now on it counts in the queue by what that makes of this input. */
  readonly finishing?: Finishing | null;
  /** Is to be downloaded next: the job stays fetching, among those that wait for its host. */
  readonly backgroundUrl?: string | undefined;
}

/** What became of a lease that was to be ended. */
export type LeaseEnding =
  | { readonly kind: 'ended'; readonly holder: string }
  /** It had none: the next dispatcher with room claims it. */
  | { readonly kind: 'not-leased' }
  | { readonly kind: 'final'; readonly state: JobState }
  | { readonly kind: 'unknown' };

/**
 * `giveUp`, for writes under a claim: while the database is away the write is repeated until this
 * signal aborts, two minutes at most (database/transact.ts). Absent: it rejects after a second or
 * two, as every other method does.
 */
export interface JobStore {
  findByIdempotencyKey(apiKeyId: string, idempotencyKeyHash: string): Promise<Job | undefined>;
  /** Undefined also for another key's job. */
  findForKey(jobId: string, apiKeyId: string): Promise<Job | undefined>;
  find(jobId: string): Promise<Job | undefined>;
  /** Those among them that are final. */
  findFinal(jobIds: readonly string[]): Promise<Job[]>;
  /** By the link's token; expired ones too. */
  findByResultToken(token: string): Promise<Job | undefined>;

  /** One transaction: counts jobs in flight, reserves 1 credit, inserts job and ledger entry. */
  submit(job: NewJob, limits: SubmitLimits): Promise<SubmitOutcome>;
  /**
   * Compare-and-set: where that job is final and was submitted at least `rememberedMs` ago by the
   * database's clock, or its result has expired, it no longer has this key, and the next submission
   * under it is a new job. Else nothing changes.
   */
  freeKey(jobId: string, idempotencyKeyHash: string, rememberedMs: number): Promise<void>;

  /** The lanes of the queue that have open jobs, running ones included. */
  listLanes(): Promise<JobLane[]>;
  /**
   * Open jobs without a live lease, the first ones of each lane, `limit` at most together; then in
   * the queue's order: sync first, then oldest; an asynchronous one goes before those that came
   * ASYNC_HEAD_START_MS (domain/dispatch/job-turns.ts) after it.
   * @param lanes absent: all of them, read now.
   */
  listClaimable(limit: number, lanes?: readonly LaneRead[]): Promise<ClaimableJob[]>;
  /**
   * Compare-and-set on the fence and the lease: the claim, or undefined when somebody else was
   * faster. Raises the fence; a take-over raises `takeovers`; accepted becomes fetching.
   */
  claim(
    job: ClaimableJob,
    holder: string,
    leaseMs: number,
  ): Promise<{ claim: Claim; job: Job } | undefined>;
  /** False: the lease is lost, stop at once. */
  renew(claim: Claim, leaseMs: number): Promise<boolean>;
  /** Gives the job back as it is, for anyone to claim: a refusal before Admitted. False: lost. */
  release(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /**
   * fetching -> ready; keeps the lease. False: lost. The row may name the blob all the same: it was
   * written by an earlier call whose answer was lost, and somebody else has the job since.
   */
  inputStored(claim: Claim, input: JobInput, options?: InputStoredOptions): Promise<boolean>;
  /** The background's picture, after the input: fetching -> ready; keeps the lease. As inputStored. */
  backgroundStored(claim: Claim, background: JobInput, giveUp?: AbortSignal): Promise<boolean>;
  /** ready or running -> running; sets started_at once. False: lost. */
  admitted(claim: Claim, giveUp?: AbortSignal): Promise<boolean>;
  /**
   * Counts a lost attempt and gives the lease back. The job as it is then; undefined: lease lost.
   */
  attemptLost(claim: Claim, withProcess: boolean, giveUp?: AbortSignal): Promise<Job | undefined>;
  /**
   * One transaction: result, charge, outbox, lease gone; input and URL forgotten. False: fenced
   * off.
   */
  succeed(
    claim: Claim,
    result: JobResult,
    resultTtlMs: number,
    timings: StageTimings,
    giveUp?: AbortSignal,
  ): Promise<boolean>;
  /**
   * One transaction: failure, release of the credit, outbox, lease gone; input and URL forgotten; a
   * retryable failure sets the idempotency key's hash null. False: fenced off.
   */
  fail(claim: Claim, failure: JobFailure, giveUp?: AbortSignal): Promise<boolean>;

  /** Open jobs of an account, the oldest first; where it has hundreds, of some of them. */
  openOf(accountId: string, limit: number): Promise<OpenJob[]>;
  /** For the operator: open jobs in the order of the queue, then final ones, the latest first. */
  list(filter: JobFilter): Promise<ListedJob[]>;
  /**
   * Ends whatever lease an open job has, so that it is claimed again. Its holder finds out with its
   * next write or renewal, and counts nothing.
   */
  endLease(jobId: string): Promise<LeaseEnding>;

  /** The jobs that wait for a node, or for their download. */
  queued(): Promise<QueuedWork>;

  /**
   * Succeeded within the last `windowMs`, by the results' megapixels, each job at least
   * MEGAPIXELS_MIN: the service's throughput.
   */
  doneWithin(windowMs: number): Promise<{ jobs: number; megapixels: number }>;

  /** For the sweeper: results past expiry whose blob is still named, and clears the name. */
  takeExpiredResultBlobs(limit: number): Promise<string[]>;
  /** Removes rows final for longer than `afterMs`, at most `limit`; the ledger stays. */
  removeFinalOlderThan(afterMs: number, limit: number): Promise<RemovedJobs>;
  /** Which of these blob names any row still refers to. */
  referencedBlobs(names: readonly string[]): Promise<Set<string>>;
}
