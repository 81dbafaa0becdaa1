/** What accounts used, by day (domain/account/usage.ts). usage-days.ts writes, usage-walk.ts too. */
import { sql } from 'kysely';
import {
  dayOf,
  USAGE_KEPT_DAYS,
  type UsageDays,
  type UsageFigures,
  type UsageGroup,
  type UsageQuestion,
} from '../../domain/account/usage.ts';
import type { Database } from '../database/connect.ts';
import { ofAccount } from '../database/of-account.ts';
import { query, transact } from '../database/transact.ts';
import { requireInteger } from '../database/values.ts';
import { type UsageWalked, type UsageWalkOptions, walkUsage } from './usage-walk.ts';

/**
 * Rows that one question may read: a year of 60 keys, each with two outcomes of a format a day. On
 * more the caller asks for fewer days.
 */
export const USAGE_ROWS_MAX = 50_000;

export interface UsageOf extends UsageFigures {
  /** Of a day its number, of a key its id; empty: a key or a format that is not known any more. */
  readonly name: string;
}

export interface UsageStore {
  /**
   * By the groups' names, those without a job left out. Undefined: it would read more than
   * USAGE_ROWS_MAX.
   */
  read(accountId: string, question: UsageQuestion): Promise<UsageOf[] | undefined>;
  /** The sum of the days; undefined as above. */
  total(accountId: string, days: UsageDays): Promise<UsageFigures | undefined>;
  /** The database's clock. */
  today(): Promise<number>;
  /** For the sweeper: usage-walk.ts. */
  walk(limit: number): Promise<UsageWalked>;
  /** For the sweeper: rows of days past USAGE_KEPT_DAYS; their number. */
  removeOld(limit: number): Promise<number>;
}

export interface UsageStoreOptions extends UsageWalkOptions {
  /** USAGE_ROWS_MAX but in tests. */
  readonly rowsMax?: number;
}

export function createUsageStore(database: Database, options: UsageStoreOptions = {}): UsageStore {
  const { rowsMax = USAGE_ROWS_MAX } = options;
  return {
    read: (accountId, question) =>
      readUsage(database, { accountId, rowsMax, ...question }, question.group),
    async total(accountId, days) {
      const rows = await readUsage(database, { accountId, rowsMax, ...days }, undefined);
      const { images = 0, failed = 0, credits = 0 } = rows?.[0] ?? {};
      return rows && { images, failed, credits };
    },
    today: () => readToday(database),
    walk: limit => walkUsage(database, limit, options),
    removeOld: limit => removeOld(database, limit),
  };
}

const COLUMN_OF = { day: 'day', key: 'api_key_id', outcome: 'outcome', format: 'format' } as const;

/** @param group undefined: all in one */
async function readUsage(
  database: Database,
  { accountId, from, to, rowsMax }: UsageDays & { accountId: string; rowsMax: number },
  group: UsageGroup | undefined,
): Promise<UsageOf[] | undefined> {
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
        sum('images').as('images'),
        sum(`case when outcome = 'failed' then images else 0 end`).as('failed'),
        sum('credits').as('credits'),
        eb.fn.countAll<number>().as('rows_read'),
      ])
      .groupBy('name')
      .orderBy('name')
      .execute();
  });
  const read = rows.reduce((count, row) => count + requireInteger(row.rows_read), 0);
  if (read > rowsMax) return undefined;
  return rows.map(row => ({
    name: String(row.name),
    images: requireInteger(row.images),
    failed: requireInteger(row.failed),
    credits: requireInteger(row.credits),
  }));
}

async function readToday(database: Database): Promise<number> {
  const { now } = await query(database, db =>
    db.selectNoFrom(database.nowMs.as('now')).executeTakeFirstOrThrow(),
  );
  return dayOf(now);
}

/** The oldest first; a row that another sweeper took meanwhile is not counted. */
async function removeOld(database: Database, limit: number): Promise<number> {
  const firstKept = (await readToday(database)) - USAGE_KEPT_DAYS;
  const rows = await query(database, db =>
    db
      .selectFrom('usage_days')
      .select(['account_id', 'day', 'api_key_id', 'outcome', 'format'])
      .where('day', '<', firstKept)
      .orderBy('day')
      // In one order everywhere: two sweepers then wait for each other and never in a circle.
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
