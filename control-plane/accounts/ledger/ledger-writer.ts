/**
 * The only writer of ledger entries and balances (test/tidy.test.ts checks that). Each function
 * moves a balance and writes its entry in the caller's transaction, always in this order: the
 * account's row, the caller's changes, the entry. So transactions cannot deadlock, and an account's
 * entries become visible in the order of their creation. ledger.ts has the rules.
 */

import { randomUUID } from 'node:crypto';
import type { Database, Schema } from '@matting/database/database.ts';
import {
  isAsciiWord,
  keepStatement,
  keptMatchesOne,
  matchesOne,
} from '@matting/database/statements.ts';
import { ROW_WORK, WorkSlices } from '@matting/program/event-loop.ts';
import { type Kysely, sql } from 'kysely';
import { takeAccount } from '../account-store.ts';
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
}

interface JobOf {
  readonly accountId: string;
  readonly jobId: string;
  readonly jobsInFlightMax?: number;
}

export interface OperatorEntry extends Entry {
  readonly kind: 'grant' | 'revoke';
}

export type OperatorMovement =
  | { readonly kind: 'entered'; readonly balances: Balances }
  | { readonly kind: 'insufficient-credits'; readonly balances: Balances }
  | { readonly kind: 'unknown-account' };

/** Throws if the ledger cannot hold the entry. Callers have checked what people sent. */
export function requireEntry({ amount, reference }: OperatorEntry): void {
  if (!isCreditAmount(amount)) throw new Error(`${amount} is no amount of credits`);
  if (!isLedgerReference(reference)) throw new Error('not a ledger reference: see ledger.ts');
}

/** Rejects with the database's duplicate error if the reference exists. */
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

/** The account's open jobs, paid and free, without jobs not yet created. */
const IN_FLIGHT = sql<number>`reserved - batch_waiting + open_corrections`;
/** Keeps one slot for jobs not yet created, which could otherwise wait indefinitely. */
const SLOTS_USED = sql<number>`${IN_FLIGHT} + (batch_waiting > 0)`;

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
      .where(SLOTS_USED, '<', reservedMax),
);

const OPEN_FREE_JOB = keepStatement<{ accountId: string; inFlightMax: number }>(
  ({ kysely }, { accountId, inFlightMax }) =>
    kysely
      .updateTable('accounts')
      .set(eb => ({ open_corrections: eb('open_corrections', '+', 1) }))
      .where('id', '=', accountId)
      .where(SLOTS_USED, '<', inFlightMax),
);

