/** Jobs as rows: what the columns mean, how one job is read, and the queue for the dispatcher. */
import { hash } from 'node:crypto';
import { type Database, type Db, query, type Schema } from '@matting/database/database.ts';
import {
  type KeptStatement,
  keepStatement,
  nowPlusMs,
  requireInteger,
  throughIndex,
} from '@matting/database/statements.ts';
import { destinationOf } from '@matting/http/outgoing/outgoing-url.ts';
import { type ErrorCode, isErrorCode } from '@matting/proto/contract/errors.ts';
import type { Channels, Finishing, Sight } from '@matting/proto/contract/finishing.ts';
import { INPUT_FORMATS, OUTPUT_FORMATS } from '@matting/proto/contract/formats.ts';
import {
  type CompiledQuery,
  type InferResult,
  type NotNull,
  type RawBuilder,
  type Selectable,
  sql,
} from 'kysely';
import { type JobLane, type LaneRead, laneKey, laneOf } from '../dispatch/dispatch-core.ts';
import {
  type AccountQueue,
  MEGAPIXELS_MIN,
  QUEUE_MEGAPIXELS_MAX,
  UNFETCHED_MEGAPIXELS,
  UNKNOWN_MEGAPIXELS,
} from '../dispatch/job-needs.ts';
import type { JobsTable, OutboxTable } from '../tables.ts';
import {
  callbackFailureOf,
  type Job,
  type JobBackground,
  type JobCallback,
  type JobClass,
  type JobFailure,
  type JobInput,
  type JobLease,
  type JobModel,
  type JobResult,
  type JobState,
  needsDownload,
  type StageTimings,
  UNPAID_OPEN_MAX,
} from './job.ts';

type JobRow = Selectable<JobsTable> & { readonly read_at: number };

const NOTIFICATION_COLUMNS = [
  'status',
  'attempts',
  'last_status_code',
  'last_error',
  'last_attempt_at',
  'next_attempt_at',
] as const;
type NotificationRow = Pick<Selectable<OutboxTable>, (typeof NOTIFICATION_COLUMNS)[number]>;

/** @param notification absent: the outbox has no row of this job */
function jobFromRow(row: JobRow, notification?: NotificationRow): Job {
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
    model: row.model,
    noSubject: row.no_subject,
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

/** The same for every URL of one host and port: 128 bits in hexadecimal. */
export function sourceHostOf(imageUrl: string): string {
  return hash('sha256', destinationOf(imageUrl), 'hex').slice(0, 32);
}

type InputColumns = Pick<
  JobsTable,
  'input_blob' | 'input_bytes' | 'input_format' | 'input_width' | 'input_height'
>;

function inputFromRow(row: InputColumns): JobInput | null {
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

function finishingFromRow(row: Pick<JobsTable, 'finishing'>): Pick<Job, 'channels' | 'finishing'> {
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

function backgroundInputFromRow(row: Pick<JobsTable, 'background'>): JobInput | null {
  return row.background === null ? null : (JSON.parse(row.background) as JobInput);
}

export function backgroundColumn(input: JobInput | null): string | null {
  return input && JSON.stringify(input);
}

function leaseFromRow(row: JobRow): JobLease | null {
  if (row.lease_holder === null) return null;
  return { holder: row.lease_holder, expiresAtMs: requirePresent(row.lease_expires_at) };
}

/** null also once the sweeper took the blob. */
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
    models: modelsFromRow(row),
    thumbnailBytes: row.result_thumbnail_bytes,
  };
}

function modelsFromRow({ result_models }: Pick<JobsTable, 'result_models'>): JobResult['models'] {
  return result_models === null ? null : (JSON.parse(result_models) as JobModel[]);
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
    lastFailure: callbackFailureOf(notification?.last_error ?? null),
    lastAttemptAtMs: notification?.last_attempt_at ?? null,
    nextAttemptAtMs: notification?.next_attempt_at ?? null,
  };
}

/** Code points; a longer text is cut, since a failure must never fail on its text. */
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

function requireOneOf<T extends string>(known: readonly T[], value: string): T {
  const found = known.find(candidate => candidate === value);
  if (found === undefined) throw new Error(`the database holds an unknown value: ${value}`);
  return found;
}

function requireErrorCode(value: string): ErrorCode {
  if (!isErrorCode(value)) throw new Error(`the database holds an unknown error code: ${value}`);
  return value;
}

