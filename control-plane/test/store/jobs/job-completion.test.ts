/** The ends of jobs: what success and failure write, and what they refuse. */
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { publicState } from '../../../src/domain/job.ts';
import { LEASE_MS } from '../../../src/domain/lease.ts';
import { createStores } from '../../../src/store/stores.ts';
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
  SERVICE_FAULT,
  sha256,
  submitted,
} from '../fixtures.ts';

describeStores('jobs', ({ database, stores }) => {
  afterEach(() => assertBalanced(stores));

  describe('endings', () => {
    it('success charges, keeps the result and forgets the input', async () => {
      const account = await fundedAccount(stores, 3);
      const { job, claim } = await running(stores, newJob(account));
      const result = resultOf(claim);
      const timings = { decode: 12.5, infer: 700 };
      assert.equal(await stores.jobs.succeed(claim, result, HOUR_MS, timings), true);
      const done = await reread(stores, job.id);
      assert.equal(publicState(done), 'succeeded');
      assert.deepEqual(done.result, result);
      assert.deepEqual(done.timings, timings);
      assert.equal(done.input, null);
      assert.equal(done.lease, null);
      assert.equal(done.expiresAtMs! - done.finishedAtMs!, HOUR_MS);
      assert.equal(done.idempotencyKeyHash, job.idempotencyKeyHash, 'replays find it');
      assert.deepEqual(await stores.ledger.balances(account), { available: 2, reserved: 0 });
      assert.equal((await stores.ledger.credits(account))?.sums.charge, 1);
      assert.equal((await stores.jobs.findByResultToken(result.sealedToken))?.id, job.id);
    });

    it('a result is found by its token, and by nothing that its row has of it', async () => {
      const account = await fundedAccount(stores, 1);
      const { claim } = await running(stores, newJob(account));
      const token = 'a-token-of-a-link';
      const sealedToken = `${'0'.repeat(16)}.c2VhbGVk`;
      const result = { ...resultOf(claim), token: sha256(token), sealedToken };
      assert.ok(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
      assert.equal((await stores.jobs.findByResultToken(token))?.id, claim.jobId);
      const done = await reread(stores, claim.jobId);
      assert.deepEqual(done.result, result);
      for (const known of [sha256(token), sealedToken, sha256(sha256(token))]) {
        assert.equal(await stores.jobs.findByResultToken(known), undefined, known);
      }
      assert.ok(await stores.jobs.succeed(claim, result, HOUR_MS, {}), 'said twice');
    });

    it('success said twice is one success; another ending is refused', async () => {
      const account = await fundedAccount(stores, 1);
      const { claim } = await running(stores, newJob(account));
      const result = resultOf(claim);
      assert.equal(await stores.jobs.succeed(claim, result, HOUR_MS, {}), true);
      assert.equal(await stores.jobs.succeed(claim, result, HOUR_MS, {}), true);
      assert.equal(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}), false);
      assert.equal(await stores.jobs.fail(claim, IMAGE_FAULT), false);
      assert.equal(await stores.jobs.renew(claim, LEASE_MS), false);
      assert.equal((await stores.ledger.credits(account))?.sums.charge, 1);
    });

    it('a job that no node admitted cannot succeed', async () => {
      const account = await fundedAccount(stores, 1);
      const claim = await claimed(stores, await submitted(stores, newJob(account)));
      assert.equal(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}), false);
    });

    it('failure returns the credit from every open state, and is replayed', async () => {
      const account = await fundedAccount(stores, 1);
      const fetching = await claimed(
        stores,
        await submitted(stores, newJob(account, { sourceUrl: 'https://a.example/' })),
      );
      assert.equal(await stores.jobs.fail(fetching, IMAGE_FAULT), true);
      const ready = await claimed(stores, await submitted(stores, newJob(account)));
      assert.equal(await stores.jobs.fail(ready, IMAGE_FAULT), true);
      const { claim: admitted } = await running(stores, newJob(account));
      assert.equal(await stores.jobs.fail(admitted, IMAGE_FAULT), true);
      assert.equal(await stores.jobs.fail(admitted, IMAGE_FAULT), true, 'said twice');
      for (const { jobId } of [fetching, ready, admitted]) {
        const failed = await reread(stores, jobId);
        assert.equal(failed.state, 'failed');
        assert.deepEqual(failed.failure, IMAGE_FAULT);
        assert.equal(failed.sourceUrl, null);
        assert.equal(failed.input, null);
        assert.notEqual(failed.idempotencyKeyHash, null);
      }
      assert.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
    });

    it('a retryable failure frees the key, and the next request is a new job', async () => {
      const account = await fundedAccount(stores, 1);
      const first = newJob(account);
      const { claim } = await running(stores, first);
      assert.equal(await stores.jobs.fail(claim, SERVICE_FAULT), true);
      assert.equal((await reread(stores, first.id)).idempotencyKeyHash, null);
      const again = newJob(account, { idempotencyKeyHash: first.idempotencyKeyHash });
      await submitted(stores, again);
      assert.notEqual(again.id, first.id);
    });

    it('a failure never fails on its own text', async () => {
      const account = await fundedAccount(stores, 1);
      const claim = await claimed(stores, await submitted(stores, newJob(account)));
      const detail = `${'😀'.repeat(3000)}\ud800`;
      assert.equal(
        await stores.jobs.fail(claim, { ...IMAGE_FAULT, detail: `\ud800${detail}` }),
        true,
      );
      const kept = (await reread(stores, claim.jobId)).failure!.detail;
      assert.ok(kept.isWellFormed() && kept.startsWith('\ufffd😀'));
    });

    it('write the outbox with the state, and move the secret there', async () => {
      const account = await fundedAccount(stores, 2);
      const callback = {
        url: 'https://a.example/hook',
        secret: Uint8Array.of(0, 255, 39, 92),
        secretKeyId: 'k1',
      };
      const ok = await running(stores, newJob(account, { callback }));
      await stores.jobs.succeed(ok.claim, resultOf(ok.claim), HOUR_MS, {});
      const bad = await running(stores, newJob(account, { callback }));
      await stores.jobs.fail(bad.claim, SERVICE_FAULT);
      const silent = await running(stores, newJob(account));
      await stores.jobs.fail(silent.claim, SERVICE_FAULT);
      const rows = await database.kysely
        .selectFrom('outbox')
        .selectAll()
        .where('account_id', '=', account)
        .orderBy('created_at')
        .orderBy('status')
        .execute();
      const bodies = rows.map(row => JSON.parse(row.body).state).sort();
      assert.deepEqual(bodies, ['failed', 'succeeded']);
      for (const row of rows) {
        assert.deepEqual([...row.secret!], [...callback.secret]);
        assert.equal(row.status, 'pending');
        assert.equal(row.next_attempt_at, row.created_at);
        assert.equal(row.secret_erase_at! - row.created_at, 24 * HOUR_MS);
      }
      const { callback_secret } = await database.kysely
        .selectFrom('jobs')
        .select('callback_secret')
        .where('id', '=', ok.job.id)
        .executeTakeFirstOrThrow();
      assert.equal(callback_secret, null);
      const { created_at } = at(rows, 0);
      const told = (await reread(stores, ok.job.id)).callback!;
      const sent = { attempts: 0, lastStatusCode: null, lastAttemptAtMs: null };
      assert.deepEqual(told, {
        url: callback.url,
        status: 'pending',
        ...sent,
        nextAttemptAtMs: told.nextAttemptAtMs,
      });
      assert.ok(told.nextAttemptAtMs! >= created_at);
      assert.deepEqual(ok.job.callback, {
        url: callback.url,
        status: 'pending',
        ...sent,
        nextAttemptAtMs: null,
      });
      assert.equal((await reread(stores, silent.job.id)).callback, null);
    });

    it('a body that cannot be rendered leaves job and money as they were', async () => {
      const account = await fundedAccount(stores, 1);
      const callback = { url: 'https://a.example/hook', secret: null, secretKeyId: null };
      const { job, claim } = await running(stores, newJob(account, { callback }));
      const broken = createStores(database, {
        renderOutboxBody: () => {
          throw new Error('render');
        },
      });
      await assert.rejects(broken.jobs.fail(claim, IMAGE_FAULT), /render/);
      assert.equal((await reread(stores, job.id)).state, 'running');
      assert.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
    });
  });
});
