/**
 * The attempts of a notification, a line each in its row: when it began, what was answered, how
 * long it took. Written with the attempt's end, in the same statement.
 */
import { type RawBuilder, sql } from 'kysely';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';

/** Characters of the column that are used; then the log says no more. The schedule needs 250. */
const LOG_LENGTH_MAX = 2000;

export interface LoggedAttempt {
  readonly atMs: number;
  /** null: there was no answer. */
  readonly statusCode: number | null;
  readonly durationMs: number;
}

/** The column with the attempt that ends now. */
export function withAttempt(
  { dialect, nowMs }: Pick<Database, 'dialect' | 'nowMs'>,
  { statusCode, durationMs }: Omit<LoggedAttempt, 'atMs'>,
): RawBuilder<string> {
  const tookMs = Math.round(durationMs);
  const began = nowPlusMs(nowMs, -tookMs);
  const rest = `,${statusCode ?? ''},${tookMs};`;
  const before = sql`coalesce(attempt_log, '')`;
  const longer =
    dialect === 'sqlite'
      ? sql`${before} || (${began}) || ${rest}`
      : sql`concat(${before}, ${began}, ${rest})`;
  return sql<string>`case when length(${before}) > ${sql.lit(LOG_LENGTH_MAX)}
    then attempt_log else ${longer} end`;
}

/** In the order they were made. @param log null: none was made yet */
export function loggedAttempts(log: string | null): readonly LoggedAttempt[] {
  const lines = (log ?? '').split(';').filter(line => line !== '');
  return lines.flatMap(line => {
    const [atMs, statusCode, durationMs] = line.split(',');
    if (atMs === undefined || statusCode === undefined || durationMs === undefined) return [];
    const status = statusCode === '' ? null : Number(statusCode);
    return [{ atMs: Number(atMs), statusCode: status, durationMs: Number(durationMs) }];
  });
}
