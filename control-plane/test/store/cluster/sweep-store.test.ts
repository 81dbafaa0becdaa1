/** Which replica sweeps, and how far behind it is: on every database. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { describeStores, fundedAccount, HOUR_MS, newJob, resultOf, running } from '../fixtures.ts';

describeStores('the lease of the sweep', ({ database, stores }) => {
  it("is one replica's, and another's when it ends", async () => {
    const { sweeps } = stores;
    const claims = await Promise.all(
      ['a', 'b', 'c', 'd'].map(holder => sweeps.claim(holder, HOUR_MS)),
    );
    const [won, ...more] = claims.filter(claim => claim !== undefined);
    assert.deepEqual(more, []);
    assert.deepEqual(won!.walk, { part: 0, ageMs: null });
    assert.ok(await sweeps.renew(won!.claim, 0));
    const next = await sweeps.claim('e', HOUR_MS);
    assert.ok(next, 'the lease has ended');
    for (const late of [
      () => sweeps.renew(won!.claim, HOUR_MS),
      () => sweeps.saveWalk(won!.claim, 3, true),
      () => sweeps.release(won!.claim),
    ]) {
      assert.equal(await late(), false);
    }
    assert.equal(await sweeps.claim('f', HOUR_MS), undefined);
    assert.ok(await sweeps.release(next.claim));
  });

  it('keeps where the walk stands', async () => {
    const { sweeps } = stores;
    const first = await sweeps.claim('a', HOUR_MS);
    assert.ok(await sweeps.saveWalk(first!.claim, 0, true));
    assert.ok(await sweeps.saveWalk(first!.claim, 5, false));
    assert.ok(await sweeps.release(first!.claim));
    const second = await sweeps.claim('b', HOUR_MS);
    assert.equal(second!.walk.part, 5);
    assert.ok(second!.walk.ageMs !== null && second!.walk.ageMs >= 0);
    assert.ok(await sweeps.release(second!.claim));
  });

  it('says how long the oldest of what is due has been so', async () => {
    const nothing = { resultsMs: 0, secretsMs: 0, rowsMs: 0 };
    const { walkMs: _, ...before } = await stores.sweeps.backlog(HOUR_MS);
    assert.deepEqual(before, nothing);
    const account = await fundedAccount(stores, 1);
    const { job, claim } = await running(stores, newJob(account));
    assert.ok(await stores.jobs.succeed(claim, resultOf(claim), 0, {}));
    const times = { finished_at: 1_000_000, result_blob_expires_at: 2_000_000 };
    await database.kysely.updateTable('jobs').set(times).where('id', '=', job.id).execute();
    const { resultsMs, rowsMs } = await stores.sweeps.backlog(HOUR_MS);
    // Read one after the other.
    const apartMs = rowsMs - resultsMs - (1_000_000 - HOUR_MS);
    assert.ok(apartMs >= 0 && apartMs < HOUR_MS, `${apartMs}`);
  });
});