/** Of callers: anything else matches nothing, and is not asked for. */
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const TOKEN = /^[A-Za-z0-9_-]{1,64}$/;
const HASH = /^[0-9a-f]{64}$/;

const JOBS = sql<Schema['jobs']>`jobs`;
const JOBS_BY_ANY = { sqlite: JOBS.as<'jobs'>(sql`jobs`), mysql: JOBS.as<'jobs'>(sql`jobs`) };

/** All of a job's columns and `read_at`; `db` is the database or a transaction of it. */
export function selectJobs(database: Database, db: Db, jobs = JOBS_BY_ANY) {
  return db
    .selectFrom(jobs[database.dialect])
    .selectAll()
    .select(() => database.nowMs.as('read_at'));
}

/**
 * Notifications take a statement of their own, since few jobs have one: a join made every read take
 * 1.5 times as long (SQLite, 2 cores of an AMD EPYC).
 */
export async function readJobs(db: Db, asked: Promise<JobRow[]>): Promise<Job[]> {
  const rows = await asked;
  const notified = rows.filter(row => row.callback_url !== null && row.finished_at !== null);
  if (notified.length === 0) return rows.map(row => jobFromRow(row));
  const notifications = await db
    .selectFrom('outbox')
    .select(['id', ...NOTIFICATION_COLUMNS])
    .where(
      'id',
      'in',
      notified.map(row => row.id),
    )
    .execute();
  const byJob = new Map(notifications.map(row => [row.id, row]));
  return rows.map(row => jobFromRow(row, byJob.get(row.id)));
}

const BY_ID = keepStatement<{ jobId: string }, JobRow>((database, { jobId }) =>
  selectJobs(database, database.kysely).where('id', '=', jobId),
);
const BY_ID_AND_KEY = keepStatement<{ jobId: string; apiKeyId: string }, JobRow>(
  (database, { jobId, apiKeyId }) =>
    selectJobs(database, database.kysely)
      .where('id', '=', jobId)
      .where('api_key_id', '=', apiKeyId),
);
const FINAL_BY_ID = keepStatement<{ jobId: string }, JobRow>((database, { jobId }) =>
  selectJobs(database, database.kysely)
    .where('id', '=', jobId)
    .where('finished_at', 'is not', null),
);
const BY_IDEMPOTENCY_KEY = keepStatement<{ apiKeyId: string; hash: string }, JobRow>(
  (database, { apiKeyId, hash }) =>
    selectJobs(database, database.kysely)
      .where('api_key_id', '=', apiKeyId)
      .where('idempotency_key_hash', '=', hash),
);
const BY_RESULT_TOKEN = keepStatement<{ hashed: string }, JobRow>((database, { hashed }) =>
  selectJobs(database, database.kysely).where('result_token', '=', hashed),
);

async function runKept(db: Db, statement: CompiledQuery<JobRow>): Promise<JobRow[]> {
  return (await db.executeQuery(statement)).rows;
}

async function firstJob(db: Db, statement: CompiledQuery<JobRow>): Promise<Job | undefined> {
  return (await readJobs(db, runKept(db, statement)))[0];
}

export async function readJob(database: Database, db: Db, jobId: string): Promise<Job | undefined> {
  return firstJob(db, BY_ID(database, { jobId }));
}

export async function readByIdempotencyKey(
  database: Database,
  db: Db,
  apiKeyId: string,
  hash: string,
): Promise<Job | undefined> {
  return firstJob(db, BY_IDEMPOTENCY_KEY(database, { apiKeyId, hash }));
}

export function jobReading(database: Database) {
  return {
    async find(jobId: string): Promise<Job | undefined> {
      if (!ID.test(jobId)) return undefined;
      return query(database, db => readJob(database, db, jobId));
    },
    async findFinal(jobIds: readonly string[]): Promise<Job[]> {
      const ids = jobIds.filter(id => ID.test(id));
      if (ids.length === 0) return [];
      return query(database, db => {
        const [jobId = ''] = ids;
        if (ids.length === 1) return readJobs(db, runKept(db, FINAL_BY_ID(database, { jobId })));
        const select = selectJobs(database, db).where('id', 'in', ids);
        return readJobs(db, select.where('finished_at', 'is not', null).execute());
      });
    },
    /** Undefined also for another key's job. */
    async findForKey(jobId: string, apiKeyId: string): Promise<Job | undefined> {
      if (!ID.test(jobId)) return undefined;
      return query(database, db => firstJob(db, BY_ID_AND_KEY(database, { jobId, apiKeyId })));
    },
    async findByIdempotencyKey(apiKeyId: string, hash: string): Promise<Job | undefined> {
      if (!HASH.test(hash)) return undefined;
      return query(database, db => readByIdempotencyKey(database, db, apiKeyId, hash));
    },
    /** By the link's token; expired ones too. */
    async findByResultToken(token: string): Promise<Job | undefined> {
      if (!TOKEN.test(token)) return undefined;
      const hashed = hash('sha256', token, 'hex');
      return query(database, db => firstJob(db, BY_RESULT_TOKEN(database, { hashed })));
    },
  };
}

