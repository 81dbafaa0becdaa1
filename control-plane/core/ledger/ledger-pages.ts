/** Statements of the ledger's audit, each bounded and consistent by itself: no transactions. */

import { type Database, type Db, query } from '@matting/database/database.ts';
import { isInserted, matchesOne, requireInteger } from '@matting/database/statements.ts';
import { sql } from 'kysely';
import { ofAccount } from '../accounts/account-store.ts';
import { OPEN_STATES } from '../jobs/job.ts';
import { type LedgerCheckpoint, type LedgerSlot, NOTHING_CLOSED } from './ledger.ts';

/** Entries or jobs of one statement. With what belongs to each it reads three times as many rows. */
export const LEDGER_PAGE_ROWS = 500;
/** Accounts of one statement. */
const ACCOUNTS_PAGE_ROWS = 200;

export interface PageCursor {
  readonly atMs: number;
  readonly id: string;
}

interface EntryPage {
  readonly after: PageCursor;
  /** Created before this instant. Undefined: to the present, with the open jobs. */
  readonly beforeMs?: number;
  readonly pageRows: number;
}

/** An account's next entries, each with what must agree with it, and its balances, at once. */
export async function readAccountPage(database: Database, accountId: string, page: EntryPage) {
  const rows = await query(database, db =>
    selectAccountPage(database, db, accountId, page).execute(),
  );
  const [first] = rows;
  if (first === undefined) throw new Error('the database answered without a row');
  const { available, reserved } = first;
  // Sorted here: a server would write the page down once more.
  rows.sort(
    (one, other) =>
      (one.created_at ?? 0) - (other.created_at ?? 0) ||
      ((one.id ?? '') < (other.id ?? '') ? -1 : 1),
  );
  return {
    nowMs: first.now,
    balances: available === null || reserved === null ? undefined : { available, reserved },
    /** Those that are paid for. */
    openJobs: requireInteger(first.open_jobs),
    entries: rows.flatMap(row => {
      const { id, created_at: atMs, kind, slot, amount } = row;
      if (id === null || atMs === null || kind === null || slot === null || amount === null) {
        return [];
      }
      const { partner_kind: partner, partner_amount: moved, job_state: state } = row;
      return {
        ...{ id, atMs, kind, slot, amount, jobId: row.job_id },
        partner: partner === null || moved === null ? null : { kind: partner, amount: moved },
        job:
          state === null
            ? null
            : { state, accountId: row.job_account, isUnpaid: row.job_day !== null },
      };
    }),
  };
}

export type AuditedEntry = Awaited<ReturnType<typeof readAccountPage>>['entries'][number];

function selectAccountPage(
  database: Database,
  db: Db,
  accountId: string,
  { after, beforeMs, pageRows }: EntryPage,
) {
  const page = db
    .selectFrom('ledger_entries')
    .select(['id', 'account_id', 'kind', 'slot', 'amount', 'created_at', 'job_id'])
    .where(ofAccount(database.dialect, accountId))
    .where('created_at', '>=', after.atMs)
    .where('created_at', '<', beforeMs ?? Number.MAX_SAFE_INTEGER)
    .where(eb => eb.or([eb('created_at', '>', after.atMs), eb('id', '>', after.id)]))
    .orderBy('account_id')
    .orderBy('created_at')
    .orderBy('id')
    .limit(pageRows);
  const openJobs = db
    .selectFrom('jobs')
    .select(({ fn }) => fn.countAll<number>().as('open'))
    .where('account_id', '=', accountId)
    .where('state', 'in', OPEN_STATES)
    .where('playground_day', 'is', null);
  const openNow = beforeMs === undefined ? openJobs : sql<number>`0`;
  const otherSlot = sql<LedgerSlot>`case entry.slot when 'reserve' then 'settle' else 'reserve' end`;
  return db
    .selectFrom(db.selectNoFrom([database.nowMs.as('now'), openNow.as('open_jobs')]).as('state'))
    .leftJoin('accounts', join => join.on('accounts.id', '=', accountId))
    .leftJoin(page.as('entry'), join => join.onTrue())
    .leftJoin('ledger_entries as partner', join =>
      join
        .onRef('partner.account_id', '=', 'entry.account_id')
        .onRef('partner.reference', '=', 'entry.job_id')
        .on('partner.slot', '=', otherSlot),
    )
    .leftJoin('jobs as job', 'job.id', 'entry.job_id')
    .select(['state.now', 'state.open_jobs', 'accounts.available', 'accounts.reserved'])
    .select(['entry.id', 'entry.created_at', 'entry.kind', 'entry.slot', 'entry.amount'])
    .select(['entry.job_id', 'partner.kind as partner_kind', 'partner.amount as partner_amount'])
    .select(['job.state as job_state', 'job.account_id as job_account'])
    .select('job.playground_day as job_day');
}

