/**
 * The queue: its lanes, the heads of some of them, and what waits in it.
 *
 * A lane is the open jobs of one API key and class, those that have their image apart from those
 * whose image is to be downloaded. A listing takes the first few of each lane, so that no number of
 * jobs in one lane hides another; core/dispatch/job-turns.ts says why, and in which order jobs go.
 * Both reads walk jobs_lane_state and touch no final row: which lanes exist is read from the index
 * alone, once a second; the head of a lane is a seek for each of its two states. A listing may pass
 * over jobs of source hosts that no download may begin from: at most as many as an account may have
 * open.
 */
import { type NotNull, type RawBuilder, type SelectExpression, sql } from 'kysely';
import { OUTPUT_FORMATS } from '#contract/formats.ts';
import { type Database, query, type Schema } from '../../database/database.ts';
import {
  type KeptStatement,
  keepStatement,
  nowPlusMs,
  requireInteger,
  throughIndex,
} from '../../database/statements.ts';
import {
  type JobBackground,
  type JobClass,
  type JobState,
  needsDownload,
  UNPAID_OPEN_MAX,
} from '../jobs/job.ts';
import {
  backgroundInputFromRow,
  finishingFromRow,
  inputFromRow,
  requireOneOf,
} from '../jobs/job-rows.ts';
import { type JobLane, type LaneRead, laneKey, laneOf } from './job-turns.ts';
import {
  type AccountQueue,
  MEGAPIXELS_MIN,
  QUEUE_MEGAPIXELS_MAX,
  UNFETCHED_MEGAPIXELS,
  UNKNOWN_MEGAPIXELS,
} from './queue-share.ts';

/** What the dispatcher needs to choose among the open jobs. */
export type ClaimableJob = ReturnType<typeof claimableFromRow>;

/** What waits, as core/dispatch/queue-share.ts counts it. */
export type QueuedWork = Awaited<ReturnType<typeof readQueued>>;

export function jobQueue(database: Database) {
  return {
    /** The lanes of the queue that have open jobs, running ones included. */
    listLanes: () => readLanes(database),
    /**
     * Open jobs without a live lease, the first ones of each lane, `limit` at most together; then
     * in the queue's order: sync first, then oldest; an asynchronous one goes before those that
     * came ASYNC_HEAD_START_MS (core/dispatch/job-turns.ts) after it.
     * @param among absent: all of them, read now
     */
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
    /** Open jobs that nobody pays for, counted up to UNPAID_OPEN_MAX. */
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
    /**
     * Succeeded within the last `windowMs`, by the results' megapixels, each job at least
     * MEGAPIXELS_MIN: the service's throughput.
     */
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

const CLAIMABLE_COLUMNS = [
  'id',
  'fence',
  'state',
  'class',
  'account_id',
  'api_key_id',
  'queue_at',
  'created_at',
  'started_at',
  'source_host',
  'input_blob',
  'input_bytes',
  'input_format',
  'input_width',
  'input_height',
  'output_format',
  'finishing',
  'background',
  'lease_holder',
  'takeovers',
] as const satisfies readonly SelectExpression<Schema, 'jobs'>[];

/** SQLite takes 500 parts of a union, and a lane has two. */
const STATEMENT_LANES_MAX = 64;

const DOWNLOAD_STATES = ['accepted', 'fetching'] as const satisfies readonly JobState[];
const STORED_STATES = ['ready', 'running'] as const satisfies readonly JobState[];

type LaneRow = Pick<Schema['jobs'], (typeof CLAIMABLE_COLUMNS)[number]> & {
  /** Set, since the job is open. */
  readonly queue_at: number;
  readonly read_at: number;
};

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

/** The first of each state of each lane. */
async function readHeads(database: Database, lanes: readonly LaneRead[], eachMax: number) {
  const statement = lanes.some(({ exceptHosts = [] }) => exceptHosts.length > 0)
    ? selectHeads(database, lanes, eachMax).compile()
    : headsOf(lanes, eachMax)(database, valuesOf(lanes));
  return query(database, async db => (await db.executeQuery(statement)).rows);
}

type LaneValues = Readonly<Record<string, string>>;
type HeadsStatement = KeptStatement<LaneValues, LaneRow>;

/** By how many lanes there are and of which kind: mostly one or two of the same. */
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

/** @param lanes one at least */
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
    .select(CLAIMABLE_COLUMNS)
    .select(nowMs.as('read_at'))
    .where('state', '=', state)
    .where('account_id', '=', lane.accountId)
    .where('api_key_id', '=', lane.apiKeyId)
    .where('class', '=', lane.class)
    .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]));
  const hosts = lane.exceptHosts ?? [];
  if (hosts.length > 0) jobs = jobs.where('source_host', 'not in', [...hosts]);
  const first = jobs.orderBy('queue_at').orderBy('id').limit(sql.lit(limit));
  return kysely.selectFrom(first.as('lane')).selectAll().$narrowType<{ queue_at: NotNull }>();
}

/** @param rows in the queue's order */
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
    /** As core/jobs/job.ts has it; null once nothing is to be downloaded. */
    sourceHost: row.source_host,
    outputFormat: requireOneOf(OUTPUT_FORMATS, row.output_format),
    ...finishingFromRow(row),
    /** Of its background what is stored, if there is one. */
    background: { input: backgroundInputFromRow(row) } as Pick<JobBackground, 'input'> | null,
    /** Its lease ran out rather than being free: claiming it is a take-over. */
    leaseExpired: row.lease_holder !== null,
    takeovers: row.takeovers,
    readAtMs: row.read_at,
  };
}

const PIXELS_PER_MEGAPIXEL = 1_000_000;

/** Open jobs that are counted: twice as many as the queue holds by default, in the smallest jobs. */
const OPEN_COUNTED_MAX = (2 * QUEUE_MEGAPIXELS_MAX) / MEGAPIXELS_MIN;

/** 1 for a job whose image was not downloaded yet, else 0. */
const UNFETCHED = sql`case when input_blob is null then 1 else 0 end`;

function atLeast(leastMegapixels: number, pixels: RawBuilder<unknown>): RawBuilder<unknown> {
  const least = sql.lit(leastMegapixels * PIXELS_PER_MEGAPIXEL);
  return sql`case when ${pixels} > ${least} then ${pixels} else ${least} end`;
}

const INPUT_PIXELS = sql`input_width * input_height`;

/** What a queued job counts: core/dispatch/queue-share.ts, `queuedMegapixels`. */
const QUEUED_PIXELS = sql`case
  when input_blob is null then ${atLeast(UNFETCHED_MEGAPIXELS, sql`frame_pixels`)}
  when input_width is null or input_height is null
    then ${sql.lit(UNKNOWN_MEGAPIXELS * PIXELS_PER_MEGAPIXEL)}
  when frame_pixels > ${INPUT_PIXELS} then ${atLeast(MEGAPIXELS_MIN, sql`frame_pixels`)}
  else ${atLeast(MEGAPIXELS_MIN, INPUT_PIXELS)} end`;

const RESULT_PIXELS = atLeast(MEGAPIXELS_MIN, sql`result_width * result_height`);

const JOBS_BY_CLASS = throughIndex('jobs', 'jobs_queue');

/**
 * One statement over the open jobs; their number is bounded as core/dispatch/queue-share.ts says. They are
 * a table of their own, in their order: grouped at once, SQLite would walk an index that is sorted
 * by account, and all final jobs with it.
 */
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
  /** Since its submission, by the database's clock; 0 where nothing waits. */
  const oldestAgeMs = Math.max(0, ...rows.map(row => row.oldest_age));
  return { ...total, oldestAgeMs, byAccount };
}
