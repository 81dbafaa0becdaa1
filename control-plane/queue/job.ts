/**
 * A job as the queue has it, and its states. The queue does not read the job's payload.
 *
 * | state     | callers see | entered from | by                                                  |
 * |-----------|-------------|--------------|-----------------------------------------------------|
 * | accepted  | queued      | -            | submission of a job that needs a download           |
 * | fetching  | queued      | accepted     | a claim; the download runs under the lease          |
 * | ready     | queued      | fetching, -  | the last input is stored durably                    |
 * | running   | processing  | ready        | a node's Admitted, which sets started_at once       |
 * | succeeded | succeeded   | running      | the result is stored and the credit charged;        |
 * |           |             |              | callers see `expired` from expires_at on            |
 * | failed    | failed      | any open     | the credit is released; the caller can cancel a job |
 * |           |             |              | that is not running                                 |
 *
 * A job without a credit has the same states. A lost attempt leaves the job running, because the
 * contract has no way back from processing to queued. A claim changes lease and fence; of the
 * states it only changes accepted to fetching. After the first of two downloads the replica gives
 * the job back, and a second claim makes the other.
 */
import type { ErrorCode } from '@matting/proto/contract/errors.ts';

export const OPEN_STATES = ['accepted', 'fetching', 'ready', 'running'] as const;
export const QUEUED_STATES = ['accepted', 'fetching', 'ready'] as const;
export const FINAL_STATES = ['succeeded', 'failed'] as const;
export type JobState = (typeof OPEN_STATES | typeof FINAL_STATES)[number];

/**
 * Jobs of this class cost nothing and otherwise run like asynchronous ones (docs/adr/0022). The
 * table, the metrics and the operator's answers keep the name of its first use.
 */
export const UNPAID = 'playground' as const;

export const JOB_CLASSES = ['sync', 'async', UNPAID] as const;
export type JobClass = (typeof JOB_CLASSES)[number];

export function isUnpaid(of: { readonly class: JobClass | null }): boolean {
  return of.class === UNPAID;
}

export function modeOf(job: Pick<JobStatus, 'class'>): 'sync' | 'async' {
  return job.class === 'sync' ? 'sync' : 'async';
}

export type PublicJobState = 'queued' | 'processing' | 'succeeded' | 'failed' | 'expired';

export interface JobLease {
  readonly holder: string;
  readonly expiresAtMs: number;
}

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
  readonly deletedAtMs: number | null;
  /** The database's clock when the row was read. Compare it with the expiry. */
  readonly readAtMs: number;
}

export interface QueueJob extends JobStatus {
  /** Host and port of the next download. */
  readonly sourceHost: string | null;
  readonly lease: JobLease | null;
  readonly fence: number;
  /** Admitted attempts lost with their node or one of its processes. */
  readonly lostAttempts: number;
  /** Lost attempts that took a process of the node with them. */
  readonly lostWithProcess: number;
  /** Claims after a lease expired, because a control plane died. */
  readonly takeovers: number;
  /** Start of the cap window in which the job counts (accounts/keys/key-policy.ts). */
  readonly capWindowStartMs: number | null;
  /** The day in which a package counted an unpaid job. null: the job is paid. */
  readonly unpaidDayMs: number | null;
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

/**
 * A deleted result is expired even if this cluster member's clock is behind the one that deleted
 * it.
 */
export function publicState(
  job: Pick<JobStatus, 'state' | 'expiresAtMs' | 'readAtMs' | 'deletedAtMs'>,
): PublicJobState {
  if (!isFinal(job)) return job.state === 'running' ? 'processing' : 'queued';
  if (job.state === 'failed') return 'failed';
  if (job.deletedAtMs !== null) return 'expired';
  return job.expiresAtMs !== null && job.readAtMs >= job.expiresAtMs ? 'expired' : 'succeeded';
}
