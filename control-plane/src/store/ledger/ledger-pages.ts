/**
 * The statements of the ledger's audit. Each reads a bounded number of rows, whatever the tables
 * hold, and is consistent by itself: none needs a transaction, which not every engine gives to
 * readers, and no snapshot is held from one to the next. All of them are read back: a server that
 * lags behind the writers we waited for would make a correct ledger seem wrong.
 */
import { type Kysely, sql } from 'kysely';
import { type JobState, OPEN_STATES } from '../../domain/job.ts';
import type { JobEntries, LedgerKind, LedgerSlot, LedgerSums } from '../../domain/ledger.ts';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Schema } from '../database/schema.ts';
import { readBack } from '../database/transact.ts';
import { requireInteger } from '../database/values.ts';

/** Entries or jobs of one statement. With what belongs to each it reads three times as many rows. */
export const LEDGER_PAGE_ROWS = 500;
/** Accounts of one statement. */
const ACCOUNTS_PAGE_ROWS = 200;

/** A place in the order of an account's entries, or of the jobs: what comes next is after it. */
export interface PagePlace {
  readonly atMs: number;
  readonly id: string;
}

export interface AccountState {
  /** Undefined: there is no such account. */
  readonly balances: { readonly available: number; readonly reserved: number } | undefined;
  /** Those that are paid for. */
  readonly openJobs: number;
  /** Number of entries from a point on, at most one more than a page. */
  readonly entries: number;
  readonly sums: LedgerSums;
  /** null: there is none. */
  readonly firstEntryAtMs: number | null;
  /** The database's clock. */
  readonly nowMs: number;
}

export interface EntryRow extends PagePlace {
  readonly kind: LedgerKind;
  readonly slot: LedgerSlot;
  readonly amount: number;
  /** null: an operator's entry. */
  readonly jobId: string | null;
  /** The other entry of its job, for an entry of a job. */
  readonly partner: { readonly kind: LedgerKind; readonly amount: number } | null;
  /** null: the job's row is gone, or there is no job. */
  readonly job: {
    readonly state: JobState;
    readonly accountId: string;
    readonly isPlayground: boolean;
  } | null;
}

export interface JobEntriesRow extends PagePlace, JobEntries {
  readonly accountId: string;
  readonly state: JobState;
  readonly isPlayground: boolean;
}

/** The entries of an account, in their order, from an instant on. */
function entriesOf(database: Database, db: Kysely<Schema>, accountId: string, fromMs: number) {
  return db
    .selectFrom('ledger_entries')
    .where(ofAccount(database.dialect, accountId))
    .where('created_at', '>=', fromMs)
    .orderBy('account_id')
    .orderBy('created_at')
    .orderBy('id');
}

/** A balance, and what the ledger adds to it since a point, as they are at one instant. */
export async function readAccountState(
  database: Database,
  accountId: string,
  fromMs: number,
  pageRows: number,
): Promise<AccountState> {
  const row = await readBack(database, db =>
    selectAccountState(database, db, { accountId, fromMs, pageRows }).executeTakeFirstOrThrow(),
  );
  const { available, reserved } = row;
  return {
    balances: available === null || reserved === null ? undefined : { available, reserved },
    openJobs: requireInteger(row.open_jobs),
    entries: requireInteger(row.entries),
    sums: {
      grant: requireInteger(row.grant),
      reserve: requireInteger(row.reserve),
      charge: requireInteger(row.charge),
      release: requireInteger(row.release),
      revoke: requireInteger(row.revoke),
    },
    firstEntryAtMs: row.first_at,
    nowMs: row.now,
  };
}

function selectAccountState(
  database: Database,
  db: Kysely<Schema>,
  { accountId, fromMs, pageRows }: { accountId: string; fromMs: number; pageRows: number },
) {
  const rows = entriesOf(database, db, accountId, fromMs)
    .select(['kind', 'amount', 'created_at'])
    .limit(pageRows + 1);
  const sumOf = (kind: LedgerKind) =>
    sql<number | null>`cast(sum(case when kind = ${sql.lit(kind)} then amount else 0 end)
      as signed)`.as(kind);
  const tail = db
    .selectFrom(rows.as('entry'))
    .select(eb => [
      eb.fn.countAll<number>().as('entries'),
      eb.fn.min<number | null>('created_at').as('first_at'),
      ...(['grant', 'reserve', 'charge', 'release', 'revoke'] as const).map(sumOf),
    ]);
  return db
    .selectFrom(tail.as('tail'))
    .leftJoin('accounts', join => join.on('accounts.id', '=', accountId))
    .selectAll('tail')
    .select(eb => [
      'accounts.available',
      'accounts.reserved',
      eb
        .selectFrom('jobs')
        .select(({ fn }) => fn.countAll<number>().as('open'))
        .where('account_id', '=', accountId)
        .where('state', 'in', OPEN_STATES)
        .where('playground_day', 'is', null)
        .as('open_jobs'),
      database.nowMs.as('now'),
    ]);
}

/** Which entries of an account: after a place, created before an instant, so many at most. */
export interface EntryPage {
  readonly after: PagePlace;
  readonly beforeMs: number;
  readonly pageRows: number;
}

/**
 * An account's next entries, in their order, each with what must agree with it. An entry comes twice
 * where it has two partners, which the unique key forbids.
 */
export async function readEntries(
  database: Database,
  accountId: string,
  page: EntryPage,
): Promise<EntryRow[]> {
  const rows = await readBack(database, db =>
    selectEntries(database, db, accountId, page).execute(),
  );
  return rows.map(row => ({
    id: row.id,
    atMs: row.created_at,
    kind: row.kind,
    slot: row.slot,
    amount: row.amount,
    jobId: row.job_id,
    partner:
      row.partner_kind === null || row.partner_amount === null
        ? null
        : { kind: row.partner_kind, amount: row.partner_amount },
    job:
      row.job_state === null || row.job_account === null
        ? null
        : {
            state: row.job_state,
            accountId: row.job_account,
            isPlayground: row.job_day !== null,
          },
  }));
}

