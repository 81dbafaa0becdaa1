import {
  LEDGER_KINDS,
  type LedgerKind,
  type LedgerSlot,
  SLOT_OF,
} from '@matting/accounts/ledger/ledger.ts';
import {
  type AccountRange,
  ALL_TIME,
  ENTRIES_BY_TIME,
  type LEDGER_RANGE,
  NO_TIME,
  rangeOfAccount,
  type TimeRange,
  timeRangesOf,
} from '@matting/accounts/ledger/ledger-ranges.ts';
import { type Database, type Db, query, readInstant } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { ofAccount, requireInteger } from '@matting/database/statements.ts';
import { OPEN_STATES } from '@matting/queue/job.ts';
import { type RawBuilder, type SqlBool, sql } from 'kysely';
import { isFundedBy, TAKES_CREDIT, takesCredit } from '../jobs/job-funding.ts';
import { jobProblem } from './job-problem.ts';
import type { JobRange } from './job-ranges.ts';

/** SQL with which a package accounts for credits that it holds for jobs not yet created. */
export interface LedgerAuditPart {
  /** Whether the package will create a job of this id. Uses an index. */
  isToCome(jobId: RawBuilder<unknown>): RawBuilder<SqlBool>;
  /** Credits that the package holds of an account. Uses an index. */
  creditsOf(accountId: RawBuilder<unknown>): RawBuilder<number>;
}

export interface LedgerProblem {
  readonly accountId: string;
  /** null: the problem is about the account. */
  readonly jobId: string | null;
  readonly problem: string;
}

const SUMS = LEDGER_KINDS.map(kind =>
  sql<number>`cast(sum(case kind when ${sql.lit(kind)} then amount else 0 end) as signed)`.as(kind),
);

/** The account's row counts its open jobs of these kinds, in `reserved` and `open_corrections`. */
const OPEN_JOBS = (['credit', 'free'] as const).map(kind =>
  sql<number>`cast(sum(case when ${isFundedBy(kind)} then 1 else 0 end) as signed)`.as(kind),
);

/** Reads balances, sums of entries and numbers of jobs in one statement, so at one instant. */
export function readSums(
  database: Database,
  parts: readonly LedgerAuditPart[],
  range: AccountRange,
) {
  return query(database, db => sumsAt(db, database, parts, range, ALL_TIME));
}

/**
 * Reads a large account in parts, because servers end slow statements. The first statement locks
 * the definitions of all tables, so no migration changes a table before the last part.
 */
export async function readSumsInParts(
  database: Database,
  parts: readonly LedgerAuditPart[],
  accountId: string,
  bounds: Pick<typeof LEDGER_RANGE, 'entriesMax'>,
) {
  const range = rangeOfAccount(accountId);
  if (database.dialect === 'sqlite') return readSums(database, parts, range);
  return readInstant(database, async db => {
    const accounts = await sumsAt(db, database, parts, range, NO_TIME);
    for (const account of accounts) {
      for await (const time of timeRangesOf(database, accountId, bounds, db)) {
        const part = await sumsOf(db, database, range, time).executeTakeFirst();
        account.entries += part?.entries ?? 0;
        for (const kind of LEDGER_KINDS) {
          account.sums[kind] = requireInteger(account.sums[kind] + (part?.[kind] ?? 0));
        }
      }
    }
    return accounts;
  });
}

