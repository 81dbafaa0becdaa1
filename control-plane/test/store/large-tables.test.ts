/** What the tests and measurements at size stand on: tables that are sound, and rows that count. */
import assert from 'node:assert/strict';
import { before, it } from 'node:test';
import { fillLargeTables } from '../../../test/support/large-tables.ts';
import { openMeteredDatabase } from '../../../test/support/statement-meter.ts';
import { describeStores } from './fixtures.ts';

describeStores('filled tables', ({ dialect, databases, database, stores }) => {
  before(() => fillLargeTables(database, { jobs: 2000, openJobs: 20, ledgerEntries: 6000 }));

  it('balance', async () => {
    assert.deepEqual(await stores.ledger.check(), []);
    assert.equal((await stores.jobs.queued()).jobs, 20);
  });

  it('count what a statement reads', async () => {
    const { database, statements } = openMeteredDatabase(dialect, databases.url());
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
