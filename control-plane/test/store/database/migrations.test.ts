/**
 * Migrations: run once, and again where they were cut off; other versions' schemas; and the rule that
 * lets old and new replicas run side by side on one database: a migration only adds. What an old
 * replica's statements read, write or search by stays, and what they insert is taken.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import { Migrator } from 'kysely/migration';
import {
  createTestDatabase,
  describeOnDatabases,
  SILENT_LOG,
  type TestDatabase,
} from '../../../../test/support/database.ts';
import { examineDatabase } from '../../../src/doctor/database-findings.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import {
  migrate,
  migrationsOf,
  OLDER_FOUND,
  requireCurrentSchema,
  SchemaError,
  schemaState,
} from '../../../src/store/database/migrate.ts';
import { query } from '../../../src/store/database/transact.ts';
import { openStores } from '../../../src/store/stores.ts';
import { brokenFor, readSchemaShape } from './schema-shape.ts';
import { tapped } from './tapped-database.ts';

/** What Galera answers where another member's change of a table comes first. */
const CONFLICT = Object.assign(new Error('Deadlock found'), { errno: 1213 });

const DIRECTORY = path.resolve(import.meta.dirname, '../../../src/store/database/migrations');

const options = { log: SILENT_LOG, renderOutboxBody: () => '' };

describeOnDatabases('migrations', dialect => {
  async function withEmpty(work: (test: TestDatabase, database: Database) => Promise<void>) {
    const test = await createTestDatabase(dialect, { migrated: false });
    try {
      await work(test, await test.open());
    } finally {
      await test.close();
    }
  }

  it('run once, however many processes start at the same time', () =>
    withEmpty(async (test, database) => {
      await assert.rejects(requireCurrentSchema(database), /migrate/);
      const replicas = await Promise.all([1, 2, 3].map(() => test.open()));
      const ran = await Promise.all(replicas.map(replica => migrate(replica)));
      assert.deepEqual(ran.flat(), Object.keys(migrationsOf(database)));
      await requireCurrentSchema(database);
      assert.deepEqual(await migrate(database), []);
    }));

  it('that were cut off half way run again from the start', () =>
    withEmpty(async (_, database) => {
      await migrate(database);
      await database.kysely.schema.dropTable('jobs').execute();
      await database.kysely.schema.dropTable('nodes').execute();
      await sql`delete from kysely_migration`.execute(database.kysely);
      assert.deepEqual(await migrate(database), Object.keys(migrationsOf(database)));
      const tables = await query(database, db => db.introspection.getTables());
      assert.ok(tables.some(({ name }) => name === 'jobs'));
    }));

  it('only add: nothing that an old replica uses goes or changes', () =>
    withEmpty(async (_, database) => {
      let before = await readSchemaShape(database);
      for (const name of Object.keys(migrationsOf(database))) {
        await migrateTo(database, name);
        const after = await readSchemaShape(database);
        assert.deepEqual(brokenFor(before, after), [], name);
        before = after;
      }
    }));

  it('go on where a statement loses to another member', async () => {
    for (const at of [1, 20]) {
      await withEmpty(async (_, database) => {
        let seen = 0;
        const losing = tapped(database, () => {
          seen += 1;
          if (seen === at) throw CONFLICT;
        });
        await migrate(losing);
        assert.ok(seen > at, `${seen} statements`);
        await requireCurrentSchema(database);
      });
    }
  });

  it('are all in the list that runs', () =>
    withEmpty(async (_, database) => {
      const names = Object.keys(migrationsOf(database));
      const files = readdirSync(DIRECTORY).filter(name => /^\d/.test(name));
      assert.deepEqual(names, files.map(name => path.basename(name, '.ts')).sort());
    }));

  const enter = (database: Database, name: string) =>
    sql`insert into kysely_migration (name, timestamp)
      values (${name}, '2999-01-01T00:00:00.000Z')`.execute(database.kysely);

  it('of a newer version are left alone, and said: they only added', () =>
    withEmpty(async (test, database) => {
      await migrate(database);
      await enter(database, '0999-later');
      assert.deepEqual((await schemaState(database)).unknown, ['0999-later']);
      assert.deepEqual(await migrate(database), []);
      await requireCurrentSchema(database);
      for (const migrations of ['run', 'require'] as const) {
        const warned: unknown[] = [];
        const log = { ...SILENT_LOG, warn: (fields: unknown) => warned.push(fields) };
        await (await openStores(test.url, { ...options, log, migrations })).close();
        assert.deepEqual(
          warned.filter(fields => JSON.stringify(fields).includes('0999-later')),
          [{ migrations: ['0999-later'] }],
        );
      }
    }));

  it('of a newer version that leave no way back are refused, and so are gaps', () =>
    withEmpty(async (test, database) => {
      const names = await migrate(database);
      await enter(database, '0999-later-no-way-back');
      await assert.rejects(migrate(database), SchemaError);
      await assert.rejects(requireCurrentSchema(database), /newer version .* no way back/);
      for (const migrations of ['run', 'require'] as const) {
        await assert.rejects(openStores(test.url, { ...options, migrations }), SchemaError);
      }
      await sql`delete from kysely_migration where name like '0999%'`.execute(database.kysely);
      await sql`delete from kysely_migration where name = ${names[0]}`.execute(database.kysely);
      await enter(database, '0999-later');
      await assert.rejects(migrate(database), /newer version .* that lacks 0001-baseline/);
      await assert.rejects(requireCurrentSchema(database), SchemaError);
    }));

  it('of 0.1.0 are refused by name, and nothing changes', () =>
    withEmpty(async (test, database) => {
      for (const statement of [
        'create table kysely_migration (name varchar(255), timestamp varchar(255))',
        `insert into kysely_migration values ('0001-initial', '2999'), ('0002-rate-quotas', '2999')`,
        'create table accounts (id varchar(36) primary key, name varchar(64))',
      ]) {
        await sql.raw(statement).execute(database.kysely);
      }
      const shape = await readSchemaShape(database);
      const bytes = () =>
        ['', '-wal'].map(end => dialect === 'sqlite' && readFileSync(test.url.slice(7) + end));
      const before = bytes();
      const refused = {
        name: 'SchemaError',
        message: /^the database was made by 0\.1\.0, [^\n]+$/,
      };
      for (const migrations of ['run', 'require'] as const) {
        await assert.rejects(openStores(test.url, { ...options, migrations }), refused);
      }
      const examined = await examineDatabase(test.url);
      await examined.database?.close();
      assert.equal(examined.current, false);
      assert.ok(
        examined.findings.some(one => one.status === 'failure' && one.found === OLDER_FOUND),
      );
      assert.deepEqual(bytes(), before);
      assert.deepEqual(await readSchemaShape(database), shape);
    }));
});

