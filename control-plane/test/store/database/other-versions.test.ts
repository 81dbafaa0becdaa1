/** A schema of another version. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { sql } from 'kysely';
import {
  createTestDatabase,
  DIALECTS,
  SILENT_LOG,
  skipReason,
  type TestDatabase,
} from '../../../../test/support/database.ts';
import { examineDatabase } from '../../../src/doctor/database-findings.ts';
import { type Database, openDatabase } from '../../../src/store/database/connect.ts';
import {
  migrate,
  OLDER_FOUND,
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
        await sql`delete from kysely_migration where name like '0999%'`.execute(database.kysely);
        await sql`delete from kysely_migration where name = ${names[0]}`.execute(database.kysely);
        await enter(database, '0999-later');
        await assert.rejects(migrate(database), /newer version .* that lacks 0001-baseline/);
        await assert.rejects(requireCurrentSchema(database), SchemaError);
      }));

    it('of 0.1.0 are refused by name, and nothing changes', async () => {
      const test = await createTestDatabase(dialect, { migrated: false });
      try {
        const database = await openDatabase(test.url, { log: SILENT_LOG });
        for (const statement of [
          'create table kysely_migration (name varchar(255), timestamp varchar(255))',
          `insert into kysely_migration values ('0001-initial', '2999'), ('0002-rate-quotas', '2999')`,
          'create table accounts (id varchar(36) primary key, name varchar(64))',
        ]) {
          await sql.raw(statement).execute(database.kysely);
        }
        const shape = await readSchemaShape(database);
        await database.close();
        const file = () => (dialect === 'sqlite' ? readFileSync(test.url.slice(7)) : undefined);
        const before = file();
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
        assert.deepEqual(file(), before);
        assert.deepEqual(await readSchemaShape(await test.open()), shape);
      } finally {
        await test.close();
      }
    });
  });
}