export type JobsOf =
  /** All of them, by id. */
  | 'all'
  /** Final ones, by the instant they ended at. */
  | 'ended'
  /** The open ones of an account, of which it has no more than may be in flight: all on one page. */
  | { readonly openOf: string };

/** The next jobs and their entries. `atMs` of a row is 0 but for jobs that ended. */
export async function readJobEntries(database: Database, of: JobsOf, after: PageCursor) {
  const rows = await query(database, db => selectJobEntries(db, of, after).execute());
  rows.sort((one, other) => {
    const later = of === 'ended' ? (one.finished_at ?? 0) - (other.finished_at ?? 0) : 0;
    return later || (one.id < other.id ? -1 : 1);
  });
  return rows.map(row => ({
    id: row.id,
    atMs: of === 'ended' ? (row.finished_at ?? 0) : 0,
    accountId: row.account_id,
    state: row.state,
    isUnpaid: row.playground_day !== null,
    reserve: row.reserve,
    settlement:
      row.settled === null || row.moved === null ? null : { kind: row.settled, amount: row.moved },
  }));
}

function selectJobEntries(db: Db, of: JobsOf, after: PageCursor) {
  return db
    .selectFrom(selectJobPage(db, of, after).as('page'))
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
function selectJobPage(db: Db, of: JobsOf, after: PageCursor) {
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

/** In the order of their ids: the accounts that exist, and those that the ledger alone names. */
export async function* accountIdsAfter(database: Database, after: string): AsyncGenerator<string> {
  let owner = await readOwnerAfter(database, after);
  let ids = await readAccountIds(database, after);
  for (let last = after; ids.length > 0; ids = await readAccountIds(database, last)) {
    for (const id of ids) {
      for (; owner !== undefined && owner <= id; owner = await readOwnerAfter(database, owner)) {
        if (owner < id) yield owner;
      }
      yield id;
      last = id;
    }
  }
  for (; owner !== undefined; owner = await readOwnerAfter(database, owner)) yield owner;
}

async function readAccountIds(database: Database, after: string): Promise<string[]> {
  const rows = await query(database, db =>
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
async function readOwnerAfter(database: Database, after: string): Promise<string | undefined> {
  const row = await query(database, db =>
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

export async function readCheckpoint(
  database: Database,
  accountId: string,
): Promise<LedgerCheckpoint> {
  const row = await query(database, db =>
    db
      .selectFrom('ledger_checkpoints')
      .selectAll()
      .where('account_id', '=', accountId)
      .executeTakeFirst(),
  );
  if (row === undefined) return NOTHING_CLOSED;
  const { closed_to: closedToMs, entries, granted, reserved, charged, released, revoked } = row;
  const sums = {
    grant: granted,
    reserve: reserved,
    charge: charged,
    release: released,
    revoke: revoked,
  };
  return { closedToMs, entries, sums };
}

/** Changes nothing where it was moved already, by another audit or a try whose answer was lost. */
export async function moveCheckpoint(
  database: Database,
  accountId: string,
  fromMs: number,
  { closedToMs, entries, sums }: LedgerCheckpoint,
): Promise<void> {
  const values = {
    closed_to: closedToMs,
    entries,
    granted: sums.grant,
    reserved: sums.reserve,
    charged: sums.charge,
    released: sums.release,
    revoked: sums.revoke,
    created_at: database.nowMs,
  };
  if (fromMs !== NOTHING_CLOSED.closedToMs) {
    await query(database, db =>
      matchesOne(
        db
          .updateTable('ledger_checkpoints')
          .set(values)
          .where('account_id', '=', accountId)
          .where('closed_to', '=', fromMs),
      ),
    );
    return;
  }
  await isInserted(
    query(database, db =>
      db
        .insertInto('ledger_checkpoints')
        .values({ account_id: accountId, ...values })
        .execute(),
    ),
  );
}

export async function removeCheckpoint(
  database: Database,
  accountId: string,
  closedToMs: number,
): Promise<void> {
  await query(database, db =>
    db
      .deleteFrom('ledger_checkpoints')
      .where('account_id', '=', accountId)
      .where('closed_to', '=', closedToMs)
      .execute(),
  );
}