async function sumsAt(
  db: Db,
  database: Database,
  parts: readonly LedgerAuditPart[],
  range: AccountRange,
  time: TimeRange,
) {
  const { from, before } = range;
  const held = parts.map(part => part.creditsOf(sql.ref('accounts.id')));
  const open = db
    .selectFrom('jobs as job')
    .select('account_id')
    .select(OPEN_JOBS)
    .where('state', 'in', OPEN_STATES)
    .where(sql<SqlBool>`account_id >= ${from} and account_id < ${before}`)
    .groupBy('account_id');
  const rows = await db
    .selectFrom('accounts')
    .leftJoin(sumsOf(db, database, range, time).as('sums'), 'sums.account_id', 'accounts.id')
    .leftJoin(open.as('open'), 'open.account_id', 'accounts.id')
    .select(['accounts.id', 'accounts.available', 'accounts.reserved'])
    .select(['open.credit', 'open.free', 'sums.entries'])
    .select(sql<number>`${sql.join([0, ...held], sql` + `)}`.as('to_come'))
    .select(['accounts.open_corrections', 'accounts.batch_waiting'])
    .select(['sums.grant', 'sums.reserve', 'sums.charge', 'sums.release', 'sums.revoke'])
    .where('accounts.id', '>=', from)
    .where('accounts.id', '<', before)
    .orderBy('accounts.id')
    .execute();
  return rows.map(row => ({
    accountId: row.id,
    balances: { available: row.available, reserved: row.reserved },
    sums: Object.fromEntries(LEDGER_KINDS.map(kind => [kind, requireInteger(row[kind])])) as Record<
      LedgerKind,
      number
    >,
    entries: requireInteger(row.entries),
    openJobs: requireInteger(row.credit) + requireInteger(row.to_come),
    /** `stored`: the account's counter. `open`: the recount. */
    corrections: { stored: row.open_corrections, open: requireInteger(row.free) },
    waiting: { stored: row.batch_waiting, open: requireInteger(row.to_come) },
  }));
}

function sumsOf(
  db: Db,
  { dialect }: Database,
  range: AccountRange,
  { fromMs, beforeMs }: TimeRange,
) {
  return db
    .selectFrom(ENTRIES_BY_TIME[dialect])
    .select('account_id')
    .select(({ fn }) => fn.countAll<number>().as('entries'))
    .select(SUMS)
    .where(ofAccounts(dialect, range, 'account_id'))
    .where('created_at', '>=', fromMs)
    .where('created_at', '<', beforeMs)
    .groupBy('account_id');
}

function ofAccounts(dialect: DatabaseDialect, range: AccountRange, name: string) {
  if (range.soleAccountId !== undefined) return ofAccount(dialect, range.soleAccountId, name);
  const { from, before } = range;
  return sql<boolean>`(${sql.ref(name)} >= ${from} and ${sql.ref(name)} < ${before})`;
}

/** True for entries that need no check by ledger.ts. An open job's reserve needs one. */
const entryIsSound = (parts: readonly LedgerAuditPart[]) => sql<SqlBool>`owner.id is not null
  and ledger_entries.slot = case ledger_entries.kind
    when 'charge' then 'settle' when 'release' then 'settle' else ledger_entries.kind end
  and case
    when ledger_entries.job_id is null then 1
    when job.id is null then partner.amount = ledger_entries.amount or ${isToCome(parts)}
    when job.account_id <> ledger_entries.account_id or not ${TAKES_CREDIT} then 0
    when job.state = 'succeeded' then partner.amount = ledger_entries.amount
      and 'charge' in (ledger_entries.kind, partner.kind)
    when job.state = 'failed' then partner.amount = ledger_entries.amount
      and 'release' in (ledger_entries.kind, partner.kind)
    else 0 end`;

function isToCome(parts: readonly LedgerAuditPart[]) {
  const jobId = sql.ref('ledger_entries.job_id');
  return sql.join([sql`1 = 0`, ...parts.map(part => part.isToCome(jobId))], sql` or `);
}

const JOB_IS_SOUND = sql<SqlBool>`case
  when not ${TAKES_CREDIT} then reserve.amount is null and settle.amount is null
  when job.state = 'succeeded' then reserve.amount = settle.amount and settle.kind = 'charge'
  when job.state = 'failed' then reserve.amount = settle.amount and settle.kind = 'release'
  else 0 end`;

/** Also true if the condition is null. */
function isNot(condition: typeof JOB_IS_SOUND) {
  return sql<SqlBool>`case when ${condition} then 0 else 1 end = 1`;
}

