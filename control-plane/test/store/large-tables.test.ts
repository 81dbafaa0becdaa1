/** What the tests and measurements at size stand on: tables that are sound, and rows that count. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  createTestDatabase,
  DIALECTS,
  skipReason,
  type TestDatabase,
} from '../../../test/support/database.ts';
import { fillLargeTables } from '../../../test/support/large-tables.ts';
import { openMeteredDatabase } from '../../../test/support/statement-meter.ts';
import { storesOn } from './fixtures.ts';

for (const dialect of DIALECTS) {
  describe(`filled tables on ${dialect}`, { skip: skipReason(dialect) }, () => {
    let test: TestDatabase;

    before(async () => {
      test = await createTestDatabase(dialect);
      await fillLargeTables(await test.open(), { jobs: 2000, openJobs: 20, ledgerEntries: 6000 });
    });
    after(() => test.close());

    it('balance', async () => {
      const stores = storesOn(await test.open());
      assert.deepEqual(await stores.ledger.check(), []);
      assert.equal((await stores.jobs.queued()).jobs, 20);
    });

    it('count what a statement reads', async () => {
      const { database, statements } = openMeteredDatabase(dialect, test.url);
      try {
        const { kysely } = database;
        const none = kysely.selectFrom('jobs').select('id').where('id', '=', 'none');
        // A server reads its own tables when one of ours is opened first.
        await none.execute();
        statements.length = 0;
        await none.execute();
        await kysely.selectFrom('jobs').select('id').where('fence', '>', 100).execute();
        const [one, all] = statements;
        assert.ok(one !== undefined && one.rowsRead <= 1, `${one?.rowsRead}`);
        assert.ok(all !== undefined && all.rowsRead >= 2020, `${all?.rowsRead}`);
      } finally {
        await database.close();
      }
    });
  });
}
