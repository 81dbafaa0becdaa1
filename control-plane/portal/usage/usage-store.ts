/**
 * Usage of accounts by UTC day. A job counts on the day of the ledger's entry that ended it: a
 * success as an image and a credit, a failure as an image. A correction counts separately, on the
 * day of its end. The transaction that writes the entry holds the account's row and counts the job,
 * so each counts once.
 */

import type { SettledMattingJob } from '@matting/core/queue/matting-ends.ts';
import { type Database, type Db, query, readNowMs, transact } from '@matting/database/database.ts';
import { keepStatement, ofAccount, requireInteger } from '@matting/database/statements.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { selectEnd } from '@matting/queue/settled-steps.ts';
import { sql } from 'kysely';

export const USAGE_GROUPS = ['day', 'key', 'outcome', 'format'] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

export const USAGE_DAYS_MAX = 366;
const USAGE_DAYS_DEFAULT = 30;
/** So that two whole years can be compared. */
export const USAGE_KEPT_DAYS = 800;

/** Days since 1970-01-01 UTC. */
export function dayOf(atMs: number): number {
  return Math.floor(atMs / DAY_MS);
}

export function isoOfDay(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}

/** Undefined: not a date from 1970 to 9999 in the form `2026-11-21`. */
export function dayOfIso(text: string): number | undefined {
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text)) return undefined;
  const atMs = Date.parse(`${text}T00:00:00Z`);
  if (Number.isNaN(atMs) || atMs < 0) return undefined;
  const day = dayOf(atMs);
  return isoOfDay(day) === text ? day : undefined;
}

interface UsageDays {
  readonly from: number;
  readonly to: number;
}

export interface UsageQuestion extends UsageDays {
  readonly group: UsageGroup;
}

export type UsageField = 'from' | 'to' | 'group';

/** order: `from` is after `to`. heavy: too many rows. */
type UsageFault = 'form' | 'order' | 'long' | 'heavy';

export interface UsageFieldError {
  readonly field: UsageField;
  readonly fault: UsageFault;
  readonly detail: string;
}

/** Defaults: the last thirty days, by day. @param today as of dayOf */
export function usageQuestionOf(
  texts: Readonly<Partial<Record<UsageField, string>>>,
  today: number,
): UsageQuestion | UsageFieldError {
  const to = texts.to === undefined ? today : dayOfIso(texts.to);
  if (to === undefined) return { field: 'to', fault: 'form', detail: DATE_WANTED };
  const from = texts.from === undefined ? to - USAGE_DAYS_DEFAULT + 1 : dayOfIso(texts.from);
  if (from === undefined) return { field: 'from', fault: 'form', detail: DATE_WANTED };
  if (from > to) return { field: 'from', fault: 'order', detail: 'must not be after to' };
  if (to - from + 1 > USAGE_DAYS_MAX) {
    const detail = `must leave at most ${USAGE_DAYS_MAX} days until to`;
    return { field: 'from', fault: 'long', detail };
  }
  const { group: name = 'day' } = texts;
  const group = USAGE_GROUPS.find(known => known === name);
  if (group === undefined) {
    return { field: 'group', fault: 'form', detail: `must be one of ${USAGE_GROUPS.join(', ')}` };
  }
  return { from: Math.max(0, from), to, group };
}

const DATE_WANTED = 'must be a date written as 2026-11-21';

export interface UsageFigures {
  readonly images: number;
  readonly failed: number;
  readonly corrected: number;
  readonly credits: number;
}

export const NO_USAGE: UsageFigures = { images: 0, failed: 0, corrected: 0, credits: 0 };

export function addUsage(one: UsageFigures, other: UsageFigures): UsageFigures {
  return {
    images: one.images + other.images,
    failed: one.failed + other.failed,
    corrected: one.corrected + other.corrected,
    credits: one.credits + other.credits,
  };
}

/** Rows of one query: a year of 60 keys, each with two outcomes a day. */
const USAGE_ROWS_MAX = 50_000;

export interface UsageOf extends UsageFigures {
  readonly name: string;
}

export type UsageSplit = Exclude<UsageGroup, 'day'>;

export interface DailyUsage extends UsageOf {
  readonly day: number;
}

export type UsageStore = ReturnType<typeof createUsageStore>;

export function createUsageStore(database: Database, rowsMax = USAGE_ROWS_MAX) {
  return {
    /** By the groups' names. Undefined: more than `rowsMax` rows. */
    async read(accountId: string, question: UsageQuestion): Promise<UsageOf[] | undefined> {
      const rows = await readUsage(database, { accountId, rowsMax, ...question }, question.group);
      return rows?.map(({ day: _none, ...of }) => of);
    },
    daily: (accountId: string, days: UsageDays, split: UsageSplit) =>
      readUsage(database, { accountId, rowsMax, ...days }, split, true),
    async total(accountId: string, days: UsageDays): Promise<UsageFigures | undefined> {
      const rows = await readUsage(database, { accountId, rowsMax, ...days }, undefined);
      const { name: _all, day: _none, ...figures } = rows?.[0] ?? { ...NO_USAGE, name: '', day: 0 };
      return rows && figures;
    },
    today: async () => dayOf(await readNowMs(database)),
    removeOld: (limit: number) => removeOld(database, limit),
  };
}

const COLUMN_OF = { day: 'day', key: 'api_key_id', outcome: 'outcome', format: 'format' } as const;

