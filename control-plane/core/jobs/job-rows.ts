import { hash } from 'node:crypto';
import type { Database, Db, Schema } from '@matting/database/database.ts';
import { destinationOf } from '@matting/http/outgoing/outgoing-url.ts';
import type { UsedModel } from '@matting/nodes/attempt-outcome.ts';
import { type ErrorCode, isErrorCode } from '@matting/proto/contract/errors.ts';
import type { Channels, Finishing, Sight } from '@matting/proto/contract/finishing.ts';
import { INPUT_FORMATS, OUTPUT_FORMATS } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import type { JobFailure } from '@matting/queue/job.ts';
import { groupFromRow, queueFieldsFromRow, statusFromRow } from '@matting/queue/job-rows.ts';
import { type Selectable, sql } from 'kysely';
import type { Job, ViewedJob } from './job.ts';
import { callbackFailureOf, type JobCallback } from './job-callback.ts';
import type { CropRun, JobCorrection, JobKept, StoredMatte } from './job-family.ts';
import type { JobResult, StageTimings } from './job-outcome.ts';
import type { JobBackground, JobInput, JobRequest } from './job-request.ts';

type JobsTable = Schema['jobs'];
export type JobRow = Selectable<JobsTable> & { readonly read_at: number };

const NOTIFICATION_COLUMNS = [
  'status',
  'attempts',
  'last_status_code',
  'last_error',
  'last_attempt_at',
  'next_attempt_at',
] as const;
type NotificationRow = Pick<Selectable<Schema['outbox']>, (typeof NOTIFICATION_COLUMNS)[number]>;

/** For lists of up to a thousand rows: without inputs, requests and leases. */
const VIEWED_COLUMNS = [
  ...['id', 'account_id', 'api_key_id', 'state', 'class', 'created_at', 'started_at'],
  ...['finished_at', 'expires_at', 'deleted_at', 'reference', 'corrects', 'batch_id'],
  ...['batch_item', 'look_until', 'timings', 'callback_url', 'failure_code', 'failure_detail'],
  ...['failure_retryable', 'result_blob', 'result_token', 'result_token_sealed'],
  ...['result_format', 'result_bytes', 'result_width', 'result_height', 'result_sha256'],
  ...['result_sight', 'result_models', 'result_thumbnail_bytes'],
] as const;
type ViewedRow = Pick<JobRow, (typeof VIEWED_COLUMNS)[number] | 'read_at'>;

function viewedFromRow(row: ViewedRow, notification?: NotificationRow): ViewedJob {
  return {
    ...statusFromRow(row),
    reference: row.reference,
    correction: row.corrects === null ? null : { of: row.corrects },
    group: groupFromRow(row),
    result: resultFromRow(row),
    resultModels: modelsFromRow(row),
    lookUntilMs: row.look_until,
    failure: failureFromRow(row),
    timings: timingsFromRow(row),
    callback: callbackFromRows(row, notification),
  };
}

function jobFromRow(row: JobRow, notification?: NotificationRow): Job {
  return {
    ...viewedFromRow(row, notification),
    ...queueFieldsFromRow(row),
    idempotencyKeyHash: row.idempotency_key_hash,
    fingerprint: row.fingerprint,
    sourceUrl: imageUrlFromRow(row),
    input: inputFromRow(row),
    outputFormat: requireOneOf(OUTPUT_FORMATS, row.output_format),
    model: row.model,
    noSubject: row.no_subject,
    ...finishingFromRow(row),
    background: backgroundFromRow(row),
    hints: jsonFrom<Hints>(row.hints),
    hintsFile: jsonFrom<JobInput>(row.hints_file),
    correctable: jsonFrom<Record<string, string>>(row.correctable),
    correction: correctionFromRow(row),
    kept: keptFromRow(row),
    corrections: row.corrections,
    traceContext: row.trace_context,
  };
}

export function jsonFrom<T>(json: string | null): T | null {
  return json === null ? null : (JSON.parse(json) as T);
}

function correctionFromRow(row: JobRow): JobCorrection | null {
  if (row.corrects === null) return null;
  const first = requirePresent(row.family);
  return { of: row.corrects, first, ...baseFromRow(row) };
}

export function baseFromRow(
  row: Pick<JobsTable, 'base_matte'>,
): Pick<JobCorrection, 'matte' | 'cropRun'> {
  const base = jsonFrom<StoredMatte & { readonly cropRun?: CropRun }>(row.base_matte);
  if (base === null) return { matte: null };
  const { cropRun, ...matte } = base;
  return { matte, ...(cropRun && { cropRun }) };
}

type KeptColumns = Pick<JobsTable, 'kept_until' | 'kept_input' | 'kept_matte'>;

export function keptFromRow(row: KeptColumns): JobKept | null {
  if (row.kept_until === null) return null;
  const matte = JSON.parse(requirePresent(row.kept_matte)) as StoredMatte;
  return { input: jsonFrom<JobInput>(row.kept_input), matte, untilMs: row.kept_until };
}

/** If only the background must be downloaded, source_url is the background's. */
function imageUrlFromRow(row: JobRow): string | null {
  const isOfBackground = row.input_blob !== null && row.source_url === row.background_url;
  return isOfBackground ? null : row.source_url;
}