const CLOSE_FREE_JOB = keepStatement<{ accountId: string }>(({ kysely }, { accountId }) =>
  kysely
    .updateTable('accounts')
    .set(eb => ({ open_corrections: eb('open_corrections', '-', 1) }))
    .where('id', '=', accountId)
    .where('open_corrections', '>=', 1),
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
 * Reserves the credit of a new job and calls `insertJob`, or returns a refusal and changes nothing.
 * IN_FLIGHT has the number of open jobs, so the bound needs no count.
 */
export async function reserveCredit(
  database: Database,
  tx: Kysely<Schema>,
  { accountId, jobId, jobsInFlightMax = 0 }: JobOf,
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
    .select(SLOTS_USED.as('used'))
    .where('id', '=', accountId)
    .executeTakeFirst();
  if (account === undefined) throw new Error(`account ${accountId} does not exist`);
  // The contract's order: jobs in flight before credits.
  return account.used >= reservedMax ? 'too-many-in-flight' : 'insufficient-credits';
}

/**
 * Reserves a credit for each job not yet created, under its id, so the job is charged or released
 * like any other (docs/adr/0054). The caller holds the account's row and has read that the account
 * has the credits.
 */
export async function reserveAhead(
  database: Database,
  tx: Kysely<Schema>,
  accountId: string,
  jobIds: readonly string[],
): Promise<void> {
  const credits = jobIds.length * CREDITS_PER_JOB;
  const update = tx
    .updateTable('accounts')
    .set(eb => ({
      available: eb('available', '-', credits),
      reserved: eb('reserved', '+', credits),
      batch_waiting: eb('batch_waiting', '+', credits),
    }))
    .where('id', '=', accountId)
    .where('available', '>=', credits);
  if (!(await matchesOne(update))) throw new Error(`account ${accountId} has fewer credits`);
  const entries = jobIds.map(jobId => ({
    ...columnsOf(jobEntry('reserve', { accountId, jobId })),
    created_at: database.nowMs,
  }));
  const slices = new WorkSlices();
  for (let from = 0; from < entries.length; from += ENTRIES_MAX) {
    const some = entries.slice(from, from + ENTRIES_MAX);
    await slices.before(some.length * ROW_WORK);
    await tx.insertInto('ledger_entries').values(some).execute();
  }
}

/** Call it when waiting jobs are created. Their credits stay reserved. */
export async function beginReserved(tx: Kysely<Schema>, accountId: string, jobs: number) {
  const credits = jobs * CREDITS_PER_JOB;
  const update = tx
    .updateTable('accounts')
    .set(eb => ({ batch_waiting: eb('batch_waiting', '-', credits) }))
    .where('id', '=', accountId)
    .where('batch_waiting', '>=', credits);
  if (!(await matchesOne(update))) throw new Error(`account ${accountId} has no such jobs to come`);
}

/**
 * Charges or releases the credit of an open job and calls `closeJob`, which closes it.
 * @returns the result of `closeJob`; 'nothing-reserved': the account has no reserved credit, and
 * nothing changed
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
 * Counts a new free job as open and locks the account's row. It writes no entry and moves no
 * balance. False: too many jobs are in flight, and nothing changed.
 */
export function openFreeJob(
  database: Database,
  tx: Kysely<Schema>,
  { accountId, jobsInFlightMax = 0 }: Omit<JobOf, 'jobId'>,
): Promise<boolean> {
  const inFlightMax = jobsInFlightMax * CREDITS_PER_JOB;
  return keptMatchesOne(tx, OPEN_FREE_JOB(database, { accountId, inFlightMax }));
}

/** False: the account has no such open job, and nothing changed. */
export const closeFreeJob = (database: Database, tx: Kysely<Schema>, accountId: string) =>
  keptMatchesOne(tx, CLOSE_FREE_JOB(database, { accountId }));

/**
 * Locks the account's row before it reads, so only this transaction can change the returned
 * balances until it ends.
 * @returns undefined: no such account
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

export async function readInFlight(db: Kysely<Schema>, accountId: string): Promise<number> {
  const accounts = db.selectFrom('accounts').select(IN_FLIGHT.as('open'));
  const row = await accounts.where('id', '=', accountId).executeTakeFirst();
  return row?.open ?? 0;
}

export function selectSettlement(
  db: Kysely<Schema>,
  { accountId, jobId }: Pick<JobOf, 'accountId' | 'jobId'>,
) {
  return db
    .selectFrom('ledger_entries')
    .where('account_id', '=', accountId)
    .where('slot', '=', SLOT_OF.charge)
    .where('reference', '=', jobId);
}

function jobEntry(kind: LedgerKind, { accountId, jobId }: JobOf): Entry {
  return { kind, accountId, reference: jobId, amount: CREDITS_PER_JOB };
}

const ENTRIES_MAX = 100;

const INSERT_ENTRY = keepStatement<ReturnType<typeof columnsOf>>(({ kysely, nowMs }, columns) =>
  kysely.insertInto('ledger_entries').values({ ...columns, created_at: nowMs }),
);

function columnsOf({ kind, accountId, amount, reference }: Entry) {
  const jobId = kind === 'grant' || kind === 'revoke' ? null : reference;
  const columns = { account_id: accountId, job_id: jobId, kind, slot: SLOT_OF[kind] };
  return { id: randomUUID(), ...columns, reference, amount };
}

async function insertEntry(database: Database, tx: Kysely<Schema>, entry: Entry): Promise<void> {
  await tx.executeQuery(INSERT_ENTRY(database, columnsOf(entry)));
}
