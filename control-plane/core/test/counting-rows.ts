/** The rows that a statement reads are bounded by the rows that it answers. */
import { globSync, readFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Database } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { requireCurrentSchema } from '@matting/database/migrate.ts';
import {
  createTestDatabase,
  skipReason,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import {
  type MeteredDatabase,
  openMeteredDatabase,
} from '@matting/test-support/statement-meter.ts';
import type { SerialFn } from 'ava';
import { sql } from 'kysely';
import type { Stores } from '../stores.ts';
import type { Fixture } from './changing-methods.ts';
import { excessOf, soundOn, TABLES } from './exercise.ts';
import { type MethodSuite, ownMethods } from './method-suite.ts';

const PROGRAM = path.join(import.meta.dirname, '../..');

const DATABASES = [
  ['sqlite', true],
  ['sqlite', false],
  ['mysql', true],
] as const;

export async function countRows<S extends Stores>(
  test: SerialFn,
  suite: MethodSuite<S>,
): Promise<void> {
  // Coverage starts before the engine optimises: optimised functions count only in part.
  const coverage = new Session();
  coverage.connect();
  await coverage.post('Profiler.enable');
  await coverage.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  for (const [dialect, analyzed] of DATABASES) countRowsOn(test, suite, dialect, analyzed);
  test('the statements that are run here › are those of every method of every store', async t => {
    const fixture = await createTestDatabase('sqlite', { series: suite.fixtures.series });
    try {
      const { own, others } = ownMethods(suite, await fixture.open());
      const run = Object.keys(suite.exercises).filter(name => !others.includes(name));
      t.deepEqual(run.sort(), own.sort());
    } finally {
      await fixture.close();
    }
  });

  // Some statements run only on a server.
  test.skipIf(skipReason('mysql') !== false)(
    'the statements that are run here › are all that the control plane builds',
    async t => {
      const { result } = await coverage.post('Profiler.takePreciseCoverage');
      coverage.disconnect();
      const files = suite.folders.flatMap(folder => storeFiles(folder, suite.elsewhere));
      const missed = files.flatMap(file => {
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
}

function countRowsOn<S extends Stores>(
  test: SerialFn,
  { fixtures, prepare, fillLarge, exercises, opening }: MethodSuite<S>,
  dialect: DatabaseDialect,
  analyzed: boolean,
): void {
  const name = `on ${dialect}, ${analyzed ? 'with' : 'without'} statistics`;
  const { series, storesOn } = fixtures;
  let fixture: TestDatabase;
  let metered: MeteredDatabase;
  let stores: S;
  let sound: () => Fixture<S>;

  test.before(async () => {
    if (skipReason(dialect)) return;
    fixture = await createTestDatabase(dialect, { series });
    const database = await fixture.open();
    await prepare?.(database);
    await fillLarge(database);
    if (!analyzed) await sql`drop table sqlite_stat1`.execute(database.kysely);
    sound = soundOn(database, storesOn);
    metered = openMeteredDatabase(dialect, fixture.url);
    await openTables(metered.database);
    stores = storesOn(metered.database);
    await requireCurrentSchema(database, series);
    for (const exercise of opening) await exercises[exercise]!(stores, metered.database, sound);
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

  for (const [method, exercise] of Object.entries(exercises)) {
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

/** A server reads a table's statistics on opening it; those are no reads of a statement. */
async function openTables({ kysely }: Database): Promise<void> {
  for (const { name } of await kysely.introspection.getTables()) {
    await sql`select 1 from ${sql.table(name)} limit 1`.execute(kysely);
  }
}

function storeFiles(folder: string, elsewhere = ''): string[] {
  const cwd = path.join(PROGRAM, folder);
  const exclude = ['**/test/**', '**/*.test.ts', '**/*.storm.ts', `${elsewhere}/**`];
  return globSync('**/*.ts', { cwd, exclude }).map(file => path.join(cwd, file));
}

interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

const BUILDS = /\.(selectFrom|selectNoFrom|updateTable|deleteFrom|insertInto|where|orderBy)\(/g;

/** `file:line` of builders that no test reached. */
function unpassed(file: string, ranges: readonly Range[]): string[] {
  const text = readFileSync(file, 'utf8');
  const missed = new Set<string>();
  for (const { index } of text.matchAll(BUILDS)) {
    // The smallest enclosing range has the count; of equal ones the last.
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
