/** Each guard of a notification's lease by itself: what it refuses that no other guard would. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { fundedAccount, HOUR_MS, IMAGE_FAULT, newJob, onStores, running } from '../fixtures.ts';

const test = ava.serial;

const END = { statusCode: 500, durationMs: 40 };

onStores(test, 'the fence of a notification', (test, { stores }) => {
  /** A notification that is due, under a claim of its first fence. */
  async function claimedOnce(leaseMs: number) {
    const callback = {
      url: 'https://a.example/hook',
      secret: Uint8Array.of(1),
      secretKeyId: 'k',
    };
    const job = newJob(await fundedAccount(stores, 1), { callback });
    const { claim: ofJob } = await running(stores, job);
    assert.ok(await stores.jobs.fail(ofJob, IMAGE_FAULT));
    const claim = { id: job.id, holder: 'replica-1', fence: 1 };
    assert.equal(await stores.outbox.claim(claim, leaseMs), true);
    return claim;
  }

  test('a claim of a fence that was used is lost, the lease being free', async t => {
    const claim = await claimedOnce(HOUR_MS);
    t.true(await stores.outbox.release(claim));
    t.false(await stores.outbox.claim({ ...claim, holder: 'late' }, HOUR_MS));
  });

  test('a claim is lost while another holds the lease', async t => {
    const claim = await claimedOnce(HOUR_MS);
    const next = { ...claim, holder: 'replica-2', fence: claim.fence + 1 };
    t.false(await stores.outbox.claim(next, HOUR_MS));
  });

  test('a claim is lost before the next attempt is due', async t => {
    const claim = await claimedOnce(HOUR_MS);
    t.true(await stores.outbox.retryLater(claim, END, HOUR_MS));
    t.false(await stores.outbox.claim({ ...claim, fence: claim.fence + 1 }, HOUR_MS));
  });

  test('an earlier claim of the same replica ends nothing', async t => {
    const old = await claimedOnce(0);
    const young = { ...old, fence: old.fence + 1 };
    t.true(await stores.outbox.claim(young, HOUR_MS));
    t.false(await stores.outbox.delivered(old, END));
    t.false(await stores.outbox.release(old));
  });

  test('a holder that was never given the lease ends nothing', async t => {
    const stranger = { ...(await claimedOnce(HOUR_MS)), holder: 'stranger' };
    t.false(await stores.outbox.delivered(stranger, END));
    t.false(await stores.outbox.release(stranger));
  });
});
