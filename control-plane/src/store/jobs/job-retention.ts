/**
 * What the sweeper and the gauges ask: results past their expiry, rows past their time, blobs
 * nobody names, the length of the queue. Any number of replicas may sweep at once.
 */
import { type Kysely, type RawBuilder, sql } from 'kysely';
import {
  type AccountQueue,
  MEGAPIXELS_MIN,
  UNFETCHED_MEGAPIXELS,
  UNKNOWN_MEGAPIXELS,
} from '../../domain/queue-share.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { requireInteger } from '../database/rows.ts';
import type { Schema } from '../database/schema.ts';
import { query, readBack, transact } from '../database/transact.ts';
import type { QueuedWork, RemovedJobs } from './job-store.ts';

const PIXELS_PER_MEGAPIXEL = 1_000_000;
/**
 * Names asked for in one statement. From 200 on MySQL and MariaDB trust statistics instead of
 * looking into the index, and most rows name no blob: they would read the whole table.
 */
const BLOB_NAMES_MAX = 100;

/** Open jobs that are counted: twice as many as the queue's megapixels let wait by default. */
const OPEN_COUNTED_MAX = 100_000;

/** 1 for a job whose image was not downloaded yet, else 0. */
const UNFETCHED = sql`case when input_blob is null then 1 else 0 end`;

function atLeastOneMegapixel(picture: 'input' | 'result'): RawBuilder<unknown> {
  const pixels = sql`${sql.ref(`${picture}_width`)} * ${sql.ref(`${picture}_height`)}`;
  const least = sql.lit(MEGAPIXELS_MIN * PIXELS_PER_MEGAPIXEL);
  return sql`case when ${pixels} < ${least} then ${least} else ${pixels} end`;
}

/** What a queued job counts. */
const QUEUED_PIXELS = sql`case
  when input_blob is null then ${sql.lit(UNFETCHED_MEGAPIXELS * PIXELS_PER_MEGAPIXEL)}
  when input_width is null or input_height is null
    then ${sql.lit(UNKNOWN_MEGAPIXELS * PIXELS_PER_MEGAPIXEL)}
  else ${atLeastOneMegapixel('input')} end`;

export class JobRetention {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * One statement over the open jobs; their number is bounded as domain/queue-share.ts says. They
   * are a table of their own, in their order: grouped at once, SQLite would walk an index that is
   * sorted by account, and all final jobs with it.
   */
  async queued(): Promise<QueuedWork> {
    const open = this.#database.kysely
      .selectFrom('jobs')
      .select(['account_id', 'created_at', 'input_blob', 'input_width', 'input_height'])
      .where('queue_at', '>', 0)
      // A running job without a lease lost its attempt: it waits for a node like the others.
      .where(eb => eb.or([eb('state', '<>', 'running'), eb('lease_holder', 'is', null)]))
      .orderBy('queue_at')
      .limit(OPEN_COUNTED_MAX);
    const rows = await query(this.#database, db =>
      db
        .selectFrom(open.as('open'))
        .select('account_id')
        .select(eb => [
          eb.fn.countAll<number>().as('jobs'),
          sql<number>`max(${this.#database.nowMs} - created_at)`.as('oldest_age'),
          sql<number>`cast(sum(${QUEUED_PIXELS}) as signed)`.as('pixels'),
          sql<number>`cast(sum(${UNFETCHED}) as signed)`.as('unfetched'),
        ])
        .groupBy('account_id')
        .execute(),
    );
    const byAccount = new Map<string, AccountQueue>();
    const total = { jobs: 0, megapixels: 0 };
    let oldestAgeMs = 0;
    for (const row of rows) {
      const jobs = requireInteger(row.jobs);
      const megapixels = requireInteger(row.pixels) / PIXELS_PER_MEGAPIXEL;
      byAccount.set(row.account_id, { jobs, megapixels, unfetched: requireInteger(row.unfetched) });
      total.jobs += jobs;
      total.megapixels += megapixels;
      oldestAgeMs = Math.max(oldestAgeMs, row.oldest_age);
    }
    return { ...total, oldestAgeMs, byAccount };
  }

