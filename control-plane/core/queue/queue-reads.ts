/** The queue in the table as the dispatcher reads it, and as its bound counts it. */
import { type Database, query } from '@matting/database/database.ts';
import { isFree } from '@matting/database/leases.ts';
import {
  type KeptStatement,
  keepStatement,
  nowPlusMs,
  requireInteger,
  throughIndex,
} from '@matting/database/statements.ts';
import { OUTPUT_FORMATS } from '@matting/proto/contract/formats.ts';
import { JOB_CLASSES, type JobClass, type JobState, needsDownload } from '@matting/queue/job.ts';
import { type JobLane, type LaneRead, laneKey, laneOf } from '@matting/queue/lanes.ts';
import { type InferResult, type NotNull, type RawBuilder, sql } from 'kysely';
import type { JobInput } from '../jobs/job-request.ts';
import {
  baseFromRow,
  finishingFromRow,
  groupFromRow,
  inputFromRow,
  jsonFrom,
  requireOneOf,
} from '../jobs/job-rows.ts';
import type { ClaimableJob, Queue, QueuedWork } from './queue.ts';
import {
  type AccountQueue,
  MEGAPIXELS_MIN,
  QUEUE_MEGAPIXELS_MAX,
  UNFETCHED_MEGAPIXELS,
  UNKNOWN_MEGAPIXELS,
} from './queue-bound.ts';

/**
 * The reads of lanes (lanes.ts) walk jobs_lane_state and touch no final row:
 * which lanes exist is read from the index alone; a lane's head is a seek for each of two states.
 */
export function queueReads(database: Database) {
  return {
    listLanes: () => readLanes(database),
    async listClaimable(limit, among) {
      const lanes = among ?? (await readLanes(database));
      if (lanes.length === 0) return [];
      const eachMax = Math.max(1, Math.floor(limit / lanes.length));
      const rows: LaneRow[] = [];
      for (let from = 0; from < lanes.length; from += STATEMENT_LANES_MAX) {
        const some = lanes.slice(from, from + STATEMENT_LANES_MAX);
        rows.push(...(await readHeads(database, some, eachMax)));
      }
      rows.sort((a, b) => a.queue_at - b.queue_at || (a.id < b.id ? -1 : 1));
      return firstOfEach(rows, eachMax).slice(0, limit);
    },
    queued: () => readQueued(database),
    async doneWithin(windowMs) {
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
  } satisfies Partial<Queue>;
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
  const passesOver = lanes.some(lane => lane.namesNone || lane.exceptHosts?.length);
  const statement = passesOver
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

/**
 * The select stands in a table of its own: SQLite takes no order and limit in a part of a union.
 */
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
    .select(eb => ['hints_file', 'base_matte', eb('hints', 'is not', null).as('is_hinted')])
    .select(['batch_id', 'batch_item', 'takeovers', nowMs.as('read_at')])
    .where('state', '=', state)
    .where('account_id', '=', lane.accountId)
    .where('api_key_id', '=', lane.apiKeyId)
    .where('class', '=', lane.class)
    .where(isFree({ nowMs }));
  const hosts = lane.exceptHosts ?? [];
  if (hosts.length > 0) jobs = jobs.where('source_host', 'not in', [...hosts]);
  if (lane.namesNone) {
    jobs = jobs
      .where('model', 'is', null)
      .where(eb => eb(eb.fn.coalesce('base_matte', sql.lit('')), 'not like', '%"cropRun"%'));
  }
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

function claimableFromRow(row: LaneRow): ClaimableJob {
  return {
    id: row.id,
    fence: row.fence,
    state: row.state as ClaimableJob['state'],
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
    background: { input: jsonFrom(row.background) },
    hints: row.is_hinted ? true : null,
    hintsFile: jsonFrom<JobInput>(row.hints_file),
    correction: baseFromRow(row),
    group: groupFromRow(row),
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
/** A queued job counts these pixels: queue-bound.ts, `queuedMegapixels`. */
const QUEUED_PIXELS = sql`case
  when input_blob is null then ${atLeast(UNFETCHED_MEGAPIXELS, sql`frame_pixels`)}
  when input_width is null or input_height is null
    then ${sql.lit(UNKNOWN_MEGAPIXELS * PIXELS_PER_MEGAPIXEL)}
  when frame_pixels > ${INPUT_PIXELS} then ${atLeast(MEGAPIXELS_MIN, sql`frame_pixels`)}
  else ${atLeast(MEGAPIXELS_MIN, INPUT_PIXELS)} end`;

const RESULT_PIXELS = atLeast(MEGAPIXELS_MIN, sql`result_width * result_height`);

const JOBS_BY_CLASS = throughIndex('jobs', 'jobs_queue');

/**
 * The rows stand in a table of their own: grouped at once, SQLite would walk an index with all
 * final jobs.
 */
async function readQueued(database: Database): Promise<QueuedWork> {
  const open = database.kysely
    .selectFrom(JOBS_BY_CLASS[database.dialect])
    .select(['account_id', 'model', 'created_at', 'input_blob'])
    .select(['input_width', 'input_height', 'frame_pixels'])
    .where('class', 'in', JOB_CLASSES)
    .where('queue_at', '>', 0)
    // A running job without a lease lost its attempt: it waits for a node like the others.
    .where(eb => eb.or([eb('state', '<>', 'running'), eb('lease_holder', 'is', null)]))
    .orderBy('class')
    .orderBy('queue_at')
    .limit(OPEN_COUNTED_MAX);
  const rows = await query(database, db =>
    db
      .selectFrom(open.as('open'))
      .select(['account_id', 'model'])
      .select(eb => [
        eb.fn.countAll<number>().as('jobs'),
        sql<number>`max(${database.nowMs} - created_at)`.as('oldest_age'),
        sql<number>`cast(sum(${QUEUED_PIXELS}) as signed)`.as('pixels'),
        sql<number>`cast(sum(${UNFETCHED}) as signed)`.as('unfetched'),
      ])
      .groupBy(['account_id', 'model'])
      .execute(),
  );
  const byAccount = new Map<string, AccountQueue>();
  const byModel = new Map<string | null, number>();
  const total = { jobs: 0, megapixels: 0 };
  for (const row of rows) {
    const jobs = requireInteger(row.jobs);
    const megapixels = requireInteger(row.pixels) / PIXELS_PER_MEGAPIXEL;
    total.jobs += jobs;
    total.megapixels += megapixels;
    byModel.set(row.model, (byModel.get(row.model) ?? 0) + megapixels);
    const other = byAccount.get(row.account_id) ?? { jobs: 0, megapixels: 0, unfetched: 0 };
    byAccount.set(row.account_id, {
      jobs: other.jobs + jobs,
      megapixels: other.megapixels + megapixels,
      unfetched: other.unfetched + requireInteger(row.unfetched),
    });
  }
  const oldestAgeMs = Math.max(0, ...rows.map(row => row.oldest_age));
  return { ...total, oldestAgeMs, byAccount, byModel };
}