/** On Galera a change of tables that another test makes ends it, as it ends `migrate`'s own rounds. */
function migrateTo(database: Database, name: string): Promise<void> {
  return query(database, async db => {
    const provider = { getMigrations: async () => migrationsOf(database) };
    const { error } = await new Migrator({ db, provider }).migrateTo(name);
    if (error !== undefined) throw error;
  });
}

describe('what old statements stumble over', () => {
  const old = {
    tables: new Set(['jobs']),
    columns: new Map([
      ['jobs.id', { type: 'text', optional: false }],
      ['jobs.note', { type: 'text', optional: true }],
    ]),
    indexes: new Map([['jobs: jobs_note', 'plain note']]),
    checks: new Map<string, string>(),
  };
  const wrong: [what: string, next: typeof old, said: string][] = [
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
      'a check that refuses',
      { ...old, checks: new Map([['jobs: jobs_note', 'note > 0']]) },
      'jobs: jobs_note refuses what was taken',
    ],
  ];
  for (const [what, next, said] of wrong) {
    it(what, () => assert.deepEqual(brokenFor(old, next), [said]));
  }
  it('not what is only added', () => {
    const next = {
      ...old,
      tables: new Set([...old.tables, 'more']),
      columns: new Map([
        ...old.columns,
        ['jobs.more', { type: 'text', optional: true }],
        ['more.id', { type: 'text', optional: false }],
      ]),
      indexes: new Map([...old.indexes, ['more: more_once', 'unique id']]),
    };
    assert.deepEqual(brokenFor(old, next), []);
  });
});
