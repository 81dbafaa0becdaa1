/**
 * The operator's side of the ledger: grants, revocations, what an account has. Entries about jobs
 * are written with the job (job-submission.ts, job-completion.ts). domain/ledger.ts has the rules.
 */
import { randomUUID } from 'node:crypto';
import type { Kysely } from 'kysely';
import {
  type Balances,
  isCreditAmount,
  isLedgerReference,
  type LedgerSums,
  SLOT_OF,
} from '../../domain/ledger.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import { isAsciiWord } from '../database/rows.ts';
import type { Schema } from '../database/schema.ts';
import { query, readBack, transact } from '../database/transact.ts';
import type { LedgerProblem } from './ledger-account-audit.ts';
import {
  type AuditOptions,
  auditLedger,
  auditOneAccount,
  type LedgerAudit,
} from './ledger-audit.ts';
import { type LastAudit, readLastAudits } from './ledger-audit-runs.ts';

export type LedgerOutcome =
  | { readonly kind: 'entered'; readonly balances: Balances }
  /** This reference was entered before with this amount: nothing moved now. */
  | { readonly kind: 'already-entered'; readonly balances: Balances }
  /** This reference was entered before with another amount. */
  | { readonly kind: 'reference-conflict'; readonly amount: number }
  /** Only of revoke: fewer are available. */
  | { readonly kind: 'insufficient-credits'; readonly balances: Balances }
  | { readonly kind: 'unknown-account' };

export interface AccountCredits extends Balances {
  /** Sums of all entries by kind. */
  readonly sums: LedgerSums;
}

export interface LedgerStore {
  /** Idempotent by (account, reference). */
  grant(accountId: string, amount: number, reference: string): Promise<LedgerOutcome>;
  /**
   * Takes back what is available, all of the amount or nothing. Idempotent by (account, reference).
   */
  revoke(accountId: string, amount: number, reference: string): Promise<LedgerOutcome>;
  /** Undefined: no such account. One row is read. */
  balances(accountId: string): Promise<Balances | undefined>;
  /**
   * With the sums of its entries: of the last checkpoint and of those since, which are checked, and
   * closed where they are many. Undefined: no such account.
   */
  credits(accountId: string): Promise<AccountCredits | undefined>;
  /** ledger-audit.ts. */
  audit(options?: AuditOptions): Promise<LedgerAudit>;
  /** What an incremental audit finds wrong, in one account or in all; empty: nothing. */
  check(accountId?: string): Promise<readonly LedgerProblem[]>;
  /** How the last audits ended, of each kind. */
  lastAudits(): Promise<LastAudit[]>;
}

export function createLedgerStore(database: Database): LedgerStore {
  return {
    grant: (accountId, amount, reference) =>
      enter(database, { kind: 'grant', accountId, amount, reference }),
    revoke: (accountId, amount, reference) =>
      enter(database, { kind: 'revoke', accountId, amount, reference }),
    balances: accountId => query(database, db => readBalances(db, accountId)),
    async credits(accountId) {
      if (!isAsciiWord(accountId)) return undefined;
      const { balances, sums } = await auditOneAccount(database, accountId);
      return balances && { ...balances, sums };
    },
    audit: options => auditLedger(database, options),
    check: async accountId => (await auditLedger(database, { accountId })).problems,
    lastAudits: () => readLastAudits(database),
  };
}

interface OperatorEntry {
  readonly kind: 'grant' | 'revoke';
  readonly accountId: string;
  readonly amount: number;
  readonly reference: string;
}

async function enter(database: Database, entry: OperatorEntry): Promise<LedgerOutcome> {
  requireEntry(entry);
  const before = await earlierOutcome(database, entry);
  if (before !== undefined) return before;
  let outcome: LedgerOutcome;
  try {
    outcome = await transact(database, tx => enterIn(database, tx, entry));
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
    // A twin entered it between our read and our insert.
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
  return readBack(database, async db => {
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

/** In the caller's transaction: moves the balance and writes the entry. The account comes first. */
export async function enterIn(
  database: Database,
  tx: Kysely<Schema>,
  entry: OperatorEntry,
): Promise<LedgerOutcome> {
  const { kind, accountId, amount, reference } = entry;
  if (!isCreditAmount(amount)) throw new Error(`${amount} is no amount of credits`);
  if (!isLedgerReference(reference))
    throw new Error('not a ledger reference: see domain/ledger.ts');
  const { numUpdatedRows } = await tx
    .updateTable('accounts')
    .set(eb => ({ available: eb('available', kind === 'grant' ? '+' : '-', amount) }))
    .where('id', '=', accountId)
    .$if(kind === 'revoke', update => update.where('available', '>=', amount))
    .executeTakeFirstOrThrow();
  const balances = await readBalances(tx, accountId);
  if (balances === undefined) return { kind: 'unknown-account' };
  if (numUpdatedRows !== 1n) return { kind: 'insufficient-credits', balances };
  await tx
    .insertInto('ledger_entries')
    .values({
      id: randomUUID(),
      account_id: accountId,
      kind,
      slot: SLOT_OF[kind],
      reference,
      amount,
      created_at: database.nowMs,
    })
    .execute();
  return { kind: 'entered', balances };
}

function requireEntry({ amount, reference }: OperatorEntry): void {
  if (!isCreditAmount(amount)) throw new Error(`${amount} is no amount of credits`);
  if (!isLedgerReference(reference))
    throw new Error('not a ledger reference: see domain/ledger.ts');
}

async function readBalances(db: Kysely<Schema>, accountId: string): Promise<Balances | undefined> {
  if (!isAsciiWord(accountId)) return undefined;
  const row = await db
    .selectFrom('accounts')
    .select(['available', 'reserved'])
    .where('id', '=', accountId)
    .executeTakeFirst();
  return row && { available: row.available, reserved: row.reserved };
}
