/**
 * What waits in the queue and what was finished lately: the gauges, and whether the queue is full
 * (domain/queue-share.ts).
 */
import { type RawBuilder, sql } from 'kysely';
import {
  type AccountQueue,
  MEGAPIXELS_MIN,
  QUEUE_MEGAPIXELS_MAX,
  UNFETCHED_MEGAPIXELS,
  UNKNOWN_MEGAPIXELS,
} from '../../domain/queue-share.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';
import { requireInteger } from '../database/values.ts';
import type { JobStore, QueuedWork } from './job-store.ts';
import { PLAYGROUND_QUEUE_AT, QUEUE_AT_MIN } from './queue-range.ts';

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

/** What a queued job counts: domain/queue-share.ts, `queuedMegapixels`. */
const QUEUED_PIXELS = sql`case
  when input_blob is null then ${atLeast(UNFETCHED_MEGAPIXELS, sql`frame_pixels`)}
  when input_width is null or input_height is null
    then ${sql.lit(UNKNOWN_MEGAPIXELS * PIXELS_PER_MEGAPIXEL)}
  when frame_pixels > ${INPUT_PIXELS} then ${atLeast(MEGAPIXELS_MIN, sql`frame_pixels`)}
  else ${atLeast(MEGAPIXELS_MIN, INPUT_PIXELS)} end`;

const RESULT_PIXELS = atLeast(MEGAPIXELS_MIN, sql`result_width * result_height`);

export function queueLoad(database: Database): Pick<JobStore, 'queued' | 'doneWithin'> {
  return {
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
  };
}

/**
 * One statement over the open jobs; their number is bounded as domain/queue-share.ts says. They are
 * a table of their own, in their order: grouped at once, SQLite would walk an index that is sorted
 * by account, and all final jobs with it.
 */
async function readQueued(database: Database): Promise<QueuedWork> {
  const open = database.kysely
    .selectFrom('jobs')
    .select(['account_id', 'created_at', 'input_blob'])
    .select(['input_width', 'input_height', 'frame_pixels'])
    .where('queue_at', '>', QUEUE_AT_MIN)
    // The playground's have a bound of their own, and take nobody's share.
    .where('queue_at', '<>', PLAYGROUND_QUEUE_AT)
    // A running job without a lease lost its attempt: it waits for a node like the others.
    .where(eb => eb.or([eb('state', '<>', 'running'), eb('lease_holder', 'is', null)]))
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
