/**
 * Every statement of the stores, on tables distributed as in production: the rows it reads are
 * counted and bounded by what it answers, never by the tables. No list of
 * statements has to be kept: each method of each store is run here, and each place of store/ that
 * builds a statement must have been reached.
 */
import { globSync, readFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import ava from 'ava';
import { sql } from 'kysely';
import {
  createTestDatabase,
  skipReason,
  type TestDatabase,
} from '../../../test/support/database.ts';
import { fillLargeOrders, fillLargePeople } from '../../../test/support/large-people-and-orders.ts';
import { fillLargeTables, fillLargeUsage } from '../../../test/support/large-tables.ts';
import {
  type MeteredDatabase,
  openMeteredDatabase,
} from '../../../test/support/statement-meter.ts';
import { requireCurrentSchema } from '../../database/migrate.ts';
import { PACKAGES } from '../../packages.ts';
import { type Stores, series, storesOn } from '../../test/every-store.ts';
import { migrationsOf } from '../package.ts';
import type { Fixture } from './changing-methods.ts';
import { excessOf, soundOn, TABLES } from './exercise.ts';
import { methodsOf } from './fixtures.ts';
import { EXERCISES } from './statements.ts';

const test = ava.serial;

const PROGRAM = path.join(import.meta.dirname, '../..');

// From here on: of what the engine has made faster before, it counts no more than a part.
const coverage = new Session();
coverage.connect();
await coverage.post('Profiler.enable');
await coverage.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });

for (const [dialect, analyzed] of [
  ['sqlite', true],
  ['sqlite', false],
  ['mysql', true],
] as const) {
  const name = `on ${dialect}, ${analyzed ? 'with' : 'without'} statistics`;

  let fixture: TestDatabase;
  let metered: MeteredDatabase;
  let stores: Stores;
  let sound: () => Fixture;

  test.before(async () => {
    if (skipReason(dialect)) return;
    fixture = await createTestDatabase(dialect, { series });
    const database = await fixture.open();
    await fillLargeTables(database, TABLES);
    await fillLargeUsage(database);
    await fillLargePeople(database);
    await fillLargeOrders(database);
    if (!analyzed) await sql`drop table sqlite_stat1`.execute(database.kysely);
    sound = soundOn(database);
    metered = openMeteredDatabase(dialect, fixture.url);
    stores = storesOn(metered.database);
    await requireCurrentSchema(database, migrationsOf(PACKAGES));
    // A server reads its own tables when one of ours is opened first.
    for (const exercise of ['jobs.find', 'nodes.find', 'rateQuotas.lease'] as const) {
      await EXERCISES[exercise]!(stores, metered.database, sound);
    }
  });
  test.after.always(async () => {
    await metered?.database.close();
    await fixture?.close();
  });

  const onDialect = test.skipIf(skipReason(dialect) !== false);

  onDialect(`filled tables ${name} › balance, and count what a statement reads`, async t => {
    t.deepEqual(await stores.ledger.check(), []);
    const { kysely } = metered.database;
    metered.statements.length = 0;
    await kysely.selectFrom('jobs').select('id').where('id', '=', 'none').execute();
    await kysely.selectFrom('jobs').select('id').where('fence', '>', 100).execute();
    const [one, all] = metered.statements;
    t.true(one !== undefined && one.rowsRead <= 1, `${one?.rowsRead}`);
    t.true(all !== undefined && all.rowsRead >= TABLES.jobs, `${all?.rowsRead}`);
  });

  for (const [method, exercise] of Object.entries(EXERCISES)) {
    const { readsMax, why } = exercise;
    onDialect(
      `what statements read ${name} › ${method}${why === undefined ? '' : ` (${why})`}`,
      async t => {
        metered.statements.length = 0;
        await exercise(stores, metered.database, sound);
        t.deepEqual(excessOf(metered.statements, readsMax), []);
      },
    );
  }
}

test('the statements that are run here › are those of every method of every store', async t => {
  const fixture = await createTestDatabase('sqlite', { series });
  try {
    const stores = storesOn(await fixture.open());
    const methods = methodsOf(stores).filter(method => method !== 'close');
    t.deepEqual(Object.keys(EXERCISES).sort(), methods.sort());
  } finally {
    await fixture.close();
  }
});

// Some are for a server alone.
test.skipIf(skipReason('mysql') !== false)(
  'the statements that are run here › are all that the control plane builds',
  async t => {
    const { result } = await coverage.post('Profiler.takePreciseCoverage');
    coverage.disconnect();
    const missed = storeFiles().flatMap(file => {
      const url = pathToFileURL(file).href;
      const functions = result.filter(script => script.url === url).flatMap(s => s.functions);
      return unpassed(
        file,
        functions.flatMap(({ ranges }) => ranges),
      );
    });
    t.deepEqual(missed, []);
  },
);

function storeFiles(): string[] {
  return globSync('*/**/*.ts', {
    cwd: PROGRAM,
    exclude: ['**/test/**', '**/*.test.ts', '**/*.storm.ts'],
  }).map(file => path.join(PROGRAM, file));
}

interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

/** A statement, or a part of one that not every call has. */
const BUILDS = /\.(selectFrom|selectNoFrom|updateTable|deleteFrom|insertInto|where|orderBy)\(/g;

/** `file:line` of what builds a statement and was not passed. */
function unpassed(file: string, ranges: readonly Range[]): string[] {
  const text = readFileSync(file, 'utf8');
  const missed = new Set<string>();
  for (const { index } of text.matchAll(BUILDS)) {
    // The smallest range around it says how often it was passed; of two that are one, the last.
    const around = ranges
      .filter(range => range.startOffset <= index && index < range.endOffset)
      .sort((a, b) => b.endOffset - b.startOffset - (a.endOffset - a.startOffset))
      .at(-1);
    if (around !== undefined && around.count > 0) continue;
    const line = text.slice(0, index).split('\n').length;
    missed.add(`${path.basename(file)}:${line}`);
  }
  return [...missed];
}
