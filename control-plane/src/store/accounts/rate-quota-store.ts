/** The quota that replicas lease from: one row an account and kind, moved by compare-and-set. */
import {
  leaseQuota,
  type QuotaAsk,
  type QuotaLease,
  type RateKind,
} from '../../domain/rate-quota.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import type { Db } from '../database/schema.ts';
import { OvertakenError, query } from '../database/transact.ts';

export type RateQuotaStore = ReturnType<typeof createRateQuotaStore>;

export function createRateQuotaStore(database: Database) {
  return {
    /** The database's clock, UTC milliseconds: what windows go by. */
    async nowMs(): Promise<number> {
      const row = await query(database, db =>
        db.selectNoFrom(database.nowMs.as('now')).executeTakeFirstOrThrow(),
      );
      return row.now;
    },
    /** Rejects with SERVICE_UNAVAILABLE while the database does not answer. */
    lease: (accountId: string, kind: RateKind, ask: QuotaAsk) =>
      query(database, db => leaseFrom(database, db, accountId, kind, ask)),
  };
}

/**
 * Throws OvertakenError where another replica was faster. An update whose answer was lost and that
 * runs again finds the row moved and leases anew: a block of the quota is then lost, never one too
 * many.
 */
async function leaseFrom(
  database: Database,
  db: Db,
  accountId: string,
  kind: RateKind,
  ask: QuotaAsk,
): Promise<QuotaLease> {
  const row = await db
    .selectFrom('rate_quotas')
    .select(['window_start', 'leased', database.nowMs.as('now')])
    .where('account_id', '=', accountId)
    .where('kind', '=', kind)
    .executeTakeFirst();
  if (row === undefined) {
    await createRow(db, accountId, kind);
    throw new OvertakenError('the row of the quota was made just now');
  }
  const lease = leaseQuota({ windowStartMs: row.window_start, leased: row.leased }, ask, row.now);
  const { windowStartMs, leased } = lease;
  if (windowStartMs === row.window_start && leased === row.leased) return lease;
  const { numUpdatedRows } = await db
    .updateTable('rate_quotas')
    .set({ window_start: windowStartMs, leased })
    .where('account_id', '=', accountId)
    .where('kind', '=', kind)
    .where('window_start', '=', row.window_start)
    .where('leased', '=', row.leased)
    .executeTakeFirstOrThrow();
  if (numUpdatedRows !== 1n) throw new OvertakenError('another replica leased of the quota');
  return lease;
}

/** With a window long past. Another replica may have made the row in the meantime. */
async function createRow(db: Db, accountId: string, kind: RateKind): Promise<void> {
  try {
    await db
      .insertInto('rate_quotas')
      .values({ account_id: accountId, kind, window_start: 0, leased: 0 })
      .execute();
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
}
