/** Needs: batches, mcp, portal. */
import path from 'node:path';
import { createStores } from '@matting/core/stores.ts';
import { migrationsOf } from '@matting/core/test/internals.ts';
import {
  CORE_NAMES,
  enter,
  migrationNames,
  onMigrations,
  tableNames,
} from '@matting/core/test/migrating.ts';
import { brokenFor, readSchemaShape } from '@matting/core/test/schema-shape.ts';
import { openCurrentDatabase } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import { migrate, requireCurrentSchema } from '@matting/database/migrate.ts';
import { SILENT_LOG } from '@matting/test-support/database.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { series as SERIES } from './fixtures.ts';

const test = ava.serial;

const PACKAGE_NAMES = ['batches', 'mcp', 'portal'].flatMap(name =>
  migrationNames(path.resolve(import.meta.dirname, `../${name}/migrations`), `${name}/`),
);
const PORTAL_NAMES = PACKAGE_NAMES.filter(name => name.startsWith('portal/'));
const PORTAL_TABLES = ['orders', 'usage_days', 'users'];

const ALONE = migrationsOf([]);

const ALL = {
  series: SERIES,
  names: [...CORE_NAMES, ...PACKAGE_NAMES],
  tables: ['jobs', 'nodes', 'orders'],
};

async function tablesOfPortal(database: Database): Promise<string[]> {
  const found = await tableNames(database);
  return PORTAL_TABLES.filter(name => found.includes(name));
}

onMigrations(test, 'migrations', ALL, (test, { dialect, onEmpty, onMigrated }) => {
  test('of a package run on a database that has the core alone', t =>
    onEmpty(async (_, database) => {
      t.deepEqual(await migrate(database, ALONE), CORE_NAMES);
      await requireCurrentSchema(database, ALONE);
      t.deepEqual(await tablesOfPortal(database), []);
      await t.throwsAsync(requireCurrentSchema(database, SERIES), {
        message: new RegExp(`^the database lacks ${PACKAGE_NAMES.join(', ')}: `),
      });
      t.deepEqual(await migrate(database, SERIES), PACKAGE_NAMES);
      t.deepEqual(await tablesOfPortal(database), PORTAL_TABLES);
    }));

  test('of a missing package are left alone, and the core serves', t =>
    onMigrated(async (fixture, database) => {
      await enter(database, '0999-later-no-way-back', 'kysely_migration_portal');
      await requireCurrentSchema(database, ALONE);
      const warned: unknown[] = [];
      const log = { ...SILENT_LOG, warn: (fields: unknown) => warned.push(fields) };
      for (const migrations of ['run', 'require'] as const) {
        const alone = { log, packages: ALONE, migrations };
        const opened = await openCurrentDatabase(fixture.url, alone);
        const account = await createStores(opened).accounts.create(`alone-${migrations}`);
        t.truthy(account);
        await opened.close();
      }
      t.false(JSON.stringify(warned).includes('0999-later'));
      await t.throwsAsync(migrate(database, SERIES), {
        message: /newer version \(portal\/0999-later-no-way-back\), and there is no way back/,
      });
    }));

  test('that were folded add what a database lacks, and keep their names', t =>
    onMigrated(async (_, database) => {
      const made = await readSchemaShape(database);
      const { schema } = database.kysely;
      await schema.dropTable('unsettled_jobs').execute();
      const index = schema.dropIndex('orders_reference');
      await (dialect === 'sqlite' ? index : index.on('orders')).execute();
      for (const [table, column] of [
        ['jobs', 'model'],
        ['nodes', 'models'],
        ['orders', 'reference'],
      ] as const) {
        await schema.alterTable(table).dropColumn(column).execute();
      }
      const folds = SERIES.filter(({ folded = [] }) => folded.length > 0);
      const lists = folds.map(one => `kysely_migration${one.package ? `_${one.package}` : ''}`);
      for (const [index, { folded = [] }] of folds.entries()) {
        await sql`delete from ${sql.table(lists[index]!)}`.execute(database.kysely);
        for (const name of folded.slice(0, index + 1))
          await enter(database, name, lists[index], '2026-01-01');
      }
      const folding = [...CORE_NAMES, ...PORTAL_NAMES];
      t.deepEqual(await migrate(database, SERIES), folding);
      await requireCurrentSchema(database, SERIES);
      const now = await readSchemaShape(database);
      t.deepEqual([...brokenFor(made, now), ...brokenFor(now, made)], []);
      const core = await sql<{
        name: string;
      }>`select name from kysely_migration order by name`.execute(database.kysely);
      t.deepEqual(
        core.rows.map(({ name }) => name),
        ['0001-baseline', ...CORE_NAMES],
      );
    }));

  test('of a package take over tables that the core once made, with their rows', t =>
    onMigrated(async (_, database) => {
      const before = await readSchemaShape(database);
      const user = { id: 'u', mail: 'a@b.example', mail_key: 'a@b.example', created_at: 1 };
      await database.kysely.insertInto('users').values(user).execute();
      for (const table of ['kysely_migration_portal', 'kysely_migration_portal_lock']) {
        await database.kysely.schema.dropTable(table).execute();
      }
      t.deepEqual(await migrate(database, SERIES), PORTAL_NAMES);
      const after = await readSchemaShape(database);
      t.deepEqual([...brokenFor(before, after), ...brokenFor(after, before)], []);
      const rows = await database.kysely.selectFrom('users').select('id').execute();
      t.deepEqual(rows, [{ id: 'u' }]);
    }));
});
