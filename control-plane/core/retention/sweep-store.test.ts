import assert from 'node:assert/strict';
import ava from 'ava';
import { HOUR_MS, onStores, runningOf, successOf } from '../test/fixtures.ts';

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
    t.truthy(await stores.queue.succeed(claim, successOf(claim, { resultTtlMs: 0 })));
    const times = { finished_at: 1_000_000, result_blob_expires_at: 2_000_000 };
    await database.kysely.updateTable('jobs').set(times).where('id', '=', job.id).execute();
    const { resultsMs, rowsMs } = await stores.sweeps.backlog(HOUR_MS);
    // The two reads are not simultaneous.
    const apartMs = rowsMs - resultsMs - (1_000_000 - HOUR_MS);
    t.true(apartMs >= 0 && apartMs < HOUR_MS, `${apartMs}`);
  });
});
