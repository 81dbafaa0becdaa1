/**
 * The only writer of ledger entries and of balances (test/tidy.test.ts holds that). Each function
 * moves an account's balance and writes the entry of that movement, in the caller's transaction and
 * in one order: the account's row, what the caller changes with it, the entry. So no transactions
 * wait for each other in a circle, and the entries of an account become visible in the order of
 * their creation. core/ledger/ledger.ts has the rules.
 */

import { randomUUID } from 'node:crypto';
import type { Database, Schema } from '@matting/database/database.ts';
import { isAsciiWord, keepStatement, keptMatchesOne } from '@matting/database/statements.ts';
import type { Kysely } from 'kysely';
import { takeAccount } from '../accounts/account-store.ts';
import {
  type Balances,
  CREDITS_PER_JOB,
  isCreditAmount,
  isLedgerReference,
  type LedgerKind,
  SLOT_OF,
} from './ledger.ts';

interface Entry {
  readonly kind: LedgerKind;
  readonly accountId: string;
  readonly amount: number;
  readonly reference: string;
  readonly jobId?: string;
}

interface JobOf {
  readonly accountId: string;
  readonly jobId: string;
}

export interface OperatorEntry extends Omit<Entry, 'jobId'> {
  readonly kind: 'grant' | 'revoke';
}

export type OperatorMovement =
  | { readonly kind: 'entered'; readonly balances: Balances }
  | { readonly kind: 'insufficient-credits'; readonly balances: Balances }
  | { readonly kind: 'unknown-account' };

/** Throws for an entry that the ledger cannot hold: callers have checked what people typed. */
export function requireEntry({ amount, reference }: OperatorEntry): void {
  if (!isCreditAmount(amount)) throw new Error(`${amount} is no amount of credits`);
  if (!isLedgerReference(reference)) {
    throw new Error('not a ledger reference: see ledger.ts');
  }
}

/** Rejects with a duplicate where the reference was entered before. */
export async function enterOperatorEntry(
  database: Database,
  tx: Kysely<Schema>,
  entry: OperatorEntry,
): Promise<OperatorMovement> {
  requireEntry(entry);
  const { kind, accountId, amount } = entry;
  const { numUpdatedRows } = await tx
    .updateTable('accounts')
    .set(eb => ({ available: eb('available', kind === 'grant' ? '+' : '-', amount) }))
    .where('id', '=', accountId)
    .$if(kind === 'revoke', update => update.where('available', '>=', amount))
    .executeTakeFirstOrThrow();
  const balances = await readBalances(tx, accountId);
  if (balances === undefined) return { kind: 'unknown-account' };
  if (numUpdatedRows !== 1n) return { kind: 'insufficient-credits', balances };
  await insertEntry(database, tx, entry);
  return { kind: 'entered', balances };
}

const RESERVE = keepStatement<{ accountId: string; reservedMax: number }>(
  ({ kysely }, { accountId, reservedMax }) =>
    kysely
      .updateTable('accounts')
      .set(eb => ({
        available: eb('available', '-', CREDITS_PER_JOB),
        reserved: eb('reserved', '+', CREDITS_PER_JOB),
      }))
      .where('id', '=', accountId)
      .where('available', '>=', CREDITS_PER_JOB)
      .where('reserved', '<', reservedMax),
);

const SETTLE = keepStatement<{ accountId: string; returned: number }>(
  ({ kysely }, { accountId, returned }) =>
    kysely
      .updateTable('accounts')
      .set(eb => ({
        available: eb('available', '+', returned),
        reserved: eb('reserved', '-', CREDITS_PER_JOB),
      }))
      .where('id', '=', accountId)
      .where('reserved', '>=', CREDITS_PER_JOB),
);

/**
 * Reserves the credit of a new job, which `insertJob` inserts; or says why not, and nothing changed.
 * `reserved` is the number of open jobs (core/ledger/ledger.ts), so the bound costs no count.
 */
