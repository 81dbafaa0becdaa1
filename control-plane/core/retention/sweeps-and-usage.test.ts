/** The sweep, and the figures of usage that it removes. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { assertUsageAgrees } from '../../portal/test/usage-agrees.ts';
import {
  createUsageStore,
  dayOf,
  USAGE_KEPT_DAYS,
  type UsageQuestion,
} from '../../portal/usage/usage-store.ts';
import { onStores, onStoresInCi, type Stores } from '../../test/every-store.ts';
import type { NewJob } from '../jobs/job-transactions.ts';
import {
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  resultOf,
  running,
  runningOf,
} from '../test/fixtures.ts';

const test = ava.serial;

onStores(test, 'the lease of the sweep', (test, { database, stores }) => {
  test("is one replica's", async t => {
    const { sweeps } = stores;
    const claims = await Promise.all(
      ['a', 'b', 'c', 'd'].map(holder => sweeps.claim(holder, HOUR_MS)),
    );
    const [won, ...more] = claims.filter(claim => claim !== undefined);
    t.deepEqual(more, []);
    t.deepEqual(won!.walk, { part: 0, ageMs: null });
    t.truthy(await sweeps.release(won!.claim));
  });

  test('keeps where the walk stands', async t => {
    const { sweeps } = stores;
    const first = await sweeps.claim('a', HOUR_MS);
    t.truthy(await sweeps.saveWalk(first!.claim, 0, true));
    t.truthy(await sweeps.saveWalk(first!.claim, 5, false));
    t.truthy(await sweeps.release(first!.claim));
    const second = await sweeps.claim('b', HOUR_MS);
    t.is(second!.walk.part, 5);
    assert.ok(second!.walk.ageMs !== null && second!.walk.ageMs >= 0);
    t.truthy(await sweeps.release(second!.claim));
  });

  test('says how long the oldest of what is due has been so', async t => {
    const nothing = { resultsMs: 0, secretsMs: 0, rowsMs: 0 };
    const { walkMs: _, ...before } = await stores.sweeps.backlog(HOUR_MS);
    t.deepEqual(before, nothing);
    const { job, claim } = await runningOf(stores);
    t.truthy(await stores.jobs.succeed(claim, resultOf(claim), 0, {}));
    const times = { finished_at: 1_000_000, result_blob_expires_at: 2_000_000 };
    await database.kysely.updateTable('jobs').set(times).where('id', '=', job.id).execute();
    const { resultsMs, rowsMs } = await stores.sweeps.backlog(HOUR_MS);
    // Read one after the other.
    const apartMs = rowsMs - resultsMs - (1_000_000 - HOUR_MS);
    t.true(apartMs >= 0 && apartMs < HOUR_MS, `${apartMs}`);
  });
});

async function ended(stores: Stores, job: NewJob, how: 'succeeded' | 'failed'): Promise<string> {
  const { claim } = await running(stores, job);
  const done =
    how === 'succeeded'
      ? await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {})
      : await stores.jobs.fail(claim, IMAGE_FAULT);
  assert.ok(done);
  return claim.jobId;
}

onStoresInCi(test, 'usage', (test, { database, stores }) => {
  let today: number;

  test.before(async () => {
    today = await stores.usage.today();
  });

  const last30 = (group: UsageQuestion['group']) => ({ from: today - 29, to: today + 1, group });

  test('counts each end of a job once, by its key and its format', async t => {
    const accountId = await fundedAccount(stores, 10);
    await ended(stores, newJob(accountId, { outputFormat: 'webp' }), 'succeeded');
    await ended(stores, newJob(accountId, { apiKeyId: 'key000000002' }), 'succeeded');
    await ended(stores, newJob(accountId, { apiKeyId: 'key000000002' }), 'failed');
    await ended(stores, newJob(accountId, { outputFormat: 'jpeg', finishing: {} }), 'succeeded');
    await assertUsageAgrees(database, accountId);
    const by = (group: UsageQuestion['group']) => stores.usage.read(accountId, last30(group));
    t.deepEqual(await by('format'), [
      { name: 'jpeg', images: 1, failed: 0, credits: 1 },
      { name: 'png', images: 2, failed: 1, credits: 1 },
      { name: 'webp', images: 1, failed: 0, credits: 1 },
    ]);
    t.deepEqual(await by('key'), [
      { name: 'key000000001', images: 2, failed: 0, credits: 2 },
      { name: 'key000000002', images: 2, failed: 1, credits: 1 },
    ]);
    t.deepEqual(await by('outcome'), [
      { name: 'failed', images: 1, failed: 1, credits: 0 },
      { name: 'succeeded', images: 3, failed: 0, credits: 3 },
    ]);
    const all = { images: 4, failed: 1, credits: 3 };
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
    const nothing = { images: 0, failed: 0, credits: 0 };
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