export async function readWrongEntries(
  database: Database,
  parts: readonly LedgerAuditPart[],
  range: AccountRange,
  { fromMs, beforeMs }: TimeRange,
): Promise<LedgerProblem[]> {
  const otherSlot = sql<LedgerSlot>`case ledger_entries.slot when 'reserve' then 'settle' else 'reserve' end`;
  const rows = await query(database, db =>
    db
      .selectFrom(ENTRIES_BY_TIME[database.dialect])
      .leftJoin('accounts as owner', 'owner.id', 'ledger_entries.account_id')
      .leftJoin('ledger_entries as partner', join =>
        join
          .onRef('partner.account_id', '=', 'ledger_entries.account_id')
          .onRef('partner.reference', '=', 'ledger_entries.job_id')
          .on('partner.slot', '=', otherSlot),
      )
      .leftJoin('jobs as job', 'job.id', 'ledger_entries.job_id')
      .select(['ledger_entries.account_id', 'ledger_entries.kind', 'ledger_entries.slot'])
      .select(['ledger_entries.amount', 'ledger_entries.job_id', 'owner.id as owner'])
      .select(['partner.kind as partner_kind', 'partner.amount as partner_amount'])
      .select(['job.state', 'job.account_id as job_account'])
      .select(['job.class', 'job.corrects as correction'])
      .where(ofAccounts(database.dialect, range, 'ledger_entries.account_id'))
      .where('ledger_entries.created_at', '>=', fromMs)
      .where('ledger_entries.created_at', '<', beforeMs)
      .where(isNot(entryIsSound(parts)))
      .execute(),
  );
  return rows.flatMap(row => {
    const { account_id: accountId, kind, slot, amount, job_id: jobId } = row;
    const wrong = (problem: string, of = jobId) => ({ accountId, jobId: of, problem });
    const problems: LedgerProblem[] = [];
    if (row.owner === null)
      problems.push(wrong('the ledger names an account that does not exist', null));
    if (SLOT_OF[kind] !== slot) problems.push(wrong(`a ${kind} stands in the slot ${slot}`));
    if (jobId === null) return problems;
    if (row.job_account !== null && row.job_account !== accountId) {
      problems.push(wrong(`the job is of account ${row.job_account}, a ${kind} of it is not`));
      return problems;
    }
    const partner =
      row.partner_kind === null || row.partner_amount === null
        ? null
        : { kind: row.partner_kind, amount: row.partner_amount };
    const entries =
      slot === 'reserve'
        ? { reserve: amount, settlement: partner }
        : { reserve: partner?.amount ?? null, settlement: { kind, amount } };
    const problem = jobProblem(row.state, entries, takesCredit(row));
    return problem === undefined ? problems : [...problems, wrong(problem)];
  });
}

/** @param of a range of jobs, or one account's open jobs, whose number is limited */
export async function readWrongJobs(
  database: Database,
  of: JobRange | { readonly openOf: string },
): Promise<LedgerProblem[]> {
  const rows = await query(database, db => {
    const jobs = db
      .selectFrom('jobs as job')
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
      .select(['job.id', 'job.account_id', 'job.state'])
      .select(['job.class', 'job.corrects as correction'])
      .select(['reserve.amount as reserve', 'settle.kind as settled', 'settle.amount as moved']);
    const selected =
      'openOf' in of
        ? jobs.where('job.account_id', '=', of.openOf).where('job.state', 'in', OPEN_STATES)
        : jobs.where('job.id', '>', of.after).where('job.id', '<=', of.to);
    return selected.where(isNot(JOB_IS_SOUND)).execute();
  });
  return rows.flatMap(({ id, account_id: accountId, state, reserve, settled, moved, ...job }) => {
    const settlement = settled === null || moved === null ? null : { kind: settled, amount: moved };
    const problem = jobProblem(state, { reserve, settlement }, takesCredit(job));
    return problem === undefined ? [] : [{ accountId, jobId: id, problem }];
  });
}
