/** One column with `began,status,took;` for each attempt, times in ms. */

import type { Database } from '@matting/database/database.ts';
import { nowPlusMs } from '@matting/database/statements.ts';
import { type RawBuilder, sql } from 'kysely';

const LOG_LENGTH_MAX = 2000;

interface LoggedAttempt {
  readonly atMs: number;
  readonly statusCode: number | null;
  readonly durationMs: number;
}

/** A full log does not change. */
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

/** @param log null: no attempt was made */
export function loggedAttempts(log: string | null): readonly LoggedAttempt[] {
  const lines = (log ?? '').split(';').filter(line => line !== '');
  return lines.flatMap(line => {
    const [atMs, statusCode, durationMs] = line.split(',');
    if (atMs === undefined || statusCode === undefined || durationMs === undefined) return [];
    const status = statusCode === '' ? null : Number(statusCode);
    return [{ atMs: Number(atMs), statusCode: status, durationMs: Number(durationMs) }];
  });
}
