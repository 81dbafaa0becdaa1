import assert from 'node:assert/strict';
import { correctionOf, firstOf, succeedCorrection } from '@matting/core/test/families.ts';
import {
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  running,
  submitted,
  successOf,
} from '@matting/core/test/fixtures.ts';
import type { NewJob } from '@matting/core/test/internals.ts';
import { HISTORY, World } from '@matting/core/test/ledger-world.ts';
import type { Database } from '@matting/database/database.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import ava from 'ava';
import { onStores, onStoresInCi, type Stores, storesOn } from '../test/fixtures.ts';
import { assertUsageAgrees } from '../test/usage-agrees.ts';
import { createUsageStore, dayOf, USAGE_KEPT_DAYS, type UsageQuestion } from './usage-store.ts';

const test = ava.serial;

async function ended(stores: Stores, job: NewJob, how: 'succeeded' | 'failed'): Promise<string> {
  const { claim } = await running(stores, job);
  const done =
    how === 'succeeded'
      ? await stores.queue.succeed(claim, successOf(claim))
      : await stores.queue.fail(claim, IMAGE_FAULT);
  assert.ok(done);
  return claim.jobId;
}

onStoresInCi(test, 'usage', (test, { database, stores }) => {
  let today: number;

  test.before(async () => {
    today = await stores.usage.today();
  });

  const last30 = (group: UsageQuestion['group']) => ({ from: today - 29, to: today + 1, group });

  test('counts a correction that succeeded apart, and one that failed not at all', async t => {
    const accountId = await fundedAccount(stores, 1);
    const first = await firstOf(stores, accountId);
    await succeedCorrection(stores, await submitted(stores, correctionOf(first)));
    const failed = await submitted(stores, correctionOf(first));
    t.true(await stores.queue.fail(await claimed(stores, failed), IMAGE_FAULT));
    const total = await stores.usage.total(accountId, last30('day'));
    t.deepEqual(total, { images: 1, failed: 0, corrected: 1, credits: 1 });
    t.deepEqual(await stores.usage.read(accountId, last30('outcome')), [
      { name: 'corrected', images: 0, failed: 0, corrected: 1, credits: 0 },
      { name: 'succeeded', images: 1, failed: 0, corrected: 0, credits: 1 },
    ]);
    await assertUsageAgrees(database, accountId);
  });

  test('counts each end of a job once, by its key and its format', async t => {
    const accountId = await fundedAccount(stores, 10);
    await ended(stores, newJob(accountId, { outputFormat: 'webp' }), 'succeeded');
    await ended(stores, newJob(accountId, { apiKeyId: 'key000000002' }), 'succeeded');
    await ended(stores, newJob(accountId, { apiKeyId: 'key000000002' }), 'failed');
    await ended(stores, newJob(accountId, { outputFormat: 'jpeg', finishing: {} }), 'succeeded');
    await assertUsageAgrees(database, accountId);
    const by = (group: UsageQuestion['group']) => stores.usage.read(accountId, last30(group));
    t.deepEqual(await by('format'), [
      { name: 'jpeg', images: 1, failed: 0, corrected: 0, credits: 1 },
      { name: 'png', images: 2, failed: 1, corrected: 0, credits: 1 },
      { name: 'webp', images: 1, failed: 0, corrected: 0, credits: 1 },
    ]);
    t.deepEqual(await by('key'), [
      { name: 'key000000001', images: 2, failed: 0, corrected: 0, credits: 2 },
      { name: 'key000000002', images: 2, failed: 1, corrected: 0, credits: 1 },
    ]);
    t.deepEqual(await by('outcome'), [
      { name: 'failed', images: 1, failed: 1, corrected: 0, credits: 0 },
      { name: 'succeeded', images: 3, failed: 0, corrected: 0, credits: 3 },
    ]);
    const daily = await stores.usage.daily(accountId, last30('day'), 'key');
    const byKey = new Map<string, number>();
    for (const { day, name, images } of daily ?? []) {
      t.true([today, today + 1].includes(day));
      byKey.set(name, (byKey.get(name) ?? 0) + images);
    }
    t.deepEqual([...byKey].sort(), [
      ['key000000001', 2],
      ['key000000002', 2],
    ]);
    const all = { images: 4, failed: 1, corrected: 0, credits: 3 };
    t.deepEqual(await stores.usage.total(accountId, last30('day')), all);
    // A midnight may have passed since the test began.
    const days = (await by('day')) ?? [];
    t.is(
      days.reduce((sum, day) => sum + day.images, 0),
      4,
    );
    for (const { name } of days) t.true([today, today + 1].includes(Number(name)));
  });

  test('has no figure of another account, and none of other days', async t => {
    const accountId = await fundedAccount(stores, 1);
    await ended(stores, newJob(accountId), 'succeeded');
    const others = await fundedAccount(stores, 1);
    t.deepEqual(await stores.usage.read(others, last30('day')), []);
    const before = { from: today - 29, to: today - 1 };
    const nothing = { images: 0, failed: 0, corrected: 0, credits: 0 };
    t.deepEqual(await stores.usage.total(accountId, before), nothing);
  });

  test('refuses a question that would read more rows than it may', async t => {
    const accountId = await fundedAccount(stores, 3);
    for (const apiKeyId of ['key000000001', 'key000000002', 'key000000003']) {
      await ended(stores, newJob(accountId, { apiKeyId }), 'succeeded');
    }
    const usage = createUsageStore(database, 2);
    t.is(await usage.read(accountId, last30('day')), undefined);
    t.is(await usage.total(accountId, last30('day')), undefined);
    t.is(await usage.daily(accountId, last30('day'), 'outcome'), undefined);
    const before = { from: today - 29, to: today - 1 };
    t.deepEqual(await usage.read(accountId, { ...before, group: 'day' }), []);
  });

  test('removes what is past its time, and no more', async t => {
    const accountId = await fundedAccount(stores, 0);
    const row = (day: number) => ({
      account_id: accountId,
      day,
      api_key_id: 'k',
      outcome: 'succeeded' as const,
      format: 'png',
      images: 1,
      credits: 1,
    });
    const now = dayOf(Date.now());
    const days = [now - USAGE_KEPT_DAYS - 2, now - USAGE_KEPT_DAYS - 1, now - USAGE_KEPT_DAYS + 1];
    await database.kysely.insertInto('usage_days').values(days.map(row)).execute();
    t.is(await stores.usage.removeOld(1), 1);
    t.true((await stores.usage.removeOld(10)) >= 1);
    const left = database.kysely.selectFrom('usage_days').where('account_id', '=', accountId);
    const kept = await left.select('day').execute();
    t.deepEqual(
      kept.map(({ day }) => day),
      [days[2]],
    );
  });
});

onStores(test, 'usage under two replicas', (test, { dialect, databases }) => {
  let replicas: Database[];
  test.before(async () => {
    replicas = [await databases.open(), await databases.open()];
  });

  test('agrees with the ledger after every step of random histories', async t => {
    const property = fc.asyncProperty(HISTORY, fc.nat(5), async (steps, credits) => {
      const world = await World.create(replicas, credits, { jobsInFlightMax: 3 }, storesOn);
      for (const step of steps) {
        await Promise.all(step.map(each => world.perform(each)));
        await world.assertInvariants();
        await assertUsageAgrees(replicas[0]!, world.account);
      }
    });
    const numRuns = dialect === 'sqlite' ? 30 : 10;
    await t.notThrowsAsync(fc.assert(property, { numRuns, endOnFailure: true }));
  });
});
