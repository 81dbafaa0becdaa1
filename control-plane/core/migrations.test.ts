import { readFileSync } from 'node:fs';
import { openCurrentDatabase } from '@matting/database/connect.ts';
import { type Database, type Db, query } from '@matting/database/database.ts';
import { migrate } from '@matting/database/migrate.ts';
import { SILENT_LOG } from '@matting/test-support/database.ts';
import { until } from '@matting/test-support/processes.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { CORE_MIGRATIONS } from './migrations.ts';
import { CORE_NAMES, MADE_BY_0_1_0, onMigrations } from './test/migrating.ts';
import { brokenFor, readSchemaShape } from './test/schema-shape.ts';

const test = ava.serial;

const CORE = { series: [CORE_MIGRATIONS], names: CORE_NAMES, tables: ['jobs', 'nodes'] };

onMigrations(test, 'migrations', CORE, (test, { dialect, onEmpty }) => {
  test('refuse a database of 0.1.0 by name, and change nothing', t =>
    onEmpty(async (fixture, database) => {
      for (const statement of MADE_BY_0_1_0) await sql.raw(statement).execute(database.kysely);
      const shape = await readSchemaShape(database);
      const bytes = () =>
        ['', '-wal'].map(end => dialect === 'sqlite' && readFileSync(fixture.url.slice(7) + end));
      const before = bytes();
      const refused = {
        name: 'SchemaError',
        message: /^the database was made by 0\.1\.0, [^\n]+$/,
      };
      const options = { log: SILENT_LOG, packages: CORE.series };
      for (const migrations of ['run', 'require'] as const) {
        await rejectsWith(t, openCurrentDatabase(fixture.url, { ...options, migrations }), refused);
      }
      t.deepEqual(bytes(), before);
      t.deepEqual(await readSchemaShape(database), shape);
    }));

  if (dialect === 'sqlite') return;
  test('let other statements pass while they wait for a transaction to end', t =>
    onEmpty(async (fixture, database) => {
      const [first, next] = [CORE_NAMES.slice(0, 2), CORE_NAMES.slice(2)];
      const { migrations } = CORE_MIGRATIONS;
      const some = () => Object.fromEntries(first.map(name => [name, migrations(dialect)[name]!]));
      await migrate(database, [{ ...CORE_MIGRATIONS, migrations: some }]);
      const [user, other] = [await fixture.open(), await fixture.open()];
      const read = (db: Db) => db.selectFrom('jobs').select('id').execute();
      const migrating = await user.kysely.transaction().execute(async using => {
        await read(using);
        const migrating = migrate(database, CORE.series);
        await until(async () => (await waiting(other)) > 0, {
          timeoutMs: 60_000,
          what: 'a change that waits',
        });
        // Without the bound the read would wait for the change until its time limit.
        await t.notThrowsAsync(query(other, read));
        return { migrating };
      });
      t.deepEqual(await migrating.migrating, next);
    }));
});

async function waiting(database: Database): Promise<number> {
  const found = sql<{ id: number }>`select id from information_schema.processlist
    where state = 'Waiting for table metadata lock'`;
  return (await query(database, db => found.execute(db))).rows.length;
}

const old = {
  tables: new Set(['jobs']),
  columns: new Map([
    ['jobs.id', { type: 'text', optional: false }],
    ['jobs.note', { type: 'text', optional: true }],
  ]),
  indexes: new Map([['jobs: jobs_note', 'plain note']]),
  checks: new Map<string, string>(),
};
const more = {
  ...old,
  tables: new Set([...old.tables, 'more']),
  columns: new Map([
    ...old.columns,
    ['jobs.more', { type: 'text', optional: true }],
    ['more.id', { type: 'text', optional: false }],
  ]),
  indexes: new Map([...old.indexes, ['more: more_once', 'unique id']]),
};
const changes: [what: string, next: typeof old, said?: string][] = [
  ['what is only added', more],
  ['a table', { ...old, tables: new Set(), columns: old.columns }, 'jobs is gone'],
  ['a column', { ...old, columns: new Map([...old.columns].slice(0, 1)) }, 'jobs.note is gone'],
  [
    'a column that has to be given',
    { ...old, columns: new Map([...old.columns, ['jobs.x', { type: 'text', optional: false }]]) },
    'jobs.x must be given',
  ],
  ['an index', { ...old, indexes: new Map() }, 'the index jobs: jobs_note is gone'],
  [
    'an index that refuses',
    { ...old, indexes: new Map([...old.indexes, ['jobs: once', 'unique note']]) },
    'jobs: once refuses what was taken',
  ],
  [
    'an index that refuses two of a value in a column that old statements do not write',
    { ...more, indexes: new Map([...more.indexes, ['jobs: once', 'unique more']]) },
  ],
  [
    'a check that refuses',
    { ...old, checks: new Map([['jobs: jobs_note', 'note > 0']]) },
    'jobs: jobs_note refuses what was taken',
  ],
];
test('list each change that breaks statements of an old version', t => {
  for (const [what, next, said] of changes) {
    t.deepEqual(brokenFor(old, next), said === undefined ? [] : [said], what);
  }
});
