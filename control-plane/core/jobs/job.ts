/**
 * A job, its states and its lease. Pure.
 *
 * | state     | what callers see | entered from | by                                             |
 * |-----------|------------------|--------------|------------------------------------------------|
 * | accepted  | queued           | -            | submission of a URL, of the background too     |
 * | fetching  | queued           | accepted     | a claim; the download runs under the lease     |
 * | ready     | queued           | fetching, -  | input and background are stored durably        |
 * | running   | processing       | ready        | a node's Admitted; sets started_at once        |
 * | succeeded | succeeded, from expires_at on expired | running | the result is stored, the credit charged |
 * | failed    | failed           | all the open | the credit is released; from the first three  |
 * |           |                  |              | also by its caller (job-deletion.ts)           |
 *
 * An unpaid job has the same states and no credit (docs/adr/0022), and so has one that corrects
 * another (docs/adr/0052).
 *
 * A lost attempt leaves the job in running: the contract has no way back from processing to queued.
 * A claim changes lease and fence, never the state, except accepted -> fetching. A job of two URLs
 * is fetching twice: given back with its input stored, it is claimed again for its background.
 */
import { POST_FAILURES } from '@matting/http/outgoing/guarded-post.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { Channels, Finishing, Sight, Size } from '@matting/proto/contract/finishing.ts';
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';

export const OPEN_STATES = ['accepted', 'fetching', 'ready', 'running'] as const;
export const FINAL_STATES = ['succeeded', 'failed'] as const;
export type JobState = (typeof OPEN_STATES | typeof FINAL_STATES)[number];

/**
 * Nobody pays for the jobs of this class (docs/adr/0022). The table, the metrics and the operator's
 * answers have the name of its first use.
 */
export const UNPAID = 'playground' as const;

/** The classes stand in the order of their turns. */
export const JOB_CLASSES = ['sync', 'async', UNPAID] as const;
export type JobClass = (typeof JOB_CLASSES)[number];

export function isUnpaid(of: { readonly class: JobClass }): boolean {
  return of.class === UNPAID;
}

/** The job has no credit: nobody pays for its class, or it corrects another (docs/adr/0052). */
export function isFree(job: Pick<Job, 'unpaidDayMs' | 'correction'>): boolean {
  return job.unpaidDayMs !== null || job.correction !== null;
}

/** Nobody's request waits for an unpaid job. */
export function modeOf(job: Pick<Job, 'class'>): 'sync' | 'async' {
  return job.class === 'sync' ? 'sync' : 'async';
}

export type PublicJobState = 'queued' | 'processing' | 'succeeded' | 'failed' | 'expired';

export interface JobInput {
  readonly blob: string;
  readonly bytes: number;
  readonly format: InputFormat;
  /** The width is as stored in the file; it is null if the header does not show it. */
  readonly width: number | null;
  readonly height: number | null;
}

export interface JobBackground {
  /** null for an upload, and once the job is final. */
  readonly url: string | null;
  /** null until it is stored, and again once the job is final. */
  readonly input: JobInput | null;
}

/** The matte that a node made, as it came: a later job begins with it in place of a model's. */
export interface StoredMatte {
  readonly blob: string;
  readonly bytes: number;
}

/** The job corrects another one; the first is the job whose input all its corrections share. */
export interface JobCorrection {
  readonly of: string;
  readonly first: string;
  /** null once the job is final. */
  readonly matte: StoredMatte | null;
}

/** A job keeps these for its corrections as long as the first one's result lives. */
export interface JobKept {
  /** null: the first of the family has it. */
  readonly input: JobInput | null;
  readonly matte: StoredMatte;
  readonly untilMs: number;
}

/** Corrections of a first job and of its corrections. */
export const CORRECTIONS_MAX = 20;

export interface JobResult {
  readonly blob: string;
  /** SHA-256 of the link's unguessable part. */
  readonly token: string;
  readonly sealedToken: string;
  readonly format: OutputFormat;
  readonly bytes: number;
  readonly width: number;
  readonly height: number;
  /** Hexadecimal; the link's ETag. */
  readonly sha256: string;
  readonly sight: Sight | null;
  /** null: a version before this field made the result. */
  readonly models: readonly JobModel[] | null;
  /** null: there is none. */
  readonly thumbnailBytes: number | null;
}

/** The model took part in making a result. */
export interface JobModel {
  readonly name: string;
  /** The role is the model's in its plan: subject, opinion, second_look, refine. */
  readonly role: string;
}

export interface JobFailure {
  readonly code: ErrorCode;
  readonly detail: string;
  readonly retryable: boolean;
}

export interface JobLease {
  readonly holder: string;
  readonly expiresAtMs: number;
}

/** Proof of a claim: no write under it changes a job whose fence has moved on. */
export interface Claim {
  readonly jobId: string;
  readonly holder: string;
  readonly fence: number;
}

/** pending also while the job is open, and until the delivery ends in one of the others. */
export type CallbackStatus = 'pending' | 'delivered' | 'failed';

/**
 * Why an attempt did not deliver: no answer came (PostFailure), it was a redirect, a 410 or another
 * status, or nothing here can sign it.
 */
