/** The quota that replicas lease from: one row an account and kind, moved by compare-and-set. */

import type { Database } from '../database/connect.ts';
import type { Db } from '../database/schema.ts';
import { OvertakenError, query, readNowMs } from '../database/transact.ts';
import { isInserted, matchesOne } from '../database/values.ts';
import { leaseQuota, type QuotaAsk, type QuotaLease, type RateKind } from './rate-quota.ts';

export type RateQuotaStore = ReturnType<typeof createRateQuotaStore>;

export function createRateQuotaStore(database: Database) {
  return {
    /** The database's clock, UTC milliseconds: what windows go by. */
    nowMs: () => readNowMs(database),
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
    // With a window long past.
    const values = { account_id: accountId, kind, window_start: 0, leased: 0 };
    await isInserted(db.insertInto('rate_quotas').values(values).execute());
    throw new OvertakenError('the row of the quota was made just now');
  }
  const lease = leaseQuota({ windowStartMs: row.window_start, leased: row.leased }, ask, row.now);
  const { windowStartMs, leased } = lease;
  if (windowStartMs === row.window_start && leased === row.leased) return lease;
  const update = db
    .updateTable('rate_quotas')
    .set({ window_start: windowStartMs, leased })
    .where('account_id', '=', accountId)
    .where('kind', '=', kind)
    .where('window_start', '=', row.window_start)
    .where('leased', '=', row.leased);
  if (!(await matchesOne(update))) throw new OvertakenError('another replica leased of the quota');
  return lease;
}
