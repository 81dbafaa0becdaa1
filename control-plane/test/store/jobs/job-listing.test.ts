/** The operator's list of jobs, page by page: on every database. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { DIALECTS, skipReason, useTestDatabase } from '../../../../test/support/database.ts';
import type { JobFilter, ListedJob } from '../../../src/store/jobs/job-reading.ts';
import type { Stores } from '../../../src/store/stores.ts';
import {
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  resultOf,
  running,
  storesOn,
  submitted,
} from '../fixtures.ts';

const ALL = ['accepted', 'fetching', 'ready', 'running', 'succeeded', 'failed'] as const;

for (const dialect of DIALECTS) {
  describe(`jobs in pages on ${dialect}`, { skip: skipReason(dialect) }, () => {
    const databases = useTestDatabase(dialect);
    let stores: Stores;
    let account: string;
    let other: string;

    before(async () => {
      const database = await databases.open();
      stores = storesOn(database);
      account = await fundedAccount(stores, 100);
      other = await fundedAccount(stores, 100);
      for (let index = 0; index < 8; index += 1) {
        const accountId = index % 4 === 3 ? other : account;
        await submitted(stores, newJob(accountId));
        const failing = await submitted(stores, newJob(accountId));
        assert.ok(await stores.jobs.fail(await claimed(stores, failing), IMAGE_FAULT));
        const { claim } = await running(stores, newJob(accountId));
        assert.ok(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
      }
      // Ends of one millisecond are told apart by the job.
      const { kysely } = database;
      await kysely
        .updateTable('jobs')
        .set({ finished_at: database.nowMs })
        .where('finished_at', 'is not', null)
        .execute();
    });

    async function inPages(filter: Omit<JobFilter, 'limit'>, limit: number): Promise<ListedJob[]> {
      const jobs: ListedJob[] = [];
      for (let after: string | undefined; ; after = jobs.at(-1)!.cursor) {
        const page = await stores.jobs.list({ ...filter, limit, after });
        jobs.push(...page);
        assert.ok(jobs.length <= 100, 'the pages have no end');
        if (page.length < limit) return jobs;
      }
    }

    for (const [name, states, mine] of [
      ['open, then the latest to end', ALL, false],
      ['of one account', ALL, true],
      ['of one state', ['failed'], false],
      ['of one account and state', ['succeeded'], true],
      ['open ones of one account', ['ready'], true],
    ] as const) {
      it(`are the whole list: ${name}`, async () => {
        const filter = { states, endedWithinMs: HOUR_MS, accountId: mine ? account : undefined };
        const whole = (await stores.jobs.list({ ...filter, limit: 1000 })).map(({ id }) => id);
        assert.equal(whole.length, (mine ? 6 : 8) * (states.length === 1 ? 1 : 3));
        for (const limit of [1, 3, 5]) {
          assert.deepEqual(
            (await inPages(filter, limit)).map(({ id }) => id),
            whole,
          );
        }
      });
    }

    it('end where nothing ended within the time that is asked for', async () => {
      const filter = { states: ['failed'] as const, endedWithinMs: -HOUR_MS, limit: 10 };
      assert.deepEqual(await stores.jobs.list(filter), []);
    });

    it('go on behind a job that is not open any more', async () => {
      const filter = { states: ['ready'] as const, endedWithinMs: HOUR_MS, accountId: other };
      const [first, second] = await stores.jobs.list({ ...filter, limit: 10 });
      assert.ok(await stores.jobs.fail(await claimed(stores, first!), IMAGE_FAULT));
      const rest = await stores.jobs.list({ ...filter, limit: 10, after: first!.cursor });
      assert.deepEqual(
        rest.map(({ id }) => id),
        [second!.id],
      );
    });
  });
}
