/** The audit reads the ledger in these ranges, so no statement reads all of it. */

import { type Database, type Db, query } from '@matting/database/database.ts';
import { ofAccount, throughIndex } from '@matting/database/statements.ts';

/** For each entry a statement reads three more rows. */
export const LEDGER_RANGE = { accountsMax: 500, entriesMax: 2_000, jobsMax: 2_000 };
/** Sorts after every id. */
const END = '~';

/** Accounts by id: `from` is included, `before` is not. */
export interface AccountRange {
  readonly from: string;
  readonly before: string;
  /** Set: the range is this account alone. */
  readonly soleAccountId?: string;
}

export interface TimeRange {
  readonly fromMs: number;
  readonly beforeMs: number;
}

export function rangeOfAccount(accountId: string): AccountRange {
  return { from: accountId, before: nextAfter(accountId), soleAccountId: accountId };
}

/** Sorts after the id and before the next one. */
function nextAfter(id: string): string {
  return `${id}!`;
}

/**
 * Yields ranges of all accounts, including ids that only entries name. An account with more than
 * `entriesMax` entries is a range of its own.
 */
export async function* accountRanges(
  database: Database,
  { accountsMax, entriesMax }: Readonly<typeof LEDGER_RANGE>,
): AsyncGenerator<AccountRange> {
  for (let from = ''; from < END; ) {
    const before = (await readNthAccount(database, { from, before: END }, accountsMax)) ?? END;
    const largeId = await readNthOwner(database, { from, before }, entriesMax);
    yield { from, before: largeId ?? before };
    if (largeId !== undefined) yield rangeOfAccount(largeId);
    from = largeId === undefined ? before : nextAfter(largeId);
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

export const ALL_TIME: TimeRange = { fromMs: 0, beforeMs: Number.MAX_SAFE_INTEGER };
export const NO_TIME: TimeRange = { fromMs: 0, beforeMs: 0 };

/**
 * Splits an account into parts of about `entriesMax` entries.
 * @param instant a transaction of `readInstant`
 */
export async function* timeRangesOf(
  database: Database,
  accountId: string,
  { entriesMax }: Pick<typeof LEDGER_RANGE, 'entriesMax'>,
  instant?: Db,
): AsyncGenerator<TimeRange> {
  for (let { fromMs } = ALL_TIME; ; ) {
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
      yield { ...ALL_TIME, fromMs };
      return;
    }
    const beforeMs = Math.max(next.created_at, fromMs + 1);
    yield { fromMs, beforeMs };
    fromMs = beforeMs;
  }
}
