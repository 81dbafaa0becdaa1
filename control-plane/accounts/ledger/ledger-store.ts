import { type Database, query, transact } from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { isAsciiWord, ofAccount, requireInteger } from '@matting/database/statements.ts';
import { sql } from 'kysely';
import { type AuditEntry, insertAuditEntry, type ServiceActor } from '../audit-log.ts';
import { type Balances, isReservedReference, type LedgerKind, SLOT_OF } from './ledger.ts';
import { type LinesFilter, type PageCursor, readLines } from './ledger-lines.ts';
import { ENTRIES_BY_KIND, ENTRIES_BY_TIME } from './ledger-ranges.ts';
import {
  enterOperatorEntry,
  type OperatorEntry,
  type OperatorMovement,
  readBalances,
  readInFlight,
  requireEntry,
} from './ledger-writer.ts';

export type LedgerOutcome =
  | OperatorMovement
  /** An entry with this reference and amount exists, so nothing moved. */
  | { readonly kind: 'already-entered'; readonly balances: Balances }
  | { readonly kind: 'reference-conflict'; readonly amount: number };

interface LedgerListing {
  readonly kind?: LedgerKind | undefined;
  readonly fromMs?: number | undefined;
  readonly beforeMs?: number | undefined;
  readonly after?: PageCursor | undefined;
  readonly limit: number;
}

export function createLedgerStore(database: Database) {
  /**
   * Idempotent by account and reference.
   * @param audit the log entry of the same transaction
   */
  const entering =
    (kind: OperatorEntry['kind']) =>
    (accountId: string, amount: number, reference: string, audit?: AuditEntry<ServiceActor>) =>
      enter(database, { kind, accountId, amount, reference }, audit);
  return {
    grant: entering('grant'),
    /** Takes the whole amount from the available credits, or nothing. */
    revoke: entering('revoke'),
    list: (accountId: string, page: LedgerListing) => listEntries(database, accountId, page),
    lines: (accountId: string, filter: LinesFilter) => readLines(database, accountId, filter),
    /** The account's open jobs; 0: no such account. */
    inFlight: (accountId: string) => query(database, db => readInFlight(db, accountId)),
    /** Undefined: no such account. Reads one row. */
    balances: (accountId: string) => query(database, db => readBalances(db, accountId)),
    /**
     * Undefined: no such account. One statement, which reads grants and revocations but no job's
     * entry.
     */
    credits: (accountId: string) => readCredits(database, accountId),
  };
}

export type LedgerStore = ReturnType<typeof createLedgerStore>;

async function enter(
  database: Database,
  entry: OperatorEntry,
  audit: AuditEntry<ServiceActor> | undefined,
): Promise<LedgerOutcome> {
  requireEntry(entry);
  if (isReservedReference(entry.reference))
    throw new Error('a reference that orders or lost results alone enter');
  const before = await earlierOutcome(database, entry);
  if (before !== undefined) return before;
  let outcome: LedgerOutcome;
  try {
    outcome = await transact(database, async tx => {
      const moved = await enterOperatorEntry(database, tx, entry);
      if (moved.kind === 'entered' && audit !== undefined) {
        await insertAuditEntry(database, tx, audit);
      }
      return moved;
    });
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
    // Another call made the entry between our read and our insert.
    const twin = await earlierOutcome(database, entry);
    if (twin === undefined) throw error;
    return twin;
  }
  if (outcome.kind !== 'insufficient-credits') return outcome;
  return (await earlierOutcome(database, entry)) ?? outcome;
}

async function earlierOutcome(
  database: Database,
  entry: OperatorEntry,
): Promise<LedgerOutcome | undefined> {
  return query(database, async db => {
    const earlier = await db
      .selectFrom('ledger_entries')
      .select('amount')
      .where('account_id', '=', entry.accountId)
      .where('slot', '=', SLOT_OF[entry.kind])
      .where('reference', '=', entry.reference)
      .executeTakeFirst();
    if (earlier === undefined) return undefined;
    if (earlier.amount !== entry.amount) {
      return { kind: 'reference-conflict', amount: earlier.amount };
    }
    const balances = await readBalances(db, entry.accountId);
    return balances && { kind: 'already-entered', balances };
  });
}

/** Derives the charged credits from the other sums. The audit checks them against the charges. */
async function readCredits(database: Database, accountId: string) {
  if (!isAsciiWord(accountId)) return undefined;
  const { dialect } = database;
  const row = await query(database, db => {
    const sumOf = (kind: OperatorEntry['kind']) =>
      db
        .selectFrom(ENTRIES_BY_KIND[dialect])
        .select(sql<number>`cast(coalesce(sum(amount), 0) as signed)`.as('sum'))
        .where(ofAccount(dialect, accountId))
        .where('kind', '=', kind);
    return db
      .selectFrom('accounts')
      .select(['available', 'reserved'])
      .select([sumOf('grant').as('granted'), sumOf('revoke').as('revoked')])
      .where('id', '=', accountId)
      .executeTakeFirst();
  });
  if (row === undefined) return undefined;
  const { available, reserved } = row;
  const granted = requireInteger(row.granted);
  const revoked = requireInteger(row.revoked);
  const charged = granted - revoked - available - reserved;
  return { available, reserved, charged, granted, revoked };
}

async function listEntries(
  database: Database,
  accountId: string,
  { kind, fromMs = 0, beforeMs = Number.MAX_SAFE_INTEGER, after, limit }: LedgerListing,
) {
  if (!isAsciiWord(accountId)) return [];
  const { dialect } = database;
  return query(database, db => {
    let page = db
      .selectFrom((kind === undefined ? ENTRIES_BY_TIME : ENTRIES_BY_KIND)[dialect])
      .select(['id', 'created_at as atMs', 'kind', 'amount', 'reference'])
      .where(ofAccount(dialect, accountId))
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
}
