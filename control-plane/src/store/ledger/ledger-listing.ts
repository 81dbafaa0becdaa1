/** An account's ledger as its people read it: pages from the latest entry on, filtered. */
import type { LedgerKind } from '../../domain/ledger.ts';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import { query } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import type { PagePlace } from './ledger-pages.ts';

export interface LedgerListing {
  /** Undefined: of every kind. */
  readonly kind?: LedgerKind | undefined;
  /** Created from this instant on. */
  readonly fromMs?: number | undefined;
  /** Created before this instant. */
  readonly beforeMs?: number | undefined;
  /** Behind which entry the page begins. */
  readonly after?: PagePlace | undefined;
  readonly limit: number;
}

export interface ListedEntry extends PagePlace {
  readonly kind: LedgerKind;
  readonly amount: number;
  readonly reference: string;
}

/** Along ledger_entries_account_kind or ledger_entries_account_time, backwards. */
export async function listEntries(
  database: Database,
  accountId: string,
  { kind, fromMs = 0, beforeMs = Number.MAX_SAFE_INTEGER, after, limit }: LedgerListing,
): Promise<ListedEntry[]> {
  if (!isAsciiWord(accountId)) return [];
  const rows = await query(database, db => {
    let page = db
      .selectFrom('ledger_entries')
      .select(['id', 'created_at', 'kind', 'amount', 'reference'])
      .where(ofAccount(database.dialect, accountId))
      .orderBy('account_id', 'desc');
    if (kind !== undefined) page = page.where('kind', '=', kind).orderBy('kind', 'desc');
    if (after === undefined) page = page.where('created_at', '<', beforeMs);
    else {
      const { atMs, id } = after;
      page = page
        .where('created_at', '<=', Math.min(atMs, beforeMs - 1))
        .where(eb => eb.or([eb('created_at', '<', atMs), eb('id', '<', id)]));
    }
    return page
      .where('created_at', '>=', fromMs)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit)
      .execute();
  });
  return rows.map(({ created_at, ...row }) => ({ ...row, atMs: created_at }));
}