const CALLBACK_FAILURES = [...POST_FAILURES, 'redirect', 'gone', 'status', 'unsignable'] as const;
export type CallbackFailure = (typeof CALLBACK_FAILURES)[number];

/** A word of another version is not one of the list that callers know. */
export function callbackFailureOf(lastError: string | null): CallbackFailure | null {
  return CALLBACK_FAILURES.find(known => known === lastError) ?? null;
}

export interface JobCallback {
  readonly url: string;
  readonly status: CallbackStatus;
  readonly attempts: number;
  /** Null if the last attempt met no answer. */
  readonly lastStatusCode: number | null;
  /** Null if the last attempt delivered it, or none was made. */
  readonly lastFailure: CallbackFailure | null;
  readonly lastAttemptAtMs: number | null;
  /** Set from the job's end on while the notification is pending. */
  readonly nextAttemptAtMs: number | null;
}

/** Milliseconds of each stage, for people and for Server-Timing. */
export type StageTimings = Readonly<Record<string, number>>;

export interface Job {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  /** SHA-256, hexadecimal; null once a retryable failure freed the key. */
  readonly idempotencyKeyHash: string | null;
  readonly fingerprint: string;
  readonly state: JobState;
  readonly class: JobClass;
  /** null for Base64 and once the job is final. */
  readonly sourceUrl: string | null;
  /** Host and port of the next download; null: there is none. */
  readonly sourceHost: string | null;
  /** null until it is stored, and again once the job is final. */
  readonly input: JobInput | null;
  readonly outputFormat: OutputFormat;
  /** The plan or model that the request named; null: none. */
  readonly model: string | null;
  /** If no subject is seen, `fail` makes it fail with NO_SUBJECT; null: it has a result. */
  readonly noSubject: 'fail' | null;
  readonly channels: Channels;
  /** null: a plain cut-out. Empty where the format or `channels` alone is another. */
  readonly finishing: Finishing | null;
  /** Null if `finishing` has no background picture, and once the job is final. */
  readonly background: JobBackground | null;
  /** null: the request says nothing of the subject; and once the job is final. */
  readonly hints: Hints | null;
  /** The file of hints that are a picture; null as above. */
  readonly hintsFile: JobInput | null;
  readonly createdAtMs: number;
  readonly startedAtMs: number | null;
  readonly finishedAtMs: number | null;
  readonly expiresAtMs: number | null;
  readonly lease: JobLease | null;
  readonly fence: number;
  /** Admitted attempts that died with their node, engine or picture worker. */
  readonly lostAttempts: number;
  /** Lost attempts that took an engine or a picture worker with them. */
  readonly lostWithProcess: number;
  /** Claims of an expired lease: a control plane died holding it. */
  readonly takeovers: number;
  readonly result: JobResult | null;
  /** Models that made the result. Kept after the result expires. */
  readonly resultModels: JobResult['models'];
  readonly failure: JobFailure | null;
  readonly timings: StageTimings | null;
  readonly callback: JobCallback | null;
  /** The count of its key's cap that it is in (core/keys/key-policy.ts); null: none. */
  readonly capWindowStartMs: number | null;
  /** The caller's own name for it, NFC; null: none, or its caller deleted it. */
  readonly reference: string | null;
  /** When the caller deleted the result; null: never. */
  readonly deletedAtMs: number | null;
  /** An unpaid job counts in the allowance of this day. null: it is paid for. */
  readonly unpaidDayMs: number | null;
  /** Texts of finishing fields that its corrections take over; null: it takes no corrections. */
  readonly correctable: Readonly<Record<string, string>> | null;
  /** null: it corrects none. */
  readonly correction: JobCorrection | null;
  /** null: nothing is kept. */
  readonly kept: JobKept | null;
  /** So many corrections were made of it and of its corrections. */
  readonly corrections: number;
  /** Position in a batch, from 0; null: the job is no item. */
  readonly batch: { readonly id: string; readonly item: number } | null;
  /** The trace of its submission (program/tracing/active-span.ts); null: none. */
  readonly traceContext: string | null;
  /** The database's clock when the row was read: what expiry is judged by. */
  readonly readAtMs: number;
}

export function needsDownload({ state }: Pick<Job, 'state'>): boolean {
  return state === 'accepted' || state === 'fetching';
}

/** @param fence of the claim that downloaded it; absent for an upload */
export function backgroundBlob(jobId: string, fence?: number): string {
  return `backgrounds/${jobId}${fence === undefined ? '' : `-${fence}`}`;
}

/** A file of hints lies beside the backgrounds. */
export function hintsBlob(jobId: string): string {
  return `backgrounds/${jobId}-hints`;
}

/** The job that such a blob is of; undefined for any other name. */
export function jobOfBackground(blob: string): string | undefined {
  const named = /^backgrounds\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\d+|-hints)?$/;
  return named.exec(blob)?.[1];
}

/** Names the matte of an attempt beside its result. */
export function matteBlob(resultBlob: string): string {
  return `${resultBlob}-matte`;
}