export type ClaimableJob = ReturnType<typeof claimableFromRow>;
export type QueuedWork = Awaited<ReturnType<typeof readQueued>>;

/**
 * The reads of lanes (core/dispatch/dispatch-core.ts) walk jobs_lane_state and touch no final row:
 * which lanes exist is read from the index alone; a lane's head is a seek for each of two states.
 */
export function jobQueue(database: Database) {
  return {
    listLanes: () => readLanes(database),
    /** Without a live lease: the first of each lane, in the queue's order, the playground's last. */
    async listClaimable(limit: number, among?: readonly LaneRead[]): Promise<ClaimableJob[]> {
      const lanes = among ?? (await readLanes(database));
      if (lanes.length === 0) return [];
      const eachMax = Math.max(1, Math.floor(limit / lanes.length));
      const rows: LaneRow[] = [];
      for (let from = 0; from < lanes.length; from += STATEMENT_LANES_MAX) {
        const some = lanes.slice(from, from + STATEMENT_LANES_MAX);
        rows.push(...(await readHeads(database, some, eachMax)));
      }
      const isUnpaid = (row: LaneRow) => Number(row.class === 'playground');
      rows.sort(
        (a, b) => isUnpaid(a) - isUnpaid(b) || a.queue_at - b.queue_at || (a.id < b.id ? -1 : 1),
      );
      return firstOfEach(rows, eachMax).slice(0, limit);
    },
    /** Of the playground, counted up to UNPAID_OPEN_MAX. */
    async openUnpaid(): Promise<number> {
      const row = await query(database, db =>
        db
          .selectFrom(eb =>
            eb
              .selectFrom('jobs')
              .select('id')
              .where('class', '=', 'playground')
              .where('queue_at', '>', 0)
              .limit(sql.lit(UNPAID_OPEN_MAX))
              .as('open'),
          )
          .select(eb => eb.fn.countAll<number>().as('jobs'))
          .executeTakeFirstOrThrow(),
      );
      return requireInteger(row.jobs);
    },
    /** The jobs that wait for a node, or for their download; none of the playground. */
    queued: () => readQueued(database),
    /** Succeeded within the last `windowMs`, by the results' megapixels. */
    async doneWithin(windowMs: number) {
      const row = await query(database, db =>
        db
          .selectFrom('jobs')
          .select(eb => [
            eb.fn.countAll<number>().as('jobs'),
            sql<number | null>`cast(sum(${RESULT_PIXELS}) as signed)`.as('pixels'),
          ])
          .where('finished_at', '>', nowPlusMs(database.nowMs, -windowMs))
          .where('state', '=', 'succeeded')
          .executeTakeFirstOrThrow(),
      );
      const megapixels = requireInteger(row.pixels) / PIXELS_PER_MEGAPIXEL;
      return { jobs: requireInteger(row.jobs), megapixels };
    },
  };
}

/** SQLite takes 500 parts of a union, and a lane has two. */
const STATEMENT_LANES_MAX = 64;

const DOWNLOAD_STATES = ['accepted', 'fetching'] as const;
const STORED_STATES = ['ready', 'running'] as const;

type LaneRow = InferResult<ReturnType<typeof selectFirst>>[number];

const JOBS_BY_LANE = throughIndex('jobs', 'jobs_lane_state');

const LANES = keepStatement(({ kysely, nowMs }) =>
  kysely
    .selectFrom('jobs')
    .select(['state', 'account_id', 'api_key_id', 'class'])
    .select(eb => [eb.fn.min<number>('queue_at').as('first'), nowMs.as('read_at')])
    .where('state', 'in', [...DOWNLOAD_STATES, ...STORED_STATES])
    .groupBy(['state', 'account_id', 'api_key_id', 'class']),
);

