/** One call or more of a method of the stores, and how many rows its statements may read. */

import {
  accountOf,
  apiKeyOf,
  type LargeTables,
  SECRET_KEY_ID,
} from '../../../test/support/large-tables.ts';
import type { MeteredStatement } from '../../../test/support/statement-meter.ts';
import type { Database } from '../../database/database.ts';
import { type Stores, storesOn } from '../../test/every-store.ts';
import type { NewJob } from '../jobs/job-transactions.ts';
import { LEDGER_PAGE_ROWS } from '../ledger/ledger-pages.ts';
import { DUE_COUNTED_MAX } from '../webhooks/deliver-messages.ts';
import type { Fixture } from './changing-methods.ts';
import { HOUR_MS, newJob } from './fixtures.ts';

export const DAY_MS = 24 * HOUR_MS;

/** As those of production, but for their size: 97 of 100 rows are what nobody asks for. */
export const TABLES = {
  jobs: 4000,
  openJobs: 60,
  oldJobs: 60,
  dueNotifications: 1500,
  quietReceivers: 5,
  ledgerEntries: 12_000,
} satisfies LargeTables;

/** What a statement may read for each row that it answers or changes, and beside those. */
const READ_A_ROW_MAX = 6;
const READ_BESIDE_MAX = 40;

/** Those that read more than they may, in words. */
export function excessOf(
  statements: readonly MeteredStatement[],
  readsMax: number | undefined,
): string[] {
  return statements
    .filter(
      ({ rowsRead, rows }) => rowsRead > (readsMax ?? rows * READ_A_ROW_MAX + READ_BESIDE_MAX),
    )
    .map(({ rowsRead, rows, sql }) => `read ${rowsRead} for ${rows}: ${sql}`);
}

export interface Exercise {
  /** @param sound has it arranged what is not counted */
  (stores: Stores, database: Database, sound: () => Fixture): Promise<unknown>;
  /** In place of the bound by what a statement answers. */
  readonly readsMax?: number;
  /** The reason of it. */
  readonly why?: string;
}

export function bounded(readsMax: number, why: string, run: Exercise): Exercise {
  return Object.assign(run, { readsMax, why });
}

/** Entries of the queue's indexes and their rows, twice for how servers count. */
export const OPEN_READS_MAX = 16 * TABLES.openJobs;
export const OPEN_WHY = 'reads the open jobs, whose number is bounded';

/** MariaDB counts what a limit lets through twice, and one more. */
export const DUE_READS_MAX = 2 * DUE_COUNTED_MAX + READ_BESIDE_MAX;
export const DUE_WHY = `counts entries of an index, ${DUE_COUNTED_MAX} at most`;

/** Half of the entries are one account's: more than a page by far. */
export const LEDGER_READS_MAX = 7 * LEDGER_PAGE_ROWS;
export const LEDGER_WHY = 'reads a page of the ledger';

/** Where what is not counted is arranged: of the largest accounts. */
export function soundOn(database: Database): () => Fixture {
  const stores = storesOn(database);
  return () => {
    let accounts = 0;
    return { stores, database, account: async () => accountOf(accounts++), apiKeyId: apiKeyOf(0) };
  };
}

export const LINKS_WHY = 'reads the links that an account made within their life';
export const LINKS_READS_MAX = 3000;

export function jobOfLargest(overrides: Partial<NewJob> = {}): NewJob {
  return newJob(accountOf(0), { apiKeyId: apiKeyOf(0), ...overrides });
}

export const CALLBACK = {
  url: 'https://statements.example/hook',
  secret: Uint8Array.of(1),
  secretKeyId: SECRET_KEY_ID,
};
