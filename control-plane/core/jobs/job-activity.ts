/**
 * Counts the jobs that ended in each of the last hours. A process keeps the counts of past hours.
 */

import { type Database, query, readNowMs } from '@matting/database/database.ts';
import { requireInteger, throughIndex } from '@matting/database/statements.ts';
import type { NotNull } from 'kysely';

const HOUR_MS = 3_600_000;
const ACTIVITY_HOURS = 24;
/** Longest time from `finished_at` to the commit. */
const COMMITTED_AFTER_MS = 120_000;
/** An hour's mean times use at most this many of its jobs. */
export const TIMED_MAX = 100;

export interface HourOfJobs {
  readonly startMs: number;
  readonly succeeded: number;
  readonly failed: number;
  /** From the request to a node's admission; 0: nothing succeeded. */
  readonly waitMs: number;
  /** From the admission to the end; 0: nothing succeeded. */
  readonly workMs: number;
}

export function jobActivity(database: Database) {
  const kept = new Map<number, HourOfJobs>();
  return {
    /** Oldest first. */
    async lastHours(): Promise<HourOfJobs[]> {
      const nowMs = await readNowMs(database);
      const present = Math.floor(nowMs / HOUR_MS) * HOUR_MS;
      const hours: HourOfJobs[] = [];
      for (let ago = ACTIVITY_HOURS - 1; ago >= 0; ago -= 1) {
        const startMs = present - ago * HOUR_MS;
        const hour = kept.get(startMs) ?? (await readHour(database, startMs));
        if (startMs + HOUR_MS + COMMITTED_AFTER_MS < nowMs) kept.set(startMs, hour);
        hours.push(hour);
      }
      for (const startMs of kept.keys()) {
        if (startMs < present - ACTIVITY_HOURS * HOUR_MS) kept.delete(startMs);
      }
      return hours;
    },
  };
}

async function readHour(database: Database, startMs: number): Promise<HourOfJobs> {
  const succeeded = await countEnded(database, 'succeeded', startMs);
  const failed = await countEnded(database, 'failed', startMs);
  const times = succeeded === 0 ? [] : await timesOf(database, startMs);
  const mean = (values: readonly number[]) =>
    values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);
  return {
    ...{ startMs, succeeded, failed },
    waitMs: mean(times.map(({ created, started }) => started - created)),
    workMs: mean(times.map(({ started, finished }) => finished - started)),
  };
}

const JOBS_BY_END = throughIndex('jobs', 'jobs_state_finished');

async function countEnded(
  database: Database,
  state: 'succeeded' | 'failed',
  startMs: number,
): Promise<number> {
  const { jobs } = await query(database, db =>
    db
      .selectFrom(JOBS_BY_END[database.dialect])
      .select(eb => eb.fn.countAll<number>().as('jobs'))
      .where('state', '=', state)
      .where('finished_at', '>=', startMs)
      .where('finished_at', '<', startMs + HOUR_MS)
      .executeTakeFirstOrThrow(),
  );
  return requireInteger(jobs);
}

function timesOf(database: Database, startMs: number) {
  return query(database, db =>
    db
      .selectFrom(JOBS_BY_END[database.dialect])
      .select(['created_at as created', 'started_at as started', 'finished_at as finished'])
      .where('state', '=', 'succeeded')
      .where('finished_at', '>=', startMs)
      .where('finished_at', '<', startMs + HOUR_MS)
      .orderBy('finished_at')
      .limit(TIMED_MAX)
      .$narrowType<{ started: NotNull; finished: NotNull }>()
      .execute(),
  );
}
