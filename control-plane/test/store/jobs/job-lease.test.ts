/** The leases of jobs: who wins one, who loses it, and the order in which jobs are offered. */
import assert from 'node:assert/strict';
import ava from 'ava';
import sinon from 'sinon';
import { ASYNC_HEAD_START_MS } from '../../../src/domain/dispatch/job-turns.ts';
import { publicState } from '../../../src/domain/job.ts';
import { LEASE_MS } from '../../../src/domain/lease.ts';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  onStores,
  reread,
  resultOf,
  running,
  storedInput,
  submitted,
} from '../fixtures.ts';

const test = ava.serial;

onStores(test, 'jobs', (test, { database, stores }) => {
  const balanced = () => assertBalanced(stores);

  test('leases › let one claim win, raise the fence, and hide the job from others', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account));
    const listed = (await stores.jobs.listClaimable(1000)).find(({ id }) => id === job.id);
    assert.ok(listed);
    t.false(listed.leaseExpired);
    t.deepEqual(listed.input, job.input);
    const won = await stores.jobs.claim(listed, 'replica-1', LEASE_MS);
    t.is(won?.claim.fence, 1);
    t.is(won?.job.lease?.holder, 'replica-1');
    t.is(await stores.jobs.claim(listed, 'replica-2', LEASE_MS), undefined);
    t.is(await stores.jobs.claim({ ...listed, fence: 1 }, 'r2', LEASE_MS), undefined);
    t.false((await stores.jobs.listClaimable(1000)).some(({ id }) => id === job.id));
    t.true(await stores.jobs.release(won!.claim));
    const stale = await stores.jobs.claim(listed, 'replica-2', LEASE_MS);
    t.is(stale, undefined, 'a listing from before that claim would repeat its fence');
  });

  test('leases › make accepted fetching, and stored input ready', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account, { sourceUrl: 'https://a.example/' }));
    const claim = await claimed(stores, job);
    t.is((await reread(stores, job.id)).state, 'fetching');
    t.is(await stores.jobs.admitted(claim), false, 'nothing to admit yet');
    t.true(await stores.jobs.inputStored(claim, storedInput(job.id)));
    t.is(await stores.jobs.inputStored(claim, storedInput(job.id)), true, 'again');
    const ready = await reread(stores, job.id);
    t.is(ready.state, 'ready');
    t.deepEqual(ready.input, storedInput(job.id));
    t.is(ready.lease?.holder, 'replica-1');
    const other = { ...storedInput(job.id), blob: 'inputs/other' };
    t.false(await stores.jobs.inputStored(claim, other));
  });

  test('leases › are renewed by their holder, late too while nobody replaced it', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account));
    const claim = await claimed(stores, job, { leaseMs: 0 });
    t.false(await stores.jobs.renew({ ...claim, holder: 'replica-2' }, LEASE_MS));
    t.true(await stores.jobs.renew(claim, HOUR_MS));
    const { lease, readAtMs } = await reread(stores, job.id);
    t.truthy(lease && lease.expiresAtMs > readAtMs + HOUR_MS / 2);
  });

  test('leases › that ran out are taken over, counted, and void for the old holder', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const { job, claim: old } = await running(stores, newJob(account));
    await stores.jobs.renew(old, 0);
    const listed = (await stores.jobs.listClaimable(1000)).find(({ id }) => id === job.id);
    t.true(listed?.leaseExpired);
    const won = await stores.jobs.claim(listed!, 'replica-2', LEASE_MS);
    t.is(won?.job.takeovers, 1);
    t.is(won?.job.state, 'running', 'there is no way back to queued');
    t.is(won?.claim.fence, 2);

    t.false(await stores.jobs.renew(old, LEASE_MS));
    t.false(await stores.jobs.release(old));
    t.false(await stores.jobs.admitted(old));
    t.is(await stores.jobs.attemptLost(old, true), undefined);
    t.false(await stores.jobs.succeed(old, resultOf(old), HOUR_MS, {}));
    t.false(await stores.jobs.fail(old, IMAGE_FAULT));
    const untouched = await reread(stores, job.id);
    t.is(untouched.state, 'running');
    t.is(untouched.lostAttempts, 0);
    t.true(await stores.jobs.succeed(won!.claim, resultOf(won!.claim), HOUR_MS, {}));
  });

  test('leases › claimed anew by the same replica are void for its own earlier claim', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const { job, claim: old } = await running(stores, newJob(account));
    await stores.jobs.renew(old, 0);
    const young = await claimed(stores, job, { holder: old.holder });
    t.false(await stores.jobs.renew(old, LEASE_MS));
    t.false(await stores.jobs.release(old));
    t.false(await stores.jobs.admitted(old));
    t.is(await stores.jobs.attemptLost(old, false), undefined);
    t.false(await stores.jobs.inputStored(old, storedInput(job.id)));
    t.false(await stores.jobs.succeed(old, resultOf(old), HOUR_MS, {}));
    t.false(await stores.jobs.fail(old, IMAGE_FAULT));
    t.true(await stores.jobs.renew(young, LEASE_MS));
  });

  test('leases › given back cost nothing', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account));
    const claim = await claimed(stores, job);
    t.true(await stores.jobs.release(claim));
    t.false(await stores.jobs.release(claim));
    const free = await reread(stores, job.id);
    t.is(free.lease, null);
    t.deepEqual([free.takeovers, free.lostAttempts, free.state], [0, 0, 'ready']);
    const again = await claimed(stores, free);
    t.is(again.fence, 2);
    t.is((await reread(stores, job.id)).takeovers, 0);
  });

  test('leases › count lost attempts, and those that took a process with them', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const { job, claim } = await running(stores, newJob(account));
    const once = await stores.jobs.attemptLost(claim, false);
    t.deepEqual([once?.lostAttempts, once?.lostWithProcess, once?.lease], [1, 0, null]);
    t.is(await stores.jobs.attemptLost(claim, false), undefined, 'given back already');
    const second = await claimed(stores, job);
    const twice = await stores.jobs.attemptLost(second, true);
    t.deepEqual([twice?.lostAttempts, twice?.lostWithProcess], [2, 1]);
    t.is(twice?.state, 'running');
    t.is(twice?.takeovers, 0);
  });

  test('leases › set started_at once', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const { job, claim } = await running(stores, newJob(account));
    await database.kysely
      .updateTable('jobs')
      .set({ started_at: 1000 })
      .where('id', '=', job.id)
      .execute();
    t.true(await stores.jobs.admitted(claim));
    t.is((await reread(stores, job.id)).startedAtMs, 1000);
  });

  test('leases › are judged by the clock of the database, whatever this process believes', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const { job, claim } = await running(stores, newJob(account));
    const now = sinon.stub(Date, 'now').returns(4_000_000_000_000);
    t.teardown(() => now.restore());
    const listed = await stores.jobs.listClaimable(1000);
    t.false(
      listed.some(({ id }) => id === job.id),
      'the lease is not over',
    );
    await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {});
    t.is(publicState(await reread(stores, job.id)), 'succeeded');
  });

  test('leases › are offered sync first, then oldest, async before much later sync', async t => {
    t.teardown(balanced);
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
    t.deepEqual(mine, [sync.id, oldest.id, older.id, late.id]);
    t.is((await stores.jobs.listClaimable(2)).length, 2);
  });
});
