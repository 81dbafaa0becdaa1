/** Ranges of the ledger for the audit, so no statement reads all of it. */

import { type Database, type Db, query } from '@matting/database/database.ts';
import { ofAccount, throughIndex } from '@matting/database/statements.ts';

/** Bounds of a range. A statement reads three more rows for each entry. */
export const LEDGER_RANGE = { accountsMax: 500, entriesMax: 2_000, jobsMax: 2_000 };
/** Sorts after every id. */
const END = '~';

/** Accounts by id, from `from` up to but without `before`. */
export interface AccountRange {
  readonly from: string;
  readonly before: string;
  /** The range is this account alone. */
  readonly only?: string;
}

/** A part of a large account. */
export interface TimeRange {
  readonly fromMs: number;
  readonly beforeMs: number;
}

export function only(accountId: string): AccountRange {
  return { from: accountId, before: behind(accountId), only: accountId };
}

/** The first text that may follow an id. */
function behind(id: string): string {
  return `${id}!`;
}

/**
 * Yields ranges of all accounts, and of ids that only entries name. An account with more than
 * `entriesMax` entries is a range by itself.
 */
export async function* accountRanges(
  database: Database,
  { accountsMax, entriesMax }: Readonly<typeof LEDGER_RANGE>,
): AsyncGenerator<AccountRange> {
  for (let from = ''; from < END; ) {
    const before = (await readNthAccount(database, { from, before: END }, accountsMax)) ?? END;
    const large = await readNthOwner(database, { from, before }, entriesMax);
    yield { from, before: large ?? before };
    if (large !== undefined) yield only(large);
    from = large === undefined ? before : behind(large);
  }
}

async function readNthAccount(database: Database, { from, before }: AccountRange, n: number) {
  const row = await query(database, db =>
    db
      .selectFrom('accounts')
      .select('id')
      .where('id', '>=', from)
      .where('id', '<', before)
      .orderBy('id')
      .limit(1)
      .offset(n)
      .executeTakeFirst(),
  );
  return row?.id;
}

/** The account with the n-th entry of a range. */
async function readNthOwner(database: Database, { from, before }: AccountRange, n: number) {
  const row = await query(database, db =>
    db
      .selectFrom(ENTRIES_BY_TIME[database.dialect])
      .select('account_id')
      .where('account_id', '>=', from)
      .where('account_id', '<', before)
      .orderBy('account_id')
      .limit(1)
      .offset(n)
      .executeTakeFirst(),
  );
  return row?.account_id;
}

export const ENTRIES_BY_KIND = throughIndex('ledger_entries', 'ledger_entries_account_kind');
export const ENTRIES_BY_TIME = throughIndex('ledger_entries', 'ledger_entries_account_time');

export const ALWAYS: TimeRange = { fromMs: 0, beforeMs: Number.MAX_SAFE_INTEGER };
export const NEVER: TimeRange = { fromMs: 0, beforeMs: 0 };

/**
 * Parts of an account with about `entriesMax` entries each. @param instant a transaction of
 * `readInstant`
 */
export async function* timesOf(
  database: Database,
  accountId: string,
  { entriesMax }: Pick<typeof LEDGER_RANGE, 'entriesMax'>,
  instant?: Db,
): AsyncGenerator<TimeRange> {
  for (let { fromMs } = ALWAYS; ; ) {
    const read = (db: Db) =>
      db
        .selectFrom(ENTRIES_BY_TIME[database.dialect])
        .select('created_at')
        .where(ofAccount(database.dialect, accountId))
        .where('created_at', '>=', fromMs)
        .orderBy('account_id')
        .orderBy('created_at')
        .limit(1)
        .offset(entriesMax)
        .executeTakeFirst();
    const next = await (instant === undefined ? query(database, read) : read(instant));
    if (next === undefined) {
      yield { ...ALWAYS, fromMs };
      return;
    }
    const beforeMs = Math.max(next.created_at, fromMs + 1);
    yield { fromMs, beforeMs };
    fromMs = beforeMs;
  }
}
