/**
 * Lists an account's entries with the balance after each, for its owners. The balance is available
 * plus reserved credits: a reservation does not change it, a charge does. No column stores it: it
 * is the current balance minus the newer movements, read in one statement.
 */

import { type Database, type Db, query } from '@matting/database/database.ts';
import { ofAccount, requireInteger } from '@matting/database/statements.ts';
import { sql } from 'kysely';
import type { LedgerKind } from './ledger.ts';
import { ENTRIES_BY_KIND, ENTRIES_BY_TIME } from './ledger-ranges.ts';

const MOVING_KINDS = ['grant', 'charge', 'revoke'] as const satisfies LedgerKind[];

/** A page reads at most this many newer entries for its balances: about 200 pages, about 20 ms. */
const NEWER_ENTRIES_MAX = 20_000;

/** The last row of a page. */
export interface PageCursor {
  readonly atMs: number;
  readonly id: string;
}

export interface LinesFilter {
  /** Not empty. Undefined: the kinds that move the balance. */
  readonly kinds: readonly LedgerKind[] | undefined;
  readonly fromMs: number;
  /** The end, exclusive. Undefined: the present. */
  readonly beforeMs: number | undefined;
  readonly after: PageCursor | undefined;
  readonly limit: number;
}

function effectOf(kind: LedgerKind, amount: number): number {
  if (kind === 'grant') return amount;
  return kind === 'charge' || kind === 'revoke' ? -amount : 0;
}

/**
 * Lists the latest entry first. `balance` is null if `kinds` lacks a kind that moves it, or if more
 * than `newerMax` entries are newer than the page.
 */
export async function readLines(
  database: Database,
  accountId: string,
  requested: LinesFilter,
  newerMax = NEWER_ENTRIES_MAX,
) {
  const filter = { ...requested, kinds: requested.kinds ?? MOVING_KINDS };
  // One statement reads both: two would miss an entry made between them.
  const rows = await query(database, db => {
    const page = selectPage(database, db, accountId, filter);
    return db
      .selectFrom('accounts')
      .innerJoin(page.as('entry'), join => join.onTrue())
      .leftJoin(selectNewer(database, db, accountId, filter, newerMax).as('newer'), join =>
        join.onTrue(),
      )
      .where('accounts.id', '=', accountId)
      .select(['entry.id', 'entry.at_ms as atMs', 'entry.kind', 'entry.amount', 'entry.reference'])
      .select(eb => eb('accounts.available', '+', eb.ref('accounts.reserved')).as('total'))
      .select(['newer.entries', 'newer.moved'])
      .execute();
  });
  rows.sort((one, other) => other.atMs - one.atMs || (other.id < one.id ? -1 : 1));
  const [first] = rows;
  const isKnown =
    MOVING_KINDS.every(kind => filter.kinds.includes(kind)) &&
    requireInteger(first?.entries ?? null) <= newerMax;
  let balance = (first?.total ?? 0) - requireInteger(first?.moved ?? null);
  return rows.map(({ id, atMs, kind, amount, reference }) => {
    const line = { id, atMs, kind, amount, reference, balance: isKnown ? balance : null };
    balance -= effectOf(kind, amount);
    return line;
  });
}

/** Reads each kind along the index, and no row of other kinds. */
function selectPage(
  { dialect }: Database,
  db: Db,
  accountId: string,
  {
    kinds,
    fromMs,
    beforeMs = Number.MAX_SAFE_INTEGER,
    after,
    limit,
  }: LinesFilter & {
    readonly kinds: readonly LedgerKind[];
  },
) {
  const walks = kinds.map(kind => {
    let walk = db
      .selectFrom(ENTRIES_BY_KIND[dialect])
      .select(['id', 'created_at as at_ms', 'kind', 'amount', 'reference'])
      .where(ofAccount(dialect, accountId))
      .where('kind', '=', kind)
      .where('created_at', '>=', fromMs)
      .where('created_at', '<', beforeMs);
    if (after !== undefined) {
      walk = walk
        .where('created_at', '<=', after.atMs)
        .where(eb => eb.or([eb('created_at', '<', after.atMs), eb('id', '<', after.id)]));
    }
    const ordered = walk
      .orderBy('account_id', 'desc')
      .orderBy('kind', 'desc')
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(limit);
    return db.selectFrom(ordered.as('walk')).selectAll();
  });
  const all = walks.reduce((one, other) => one.unionAll(other));
  return db
    .selectFrom(all.as('found'))
    .selectAll()
    .orderBy('at_ms', 'desc')
    .orderBy('id', 'desc')
    .limit(limit);
}

/**
 * Counts the entries that are newer than the page, up to `newerMax` + 1, and sums their changes of
 * the balance.
 */
function selectNewer(
  { dialect }: Database,
  db: Db,
  accountId: string,
  { after, beforeMs }: LinesFilter,
  newerMax: number,
) {
  const atMs = after?.atMs ?? beforeMs ?? Number.MAX_SAFE_INTEGER;
  const newer = db
    .selectFrom(ENTRIES_BY_TIME[dialect])
    .select(['kind', 'amount'])
    .where(ofAccount(dialect, accountId))
    .where('created_at', '>=', atMs)
    .where(eb => eb.or([eb('created_at', '>', atMs), eb('id', '>=', after?.id ?? '')]))
    .orderBy('account_id')
    .orderBy('created_at')
    .orderBy('id')
    .limit(newerMax + 1);
  const moved = sql<number | null>`cast(sum(case kind when 'grant' then amount
    when 'charge' then -amount when 'revoke' then -amount else 0 end) as signed)`;
  return db
    .selectFrom(newer.as('newer_entries'))
    .select(({ fn }) => [fn.countAll<number>().as('entries'), moved.as('moved')]);
}
