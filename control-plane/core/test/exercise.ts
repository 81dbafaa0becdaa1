import assert from 'node:assert/strict';
import type { Database } from '@matting/database/database.ts';
import {
  accountOf,
  apiKeyOf,
  type LargeTables,
  SECRET_KEY_ID,
} from '@matting/test-support/large-tables.ts';
import type { MeteredStatement } from '@matting/test-support/statement-meter.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import type { Stores } from '../stores.ts';
import { type ChangingMethod, type Fixture, kindOf } from './changing-methods.ts';
import { newJob } from './fixtures.ts';

const DUE_COUNTED_MAX = 10_000;

/** Shares as in production: callers may ask for no more than 3 of 100 rows. */
export const TABLES = {
  jobs: 4000,
  openJobs: 60,
  oldJobs: 60,
  dueNotifications: 1500,
  quietReceivers: 5,
  ledgerEntries: 12_000,
} satisfies LargeTables;

/** Reads allowed for each row answered or changed, and in addition to those. */
const READ_A_ROW_MAX = 6;
const READ_BESIDE_MAX = 40;

export function excessOf(
  statements: readonly MeteredStatement[],
  readsMax: number | undefined,
): string[] {
  return statements
    .filter(
      ({ rowsRead, rows, sql }) =>
        rowsRead > (readsMax ?? rows * READ_A_ROW_MAX + READ_BESIDE_MAX) ||
        // The meter missed a statement that answers rows. Joins count late.
        (rowsRead === 0 && rows > 1 && /^select(?!.* join )/s.test(sql)),
    )
    .map(({ rowsRead, rows, sql }) => `read ${rowsRead} for ${rows}: ${sql}`);
}

export interface Exercise<S extends Stores = Stores> {
  /** @param sound arranges without counting */
  (stores: S, database: Database, sound: () => Fixture<S>): Promise<unknown>;
  readonly readsMax?: number;
  readonly why?: string;
}

export function bounded<S extends Stores = Stores>(
  readsMax: number,
  why: string,
  run: Exercise<S>,
): Exercise<S> {
  return Object.assign(run, { readsMax, why });
}

/** Index entries and rows; servers count both twice. */
export const OPEN_READS_MAX = 16 * TABLES.openJobs;
export const OPEN_WHY = 'reads the open jobs, whose number is bounded';

/** MariaDB counts rows within a LIMIT twice, plus one. */
export const DUE_READS_MAX = 2 * DUE_COUNTED_MAX + READ_BESIDE_MAX;
export const DUE_WHY = `counts entries of an index, ${DUE_COUNTED_MAX} at most`;

/** One account has half of the entries. Servers count three reads for each that they sum. */
export const LEDGER_READS_MAX = 2 * TABLES.ledgerEntries;
export const LEDGER_WHY = 'sums the entries of one account, whose number nothing bounds';

/** Arranges without counting, with the largest accounts. */
export function soundOn<S extends Stores>(
  database: Database,
  storesOn: (database: Database) => S,
): () => Fixture<S> {
  const stores = storesOn(database);
  return () => {
    let accounts = 0;
    return { stores, database, account: async () => accountOf(accounts++), apiKeyId: apiKeyOf(0) };
  };
}

export function jobOfLargest(overrides: Partial<NewJob> = {}): NewJob {
  return newJob(accountOf(0), { apiKeyId: apiKeyOf(0), ...overrides });
}

export const CALLBACK = {
  url: 'https://statements.example/hook',
  secret: Uint8Array.of(1),
  secretKeyId: SECRET_KEY_ID,
};

interface ExercisesBeside<S extends Stores> {
  readonly beside: Readonly<Record<string, Exercise<S>>>;
  readonly bounds?: Readonly<Record<string, readonly [readsMax: number, why: string]>>;
}

export function exercisesOf<S extends Stores>(
  methods: readonly ChangingMethod<S>[],
  { beside, bounds = {} }: ExercisesBeside<S>,
): Readonly<Record<string, Exercise<S>>> {
  const names = [...new Set(methods.map(({ name }) => name))];
  const exercise = (name: string) => {
    const calls = methods.filter(method => method.name === name);
    const [readsMax, why] = bounds[name] ?? [];
    return Object.assign(changing(calls, beside[name]), { readsMax, why });
  };
  return Object.fromEntries(names.map(name => [name, exercise(name)]));
}

function changing<S extends Stores>(
  calls: readonly ChangingMethod<S>[],
  beside?: Exercise<S>,
): Exercise<S> {
  return async (stores, database, sound) => {
    for (const method of calls) {
      const { act } = await method.arrange(sound());
      assertDone(await act(stores, database));
      const again = kindOf(await act(stores, database));
      if (method.again !== undefined) assert.equal(again, method.again);
      const late = await method.late?.(sound());
      assert.deepEqual(await late?.act(stores), late?.told);
    }
    await beside?.(stores, database, sound);
  };
}

/** A refusal would run other statements. */
function assertDone(outcome: unknown): void {
  const kind = kindOf(outcome);
  assert.notEqual(kind, false);
  assert.doesNotMatch(
    typeof kind === 'string' ? kind : '',
    /^(refused|unknown|exists|too-|not-|already-|insufficient-)/,
  );
}