  async doneWithin(windowMs: number): Promise<{ jobs: number; megapixels: number }> {
    const row = await query(this.#database, db =>
      db
        .selectFrom('jobs')
        .select(eb => [
          eb.fn.countAll<number>().as('jobs'),
          sql<number | null>`cast(sum(${atLeastOneMegapixel('result')}) as signed)`.as('pixels'),
        ])
        .where('finished_at', '>', nowPlusMs(this.#database.nowMs, -windowMs))
        .where('state', '=', 'succeeded')
        .executeTakeFirstOrThrow(),
    );
    const pixels = requireInteger(row.pixels ?? 0);
    return { jobs: requireInteger(row.jobs), megapixels: pixels / PIXELS_PER_MEGAPIXEL };
  }

  /**
   * The name goes before the blob: a sweeper that dies in between leaves a blob that nobody names,
   * which the sweep of orphans finds, and never a name without its blob.
   */
  async takeExpiredResultBlobs(limit: number): Promise<string[]> {
    const { nowMs } = this.#database;
    return transact(this.#database, async tx => {
      const rows = await tx
        .selectFrom('jobs')
        .select(['id', 'result_blob'])
        .where('result_blob_expires_at', '<=', nowMs)
        .orderBy('result_blob_expires_at')
        .limit(limit)
        .execute();
      if (rows.length === 0) return [];
      // Two sweepers may both take a name: removing a blob twice is no harm. The order is one
      // everywhere, so that they wait for each other and never in a circle.
      await tx
        .updateTable('jobs')
        .set({ result_blob: null, result_blob_expires_at: null })
        .where('id', 'in', rows.map(row => row.id).sort())
        .execute();
      return rows.flatMap(row => (row.result_blob === null ? [] : [row.result_blob]));
    });
  }

  /**
   * Found by the order of their ends alone: any further condition may lead a database to another
   * index, and through all that is final. A result that expired and is still named goes with its
   * row; one that did not keeps it.
   */
  async removeFinalOlderThan(afterMs: number, limit: number): Promise<RemovedJobs> {
    const { nowMs } = this.#database;
    const found = await query(this.#database, db =>
      db
        .selectFrom('jobs')
        .select(['id', 'result_blob', 'result_blob_expires_at'])
        .select(() => nowMs.as('read_at'))
        .where('finished_at', '<=', nowPlusMs(nowMs, -afterMs))
        .orderBy('finished_at')
        .limit(limit)
        .execute(),
    );
    const due = found.filter(row => (row.result_blob_expires_at ?? 0) <= row.read_at);
    if (due.length === 0) return { rows: 0, blobs: [] };
    // In one order everywhere: two sweepers then wait for each other and never in a circle.
    const ids = due.map(row => row.id).sort();
    const rows = await transact(this.#database, async tx => {
      const { numDeletedRows } = await tx
        .deleteFrom('jobs')
        .where('id', 'in', ids)
        .where('finished_at', 'is not', null)
        .executeTakeFirstOrThrow();
      await tx.deleteFrom('webhook_outbox').where('job_id', 'in', ids).execute();
      return Number(numDeletedRows);
    });
    return { rows, blobs: due.flatMap(row => row.result_blob ?? []) };
  }

  async referencedBlobs(names: readonly string[]): Promise<Set<string>> {
    const found = new Set<string>();
    for (let start = 0; start < names.length; start += BLOB_NAMES_MAX) {
      const some = names.slice(start, start + BLOB_NAMES_MAX);
      for (const column of ['input_blob', 'result_blob'] as const) {
        const rows = await readBack(this.#database, db => namesIn(db, column, some));
        for (const name of rows) found.add(name);
      }
    }
    return found;
  }
}

async function namesIn(
  db: Kysely<Schema>,
  column: 'input_blob' | 'result_blob',
  names: readonly string[],
): Promise<string[]> {
  const rows = await db
    .selectFrom('jobs')
    .select(`${column} as name`)
    .where(column, 'in', names)
    .execute();
  return rows.flatMap(row => (row.name === null ? [] : [row.name]));
}
