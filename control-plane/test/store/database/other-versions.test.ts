/** A schema of another version: what an older one makes of it, and the way back to one that refuses it. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import {
  createTestDatabase,
  DIALECTS,
  SILENT_LOG,
  skipReason,
  type TestDatabase,
} from '../../../../test/support/database.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import {
  forgetMigrations,
  migrate,
  requireCurrentSchema,
  SchemaError,
  schemaState,
} from '../../../src/store/database/migrate.ts';
import { openStores } from '../../../src/store/stores.ts';
import { readSchemaShape } from './schema-shape.ts';

const options = { log: SILENT_LOG, renderOutboxBody: () => '' };

for (const dialect of DIALECTS) {
  describe(`migrations on ${dialect}`, { skip: skipReason(dialect) }, () => {
    async function withMigrated(
      run: (test: TestDatabase, database: Database, names: readonly string[]) => Promise<void>,
    ): Promise<void> {
      const test = await createTestDatabase(dialect, { migrated: false });
      try {
        const database = await test.open();
        const names = await migrate(database);
        await run(test, database, names);
      } finally {
        await test.close();
      }
    }

    const enter = (database: Database, name: string) =>
      sql`insert into kysely_migration (name, timestamp)
        values (${name}, '2999-01-01T00:00:00.000Z')`.execute(database.kysely);

    it('of a newer version are left alone, and said: they only added', () =>
      withMigrated(async (test, database) => {
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
      withMigrated(async (test, database, names) => {
        await enter(database, '0999-later-no-way-back');
        await assert.rejects(migrate(database), SchemaError);
        await assert.rejects(requireCurrentSchema(database), /newer version .* no way back/);
        for (const migrations of ['run', 'require'] as const) {
          await assert.rejects(openStores(test.url, { ...options, migrations }), SchemaError);
        }
        await assert.rejects(forgetMigrations(database, ['0999-later-no-way-back']), /no way back/);
        await sql`delete from kysely_migration where name like '0999%'`.execute(database.kysely);
        await sql`delete from kysely_migration where name = ${names[0]}`.execute(database.kysely);
        await enter(database, '0999-later');
        await assert.rejects(migrate(database), /newer version .* that lacks 0001-initial/);
        await assert.rejects(requireCurrentSchema(database), SchemaError);
      }));

    it('that are forgotten, the last ones alone, run again and change nothing', () =>
      withMigrated(async (_, database, names) => {
        const last = names.slice(-2);
        for (const wrong of [[], ['0001-initial'], [...names.slice(-2, -1)], ['0999-later']]) {
          await assert.rejects(forgetMigrations(database, wrong), SchemaError);
        }
        assert.deepEqual((await schemaState(database)).pending, []);
        const shape = await readSchemaShape(database);
        await forgetMigrations(database, last.toReversed());
        assert.deepEqual((await schemaState(database)).pending, last);
        assert.deepEqual(await migrate(database), last);
        assert.deepEqual(await readSchemaShape(database), shape);
      }));
  });
}