export async function reserveCredit(
  database: Database,
  tx: Kysely<Schema>,
  { accountId, jobId, jobsInFlightMax }: JobOf & { readonly jobsInFlightMax: number },
  insertJob: () => Promise<void>,
): Promise<'reserved' | 'insufficient-credits' | 'too-many-in-flight'> {
  const reservedMax = jobsInFlightMax * CREDITS_PER_JOB;
  if (await keptMatchesOne(tx, RESERVE(database, { accountId, reservedMax }))) {
    await insertJob();
    await insertEntry(database, tx, jobEntry('reserve', { accountId, jobId }));
    return 'reserved';
  }
  const account = await tx
    .selectFrom('accounts')
    .select('reserved')
    .where('id', '=', accountId)
    .executeTakeFirst();
  if (account === undefined) throw new Error(`account ${accountId} does not exist`);
  // The contract's order: jobs in flight before credits.
  const full = account.reserved >= reservedMax;
  return full ? 'too-many-in-flight' : 'insufficient-credits';
}

/**
 * Charges or releases the credit of an open job, which `closeJob` closes, and answers what that
 * answers; 'nothing-reserved', and nothing changed, where the account has no credit reserved. The
 * entry says that usage_days counts it: the caller does so in the same transaction.
 */
export async function settleCredit<T>(
  database: Database,
  tx: Kysely<Schema>,
  { kind, accountId, jobId }: JobOf & { readonly kind: 'charge' | 'release' },
  closeJob: () => Promise<T>,
): Promise<T | 'nothing-reserved'> {
  const returned = kind === 'release' ? CREDITS_PER_JOB : 0;
  const settled = await keptMatchesOne(tx, SETTLE(database, { accountId, returned }));
  if (!settled) return 'nothing-reserved';
  const closed = await closeJob();
  await insertEntry(database, tx, jobEntry(kind, { accountId, jobId }));
  return closed;
}

/**
 * Takes the account's row before anything else is read: its balances stay as they are answered until
 * the transaction ends, but for what it enters itself. Undefined: no such account.
 */
export async function holdAccount(
  database: Database,
  tx: Kysely<Schema>,
  accountId: string,
): Promise<Balances | undefined> {
  await takeAccount(database, tx, accountId);
  return readBalances(tx, accountId);
}

export async function readBalances(
  db: Kysely<Schema>,
  accountId: string,
): Promise<Balances | undefined> {
  if (!isAsciiWord(accountId)) return undefined;
  const row = await db
    .selectFrom('accounts')
    .select(['available', 'reserved'])
    .where('id', '=', accountId)
    .executeTakeFirst();
  return row && { available: row.available, reserved: row.reserved };
}

function jobEntry(kind: LedgerKind, job: JobOf): Entry {
  return { kind, ...job, reference: job.jobId, amount: CREDITS_PER_JOB };
}

type EntryValues = Omit<Entry, 'jobId'> & {
  readonly id: string;
  readonly slot: (typeof SLOT_OF)[LedgerKind];
  readonly jobId: string | null;
};

const INSERT_ENTRY = keepStatement<EntryValues>(({ kysely, nowMs }, at) =>
  kysely.insertInto('ledger_entries').values({
    id: at.id,
    account_id: at.accountId,
    job_id: at.jobId,
    kind: at.kind,
    slot: at.slot,
    reference: at.reference,
    amount: at.amount,
    created_at: nowMs,
  }),
);

async function insertEntry(
  database: Database,
  tx: Kysely<Schema>,
  { kind, accountId, amount, reference, jobId }: Entry,
): Promise<void> {
  const values: EntryValues = {
    id: randomUUID(),
    accountId,
    jobId: jobId ?? null,
    kind,
    slot: SLOT_OF[kind],
    reference,
    amount,
  };
  await tx.executeQuery(INSERT_ENTRY(database, values));
}