/** 128 bits in hexadecimal, the same for all URLs of a host and port. */
export function sourceHostOf(imageUrl: string): string {
  return hash('sha256', destinationOf(imageUrl), 'hex').slice(0, 32);
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

export interface StoredFinishing {
  /** Absent: rgba. */
  readonly channels?: Channels;
  readonly steps: Finishing;
}

export function finishingFromRow(
  row: Pick<JobsTable, 'finishing'>,
): Pick<JobRequest, 'channels' | 'finishing'> {
  if (row.finishing === null) return { channels: 'rgba', finishing: null };
  const { channels = 'rgba', steps } = JSON.parse(row.finishing) as StoredFinishing;
  return { channels, finishing: steps };
}

export function backgroundFromRow(
  row: Pick<JobsTable, 'background_url' | 'background'>,
): JobBackground | null {
  if (row.background_url === null && row.background === null) return null;
  return { url: row.background_url, input: jsonFrom<JobInput>(row.background) };
}

export function inputColumn(input: JobInput | null): string | null {
  return input && JSON.stringify(input);
}

function resultFromRow(row: ViewedRow): JobResult | null {
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
    sight: sightFromRow(row),
    models: modelsFromRow(row),
    thumbnailBytes: row.result_thumbnail_bytes,
  };
}

/* Release 0.3.0 stored null if a node sent NaN or infinity. */

function timingsFromRow({ timings }: ViewedRow): StageTimings | null {
  const times = Object.entries(jsonFrom<StageTimings>(timings) ?? {});
  const finite = times.filter(([, ms]) => Number.isFinite(ms));
  return timings === null ? null : Object.fromEntries(finite);
}

function sightFromRow({ result_sight }: ViewedRow): Sight | null {
  const sight = jsonFrom<Sight>(result_sight);
  return sight?.subject && !Number.isFinite(sight.subject.share) ? null : sight;
}

function modelsFromRow({ result_models }: ViewedRow): JobResult['models'] {
  return jsonFrom<UsedModel[]>(result_models);
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
    result_models: result.models && JSON.stringify(result.models),
    result_thumbnail_bytes: result.thumbnailBytes,
  };
}

function failureFromRow(row: ViewedRow): JobFailure | null {
  if (row.failure_code === null) return null;
  return {
    code: requireErrorCode(row.failure_code),
    detail: row.failure_detail ?? '',
    retryable: row.failure_retryable === 1,
  };
}

function callbackFromRows(row: ViewedRow, notification?: NotificationRow): JobCallback | null {
  if (row.callback_url === null) return null;
  return {
    url: row.callback_url,
    status: notification?.status ?? 'pending',
    attempts: notification?.attempts ?? 0,
    lastStatusCode: notification?.last_status_code ?? null,
    lastFailure: callbackFailureOf(notification?.last_error ?? null),
    lastAttemptAtMs: notification?.last_attempt_at ?? null,
    nextAttemptAtMs: notification?.next_attempt_at ?? null,
  };
}

/** In code points. A longer text is cut. */
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

export function requireOneOf<T extends string>(values: readonly T[], value: string): T {
  const found = values.find(candidate => candidate === value);
  if (found === undefined) throw new Error(`the database holds an unknown value: ${value}`);
  return found;
}

function requireErrorCode(value: string): ErrorCode {
  if (!isErrorCode(value)) throw new Error(`the database holds an unknown error code: ${value}`);
  return value;
}

const JOBS = sql<Schema['jobs']>`${sql.table('jobs')}`.as<'jobs'>('jobs');
const JOBS_BY_ANY = { sqlite: JOBS, mysql: JOBS };

export function selectJobs(database: Database, db: Db, jobs = JOBS_BY_ANY) {
  return db
    .selectFrom(jobs[database.dialect])
    .selectAll()
    .select(() => database.nowMs.as('read_at'));
}

export function selectViewed(database: Database, db: Db, jobs = JOBS_BY_ANY) {
  return db
    .selectFrom(jobs[database.dialect])
    .select(VIEWED_COLUMNS)
    .select(() => database.nowMs.as('read_at'));
}

export async function readJobs(db: Db, rows: Promise<JobRow[]>): Promise<Job[]> {
  return readRows(db, await rows, jobFromRow);
}

export async function readViewed(db: Db, rows: Promise<ViewedRow[]>): Promise<ViewedJob[]> {
  return readRows(db, await rows, viewedFromRow);
}

/**
 * Reads notifications by a second statement, since few jobs have one: a join made every read take
 * 1.5 times as long (SQLite, 2 cores of an AMD EPYC).
 */
async function readRows<Row extends ViewedRow, Read>(
  db: Db,
  rows: readonly Row[],
  read: (row: Row, notification?: NotificationRow) => Read,
): Promise<Read[]> {
  const notified = rows.filter(row => row.callback_url !== null && row.finished_at !== null);
  if (notified.length === 0) return rows.map(row => read(row));
  const ids = notified.map(row => row.id);
  const notifications = await db
    .selectFrom('outbox')
    .select(['id', ...NOTIFICATION_COLUMNS])
    .where('id', 'in', ids)
    .execute();
  const byJob = new Map(notifications.map(row => [row.id, row]));
  return rows.map(row => read(row, byJob.get(row.id)));
}
