/**
 * A lease in the columns of its row: `lease_holder`, `lease_expires_at` and `fence`.
 *
 * | lease   | columns | entered by | left by                                         |
 * |---------|---------|------------|-------------------------------------------------|
 * | free    | FREE    | a release  | a claim                                         |
 * | held    | takenBy | a claim    | a release; its time ends                        |
 * | expired | takenBy | time       | another claim; a renewal by its holder          |
 *
 * The fence rises with every claim, so an overtaken holder changes nothing, even if the same
 * process claimed the row again. The database's clock decides, in the statement that needs it.
 */

import { type RawBuilder, type SqlBool, sql } from 'kysely';
import type { Database } from './database.ts';
import { nowPlusMs } from './statements.ts';

export interface LeaseClaim {
  readonly holder: string;
  readonly fence: number;
}

export const FREE = { lease_holder: null, lease_expires_at: null };

export function takenBy(
  { nowMs }: Pick<Database, 'nowMs'>,
  { holder, fence }: LeaseClaim,
  leaseMs: number,
) {
  return { fence, lease_holder: holder, lease_expires_at: nowPlusMs(nowMs, leaseMs) };
}

export function isFree({ nowMs }: Pick<Database, 'nowMs'>): RawBuilder<SqlBool> {
  return sql<SqlBool>`(lease_holder is null or lease_expires_at <= ${nowMs})`;
}

/** True even after the expiry, unless somebody else claimed the row. */
export function isHeldBy({ holder, fence }: LeaseClaim): RawBuilder<SqlBool> {
  return sql<SqlBool>`(fence = ${fence} and lease_holder = ${holder})`;
}
