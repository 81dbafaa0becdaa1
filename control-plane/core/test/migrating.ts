import { readdirSync } from 'node:fs';
import path from 'node:path';
import { openCurrentDatabase } from '@matting/database/connect.ts';
import { type Database, query } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import {
  type MigrationSeries,
  migrate,
  migratorOf,
  requireCurrentSchema,
  SchemaError,
} from '@matting/database/migrate.ts';
import { tapped } from '@matting/database/test/tapped-database.ts';
import {
  createTestDatabase,
  type GroupTest,
  onDatabases,
  SILENT_LOG,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import type { SerialFn } from 'ava';
import { sql } from 'kysely';
import { brokenFor, readSchemaShape } from './schema-shape.ts';

/** Galera's answer if another member's schema change comes first. */
const CONFLICT = Object.assign(new Error('Deadlock found'), { errno: 1213 });

type Work = (fixture: TestDatabase, database: Database) => Promise<void>;

export interface Migrated {
  readonly dialect: DatabaseDialect;
  readonly onEmpty: (work: Work) => Promise<void>;
  readonly onMigrated: (work: Work) => Promise<void>;
}

export interface TestedSeries {
  readonly series: readonly MigrationSeries[];
  readonly names: readonly string[];
  readonly tables: readonly string[];
}

export function migrationNames(directory: string, before = ''): string[] {
  const files = readdirSync(directory).filter(name => /^\d/.test(name));
  return files.map(name => `${before}${path.basename(name, '.ts')}`).sort();
}

export const CORE_NAMES = migrationNames(path.join(import.meta.dirname, '../migrations'));

/** What a database of that version starts with. */
export const MADE_BY_0_1_0 = [
  'create table kysely_migration (name varchar(255), timestamp varchar(255))',
  `insert into kysely_migration values ('0001-initial', '2999'), ('0002-rate-quotas', '2999')`,
  'create table accounts (id varchar(36) primary key, name varchar(64))',
];

export const enter = (
  database: Database,
  name: string,
  table = 'kysely_migration',
  day = '2999-01-01',
) =>
  sql`insert into ${sql.table(table)} (name, timestamp)
    values (${name}, ${`${day}T00:00:00.000Z`})`.execute(database.kysely);

export async function tableNames(database: Database): Promise<string[]> {
  const tables = await query(database, db => db.introspection.getTables());
  return tables.map(({ name }) => name);
}

export function onMigrations(
  test: SerialFn,
  name: string,
  tested: TestedSeries,
  more: (test: GroupTest, on: Migrated) => void,
): void {
  onDatabases(test, name, (test, dialect) => {
    const on = async (migrated: boolean, work: Work) => {
      const { series } = tested;
      const fixture = await createTestDatabase(dialect, { migrated, series });
      try {
        await work(fixture, await fixture.open());
      } finally {
        await fixture.close();
      }
    };
    const opened = {
      dialect,
      onEmpty: (work: Work) => on(false, work),
      onMigrated: (work: Work) => on(true, work),
    };
    runOnce(test, opened, tested);
    onlyAdd(test, opened, tested);
    meetNewer(test, opened, tested);
    more(test, opened);
  });
}

function runOnce(
  test: GroupTest,
  { onEmpty, onMigrated }: Migrated,
  { series, names, tables }: TestedSeries,
): void {
  test('run once, each of them, however many processes start at the same time', t =>
    onEmpty(async (fixture, database) => {
      await t.throwsAsync(requireCurrentSchema(database, series), { message: /migrate/ });
      const replicas = await Promise.all([1, 2, 3].map(() => fixture.open()));
      const ran = await Promise.all(replicas.map(replica => migrate(replica, series)));
      t.deepEqual(ran.flat().sort(), [...names]);
      await requireCurrentSchema(database, series);
      t.deepEqual(await migrate(database, series), []);
    }));

  test('run again from the start after they were cut off half way', t =>
    onMigrated(async (_, database) => {
      for (const table of tables) await database.kysely.schema.dropTable(table).execute();
      for (const { package: name } of series) {
        const list = name === undefined ? 'kysely_migration' : `kysely_migration_${name}`;
        await sql`delete from ${sql.table(list)}`.execute(database.kysely);
      }
      t.deepEqual(await migrate(database, series), [...names]);
      const made = await tableNames(database);
      for (const table of tables) t.true(made.includes(table), table);
    }));

  test('go on where a statement loses to another member', t =>
    onEmpty(async (_, database) => {
      let seen = 0;
      const losing = tapped(database, () => {
        seen += 1;
        if (seen === 1 || seen === 20) throw CONFLICT;
      });
      await migrate(losing, series);
      t.true(seen > 20, `${seen} statements`);
      await requireCurrentSchema(database, series);
    }));
}

function onlyAdd(test: GroupTest, { dialect, onEmpty }: Migrated, { series }: TestedSeries): void {
  test('only add: nothing that an old replica uses goes or changes', t =>
    onEmpty(async (_, database) => {
      let before = await readSchemaShape(database);
      for (const one of series) {
        for (const name of Object.keys(one.migrations(dialect))) {
          await migrateTo(database, one, name);
          const after = await readSchemaShape(database);
          t.deepEqual(brokenFor(before, after), [], `${one.package}/${name}`);
          before = after;
        }
      }
    }));
}

function meetNewer(test: GroupTest, { onMigrated }: Migrated, { series }: TestedSeries): void {
  const options = { log: SILENT_LOG, packages: series };

  test('of a newer version are left alone with a warning, since they only add', t =>
    onMigrated(async (fixture, database) => {
      await enter(database, '0999-later');
      t.deepEqual(await migrate(database, series), []);
      await requireCurrentSchema(database, series);
      for (const migrations of ['run', 'require'] as const) {
        const warned: unknown[] = [];
        const log = { ...SILENT_LOG, warn: (fields: unknown) => warned.push(fields) };
        await (await openCurrentDatabase(fixture.url, { ...options, log, migrations })).close();
        t.deepEqual(
          warned.filter(fields => JSON.stringify(fields).includes('0999-later')),
          [{ migrations: ['0999-later'] }],
        );
      }
    }));

  test('of a newer version without a way back are refused, and so are gaps', t =>
    onMigrated(async (fixture, database) => {
      const [first] = CORE_NAMES;
      await enter(database, '0999-later-no-way-back');
      await t.throwsAsync(migrate(database, series), { instanceOf: SchemaError });
      await t.throwsAsync(requireCurrentSchema(database, series), {
        message: /newer version .* no way back/,
      });
      for (const migrations of ['run', 'require'] as const) {
        await t.throwsAsync(openCurrentDatabase(fixture.url, { ...options, migrations }), {
          instanceOf: SchemaError,
        });
      }
      await sql`delete from kysely_migration where name like '0999%'`.execute(database.kysely);
      await sql`delete from kysely_migration where name = ${first}`.execute(database.kysely);
      await enter(database, '0999-later');
      await t.throwsAsync(migrate(database, series), {
        message: new RegExp(`newer version .* that lacks ${first}`),
      });
      await t.throwsAsync(requireCurrentSchema(database, series), { instanceOf: SchemaError });
    }));
}

/** On Galera another test's schema change ends it, as it may `migrate`'s. */
function migrateTo(database: Database, series: MigrationSeries, name: string): Promise<void> {
  return query(database, async db => {
    const { dialect } = database;
    const { error } = await migratorOf({ kysely: db, dialect }, series).migrateTo(name);
    if (error !== undefined) throw error;
  });
}
