import { type Database, query, type Schema } from '@matting/database/database.ts';
import { isFree } from '@matting/database/leases.ts';
import {
  type KeptStatement,
  keepStatement,
  nowPlusMs,
  requireInteger,
  throughIndex,
} from '@matting/database/statements.ts';
import { type RawBuilder, type Selectable, type SelectExpression, type SqlBool, sql } from 'kysely';
import { JOB_CLASSES, type JobClass, type JobState, needsDownload } from './job.ts';
import { groupFromRow } from './job-rows.ts';
import { type JobLane, type LaneRead, laneKey, laneOf } from './lanes.ts';
import type { AccountQueue, ListedJob, QueuedWork, QueueReads } from './queue.ts';

export interface PayloadReads<Row, P> {
  /** Columns that a listing reads in addition to the queue's. */
  readonly columns: readonly SelectExpression<Schema, 'jobs'>[];
  fromRow(row: Row): P;
  /** SQL on a job's row: the job needs no particular engine. */
  readonly isUnbound: RawBuilder<SqlBool>;
  /**
   * SQL on a job's row, whole numbers: its cost in the queue while it is open, and its cost once it
   * is final.
   */
  readonly queuedCost: RawBuilder<number>;
  readonly doneCost: RawBuilder<number>;
  /** The reads divide `queuedCost` and `doneCost` by this number. */
  readonly costUnit: number;
  readonly countedColumns: readonly (keyof Schema['jobs'])[];
  /** SQL on a job's row: 1 if it needs a download. */
  readonly isUnfetched: RawBuilder<number>;
  readonly openCountedMax: number;
}

type ReadOf<P> = ListedJob & P;

/**
 * The reads of lanes walk the index jobs_lane_state and touch no final row. The list of lanes needs
 * only the index; the head of a lane takes a seek for each of its two states.
 */
export function queueReads<Row, P>(
  database: Database,
  payload: PayloadReads<Row, P>,
): QueueReads<ReadOf<P>> {
  const heads = new Heads(payload);
  return {
    listLanes: () => readLanes(database),
    async listClaimable(limit, among) {
      const lanes = among ?? (await readLanes(database));
      if (lanes.length === 0) return [];
      const eachMax = Math.max(1, Math.floor(limit / lanes.length));
      const rows: (LaneRow & Row)[] = [];
      for (let from = 0; from < lanes.length; from += STATEMENT_LANES_MAX) {
        const some = lanes.slice(from, from + STATEMENT_LANES_MAX);
        rows.push(...(await heads.read(database, some, eachMax)));
      }
      rows.sort((a, b) => a.queue_at - b.queue_at || (a.id < b.id ? -1 : 1));
      return firstOfEach(rows, eachMax, payload).slice(0, limit);
    },
    queued: () => readQueued(database, payload),
    async doneWithin(windowMs) {
      const row = await query(database, db =>
        db
          .selectFrom('jobs')
          .select(eb => [
            eb.fn.countAll<number>().as('jobs'),
            sql<number | null>`cast(sum(${payload.doneCost}) as signed)`.as('cost'),
          ])
          .where('finished_at', '>', nowPlusMs(database.nowMs, -windowMs))
          .where('state', '=', 'succeeded')
          .executeTakeFirstOrThrow(),
      );
      const cost = requireInteger(row.cost) / payload.costUnit;
      return { jobs: requireInteger(row.jobs), cost };
    },
  };
}

/** SQLite allows 500 parts in a union, and a lane needs two. */
const STATEMENT_LANES_MAX = 64;

const DOWNLOAD_STATES = ['accepted', 'fetching'] as const;
const STORED_STATES = ['ready', 'running'] as const;

const LANE_COLUMNS = [
  ...['id', 'fence', 'state', 'class', 'account_id', 'api_key_id', 'queue_at', 'created_at'],
  ...['started_at', 'source_host', 'batch_id', 'batch_item', 'takeovers'],
] as const;
type LaneRow = Pick<Selectable<Schema['jobs']>, (typeof LANE_COLUMNS)[number]> & {
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
    // A lane has rows in two states.
    const known = lanes.get(laneKey(lane));
    if (known === undefined || lane.firstQueueAtMs < known.firstQueueAtMs) {
      lanes.set(laneKey(lane), lane);
    }
  }
  return [...lanes.values()];
}

type LaneValues = Readonly<Record<string, string>>;
type AnyPayload<Row> = PayloadReads<Row, unknown>;

class Heads<Row> {
  readonly #payload: AnyPayload<Row>;
  readonly #statements = new Map<string, KeptStatement<LaneValues, LaneRow>>();

  constructor(payload: AnyPayload<Row>) {
    this.#payload = payload;
  }

