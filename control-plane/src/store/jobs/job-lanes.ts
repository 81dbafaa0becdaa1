/**
 * The queue by lanes: a lane is the open jobs of one API key and mode, those that have their image
 * apart from those whose image is to be downloaded, and of both those with finishing, and those of
 * the playground, which stand in ranges of their own (queue-range.ts). A listing takes the first
 * few of each lane, so that no number of jobs in one lane hides another;
 * domain/dispatch/job-turns.ts says why, and in which order jobs go.
 *
 * Both reads walk jobs_lane_state and touch no final row: which lanes exist is read from the index
 * alone, once a second; the head of a lane is a seek for each of its two states. A listing may pass
 * over jobs of source hosts that no download may begin from: at most as many as an account may have
 * open.
 */
import { type NotNull, type SelectExpression, sql } from 'kysely';
import { type JobLane, type LaneRead, laneKey, laneOf } from '../../domain/dispatch/job-turns.ts';
import { type JobState, needsDownload } from '../../domain/job.ts';
import type { Database } from '../database/connect.ts';
import { type KeptStatement, keepStatement } from '../database/kept-statement.ts';
import type { Schema } from '../database/schema.ts';
import { throughIndex } from '../database/through-index.ts';
import { query } from '../database/transact.ts';
import { backgroundInputFromRow, finishingFromRow, outputFormatFromRow } from './job-finishing.ts';
import { inputFromRow, sourceHostFromRow } from './job-rows.ts';
import type { ClaimableJob, JobStore } from './job-store.ts';
import {
  COMPARED_WITH_ZERO,
  PLAYGROUND_POSITION_MS,
  PLAYGROUND_QUEUE_AT,
  positionOf,
  type QueueRange,
} from './queue-range.ts';

const CLAIMABLE_COLUMNS = [
  'id',
  'fence',
  'state',
  'mode',
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
  'playground_day',
] as const satisfies readonly SelectExpression<Schema, 'jobs'>[];

/** SQLite takes 500 parts of a union, and a lane has two. */
const STATEMENT_LANES_MAX = 64;

const DOWNLOAD_STATES = ['accepted', 'fetching'] as const satisfies readonly JobState[];
const STORED_STATES = ['ready', 'running'] as const satisfies readonly JobState[];

type LaneRow = Pick<Schema['jobs'], (typeof CLAIMABLE_COLUMNS)[number]> & {
  /** Set, since the job is open. */
  readonly queue_at: number;
  /** Read only where it is needed: it is long. */
  readonly source_url: string | null;
  readonly read_at: number;
};

const JOBS_BY_LANE = throughIndex('jobs', 'jobs_lane_state');

export function jobLanes(database: Database): Pick<JobStore, 'listLanes' | 'listClaimable'> {
  const listLanes = () => readLanes(database);
  return {
    listLanes,
    async listClaimable(limit, among) {
      const lanes = among ?? (await listLanes());
      if (lanes.length === 0) return [];
      const eachMax = Math.max(1, Math.floor(limit / lanes.length));
      const rows: LaneRow[] = [];
      for (let from = 0; from < lanes.length; from += STATEMENT_LANES_MAX) {
        const some = lanes.slice(from, from + STATEMENT_LANES_MAX);
        rows.push(...(await readHeads(database, some, eachMax)));
      }
      rows.sort(
        (a, b) => positionOf(a.queue_at) - positionOf(b.queue_at) || (a.id < b.id ? -1 : 1),
      );
      return firstOfEach(rows, eachMax).slice(0, limit);
    },
  };
}

const LANES = keepStatement(({ kysely, nowMs }) =>
  kysely
    .selectFrom('jobs')
    .select(['state', 'account_id', 'api_key_id', 'mode'])
    .select(eb => [
      sql<number | null>`min(case when queue_at > 0 then queue_at end)`.as('first'),
      eb.fn.min<number>('queue_at').as('lowest'),
      sql<number>`max(case when queue_at = ${sql.lit(PLAYGROUND_QUEUE_AT)} then 1 else 0 end)`.as(
        'playground',
      ),
      nowMs.as('read_at'),
    ])
    .where('state', 'in', [...DOWNLOAD_STATES, ...STORED_STATES])
    .groupBy(['state', 'account_id', 'api_key_id', 'mode']),
);