function selectEntries(
  database: Database,
  db: Kysely<Schema>,
  accountId: string,
  { after, beforeMs, pageRows }: EntryPage,
) {
  const page = entriesOf(database, db, accountId, after.atMs)
    .select(['id', 'account_id', 'kind', 'slot', 'amount', 'created_at', 'job_id'])
    .where('created_at', '<', beforeMs)
    .where(eb => eb.or([eb('created_at', '>', after.atMs), eb('id', '>', after.id)]))
    .limit(pageRows);
  const otherSlot = sql<LedgerSlot>`case entry.slot when 'reserve' then 'settle' else 'reserve' end`;
  return db
    .selectFrom(page.as('entry'))
    .leftJoin('ledger_entries as partner', join =>
      join
        .onRef('partner.account_id', '=', 'entry.account_id')
        .onRef('partner.reference', '=', 'entry.job_id')
        .on('partner.slot', '=', otherSlot),
    )
    .leftJoin('jobs as job', 'job.id', 'entry.job_id')
    .selectAll('entry')
    .select(['partner.kind as partner_kind', 'partner.amount as partner_amount'])
    .select(['job.state as job_state', 'job.account_id as job_account'])
    .select('job.playground_day as job_day')
    .orderBy('entry.created_at')
    .orderBy('entry.id');
}

/** Which jobs a page is of. */
export type JobsOf =
  /** All of them, by id. */
  | 'all'
  /** Final ones, by the instant they ended at. */
  | 'ended'
  /** The open ones of an account, of which it has no more than may be in flight: all on one page. */
  | { readonly openOf: string };

/** The next jobs and their entries. `atMs` of a row is 0 but for jobs that ended. */
export async function readJobEntries(
  database: Database,
  of: JobsOf,
  after: PagePlace,
): Promise<JobEntriesRow[]> {
  const rows = await readBack(database, db => selectJobEntries(db, of, after).execute());
  rows.sort((one, other) => {
    const later = of === 'ended' ? (one.finished_at ?? 0) - (other.finished_at ?? 0) : 0;
    return later || (one.id < other.id ? -1 : 1);
  });
  return rows.map(row => ({
    id: row.id,
    atMs: of === 'ended' ? (row.finished_at ?? 0) : 0,
    accountId: row.account_id,
    state: row.state,
    isPlayground: row.playground_day !== null,
    reserve: row.reserve,
    settlement:
      row.settled === null || row.moved === null ? null : { kind: row.settled, amount: row.moved },
  }));
}

function selectJobEntries(db: Kysely<Schema>, of: JobsOf, after: PagePlace) {
  const page = selectJobPage(db, of, after);
  return db
    .selectFrom(page.as('page'))
    .innerJoin('jobs as job', 'job.id', 'page.id')
    .leftJoin('ledger_entries as reserve', join =>
      join
        .onRef('reserve.account_id', '=', 'job.account_id')
        .on('reserve.slot', '=', 'reserve')
        .onRef('reserve.reference', '=', 'job.id'),
    )
    .leftJoin('ledger_entries as settle', join =>
      join
        .onRef('settle.account_id', '=', 'job.account_id')
        .on('settle.slot', '=', 'settle')
        .onRef('settle.reference', '=', 'job.id'),
    )
    .select(['job.id', 'job.account_id', 'job.state', 'job.finished_at', 'job.playground_day'])
    .select(['reserve.amount as reserve', 'settle.kind as settled', 'settle.amount as moved']);
}

/** No more than its index holds: a server that needs the rows too may rather read them all. */
function selectJobPage(db: Kysely<Schema>, of: JobsOf, after: PagePlace) {
  const jobs = db.selectFrom('jobs').select('id');
  if (of === 'all') return jobs.where('id', '>', after.id).orderBy('id').limit(LEDGER_PAGE_ROWS);
  if (of === 'ended') {
    return jobs
      .where('finished_at', '>=', after.atMs)
      .where(eb => eb.or([eb('finished_at', '>', after.atMs), eb('id', '>', after.id)]))
      .orderBy('finished_at')
      .orderBy('id')
      .limit(LEDGER_PAGE_ROWS);
  }
  return jobs.where('account_id', '=', of.openOf).where('state', 'in', OPEN_STATES);
}

/** The next accounts, by id. An empty page: there are no more. */
export async function readAccountIds(database: Database, after: string): Promise<string[]> {
  const rows = await readBack(database, db =>
    db
      .selectFrom('accounts')
      .select('id')
      .where('id', '>', after)
      .orderBy('id')
      .limit(ACCOUNTS_PAGE_ROWS)
      .execute(),
  );
  return rows.map(row => row.id);
}

/** The next account that has entries, whether it exists or not. Undefined: there are no more. */
export async function readOwnerAfter(
  database: Database,
  after: string,
): Promise<string | undefined> {
  const row = await readBack(database, db =>
    db
      .selectFrom('ledger_entries')
      .select('account_id')
      .where('account_id', '>', after)
      .orderBy('account_id')
      .limit(1)
      .executeTakeFirst(),
  );
  return row?.account_id;
}

/** The database's clock. */
export async function readNowMs(database: Database): Promise<number> {
  const row = await readBack(database, db =>
    db.selectNoFrom(database.nowMs.as('now')).executeTakeFirstOrThrow(),
  );
  return row.now;
}
