/**
 * A job as the queue has it, and its states. What the job is to do is its payload, which the queue
 * does not read.
 *
 * | state     | what callers see | entered from | by                                             |
 * |-----------|------------------|--------------|------------------------------------------------|
 * | accepted  | queued           | -            | submission, with something to download         |
 * | fetching  | queued           | accepted     | a claim; the download runs under the lease     |
 * | ready     | queued           | fetching, -  | all that it needs is stored durably            |
 * | running   | processing       | ready        | a node's Admitted; sets started_at once        |
 * | succeeded | succeeded, from expires_at on expired | running | the result is stored, the credit charged |
 * | failed    | failed           | all the open | the credit is released; from the first three  |
 * |           |                  |              | also by its caller                             |
 *
 * A job that takes no credit (job-funding.ts) has the same states.
 *
 * A lost attempt leaves the job in running: the contract has no way back from processing to queued.
 * A claim changes lease and fence, never the state, except accepted -> fetching. A job of two URLs
 * is fetching twice: given back with the first stored, it is claimed again for the second.
 */
import type { ErrorCode } from '@matting/proto/contract/errors.ts';

export const OPEN_STATES = ['accepted', 'fetching', 'ready', 'running'] as const;
export const FINAL_STATES = ['succeeded', 'failed'] as const;
export type JobState = (typeof OPEN_STATES | typeof FINAL_STATES)[number];

/**
 * Jobs of this class cost nothing, and are asynchronous ones otherwise (docs/adr/0022). The table,
 * the metrics and the operator's answers have the name of its first use.
 */
export const UNPAID = 'playground' as const;

export const JOB_CLASSES = ['sync', 'async', UNPAID] as const;
export type JobClass = (typeof JOB_CLASSES)[number];

export function isUnpaid(of: { readonly class: JobClass | null }): boolean {
  return of.class === UNPAID;
}

/** Nobody's request waits for an unpaid job. */
export function modeOf(job: Pick<JobStatus, 'class'>): 'sync' | 'async' {
  return job.class === 'sync' ? 'sync' : 'async';
}

export type PublicJobState = 'queued' | 'processing' | 'succeeded' | 'failed' | 'expired';

export interface JobLease {
  readonly holder: string;
  readonly expiresAtMs: number;
}

/** Whose it is, and where it stands: every reader of a job needs it. */
export interface JobStatus {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly state: JobState;
  readonly class: JobClass;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly finishedAtMs: number | null;
  readonly expiresAtMs: number | null;
  /** When the caller deleted the result; null: never. */
  readonly deletedAtMs: number | null;
  /** The database's clock when the row was read: what expiry is judged by. */
  readonly readAtMs: number;
}

/** The queue, its leases and the ledger decide by these. */
export interface QueueJob extends JobStatus {
  /** Host and port of the next download; null: there is none. */
  readonly sourceHost: string | null;
  readonly lease: JobLease | null;
  readonly fence: number;
  /** Admitted attempts that died with their node or one of its processes. */
  readonly lostAttempts: number;
  /** Lost attempts that took a process of the node with them. */
  readonly lostWithProcess: number;
  /** Claims of an expired lease: a control plane died holding it. */
  readonly takeovers: number;
  /** The count of its key's cap that it is in (accounts/keys/key-policy.ts); null: none. */
  readonly capWindowStartMs: number | null;
  /** A package counted an unpaid job in this day. null: it is paid for. */
  readonly unpaidDayMs: number | null;
  /** The group of jobs that it is of, and its position there, from 0; null: of none. */
  readonly group: { readonly id: string; readonly item: number } | null;
}

export interface JobFailure {
  readonly code: ErrorCode;
  readonly detail: string;
  readonly retryable: boolean;
}

export function needsDownload({ state }: Pick<JobStatus, 'state'>): boolean {
  return state === 'accepted' || state === 'fetching';
}

export function isFinal(job: Pick<JobStatus, 'state'>): boolean {
  return job.state === 'succeeded' || job.state === 'failed';
}

/** A deletion counts by itself: a member of a cluster may read an earlier clock than it wrote. */
export function publicState(
  job: Pick<JobStatus, 'state' | 'expiresAtMs' | 'readAtMs' | 'deletedAtMs'>,
): PublicJobState {
  if (!isFinal(job)) return job.state === 'running' ? 'processing' : 'queued';
  if (job.state === 'failed') return 'failed';
  if (job.deletedAtMs !== null) return 'expired';
  return job.expiresAtMs !== null && job.readAtMs >= job.expiresAtMs ? 'expired' : 'succeeded';
}