/** The job that such an input or matte is of; undefined for any other name. */
export function jobOfKept(blob: string): string | undefined {
  const id = '([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})';
  return new RegExp(`^(?:inputs/${id}(?:-\\d+)?|results/${id}-\\d+-matte)$`)
    .exec(blob)
    ?.slice(1)
    .find(found => found !== undefined);
}

const THUMBNAIL_SUFFIX = '-thumbnail';

/** Names it beside the result: the code that lists or erases results knows its name by theirs. */
export function thumbnailBlob(resultBlob: string): string {
  return `${resultBlob}${THUMBNAIL_SUFFIX}`;
}

/** The result that such a blob is of; any other name is its own. */
export function resultOfThumbnail(blob: string): string {
  return blob.endsWith(THUMBNAIL_SUFFIX) ? blob.slice(0, -THUMBNAIL_SUFFIX.length) : blob;
}

export function isFinal(job: Pick<Job, 'state'>): boolean {
  return job.state === 'succeeded' || job.state === 'failed';
}

/** A deletion counts by itself: a member of a cluster may read an earlier clock than it wrote. */
export function publicState(
  job: Pick<Job, 'state' | 'expiresAtMs' | 'readAtMs' | 'deletedAtMs'>,
): PublicJobState {
  if (!isFinal(job)) return job.state === 'running' ? 'processing' : 'queued';
  if (job.state === 'failed') return 'failed';
  if (job.deletedAtMs !== null) return 'expired';
  return job.expiresAtMs !== null && job.readAtMs >= job.expiresAtMs ? 'expired' : 'succeeded';
}

/*
 * How long a lease lasts, and which failure, if any, a job must end with now.
 *
 * | event                | lease                  | fence | counts                               |
 * |----------------------|------------------------|-------|--------------------------------------|
 * | claim of a free job  | holder, now + LEASE_MS | + 1   |                                      |
 * | claim, lease run out | holder, now + LEASE_MS | + 1   | takeovers + 1                        |
 * | renew                | now + LEASE_MS         |       |                                      |
 * | release (refused)    | none                   |       |                                      |
 * | the operator's retry | none                   |       |                                      |
 * | attempt lost         | none                   |       | lost_attempts + 1; with an engine or |
 * |                      |                        |       | worker lost_with_process + 1 too     |
 * | succeed, fail        | none, for good         |       |                                      |
 *
 * Holder and fence decide, not the lease's expiry: a late holder that was not replaced may still
 * renew and finish; once another replica claimed the job, its fence has moved.
 */

/** A claim's length, and so how late a holder that died is replaced. */
export const LEASE_MS = 15_000;
/** Three renewals fit into a lease, so that two may fail. */
const LEASE_RENEW_MS = 5_000;

/** Tests that wait for one to run out take shorter ones. */
export type LeaseTiming = typeof LEASE_TIMING;
export const LEASE_TIMING = { leaseMs: LEASE_MS, renewMs: LEASE_RENEW_MS };

/** Admitted attempts lost with their node, engine or picture worker; this many end the job. */
const LOST_ATTEMPTS_MAX = 3;
/** Lost attempts that took an engine or a worker with them; this many end the job for good. */
const LOST_WITH_PROCESS_MAX = 2;
/** Control planes that died holding the job; this many end it. */
const TAKEOVERS_MAX = 10;

/** The time runs from the submission to the first admission by a node. */
const FIRST_ADMISSION_MS_MAX = 3_600_000;
export const JOB_MS_MAX = 7_200_000;

type CountedJob = Pick<Job, 'state' | 'createdAtMs' | 'startedAtMs' | 'readAtMs'> &
  Pick<Job, 'lostAttempts' | 'lostWithProcess' | 'takeovers'>;

/** The verdict about the image comes first: no passed deadline may make it retryable. */
export function failureDue(job: CountedJob): JobFailure | undefined {
  if (isFinal(job)) return undefined;
  if (job.lostWithProcess >= LOST_WITH_PROCESS_MAX) {
    return processingFailed('A worker process died twice while it processed this image.', false);
  }
  if (job.lostAttempts >= LOST_ATTEMPTS_MAX) {
    return processingFailed('Every attempt was lost with its inference node.', true);
  }
  if (job.takeovers >= TAKEOVERS_MAX) {
    return processingFailed(
      'The service was interrupted too often while it processed the image.',
      true,
    );
  }
  const ageMs = job.readAtMs - job.createdAtMs;
  if (job.startedAtMs === null && ageMs >= FIRST_ADMISSION_MS_MAX) {
    return processingFailed('No inference node took the image within an hour.', true);
  }
  if (ageMs >= JOB_MS_MAX) {
    return processingFailed('The service did not finish the image within two hours.', true);
  }
  return undefined;
}

function processingFailed(detail: string, retryable: boolean): JobFailure {
  return { code: 'PROCESSING_FAILED', detail, retryable };
}

/** ISO 8601 UTC, as every interface writes instants; null stays null. */
export function isoTime(ms: number): string;
export function isoTime(ms: number | null): string | null;
export function isoTime(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

export function sizeOf({ width, height }: Pick<JobInput, 'width' | 'height'>): Size | undefined {
  return width === null || height === null ? undefined : { width, height };
}
