/**
 * The audit behind `credits check`: balances against entries, entries against jobs, in one
 * snapshot. It needs no job row for its verdict on a balance: once a job's row is gone, its reserve
 * and its settlement remain and must still make a pair.
 */
import { type Kysely, sql } from 'kysely';
import { imbalances, type LedgerSlot, type LedgerSums } from '../domain/ledger.ts';
import { requireInteger } from './rows.ts';
import type { Schema } from './schema.ts';

export interface LedgerProblem {
  readonly accountId: string;
  /** null: about the account as a whole. */
  readonly jobId: string | null;
  readonly problem: string;
}

/** Problems reported of one kind: the first ones say what happened, a million do not say more. */
const PROBLEMS_MAX = 100;

export async function checkLedger(db: Kysely<Schema>): Promise<LedgerProblem[]> {
  return [
    ...(await checkBalances(db)),
    ...(await checkOrphanEntries(db)),
    ...(await checkJobs(db)),
    ...(await checkPairs(db)),
  ];
}

function sumOf(kind: string) {
  return sql<number>`cast(sum(case when kind = ${sql.lit(kind)} then amount else 0 end) as signed)`;
}

async function checkBalances(db: Kysely<Schema>): Promise<LedgerProblem[]> {
  const sums = db
    .selectFrom('ledger_entries')
    .select([
      'account_id',
      sumOf('grant').as('granted'),
      sumOf('reserve').as('reserve'),
      sumOf('charge').as('charge'),
      sumOf('release').as('returned'),
      sumOf('revoke').as('revoked'),
    ])
    .groupBy('account_id');
  const open = db
    .selectFrom('jobs')
    .select(eb => ['account_id', eb.fn.countAll<number>().as('jobs')])
    .where('queue_at', 'is not', null)
    .groupBy('account_id');
  const rows = await db
    .selectFrom('accounts')
    .leftJoin(sums.as('sums'), 'sums.account_id', 'accounts.id')
    .leftJoin(open.as('open'), 'open.account_id', 'accounts.id')
    .select([
      'accounts.id',
      'accounts.available',
      'accounts.reserved',
      'sums.granted',
      'sums.reserve',
      'sums.charge',
      'sums.returned',
      'sums.revoked',
      'open.jobs',
    ])
    .orderBy('accounts.id')
    .execute();
  return rows
    .flatMap(row => {
      const entered: LedgerSums = {
        grant: requireInteger(row.granted),
        reserve: requireInteger(row.reserve),
        charge: requireInteger(row.charge),
        release: requireInteger(row.returned),
        revoke: requireInteger(row.revoked),
      };
      return imbalances(row, entered, requireInteger(row.jobs)).map(problem => ({
        accountId: row.id,
        jobId: null,
        problem,
      }));
    })
    .slice(0, PROBLEMS_MAX);
}

/** Entries of an account that does not exist: nobody's balance shows them. */
async function checkOrphanEntries(db: Kysely<Schema>): Promise<LedgerProblem[]> {
  const rows = await db
    .selectFrom('ledger_entries')
    .leftJoin('accounts', 'accounts.id', 'ledger_entries.account_id')
    .select('ledger_entries.account_id')
    .distinct()
    .where('accounts.id', 'is', null)
    .limit(PROBLEMS_MAX)
    .execute();
  return rows.map(row => ({
    accountId: row.account_id,
    jobId: null,
    problem: 'the ledger names an account that does not exist',
  }));
}

/** Every job that still has its row: a reserve, and the settlement its state asks for. */
async function checkJobs(db: Kysely<Schema>): Promise<LedgerProblem[]> {
  const expected = sql<string>`case jobs.state when 'succeeded' then 'charge'
    when 'failed' then 'release' else 'none' end`;
  const rows = await db
    .selectFrom('jobs')
    .leftJoin('ledger_entries as reserve', join =>
      join
        .onRef('reserve.account_id', '=', 'jobs.account_id')
        .onRef('reserve.reference', '=', 'jobs.id')
        .on('reserve.slot', '=', 'reserve'),
    )
    .leftJoin('ledger_entries as settle', join =>
      join
        .onRef('settle.account_id', '=', 'jobs.account_id')
        .onRef('settle.reference', '=', 'jobs.id')
        .on('settle.slot', '=', 'settle'),
    )
    .select(['jobs.account_id', 'jobs.id', 'jobs.state'])
    .select(['reserve.amount as reserved', 'settle.kind as settled', 'settle.amount as moved'])
    .where(eb =>
      eb.or([
        eb('reserve.amount', 'is', null),
        sql<boolean>`coalesce(settle.kind, 'none') <> ${expected}`,
        sql<boolean>`coalesce(settle.amount, reserve.amount) <> reserve.amount`,
      ]),
    )
    .orderBy('jobs.id')
    .limit(PROBLEMS_MAX)
    .execute();
  return rows.map(row => ({
    accountId: row.account_id,
    jobId: row.id,
    problem:
      `the job is ${row.state}, its ledger has ` +
      `${row.reserved === null ? 'no reserve' : `reserve ${row.reserved}`} and ` +
      `${row.settled === null ? 'no settlement' : `${row.settled} ${row.moved}`}`,
  }));
}

/**
 * Entries whose job has no row any more: a reserve must have been settled, and never without one.
 */
async function checkPairs(db: Kysely<Schema>): Promise<LedgerProblem[]> {
  const settlesOrReserves = sql<LedgerSlot>`case entry.slot when 'reserve' then 'settle'
    else 'reserve' end`;
  const rows = await db
    .selectFrom('ledger_entries as entry')
    .leftJoin('jobs', 'jobs.id', 'entry.job_id')
    .leftJoin('ledger_entries as partner', join =>
      join
        .onRef('partner.account_id', '=', 'entry.account_id')
        .onRef('partner.reference', '=', 'entry.reference')
        .on('partner.slot', '=', settlesOrReserves),
    )
    .select(['entry.account_id', 'entry.job_id', 'entry.kind', 'partner.kind as partner'])
    .where('entry.job_id', 'is not', null)
    .where('jobs.id', 'is', null)
    .where(eb =>
      eb.or([eb('partner.id', 'is', null), sql<boolean>`partner.amount <> entry.amount`]),
    )
    .orderBy('entry.job_id')
    .limit(PROBLEMS_MAX)
    .execute();
  return rows.map(row => ({
    accountId: row.account_id,
    jobId: row.job_id,
    problem:
      row.partner === null
        ? `the job's row is gone and its ${row.kind} has no partner`
        : `the job's row is gone and its ${row.kind} and ${row.partner} differ`,
  }));
}
