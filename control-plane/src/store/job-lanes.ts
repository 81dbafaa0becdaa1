/**
 * The queue by lanes: a lane is the open jobs of one API key and mode. A look takes the first few
 * of each lane, so that no number of jobs in one lane hides another; domain/job-turns.ts says why
 * and in which order they go.
 *
 * Both reads walk an index and touch no final row: which lanes there are is a scan of
 * jobs_queue_lanes over the open jobs alone, once a second; what a lane begins with is a seek in
 * jobs_lane. With 10,000 jobs open and 30,000 final the first took 7 ms on SQLite and 5 to 15 ms on
 * MariaDB, the second for 8 lanes and 256 jobs 0.5 ms and 16 ms (2 busy cores of an AMD EPYC).
 */
import { type SelectExpression, sql } from 'kysely';
import type { JobLane } from '../domain/job-turns.ts';
import type { Database } from './connect.ts';
import type { ClaimableJob } from './job-store.ts';
import { inputFromRow } from './rows.ts';
import type { Schema } from './schema.ts';
import { query } from './transact.ts';

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
  'input_blob',
  'input_bytes',
  'input_format',
  'input_width',
  'input_height',
  'output_format',
  'lease_holder',
  'takeovers',
] as const satisfies readonly SelectExpression<Schema, 'jobs'>[];

/** SQLite takes 500 parts of a union; the dispatcher asks for fewer (LANES_MAX). */
const STATEMENT_LANES_MAX = 64;

type Lane = Pick<JobLane, 'mode' | 'accountId' | 'apiKeyId'>;
type LaneRow = Pick<Schema['jobs'], (typeof CLAIMABLE_COLUMNS)[number]> & { read_at: number };

export class JobLanes {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async list(): Promise<JobLane[]> {
    const { nowMs } = this.#database;
    const rows = await query(this.#database, db =>
      db
        .selectFrom('jobs')
        .select(['mode', 'account_id', 'api_key_id'])
        .select(eb => [eb.fn.min<number>('queue_at').as('first'), nowMs.as('read_at')])
        // "is not null" would keep SQLite from walking the index in order.
        .where('queue_at', '>', 0)
        .groupBy(['mode', 'account_id', 'api_key_id'])
        .execute(),
    );
    return rows.map(row => ({
      mode: row.mode,
      accountId: row.account_id,
      apiKeyId: row.api_key_id,
      firstQueueAtMs: row.first,
      readAtMs: row.read_at,
    }));
  }

  async listClaimable(limit: number, among?: readonly Lane[]): Promise<ClaimableJob[]> {
    const lanes = among ?? (await this.list());
    if (lanes.length === 0) return [];
    const eachMax = Math.max(1, Math.floor(limit / lanes.length));
    const rows: LaneRow[] = [];
    for (let from = 0; from < lanes.length && rows.length < limit; from += STATEMENT_LANES_MAX) {
      const some = lanes.slice(from, from + STATEMENT_LANES_MAX);
      rows.push(...(await this.#firstOfEach(some, eachMax)));
    }
    rows.sort((a, b) => a.queue_at! - b.queue_at! || (a.id < b.id ? -1 : 1));
    return rows.slice(0, limit).map(row => ({
      id: row.id,
      fence: row.fence,
      state: row.state as ClaimableJob['state'],
      mode: row.mode,
      accountId: row.account_id,
      apiKeyId: row.api_key_id,
      createdAtMs: row.created_at,
      startedAtMs: row.started_at,
      input: inputFromRow(row),
      outputFormat: row.output_format as ClaimableJob['outputFormat'],
      leaseExpired: row.lease_holder !== null,
      takeovers: row.takeovers,
      readAtMs: row.read_at,
    }));
  }

  #firstOfEach(lanes: readonly Lane[], eachMax: number): Promise<LaneRow[]> {
    const [first, ...others] = lanes.map(lane => this.#firstOf(lane, eachMax));
    const all = others.reduce((union, next) => union.unionAll(next), first);
    return query(this.#database, () => all.execute());
  }

  /** In a table of its own: SQLite takes no order and limit in a part of a union. */
  #firstOf(lane: Lane, limit: number) {
    const { kysely, nowMs } = this.#database;
    const jobs = kysely
      .selectFrom('jobs')
      .select(CLAIMABLE_COLUMNS)
      .select(() => nowMs.as('read_at'))
      .where('api_key_id', '=', lane.apiKeyId)
      .where('mode', '=', lane.mode)
      // A key is of one account: this only holds lanes apart, the index does without it.
      .where('account_id', '=', lane.accountId)
      .where('queue_at', '>', 0)
      .where(eb => eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)]))
      .orderBy('queue_at')
      .orderBy('id')
      .limit(sql.lit(limit));
    return kysely.selectFrom(jobs.as('lane')).selectAll();
  }
}
