/** When API keys were used last: written in batches, off the path of requests. */
import { sql } from 'kysely';
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';

export interface KeyUse {
  readonly apiKeyId: string;
  readonly byPreviousSecret: boolean;
  /** How long ago. */
  readonly ageMs: number;
}

/** Uses of one statement. */
const USES_MAX = 100;

/** An earlier time than the one that is there changes nothing. */
export async function writeKeyUses(database: Database, uses: readonly KeyUse[]): Promise<void> {
  const ofPrevious = uses.filter(use => use.byPreviousSecret);
  // The key's own column has the uses of both.
  for (const [column, some] of [
    ['last_used_at', uses],
    ['previous_last_used_at', ofPrevious],
  ] as const) {
    for (let from = 0; from < some.length; from += USES_MAX) {
      await writeBatch(database, column, some.slice(from, from + USES_MAX));
    }
  }
}

async function writeBatch(
  database: Database,
  column: 'last_used_at' | 'previous_last_used_at',
  uses: readonly KeyUse[],
): Promise<void> {
  const ageMs = new Map<string, number>();
  for (const use of uses) {
    ageMs.set(use.apiKeyId, Math.min(use.ageMs, ageMs.get(use.apiKeyId) ?? use.ageMs));
  }
  const cases = [...ageMs].map(
    ([id, age]) => sql`when ${id} then ${database.nowMs} - ${Math.max(0, Math.round(age))}`,
  );
  const usedAt = sql<number>`case ${sql.ref('id')} ${sql.join(cases, sql` `)} end`;
  await query(database, db =>
    db
      .updateTable('api_keys')
      .set({ [column]: usedAt })
      .where('id', 'in', [...ageMs.keys()])
      .where(eb => eb.or([eb(column, 'is', null), eb(column, '<', usedAt)]))
      .execute(),
  );
}
