/** Keys whose time is shorter than their job's row. */
import assert from 'node:assert/strict';
import { afterEach, before, describe, it } from 'node:test';
import { DIALECTS, skipReason, useTestDatabase } from '../../../../test/support/database.ts';
import type { Job } from '../../../src/domain/job.ts';
import { isForgotten } from '../../../src/domain/key-memory.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import type { Stores } from '../../../src/store/stores.ts';
import {
  assertBalanced,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  reread,
  resultOf,
  running,
  sha256,
  storesOn,
  submitted,
} from '../fixtures.ts';

const REMEMBERED_MS = 600_000;

for (const dialect of DIALECTS) {
  describe(`keys that end on ${dialect}`, { skip: skipReason(dialect) }, () => {
    const databases = useTestDatabase(dialect);
    let database: Database;
    let stores: Stores;
    let other: Stores;

    before(async () => {
      database = await databases.open();
      stores = storesOn(database);
      other = storesOn(await databases.open());
    });
    afterEach(() => assertBalanced(stores));

    /** As if the job had been submitted so long before now. */
    async function age(jobId: string, ageMs: number): Promise<void> {
      const { readAtMs } = await reread(stores, jobId);
      await database.kysely
        .updateTable('jobs')
        .set({ created_at: readAtMs - ageMs })
        .where('id', '=', jobId)
        .execute();
    }

    async function succeeded(credits = 2, resultTtlMs = HOUR_MS): Promise<Job> {
      const account = await fundedAccount(stores, credits);
      const { claim, job } = await running(stores, newJob(account));
      assert.ok(await stores.jobs.succeed(claim, resultOf(claim), resultTtlMs, {}));
      return job;
    }

    async function keyAfter(by: Stores, job: Job): Promise<string | null> {
      await by.jobs.freeKey(job.id, job.idempotencyKeyHash ?? '', REMEMBERED_MS);
      return (await reread(stores, job.id)).idempotencyKeyHash;
    }

    it('are kept while their time runs, and freed once it is over', async () => {
      const job = await succeeded();
      // Far enough from the end that the test's own time is no part of it.
      await age(job.id, REMEMBERED_MS - 60_000);
      assert.equal(isForgotten(await reread(stores, job.id), REMEMBERED_MS), false);
      assert.equal(await keyAfter(stores, job), job.idempotencyKeyHash);
      await age(job.id, REMEMBERED_MS);
      assert.equal(isForgotten(await reread(stores, job.id), REMEMBERED_MS), true);
      assert.equal(await keyAfter(stores, job), null);
    });

    it('are kept by an open job however old it is', async () => {
      const account = await fundedAccount(stores, 2);
      for (const job of [
        await submitted(stores, newJob(account)),
        (await running(stores, newJob(account))).job,
      ]) {
        await age(job.id, 10 * REMEMBERED_MS);
        assert.equal(isForgotten(await reread(stores, job.id), REMEMBERED_MS), false);
        assert.equal(await keyAfter(stores, job), job.idempotencyKeyHash);
      }
    });

    it('are kept by a failure for their time, since it would fail again', async () => {
      const account = await fundedAccount(stores, 1);
      const { claim, job } = await running(stores, newJob(account));
      assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
      assert.equal(await keyAfter(stores, job), job.idempotencyKeyHash);
      await age(job.id, REMEMBERED_MS);
      assert.equal(await keyAfter(stores, job), null);
    });

    it('are freed where the result has expired before', async () => {
      const job = await succeeded(2, 0);
      assert.equal(isForgotten(await reread(stores, job.id), REMEMBERED_MS), true);
      assert.equal(await keyAfter(stores, job), null);
    });

    it('are freed under their own name alone', async () => {
      const job = await succeeded();
      await age(job.id, REMEMBERED_MS);
      await stores.jobs.freeKey(job.id, sha256('another'), REMEMBERED_MS);
      assert.equal((await reread(stores, job.id)).idempotencyKeyHash, job.idempotencyKeyHash);
    });

    it('at the end of their time make one job of requests on two replicas', async () => {
      for (let round = 0; round < 10; round += 1) {
        const old = await succeeded(3);
        const key = old.idempotencyKeyHash ?? '';
        await age(old.id, REMEMBERED_MS);
        const requests = [stores, other, stores, other].map(async by => {
          const known = await by.jobs.findByIdempotencyKey(old.apiKeyId, key);
          if (known !== undefined && !isForgotten(known, REMEMBERED_MS)) return known.id;
          await by.jobs.freeKey(old.id, key, REMEMBERED_MS);
          const next = newJob(old.accountId, { idempotencyKeyHash: key });
          const outcome = await by.jobs.submit(next, LIMITS);
          assert.ok('job' in outcome, outcome.kind);
          return outcome.job.id;
        });
        const [made, ...more] = new Set(await Promise.all(requests));
        assert.deepEqual(more, []);
        assert.notEqual(made, old.id);
        assert.deepEqual(await stores.ledger.balances(old.accountId), {
          available: 1,
          reserved: 1,
        });
      }
    });
  });
}
