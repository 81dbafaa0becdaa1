/**
 * The one writer of usage_days. A row is raised in the transaction that writes the ledger's
 * settlement, or, for those of older control planes, in the one that moves the place of the walk
 * over them: so both hold the account's row, and each settlement is counted once.
 */
import { type InsertQueryBuilder, type InsertResult, type Kysely, sql } from 'kysely';
import { DAY_MS } from '../../domain/account/usage.ts';
import type { DatabaseDialect } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { keepStatement } from '../database/kept-statement.ts';
import type { Schema } from '../database/schema.ts';

export type UsageOutcome = Schema['usage_days']['outcome'];

/** A job whose settlement was entered in the same transaction. */
export interface SettledJob {
  readonly accountId: string;
  readonly jobId: string;
  readonly apiKeyId: string;
  readonly outcome: UsageOutcome;
  /** Of its output. */
  readonly format: string;
  /** Charged. */
  readonly credits: number;
}

export interface UsageRow {
  readonly accountId: string;
  readonly day: number;
  readonly apiKeyId: string;
  readonly outcome: UsageOutcome;
  readonly format: string;
  readonly images: number;
  readonly credits: number;
}

const COLUMNS = [
  'account_id',
  'day',
  'api_key_id',
  'outcome',
  'format',
  'images',
  'credits',
] as const;
const KEY = ['account_id', 'day', 'api_key_id', 'outcome', 'format'] as const;

/** On the day of the settlement, whose own instant it is: no midnight falls between the two. */
export async function countSettledJob(
  database: Database,
  tx: Kysely<Schema>,
  job: SettledJob,
): Promise<void> {
  await tx.executeQuery(COUNT_SETTLED(database, job));
}

const COUNT_SETTLED = keepStatement<SettledJob>(({ dialect, kysely }, job) => {
  const settled = kysely
    .selectFrom('ledger_entries')
    .select([
      sql<string>`${job.accountId}`.as('account_id'),
      sql<number>`${dayOfColumn(dialect)}`.as('day'),
      sql<string>`${job.apiKeyId}`.as('api_key_id'),
      sql<UsageOutcome>`${job.outcome}`.as('outcome'),
      sql<string>`${job.format}`.as('format'),
      sql<number>`1`.as('images'),
      sql<number>`${job.credits}`.as('credits'),
    ])
    .where('account_id', '=', job.accountId)
    .where('slot', '=', 'settle')
    .where('reference', '=', job.jobId);
  const insert = kysely.insertInto('usage_days').columns(COLUMNS).expression(settled);
  return raising(dialect, insert, { images: 1, credits: job.credits });
});

export async function addUsageRow(
  database: Database,
  tx: Kysely<Schema>,
  row: UsageRow,
): Promise<void> {
  const insert = tx.insertInto('usage_days').values({
    account_id: row.accountId,
    day: row.day,
    api_key_id: row.apiKeyId,
    outcome: row.outcome,
    format: row.format,
    images: row.images,
    credits: row.credits,
  });
  await raising(database.dialect, insert, row).execute();
}

function dayOfColumn(dialect: DatabaseDialect) {
  const created = sql.ref('created_at');
  return dialect === 'sqlite'
    ? sql`${created} / ${sql.lit(DAY_MS)}`
    : sql`${created} div ${sql.lit(DAY_MS)}`;
}

type Insert = InsertQueryBuilder<Schema, 'usage_days', InsertResult>;

/** Adds to the row that there is. */
function raising(
  dialect: DatabaseDialect,
  insert: Insert,
  { images, credits }: Pick<UsageRow, 'images' | 'credits'>,
): Insert {
  const raised = {
    images: sql<number>`${sql.ref('images')} + ${images}`,
    credits: sql<number>`${sql.ref('credits')} + ${credits}`,
  };
  return dialect === 'sqlite'
    ? insert.onConflict(conflict => conflict.columns([...KEY]).doUpdateSet(raised))
    : insert.onDuplicateKeyUpdate(raised);
}
