/** The leases of jobs: who wins one, who loses it, and the order in which jobs are offered. */
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { ASYNC_HEAD_START_MS } from '../../../src/domain/dispatch/job-turns.ts';
import { publicState } from '../../../src/domain/job.ts';
import { LEASE_MS } from '../../../src/domain/lease.ts';
import {
  assertBalanced,
  claimed,
  describeStores,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  reread,
  resultOf,
  running,
  storedInput,
  submitted,
} from '../fixtures.ts';

describeStores('jobs', ({ database, stores }) => {
  afterEach(() => assertBalanced(stores));

  describe('leases', () => {
    it('let one claim win, raise the fence, and hide the job from others', async () => {
      const account = await fundedAccount(stores, 1);
      const job = await submitted(stores, newJob(account));
      const listed = (await stores.jobs.listClaimable(1000)).find(({ id }) => id === job.id);
      assert.ok(listed);
      assert.equal(listed.leaseExpired, false);
      assert.deepEqual(listed.input, job.input);
      const won = await stores.jobs.claim(listed, 'replica-1', LEASE_MS);
      assert.equal(won?.claim.fence, 1);
      assert.equal(won?.job.lease?.holder, 'replica-1');
      assert.equal(await stores.jobs.claim(listed, 'replica-2', LEASE_MS), undefined);
      assert.equal(await stores.jobs.claim({ ...listed, fence: 1 }, 'r2', LEASE_MS), undefined);
      assert.ok(!(await stores.jobs.listClaimable(1000)).some(({ id }) => id === job.id));
      assert.equal(await stores.jobs.release(won!.claim), true);
      const stale = await stores.jobs.claim(listed, 'replica-2', LEASE_MS);
      assert.equal(stale, undefined, 'a listing from before that claim would repeat its fence');
    });

    it('make accepted fetching, and stored input ready', async () => {
      const account = await fundedAccount(stores, 1);
      const job = await submitted(stores, newJob(account, { sourceUrl: 'https://a.example/' }));
      const claim = await claimed(stores, job);
      assert.equal((await reread(stores, job.id)).state, 'fetching');
      assert.equal(await stores.jobs.admitted(claim), false, 'nothing to admit yet');
      assert.equal(await stores.jobs.inputStored(claim, storedInput(job.id)), true);
      assert.equal(await stores.jobs.inputStored(claim, storedInput(job.id)), true, 'again');
      const ready = await reread(stores, job.id);
      assert.equal(ready.state, 'ready');
      assert.deepEqual(ready.input, storedInput(job.id));
      assert.equal(ready.lease?.holder, 'replica-1');
      const other = { ...storedInput(job.id), blob: 'inputs/other' };
      assert.equal(await stores.jobs.inputStored(claim, other), false);
    });

    it('are renewed by their holder, late too while nobody replaced it', async () => {
      const account = await fundedAccount(stores, 1);
      const job = await submitted(stores, newJob(account));
      const claim = await claimed(stores, job, { leaseMs: 0 });
      assert.equal(await stores.jobs.renew({ ...claim, holder: 'replica-2' }, LEASE_MS), false);
      assert.equal(await stores.jobs.renew(claim, HOUR_MS), true);
      const { lease, readAtMs } = await reread(stores, job.id);
      assert.ok(lease && lease.expiresAtMs > readAtMs + HOUR_MS / 2);
    });

    it('that ran out are taken over, counted, and void for the old holder', async () => {
      const account = await fundedAccount(stores, 1);
      const { job, claim: old } = await running(stores, newJob(account));
      await stores.jobs.renew(old, 0);
      const listed = (await stores.jobs.listClaimable(1000)).find(({ id }) => id === job.id);
      assert.equal(listed?.leaseExpired, true);
      const won = await stores.jobs.claim(listed!, 'replica-2', LEASE_MS);
      assert.equal(won?.job.takeovers, 1);
      assert.equal(won?.job.state, 'running', 'there is no way back to queued');
      assert.equal(won?.claim.fence, 2);

      assert.equal(await stores.jobs.renew(old, LEASE_MS), false);
      assert.equal(await stores.jobs.release(old), false);
      assert.equal(await stores.jobs.admitted(old), false);
      assert.equal(await stores.jobs.attemptLost(old, true), undefined);
      assert.equal(await stores.jobs.succeed(old, resultOf(old), HOUR_MS, {}), false);
      assert.equal(await stores.jobs.fail(old, IMAGE_FAULT), false);
      const untouched = await reread(stores, job.id);
      assert.equal(untouched.state, 'running');
      assert.equal(untouched.lostAttempts, 0);
      assert.equal(await stores.jobs.succeed(won!.claim, resultOf(won!.claim), HOUR_MS, {}), true);
    });

    it('claimed anew by the same replica are void for its own earlier claim', async () => {
      const account = await fundedAccount(stores, 1);
      const { job, claim: old } = await running(stores, newJob(account));
      await stores.jobs.renew(old, 0);
      const young = await claimed(stores, job, { holder: old.holder });
      assert.equal(await stores.jobs.renew(old, LEASE_MS), false);
      assert.equal(await stores.jobs.release(old), false);
      assert.equal(await stores.jobs.admitted(old), false);
      assert.equal(await stores.jobs.attemptLost(old, false), undefined);
      assert.equal(await stores.jobs.inputStored(old, storedInput(job.id)), false);
      assert.equal(await stores.jobs.succeed(old, resultOf(old), HOUR_MS, {}), false);
      assert.equal(await stores.jobs.fail(old, IMAGE_FAULT), false);
      assert.equal(await stores.jobs.renew(young, LEASE_MS), true);
    });

    it('given back cost nothing', async () => {
      const account = await fundedAccount(stores, 1);
      const job = await submitted(stores, newJob(account));
      const claim = await claimed(stores, job);
      assert.equal(await stores.jobs.release(claim), true);
      assert.equal(await stores.jobs.release(claim), false);
      const free = await reread(stores, job.id);
      assert.equal(free.lease, null);
      assert.deepEqual([free.takeovers, free.lostAttempts, free.state], [0, 0, 'ready']);
      const again = await claimed(stores, free);
      assert.equal(again.fence, 2);
      assert.equal((await reread(stores, job.id)).takeovers, 0);
    });

    it('count lost attempts, and those that took a process with them', async () => {
      const account = await fundedAccount(stores, 1);
      const { job, claim } = await running(stores, newJob(account));
      const once = await stores.jobs.attemptLost(claim, false);
      assert.deepEqual([once?.lostAttempts, once?.lostWithProcess, once?.lease], [1, 0, null]);
      assert.equal(await stores.jobs.attemptLost(claim, false), undefined, 'given back already');
      const second = await claimed(stores, job);
      const twice = await stores.jobs.attemptLost(second, true);
      assert.deepEqual([twice?.lostAttempts, twice?.lostWithProcess], [2, 1]);
      assert.equal(twice?.state, 'running');
      assert.equal(twice?.takeovers, 0);
    });

    it('set started_at once', async () => {
      const account = await fundedAccount(stores, 1);
      const { job, claim } = await running(stores, newJob(account));
      await database.kysely
        .updateTable('jobs')
        .set({ started_at: 1000 })
        .where('id', '=', job.id)
        .execute();
      assert.equal(await stores.jobs.admitted(claim), true);
      assert.equal((await reread(stores, job.id)).startedAtMs, 1000);
    });

    it('are judged by the clock of the database, whatever this process believes', async t => {
      const account = await fundedAccount(stores, 1);
      const { job, claim } = await running(stores, newJob(account));
      t.mock.method(Date, 'now', () => 4_000_000_000_000);
      const listed = await stores.jobs.listClaimable(1000);
      assert.ok(!listed.some(({ id }) => id === job.id), 'the lease is not over');
      await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {});
      assert.equal(publicState(await reread(stores, job.id)), 'succeeded');
    });

    it('are offered sync first, then oldest, async before much later sync', async () => {
      const account = await fundedAccount(stores, 5);
      const older = await submitted(stores, newJob(account));
      const oldest = await submitted(stores, newJob(account));
      const sync = await submitted(stores, newJob(account, { class: 'sync' }));
      const late = await submitted(stores, newJob(account, { class: 'sync' }));
      const age = (id: string, ms: number) =>
        database.kysely
          .updateTable('jobs')
          .set(eb => ({ queue_at: eb('queue_at', '+', ms) }))
          .where('id', '=', id)
          .execute();
      await age(oldest.id, -ASYNC_HEAD_START_MS / 2);
      await age(late.id, ASYNC_HEAD_START_MS + 1000);
      const mine = (await stores.jobs.listClaimable(1000))
        .filter(({ accountId }) => accountId === account)
        .map(({ id }) => id);
      assert.deepEqual(mine, [sync.id, oldest.id, older.id, late.id]);
      assert.equal((await stores.jobs.listClaimable(2)).length, 2);
    });
  });
});