async function readLanes(database: Database): Promise<JobLane[]> {
  const { rows } = await query(database, db => db.executeQuery(LANES(database, {})));
  const lanes = new Map<string, JobLane>();
  for (const row of rows) {
    const lane: JobLane = {
      needsDownload: needsDownload(row),
      class: row.class,
      accountId: row.account_id,
      apiKeyId: row.api_key_id,
      firstQueueAtMs: row.first,
      readAtMs: row.read_at,
    };
    // The two states of a lane are one.
    const known = lanes.get(laneKey(lane));
    if (known === undefined || lane.firstQueueAtMs < known.firstQueueAtMs) {
      lanes.set(laneKey(lane), lane);
    }
  }
  return [...lanes.values()];
}

async function readHeads(database: Database, lanes: readonly LaneRead[], eachMax: number) {
  const statement = lanes.some(
    ({ exceptHosts = [], namesNone }) => namesNone || exceptHosts.length > 0,
  )
    ? selectHeads(database, lanes, eachMax).compile()
    : headsOf(lanes, eachMax)(database, valuesOf(lanes));
  return query(database, async db => (await db.executeQuery(statement)).rows);
}

type LaneValues = Readonly<Record<string, string>>;
type HeadsStatement = KeptStatement<LaneValues, LaneRow>;

const HEADS = new Map<string, HeadsStatement>();
const HEADS_MAX = 64;

function headsOf(lanes: readonly LaneRead[], eachMax: number): HeadsStatement {
  const kinds = lanes.map(({ needsDownload }) => (needsDownload ? 'to download' : 'stored'));
  const shape = `${eachMax} of ${kinds.join()}`;
  const known = HEADS.get(shape);
  if (known !== undefined) return known;
  if (HEADS.size >= HEADS_MAX) HEADS.clear();
  const statement: HeadsStatement = keepStatement((database, values) => {
    const placed = lanes.map((lane, index) => ({
      ...lane,
      accountId: values[`account${index}`] as string,
      apiKeyId: values[`key${index}`] as string,
      class: values[`class${index}`] as JobClass,
    }));
    return selectHeads(database, placed, eachMax);
  });
  HEADS.set(shape, statement);
  return statement;
}

function valuesOf(lanes: readonly LaneRead[]): LaneValues {
  return Object.fromEntries(
    lanes.flatMap((lane, index) => [
      [`account${index}`, lane.accountId],
      [`key${index}`, lane.apiKeyId],
      [`class${index}`, lane.class],
    ]),
  );
}

function selectHeads(database: Database, lanes: readonly LaneRead[], eachMax: number) {
  const heads = lanes.flatMap(lane => {
    const states = lane.needsDownload ? DOWNLOAD_STATES : STORED_STATES;
    return states.map(state => selectFirst(database, lane, state, eachMax));
  });
  return heads.reduce((union, next) => union.unionAll(next));
}

/** In a table of its own: SQLite takes no order and limit in a part of a union. */
function selectFirst(
  { kysely, nowMs, dialect }: Database,
  lane: LaneRead,
  state: JobState,
  limit: number,
) {
  let jobs = kysely
    .selectFrom(JOBS_BY_LANE[dialect])
    .select(['id', 'fence', 'state', 'class', 'account_id', 'api_key_id', 'queue_at', 'created_at'])
    .select(['started_at', 'source_host', 'input_blob', 'input_bytes', 'input_format'])
    .select(['input_width', 'input_height', 'output_format', 'finishing', 'background', 'model'])
    .select(['lease_holder', 'takeovers', nowMs.as('read_at')])
    .where('state', '=', state)
    .where('account_id', '=', lane.accountId)
    .where('api_key_id', '=', lane.apiKeyId)
    .where('class', '=', lane.class)
    .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]));
  const hosts = lane.exceptHosts ?? [];
  if (hosts.length > 0) jobs = jobs.where('source_host', 'not in', [...hosts]);
  if (lane.namesNone) jobs = jobs.where('model', 'is', null);
  const first = jobs.orderBy('queue_at').orderBy('id').limit(sql.lit(limit));
  return kysely.selectFrom(first.as('lane')).selectAll().$narrowType<{ queue_at: NotNull }>();
}

function firstOfEach(rows: readonly LaneRow[], eachMax: number): ClaimableJob[] {
  const counts = new Map<string, number>();
  return rows.flatMap(row => {
    const job = claimableFromRow(row);
    const key = laneKey(laneOf(job));
    const count = (counts.get(key) ?? 0) + 1;
    counts.set(key, count);
    return count > eachMax ? [] : [job];
  });
}

