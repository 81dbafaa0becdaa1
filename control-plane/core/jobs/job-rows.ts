/** Rows of jobs as the domain's values, and back. The only place that knows both. */
import { createHash } from 'node:crypto';
import type { Selectable } from 'kysely';
import { type ErrorCode, isErrorCode } from '#contract/errors.ts';
import type { Channels, Finishing, Sight } from '#contract/finishing.ts';
import { INPUT_FORMATS, OUTPUT_FORMATS } from '#contract/formats.ts';
import { destinationOf } from '../fetching/outgoing-url.ts';
import type { JobsTable, OutboxTable } from '../tables.ts';
import type {
  Job,
  JobBackground,
  JobCallback,
  JobFailure,
  JobInput,
  JobLease,
  JobResult,
  StageTimings,
} from './job.ts';

/** A row of jobs with the database's clock beside it. */
export type JobRow = Selectable<JobsTable> & { readonly read_at: number };

/** What the outbox says of a job's notification. */
export type NotificationRow = Pick<
  Selectable<OutboxTable>,
  'status' | 'attempts' | 'last_status_code' | 'last_attempt_at' | 'next_attempt_at'
>;

/** @param notification absent: the outbox has no row of this job */
export function jobFromRow(row: JobRow, notification?: NotificationRow): Job {
  return {
    id: row.id,
    accountId: row.account_id,
    apiKeyId: row.api_key_id,
    idempotencyKeyHash: row.idempotency_key_hash,
    fingerprint: row.fingerprint,
    state: row.state,
    class: row.class,
    sourceUrl: imageUrlFromRow(row),
    sourceHost: row.source_host,
    input: inputFromRow(row),
    outputFormat: requireOneOf(OUTPUT_FORMATS, row.output_format),
    ...finishingFromRow(row),
    background: backgroundFromRow(row),
    createdAtMs: row.created_at,
    startedAtMs: row.started_at,
    finishedAtMs: row.finished_at,
    expiresAtMs: row.expires_at,
    lease: leaseFromRow(row),
    fence: row.fence,
    lostAttempts: row.lost_attempts,
    lostWithProcess: row.lost_with_process,
    takeovers: row.takeovers,
    result: resultFromRow(row),
    failure: failureFromRow(row),
    timings: row.timings === null ? null : (JSON.parse(row.timings) as StageTimings),
    callback: callbackFromRows(row, notification),
    capWindowStartMs: row.cap_window_start,
    unpaidDayMs: row.playground_day,
    traceContext: row.trace_context,
    readAtMs: row.read_at,
  };
}

/** Where the image is there and the background is not, source_url is the latter's. */
function imageUrlFromRow(row: JobRow): string | null {
  const isOfBackground = row.input_blob !== null && row.source_url === row.background_url;
  return isOfBackground ? null : row.source_url;
}

/** 128 bits: two hosts with the same hash cannot be found. */
export const SOURCE_HOST_LENGTH = 32;

/** An image_url's host as jobs keep it: hexadecimal, the same for every URL of one host and port. */
export function sourceHostOf(imageUrl: string): string {
  const hash = createHash('sha256').update(destinationOf(imageUrl)).digest('hex');
  return hash.slice(0, SOURCE_HOST_LENGTH);
}

type InputColumns = Pick<
  JobsTable,
  'input_blob' | 'input_bytes' | 'input_format' | 'input_width' | 'input_height'
>;

export function inputFromRow(row: InputColumns): JobInput | null {
  if (row.input_blob === null) return null;
  return {
    blob: row.input_blob,
    bytes: requirePresent(row.input_bytes),
    format: requireOneOf(INPUT_FORMATS, requirePresent(row.input_format)),
    width: row.input_width,
    height: row.input_height,
  };
}

export function inputColumns(input: JobInput | null): InputColumns {
  return {
    input_blob: input?.blob ?? null,
    input_bytes: input?.bytes ?? null,
    input_format: input?.format ?? null,
    input_width: input?.width ?? null,
    input_height: input?.height ?? null,
  };
}