  async read(database: Database, lanes: readonly LaneRead[], eachMax: number) {
    const skipsJobs = lanes.some(lane => lane.unboundOnly || lane.exceptHosts?.length);
    const statement = skipsJobs
      ? selectHeads(database, lanes, eachMax, this.#payload).compile()
      : this.#statementFor(lanes, eachMax)(database, valuesOf(lanes));
    const { rows } = await query(database, db => db.executeQuery(statement));
    return rows as (LaneRow & Row)[];
  }

  #statementFor(lanes: readonly LaneRead[], eachMax: number): KeptStatement<LaneValues, LaneRow> {
    const kinds = lanes.map(({ needsDownload }) => (needsDownload ? 'to download' : 'stored'));
    const shape = `${eachMax} of ${kinds.join()}`;
    const kept = this.#statements.get(shape);
    if (kept !== undefined) return kept;
    if (this.#statements.size >= STATEMENTS_MAX) this.#statements.clear();
    const statement = keepStatement<LaneValues, LaneRow>((database, values) => {
      const placed = lanes.map((lane, index) => ({
        ...lane,
        accountId: values[`account${index}`] as string,
        apiKeyId: values[`key${index}`] as string,
        class: values[`class${index}`] as JobClass,
      }));
      return selectHeads(database, placed, eachMax, this.#payload);
    });
    this.#statements.set(shape, statement);
    return statement;
  }
}

const STATEMENTS_MAX = 64;

function valuesOf(lanes: readonly LaneRead[]): LaneValues {
  return Object.fromEntries(
    lanes.flatMap((lane, index) => [
      [`account${index}`, lane.accountId],
      [`key${index}`, lane.apiKeyId],
      [`class${index}`, lane.class],
    ]),
  );
}

function selectHeads<Row>(
  database: Database,
  lanes: readonly LaneRead[],
  eachMax: number,
  payload: AnyPayload<Row>,
) {
  const heads = lanes.flatMap(lane => {
    const states = lane.needsDownload ? DOWNLOAD_STATES : STORED_STATES;
    return states.map(state => selectFirst(database, { lane, state, eachMax }, payload));
  });
  return heads.reduce((union, next) => union.unionAll(next));
}

/** SQLite allows order and limit in a part of a union only in a subquery. */
function selectFirst<Row>(
  { kysely, nowMs, dialect }: Database,
  { lane, state, eachMax }: { lane: LaneRead; state: JobState; eachMax: number },
  payload: AnyPayload<Row>,
) {
  let jobs = kysely
    .selectFrom(JOBS_BY_LANE[dialect])
    .select(LANE_COLUMNS)
    .select(nowMs.as('read_at'))
    .select(payload.columns)
    .where('state', '=', state)
    .where('account_id', '=', lane.accountId)
    .where('api_key_id', '=', lane.apiKeyId)
    .where('class', '=', lane.class)
    .where(isFree({ nowMs }));
  const hosts = lane.exceptHosts ?? [];
  if (hosts.length > 0) jobs = jobs.where('source_host', 'not in', [...hosts]);
  if (lane.unboundOnly) jobs = jobs.where(payload.isUnbound);
  const first = jobs.orderBy('queue_at').orderBy('id').limit(sql.lit(eachMax));
  return kysely.selectFrom(first.as('lane')).selectAll().$castTo<LaneRow>();
}

function firstOfEach<Row, P>(
  rows: readonly (LaneRow & Row)[],
  eachMax: number,
  payload: PayloadReads<Row, P>,
): ReadOf<P>[] {
  const counts = new Map<string, number>();
  return rows.flatMap(row => {
    const job = { ...listedFromRow(row), ...payload.fromRow(row) };
    const key = laneKey(laneOf(job));
    const count = (counts.get(key) ?? 0) + 1;
    counts.set(key, count);
    return count > eachMax ? [] : [job];
  });
}

function listedFromRow(row: LaneRow): ListedJob {
  return {
    id: row.id,
    fence: row.fence,
    state: row.state as ListedJob['state'],
    class: row.class,
    accountId: row.account_id,
    apiKeyId: row.api_key_id,
    createdAtMs: row.created_at,
    startedAtMs: row.started_at,
    sourceHost: row.source_host,
    group: groupFromRow(row),
    takeovers: row.takeovers,
    readAtMs: row.read_at,
  };
}

const JOBS_BY_CLASS = throughIndex('jobs', 'jobs_queue');

/** Groups a subquery: otherwise SQLite walks an index with all final jobs. */
async function readQueued<Row>(database: Database, payload: AnyPayload<Row>): Promise<QueuedWork> {
  const open = database.kysely
    .selectFrom(JOBS_BY_CLASS[database.dialect])
    .select(['account_id', 'model', 'created_at', ...payload.countedColumns])
    .where('class', 'in', JOB_CLASSES)
    .where('queue_at', '>', 0)
    .where(eb => eb.or([eb('state', '<>', 'running'), eb('lease_holder', 'is', null)]))
    .orderBy('class')
    .orderBy('queue_at')
    .limit(payload.openCountedMax);
  const rows = await query(database, db =>
    db
      .selectFrom(open.as('open'))
      .select(['account_id', 'model'])
      .select(eb => [
        eb.fn.countAll<number>().as('jobs'),
        sql<number>`max(${database.nowMs} - created_at)`.as('oldest_age'),
        sql<number>`cast(sum(${payload.queuedCost}) as signed)`.as('cost'),
        sql<number>`cast(sum(${payload.isUnfetched}) as signed)`.as('unfetched'),
      ])
      .groupBy(['account_id', 'model'])
      .execute(),
  );
  const byAccount = new Map<string, AccountQueue>();
  const byModel = new Map<string | null, number>();
  const total = { jobs: 0, cost: 0 };
  for (const row of rows) {
    const jobs = requireInteger(row.jobs);
    const cost = requireInteger(row.cost) / payload.costUnit;
    total.jobs += jobs;
    total.cost += cost;
    byModel.set(row.model, (byModel.get(row.model) ?? 0) + cost);
    const other = byAccount.get(row.account_id) ?? { jobs: 0, cost: 0, unfetched: 0 };
    byAccount.set(row.account_id, {
      jobs: other.jobs + jobs,
      cost: other.cost + cost,
      unfetched: other.unfetched + requireInteger(row.unfetched),
    });
  }
  const oldestAgeMs = Math.max(0, ...rows.map(row => row.oldest_age));
  return { ...total, oldestAgeMs, byAccount, byModel };
}