function claimableFromRow(row: LaneRow) {
  return {
    id: row.id,
    fence: row.fence,
    state: row.state as 'accepted' | 'fetching' | 'ready' | 'running',
    class: row.class,
    accountId: row.account_id,
    apiKeyId: row.api_key_id,
    createdAtMs: row.created_at,
    startedAtMs: row.started_at,
    input: inputFromRow(row),
    sourceHost: row.source_host,
    outputFormat: requireOneOf(OUTPUT_FORMATS, row.output_format),
    model: row.model,
    ...finishingFromRow(row),
    background: { input: backgroundInputFromRow(row) } as Pick<JobBackground, 'input'> | null,
    /** Its lease ran out rather than being free: claiming it is a take-over. */
    leaseExpired: row.lease_holder !== null,
    takeovers: row.takeovers,
    readAtMs: row.read_at,
  };
}

const PIXELS_PER_MEGAPIXEL = 1_000_000;

/** Open jobs that are counted: what the queue holds by default, twice, in the smallest jobs. */
const OPEN_COUNTED_MAX = (2 * QUEUE_MEGAPIXELS_MAX) / MEGAPIXELS_MIN;

const UNFETCHED = sql`case when input_blob is null then 1 else 0 end`;

function atLeast(leastMegapixels: number, pixels: RawBuilder<unknown>): RawBuilder<unknown> {
  const least = sql.lit(leastMegapixels * PIXELS_PER_MEGAPIXEL);
  return sql`case when ${pixels} > ${least} then ${pixels} else ${least} end`;
}

const INPUT_PIXELS = sql`input_width * input_height`;
/** What a queued job counts: core/dispatch/job-needs.ts, `queuedMegapixels`. */
const QUEUED_PIXELS = sql`case
  when input_blob is null then ${atLeast(UNFETCHED_MEGAPIXELS, sql`frame_pixels`)}
  when input_width is null or input_height is null
    then ${sql.lit(UNKNOWN_MEGAPIXELS * PIXELS_PER_MEGAPIXEL)}
  when frame_pixels > ${INPUT_PIXELS} then ${atLeast(MEGAPIXELS_MIN, sql`frame_pixels`)}
  else ${atLeast(MEGAPIXELS_MIN, INPUT_PIXELS)} end`;

const RESULT_PIXELS = atLeast(MEGAPIXELS_MIN, sql`result_width * result_height`);

const JOBS_BY_CLASS = throughIndex('jobs', 'jobs_queue');

/** In a table of their own: grouped at once, SQLite would walk an index with all final jobs. */
async function readQueued(database: Database) {
  const open = database.kysely
    .selectFrom(JOBS_BY_CLASS[database.dialect])
    .select(['account_id', 'created_at', 'input_blob'])
    .select(['input_width', 'input_height', 'frame_pixels'])
    // The playground's have a bound of their own, and take nobody's share.
    .where('class', 'in', ['sync', 'async'])
    .where('queue_at', '>', 0)
    // A running job without a lease lost its attempt: it waits for a node like the others.
    .where(eb => eb.or([eb('state', '<>', 'running'), eb('lease_holder', 'is', null)]))
    .orderBy('class')
    .orderBy('queue_at')
    .limit(OPEN_COUNTED_MAX);
  const rows = await query(database, db =>
    db
      .selectFrom(open.as('open'))
      .select('account_id')
      .select(eb => [
        eb.fn.countAll<number>().as('jobs'),
        sql<number>`max(${database.nowMs} - created_at)`.as('oldest_age'),
        sql<number>`cast(sum(${QUEUED_PIXELS}) as signed)`.as('pixels'),
        sql<number>`cast(sum(${UNFETCHED}) as signed)`.as('unfetched'),
      ])
      .groupBy('account_id')
      .execute(),
  );
  /** By account id; those that have nothing queued are not in it. */
  const byAccount: ReadonlyMap<string, AccountQueue> = new Map(
    rows.map(row => [
      row.account_id,
      {
        jobs: requireInteger(row.jobs),
        megapixels: requireInteger(row.pixels) / PIXELS_PER_MEGAPIXEL,
        unfetched: requireInteger(row.unfetched),
      },
    ]),
  );
  const total = { jobs: 0, megapixels: 0 };
  for (const { jobs, megapixels } of byAccount.values()) {
    total.jobs += jobs;
    total.megapixels += megapixels;
  }
  const oldestAgeMs = Math.max(0, ...rows.map(row => row.oldest_age));
  return { ...total, oldestAgeMs, byAccount };
}