/** The column `finishing`. What is not there is the default. */
export interface StoredFinishing {
  readonly channels?: Channels;
  readonly steps: Finishing;
}

export function finishingFromRow(
  row: Pick<JobsTable, 'finishing'>,
): Pick<Job, 'channels' | 'finishing'> {
  if (row.finishing === null) return { channels: 'rgba', finishing: null };
  const { channels = 'rgba', steps } = JSON.parse(row.finishing) as StoredFinishing;
  return { channels, finishing: steps };
}

export function backgroundFromRow(
  row: Pick<JobsTable, 'background_url' | 'background'>,
): JobBackground | null {
  if (row.background_url === null && row.background === null) return null;
  return { url: row.background_url, input: backgroundInputFromRow(row) };
}

export function backgroundInputFromRow(row: Pick<JobsTable, 'background'>): JobInput | null {
  return row.background === null ? null : (JSON.parse(row.background) as JobInput);
}

export function backgroundColumn(input: JobInput | null): string | null {
  return input && JSON.stringify(input);
}

function leaseFromRow(row: JobRow): JobLease | null {
  if (row.lease_holder === null) return null;
  return { holder: row.lease_holder, expiresAtMs: requirePresent(row.lease_expires_at) };
}

/** null also once the sweeper took the blob: there is nothing left to serve. */
function resultFromRow(row: JobRow): JobResult | null {
  if (row.result_blob === null) return null;
  return {
    blob: row.result_blob,
    token: requirePresent(row.result_token),
    sealedToken: requirePresent(row.result_token_sealed),
    format: requireOneOf(OUTPUT_FORMATS, requirePresent(row.result_format)),
    bytes: requirePresent(row.result_bytes),
    width: requirePresent(row.result_width),
    height: requirePresent(row.result_height),
    sha256: requirePresent(row.result_sha256),
    sight: row.result_sight === null ? null : (JSON.parse(row.result_sight) as Sight),
  };
}

export function resultColumns(result: JobResult) {
  return {
    result_blob: result.blob,
    result_token: result.token,
    result_token_sealed: result.sealedToken,
    result_format: result.format,
    result_bytes: result.bytes,
    result_width: result.width,
    result_height: result.height,
    result_sha256: result.sha256,
    result_sight: result.sight && JSON.stringify(result.sight),
  };
}

function failureFromRow(row: JobRow): JobFailure | null {
  if (row.failure_code === null) return null;
  return {
    code: requireErrorCode(row.failure_code),
    detail: row.failure_detail ?? '',
    retryable: row.failure_retryable === 1,
  };
}

function callbackFromRows(row: JobRow, notification?: NotificationRow): JobCallback | null {
  if (row.callback_url === null) return null;
  return {
    url: row.callback_url,
    status: notification?.status ?? 'pending',
    attempts: notification?.attempts ?? 0,
    lastStatusCode: notification?.last_status_code ?? null,
    lastAttemptAtMs: notification?.last_attempt_at ?? null,
    nextAttemptAtMs: notification?.next_attempt_at ?? null,
  };
}

/**
 * Code points of failure_detail; a longer one is cut, since a failure must never fail on its text.
 */
const FAILURE_DETAIL_LENGTH_MAX = 1_000;

export function failureColumns(failure: JobFailure) {
  const points = [...failure.detail.toWellFormed()];
  return {
    failure_code: failure.code,
    failure_detail: points.slice(0, FAILURE_DETAIL_LENGTH_MAX).join(''),
    failure_retryable: failure.retryable ? 1 : 0,
  };
}

function requirePresent<T>(value: T | null): T {
  if (value === null) throw new Error('a column is null that the schema keeps set');
  return value;
}

export function requireOneOf<T extends string>(known: readonly T[], value: string): T {
  const found = known.find(candidate => candidate === value);
  if (found === undefined) throw new Error(`the database holds an unknown value: ${value}`);
  return found;
}

function requireErrorCode(value: string): ErrorCode {
  if (!isErrorCode(value)) throw new Error(`the database holds an unknown error code: ${value}`);
  return value;
}
