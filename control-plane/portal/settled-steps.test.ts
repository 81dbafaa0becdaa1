import assert from 'node:assert/strict';
import { createStores } from '@matting/core/stores.ts';
import {
  assertBalanced,
  bodyOf,
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  running,
  runningOf,
  SERVICE_FAULT,
  submitted,
  successOf,
} from '@matting/core/test/fixtures.ts';
import ava from 'ava';
import { SETTLED_STEPS } from './settled-steps.ts';
import { onStores } from './test/fixtures.ts';
import { PROVIDER, paid, refundOf } from './test/orders.ts';
import { assertUsageAgrees } from './test/usage-agrees.ts';

const test = ava.serial;

onStores(test, "steps that a job's end left out", (test, { database, stores }) => {
  /** The job's end leaves all steps out. */
  const broken = () =>
    createStores(database, {
      renderOutboxBody: bodyOf,
      settled: SETTLED_STEPS.map(({ name }) => ({
        name,
        settled: () => Promise.reject(new Error('a bug')),
      })),
    });

  async function repaired() {
    await stores.unsettled.repair(100);
    const left = await database.kysely.selectFrom('unsettled_jobs').selectAll().execute();
    assert.deepEqual(left, []);
  }

  test('is counted by usage, as if it had been in time', async t => {
    const { account, claim } = await runningOf(stores, 2);
    const { claim: failing } = await running(stores, newJob(account));
    t.truthy(await broken().queue.succeed(claim, successOf(claim)));
    t.truthy(await broken().queue.fail(failing, IMAGE_FAULT));
    await t.throwsAsync(assertUsageAgrees(database, account));
    await repaired();
    await assertUsageAgrees(database, account);
    await stores.unsettled.repair(100);
    await assertUsageAgrees(database, account);
  });

  async function refundedWithTwoOpen() {
    const account = await fundedAccount(stores, 0);
    const order = await paid(stores, account);
    await stores.ledger.revoke(account, order.credits - 2, 'spent elsewhere');
    const open = [await running(stores, newJob(account)), await running(stores, newJob(account))];
    const { kind } = await stores.orders.refund(order.id, refundOf(undefined), PROVIDER);
    assert.equal(kind, 'refunded');
    for (const { claim } of open) assert.ok(await broken().queue.fail(claim, IMAGE_FAULT));
    return { account, order };
  }

  test('goes to the refund that lacks it', async t => {
    const { account, order } = await refundedWithTwoOpen();
    t.deepEqual(await stores.ledger.balances(account), { available: 2, reserved: 0 });
    await repaired();
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
    const found = await stores.orders.find(order.id);
    t.deepEqual([found?.revoked, found?.unrevoked], [2, order.credits - 2]);
    await assertBalanced(stores, account);
  });

  test('is lacked by the refund where it was spent meanwhile', async t => {
    const { account, order } = await refundedWithTwoOpen();
    const { claim } = await running(stores, newJob(account));
    t.truthy(await stores.queue.succeed(claim, successOf(claim)));
    await repaired();
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
    const found = await stores.orders.find(order.id);
    t.deepEqual([found?.revoked, found?.unrevoked], [1, order.credits - 1]);
    await assertBalanced(stores, account);
    await assertUsageAgrees(database, account);
  });

  test('gives its picture back to the playground', async t => {
    const account = await fundedAccount(stores, 0);
    const apiKeyId = await stores.playground.internalKey(account);
    const unpaidDayMs = await stores.playground.take(account, 1);
    const job = newJob(account, { apiKeyId, class: 'playground', unpaidDayMs });
    const claim = await claimed(stores, await submitted(stores, job));
    t.truthy(await broken().queue.fail(claim, SERVICE_FAULT));
    t.is((await stores.playground.usage(account)).used, 1);
    await repaired();
    t.is((await stores.playground.usage(account)).used, 0);
    await assertUsageAgrees(database, account);
  });
});