/** @param group undefined: all in one @param isDaily keeps days apart; otherwise `day` is 0 */
async function readUsage(
  database: Database,
  { accountId, from, to, rowsMax }: UsageDays & { accountId: string; rowsMax: number },
  group: UsageGroup | undefined,
  isDaily = false,
): Promise<DailyUsage[] | undefined> {
  const sum = (what: string) => sql<number>`cast(sum(${sql.raw(what)}) as signed)`;
  const name = group === undefined ? sql`'all'` : sql.ref(COLUMN_OF[group]);
  const rows = await query(database, db => {
    const days = db
      .selectFrom('usage_days')
      .select(['day', 'api_key_id', 'outcome', 'format', 'images', 'credits'])
      .where(ofAccount(database.dialect, accountId))
      .where('day', '>=', from)
      .where('day', '<=', to)
      .orderBy('account_id')
      .orderBy('day')
      .limit(rowsMax + 1);
    return db
      .selectFrom(days.as('days'))
      .select(eb => [
        name.$castTo<string | number>().as('name'),
        (isDaily ? sql<number>`day` : sql<number>`0`).as('on_day'),
        sum(`case when outcome = 'corrected' then 0 else images end`).as('images'),
        sum(`case when outcome = 'failed' then images else 0 end`).as('failed'),
        sum(`case when outcome = 'corrected' then images else 0 end`).as('corrected'),
        sum('credits').as('credits'),
        eb.fn.countAll<number>().as('rows_read'),
      ])
      .groupBy(['on_day', 'name'])
      .orderBy('on_day')
      .orderBy('name')
      .execute();
  });
  const read = rows.reduce((count, row) => count + requireInteger(row.rows_read), 0);
  if (read > rowsMax) return undefined;
  return rows.map(row => ({
    day: row.on_day,
    name: String(row.name),
    images: requireInteger(row.images),
    failed: requireInteger(row.failed),
    corrected: requireInteger(row.corrected),
    credits: requireInteger(row.credits),
  }));
}

async function removeOld(database: Database, limit: number): Promise<number> {
  const firstKept = dayOf(await readNowMs(database)) - USAGE_KEPT_DAYS;
  const rows = await query(database, db =>
    db
      .selectFrom('usage_days')
      .select(['account_id', 'day', 'api_key_id', 'outcome', 'format'])
      .where('day', '<', firstKept)
      .orderBy('day')
      // One order everywhere, so that two sweepers cannot deadlock.
      .orderBy('account_id')
      .orderBy('api_key_id')
      .orderBy('outcome')
      .orderBy('format')
      .limit(limit)
      .execute(),
  );
  if (rows.length === 0) return 0;
  return transact(database, async tx => {
    let removed = 0;
    for (const { account_id, day, api_key_id, outcome, format } of rows) {
      const { numDeletedRows } = await tx
        .deleteFrom('usage_days')
        .where('account_id', '=', account_id)
        .where('day', '=', day)
        .where('api_key_id', '=', api_key_id)
        .where('outcome', '=', outcome)
        .where('format', '=', format)
        .executeTakeFirstOrThrow();
      removed += Number(numDeletedRows);
    }
    return removed;
  });
}

type CountedJob = Pick<
  SettledMattingJob,
  'accountId' | 'jobId' | 'apiKeyId' | 'format' | 'credits'
> & {
  readonly outcome: SettledMattingJob['outcome'] | 'corrected';
};

/** Counts the job on the day of its ledger entry, even if midnight falls between. */
export async function countSettledJob(
  database: Database,
  tx: Db,
  job: SettledMattingJob,
): Promise<void> {
  const { accountId, jobId, apiKeyId, outcome, format, credits } = job;
  const counted = { accountId, jobId, apiKeyId, outcome, format, credits };
  if (job.funding === 'credit') await tx.executeQuery(COUNT_SETTLED(database, counted));
  else if (outcome === 'succeeded') {
    await tx.executeQuery(COUNT_CORRECTED(database, { ...counted, outcome: 'corrected' }));
  }
}

const KEY = ['account_id', 'day', 'api_key_id', 'outcome', 'format'] as const;

const COUNT_SETTLED = keepStatement<CountedJob>((database, job) =>
  counting(database, job, 'credit'),
);
const COUNT_CORRECTED = keepStatement<CountedJob>((database, job) =>
  counting(database, job, 'free'),
);

function counting(
  { dialect, kysely }: Database,
  job: CountedJob,
  funding: SettledMattingJob['funding'],
) {
  const divided = sql.raw(dialect === 'sqlite' ? '/' : 'div');
  const { row, atMs } = selectEnd(kysely, { ...job, funding });
  const counted = row.select([
    sql<string>`${job.accountId}`.as('account_id'),
    sql<number>`${atMs} ${divided} ${sql.lit(DAY_MS)}`.as('day'),
    sql<string>`${job.apiKeyId}`.as('api_key_id'),
    sql<CountedJob['outcome']>`${job.outcome}`.as('outcome'),
    sql<string>`${job.format}`.as('format'),
    sql<number>`1`.as('images'),
    sql<number>`${job.credits}`.as('credits'),
  ]);
  const insert = kysely
    .insertInto('usage_days')
    .columns([...KEY, 'images', 'credits'])
    .expression(counted);
  const raised = {
    images: sql<number>`${sql.ref('images')} + 1`,
    credits: sql<number>`${sql.ref('credits')} + ${job.credits}`,
  };
  return dialect === 'sqlite'
    ? insert.onConflict(conflict => conflict.columns([...KEY]).doUpdateSet(raised))
    : insert.onDuplicateKeyUpdate(raised);
}
