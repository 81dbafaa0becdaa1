/** Rows whose time is over, removed for the sweeper. */
import { type RawBuilder, sql } from 'kysely';
import type { Database } from './connect.ts';
import type { Schema } from './schema.ts';
import { query } from './transact.ts';

export interface OldRows {
  readonly table: keyof Schema;
  /** Its primary key, one column of text. */
  readonly key: string;
  /** The column that an index orders them by. */
  readonly time: string;
  readonly before: RawBuilder<number>;
}

/** Removes `limit` rows at most, the oldest first; their number. One that is young again stays. */
export function removeOldRows(
  database: Database,
  { table, key, time, before }: OldRows,
  limit: number,
): Promise<number> {
  // Of all tables the types know no column.
  const rows = table as 'audit_entries';
  const [id, at] = [sql.ref<string>(key), sql.ref<number>(time)];
  return query(database, async db => {
    const old = await db
      .selectFrom(rows)
      .select(id.as('id'))
      .where(at, '<', before)
      .orderBy(at)
      .limit(limit)
      .execute();
    if (old.length === 0) return 0;
    // In one order everywhere: two sweepers then wait for each other and never in a circle.
    const ids = old.map(row => row.id).sort();
    const { numDeletedRows } = await db
      .deleteFrom(rows)
      .where(id, 'in', ids)
      .where(at, '<', before)
      .executeTakeFirstOrThrow();
    return Number(numDeletedRows);
  });
}
