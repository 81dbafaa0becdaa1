/** The ends of jobs: what success and failure write, and what they refuse. */
import ava from 'ava';
import { at } from '../../../../test/support/at.ts';
import { publicState } from '../../../src/domain/job.ts';
import { LEASE_MS } from '../../../src/domain/lease.ts';
import { createStores } from '../../../src/store/stores.ts';
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
  SERVICE_FAULT,
  sha256,
  submitted,
} from '../fixtures.ts';

const test = ava.serial;

onStores(test, 'jobs', (test, { database, stores }) => {
  const balanced = () => assertBalanced(stores);

  test('endings › success charges, keeps the result and forgets the input', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 3);
    const { job, claim } = await running(stores, newJob(account));
    const result = resultOf(claim);
    const timings = { decode: 12.5, infer: 700 };
    t.true(await stores.jobs.succeed(claim, result, HOUR_MS, timings));
    const done = await reread(stores, job.id);
    t.is(publicState(done), 'succeeded');
    t.deepEqual(done.result, result);
    t.deepEqual(done.timings, timings);
    t.is(done.input, null);
    t.is(done.lease, null);
    t.is(done.expiresAtMs! - done.finishedAtMs!, HOUR_MS);
    t.is(done.idempotencyKeyHash, job.idempotencyKeyHash, 'replays find it');
    t.deepEqual(await stores.ledger.balances(account), { available: 2, reserved: 0 });
    t.is((await stores.ledger.credits(account))?.sums.charge, 1);
    t.is((await stores.jobs.findByResultToken(result.sealedToken))?.id, job.id);
  });

  test('endings › a result is found by its token, and by nothing that its row has of it', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const { claim } = await running(stores, newJob(account));
    const token = 'a-token-of-a-link';
    const sealedToken = `${'0'.repeat(16)}.c2VhbGVk`;
    const result = { ...resultOf(claim), token: sha256(token), sealedToken };
    t.truthy(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
    t.is((await stores.jobs.findByResultToken(token))?.id, claim.jobId);
    const done = await reread(stores, claim.jobId);
    t.deepEqual(done.result, result);
    for (const known of [sha256(token), sealedToken, sha256(sha256(token))]) {
      t.is(await stores.jobs.findByResultToken(known), undefined, known);
    }
    t.truthy(await stores.jobs.succeed(claim, result, HOUR_MS, {}), 'said twice');
  });

  test('endings › success said twice is one success; another ending is refused', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const { claim } = await running(stores, newJob(account));
    const result = resultOf(claim);
    t.true(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
    t.true(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
    t.false(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
    t.false(await stores.jobs.fail(claim, IMAGE_FAULT));
    t.false(await stores.jobs.renew(claim, LEASE_MS));
    t.is((await stores.ledger.credits(account))?.sums.charge, 1);
  });

  test('endings › a job that no node admitted cannot succeed', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const claim = await claimed(stores, await submitted(stores, newJob(account)));
    t.false(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
  });

  test('endings › failure returns the credit from every open state, and is replayed', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const fetching = await claimed(
      stores,
      await submitted(stores, newJob(account, { sourceUrl: 'https://a.example/' })),
    );
    t.true(await stores.jobs.fail(fetching, IMAGE_FAULT));
    const ready = await claimed(stores, await submitted(stores, newJob(account)));
    t.true(await stores.jobs.fail(ready, IMAGE_FAULT));
    const { claim: admitted } = await running(stores, newJob(account));
    t.true(await stores.jobs.fail(admitted, IMAGE_FAULT));
    t.is(await stores.jobs.fail(admitted, IMAGE_FAULT), true, 'said twice');
    for (const { jobId } of [fetching, ready, admitted]) {
      const failed = await reread(stores, jobId);
      t.is(failed.state, 'failed');
      t.deepEqual(failed.failure, IMAGE_FAULT);
      t.is(failed.sourceUrl, null);
      t.is(failed.input, null);
      t.not(failed.idempotencyKeyHash, null);
    }
    t.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
  });

  test('endings › a retryable failure frees the key, and the next request is a new job', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const first = newJob(account);
    const { claim } = await running(stores, first);
    t.true(await stores.jobs.fail(claim, SERVICE_FAULT));
    t.is((await reread(stores, first.id)).idempotencyKeyHash, null);
    const again = newJob(account, { idempotencyKeyHash: first.idempotencyKeyHash });
    await submitted(stores, again);
    t.not(again.id, first.id);
  });

  test('endings › a failure never fails on its own text', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const claim = await claimed(stores, await submitted(stores, newJob(account)));
    const detail = `${'😀'.repeat(3000)}\ud800`;
    t.true(await stores.jobs.fail(claim, { ...IMAGE_FAULT, detail: `\ud800${detail}` }));
    const kept = (await reread(stores, claim.jobId)).failure!.detail;
    t.truthy(kept.isWellFormed() && kept.startsWith('\ufffd😀'));
  });

  test('endings › write the outbox with the state, and move the secret there', async t => {
    t.teardown(balanced);
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
    t.deepEqual(bodies, ['failed', 'succeeded']);
    for (const row of rows) {
      t.deepEqual([...row.secret!], [...callback.secret]);
      t.is(row.status, 'pending');
      t.is(row.next_attempt_at, row.created_at);
      t.is(row.secret_erase_at! - row.created_at, 24 * HOUR_MS);
    }
    const { callback_secret } = await database.kysely
      .selectFrom('jobs')
      .select('callback_secret')
      .where('id', '=', ok.job.id)
      .executeTakeFirstOrThrow();
    t.is(callback_secret, null);
    const { created_at } = at(rows, 0);
    const told = (await reread(stores, ok.job.id)).callback!;
    const sent = { attempts: 0, lastStatusCode: null, lastAttemptAtMs: null };
    t.deepEqual(told, {
      url: callback.url,
      status: 'pending',
      ...sent,
      nextAttemptAtMs: told.nextAttemptAtMs,
    });
    t.true(told.nextAttemptAtMs! >= created_at);
    t.deepEqual(ok.job.callback, {
      url: callback.url,
      status: 'pending',
      ...sent,
      nextAttemptAtMs: null,
    });
    t.is((await reread(stores, silent.job.id)).callback, null);
  });

  test('endings › a body that cannot be rendered leaves job and money as they were', async t => {
    t.teardown(balanced);
    const account = await fundedAccount(stores, 1);
    const callback = { url: 'https://a.example/hook', secret: null, secretKeyId: null };
    const { job, claim } = await running(stores, newJob(account, { callback }));
    const broken = createStores(database, {
      renderOutboxBody: () => {
        throw new Error('render');
      },
    });
    await t.throwsAsync(broken.jobs.fail(claim, IMAGE_FAULT), { message: /render/ });
    t.is((await reread(stores, job.id)).state, 'running');
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
  });
});