async function readLanes(database: Database): Promise<JobLane[]> {
  const { rows } = await query(database, db => db.executeQuery(LANES(database, {})));
  const lanes = new Map<string, JobLane>();
  for (const row of rows) {
    const all = {
      needsDownload: needsDownload(row),
      mode: row.mode,
      accountId: row.account_id,
      apiKeyId: row.api_key_id,
      readAtMs: row.read_at,
    };
    if (row.first !== null) keepFirst(lanes, { ...all, firstQueueAtMs: row.first });
    if (row.playground === 1) {
      keepFirst(lanes, { ...all, playground: true, firstQueueAtMs: PLAYGROUND_POSITION_MS });
    }
    if (row.lowest >= 0) continue;
    keepFirst(lanes, { ...all, finishing: true, firstQueueAtMs: positionOf(row.lowest) });
  }
  return [...lanes.values()];
}

/** The two states of a lane are one. */
function keepFirst(lanes: Map<string, JobLane>, lane: JobLane): void {
  const known = lanes.get(laneKey(lane));
  if (known === undefined || lane.firstQueueAtMs < known.firstQueueAtMs) {
    lanes.set(laneKey(lane), lane);
  }
}

/** The first of each state of each lane. */
async function readHeads(
  database: Database,
  lanes: readonly LaneRead[],
  eachMax: number,
): Promise<LaneRow[]> {
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
  const kinds = lanes.map(lane => `${rangeOf(lane)}${lane.needsDownload ? ' to download' : ''}`);
  const shape = `${eachMax} of ${kinds.join()}`;
  const known = HEADS.get(shape);
  if (known !== undefined) return known;
  if (HEADS.size >= HEADS_MAX) HEADS.clear();
  const statement: HeadsStatement = keepStatement((database, values) => {
    const placed = lanes.map((lane, index) => ({
      ...lane,
      accountId: values[`account${index}`] as string,
      apiKeyId: values[`key${index}`] as string,
      mode: values[`mode${index}`] as LaneRead['mode'],
    }));
    return selectHeads(database, placed, eachMax);
  });
  HEADS.set(shape, statement);
  return statement;
}

function valuesOf(lanes: readonly LaneRead[]): LaneValues {
  return Object.fromEntries(
    lanes.flatMap(({ accountId, apiKeyId, mode }, index) => [
      [`account${index}`, accountId],
      [`key${index}`, apiKeyId],
      [`mode${index}`, mode],
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
    .select(eb => [
      eb.case().when('source_host', 'is', null).then(eb.ref('source_url')).end().as('source_url'),
      nowMs.as('read_at'),
    ])
    .where('state', '=', state)
    .where('account_id', '=', lane.accountId)
    .where('api_key_id', '=', lane.apiKeyId)
    .where('mode', '=', lane.mode)
    .where('queue_at', COMPARED_WITH_ZERO[rangeOf(lane)], 0)
    .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]));
  const hosts = lane.exceptHosts ?? [];
  if (hosts.length > 0) {
    jobs = jobs.where(eb =>
      eb.or([eb('source_host', 'is', null), eb('source_host', 'not in', [...hosts])]),
    );
  }
  const first = jobs.orderBy('queue_at').orderBy('id').limit(sql.lit(limit));
  return kysely.selectFrom(first.as('lane')).selectAll().$narrowType<{ queue_at: NotNull }>();
}

function rangeOf({ finishing, playground }: LaneRead): QueueRange {
  if (playground) return 'playground';
  return finishing ? 'finishing' : 'plain';
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

function claimableFromRow(row: LaneRow): ClaimableJob {
  return {
    id: row.id,
    fence: row.fence,
    state: row.state as ClaimableJob['state'],
    mode: row.mode,
    accountId: row.account_id,
    apiKeyId: row.api_key_id,
    createdAtMs: row.created_at,
    startedAtMs: row.started_at,
    input: inputFromRow(row),
    sourceHost: sourceHostFromRow(row),
    outputFormat: outputFormatFromRow(row),
    ...finishingFromRow(row),
    background: { input: backgroundInputFromRow(row) },
    playground: row.playground_day !== null,
    leaseExpired: row.lease_holder !== null,
    takeovers: row.takeovers,
    readAtMs: row.read_at,
  };
}
