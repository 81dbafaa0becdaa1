/** Each guard of a notification's lease by itself: what it refuses that no other guard would. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { DIALECTS, skipReason, useTestDatabase } from '../../../../test/support/database.ts';
import type { OutboxStore } from '../../../src/store/outbox/outbox-store.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { fundedAccount, HOUR_MS, IMAGE_FAULT, newJob, running, storesOn } from '../fixtures.ts';

const END = { statusCode: 500, durationMs: 40 };

for (const dialect of DIALECTS) {
  describe(`the fence of a notification on ${dialect}`, { skip: skipReason(dialect) }, () => {
    const databases = useTestDatabase(dialect);
    let stores: Stores;
    let outbox: OutboxStore;

    before(async () => {
      stores = storesOn(await databases.open());
      outbox = stores.outbox;
    });

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
      assert.equal(await outbox.claim(claim, leaseMs), true);
      return claim;
    }

    it('a claim of a fence that was used is lost, the lease being free', async () => {
      const claim = await claimedOnce(HOUR_MS);
      assert.equal(await outbox.release(claim), true);
      assert.equal(await outbox.claim({ ...claim, holder: 'late' }, HOUR_MS), false);
    });

    it('a claim is lost while another holds the lease', async () => {
      const claim = await claimedOnce(HOUR_MS);
      const next = { ...claim, holder: 'replica-2', fence: claim.fence + 1 };
      assert.equal(await outbox.claim(next, HOUR_MS), false);
    });

    it('a claim is lost before the next attempt is due', async () => {
      const claim = await claimedOnce(HOUR_MS);
      assert.equal(await outbox.retryLater(claim, END, HOUR_MS), true);
      assert.equal(await outbox.claim({ ...claim, fence: claim.fence + 1 }, HOUR_MS), false);
    });

    it('an earlier claim of the same replica ends nothing', async () => {
      const old = await claimedOnce(0);
      const young = { ...old, fence: old.fence + 1 };
      assert.equal(await outbox.claim(young, HOUR_MS), true);
      assert.equal(await outbox.delivered(old, END), false);
      assert.equal(await outbox.release(old), false);
    });

    it('a holder that was never given the lease ends nothing', async () => {
      const stranger = { ...(await claimedOnce(HOUR_MS)), holder: 'stranger' };
      assert.equal(await outbox.delivered(stranger, END), false);
      assert.equal(await outbox.release(stranger), false);
    });
  });
}
