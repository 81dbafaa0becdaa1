/**
 * The database's clock, inside the statement that uses it: processes on several machines then agree
 * on what has expired, however wrong their own clocks are.
 */
import { type RawBuilder, sql } from 'kysely';

export type DatabaseDialect = 'sqlite' | 'mysql';

const DAY_MS = 86_400_000;

/** UTC milliseconds; the same value wherever it stands in one statement. */
export function databaseNowMs(dialect: DatabaseDialect): RawBuilder<number> {
  return dialect === 'sqlite'
    ? sql<number>`cast(round(unixepoch('now', 'subsec') * 1000) as integer)`
    : sql<number>`cast(unix_timestamp(now(3)) * 1000 as signed)`;
}

/** The database's clock and a length of time. */
export function nowPlusMs(nowMs: RawBuilder<number>, lengthMs: number): RawBuilder<number> {
  return sql<number>`${nowMs} + ${lengthMs}`;
}

/** The first instant of the day, UTC. */
export function startOfDay(nowMs: RawBuilder<number>): RawBuilder<number> {
  return sql<number>`(${nowMs}) - (${nowMs}) % ${sql.lit(DAY_MS)}`;
}
