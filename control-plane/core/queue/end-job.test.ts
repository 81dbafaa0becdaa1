import assert from 'node:assert/strict';
import type { Database } from '@matting/database/database.ts';
import { rowOf, rowsOf } from '@matting/database/test/rows.ts';
import { publicState } from '@matting/queue/job.ts';
import { type Claim, LEASE_MS } from '@matting/queue/lease-rules.ts';
import ava from 'ava';
import type { KyselyPlugin, QueryId } from 'kysely';
import sinon from 'sinon';
import { createStores } from '../stores.ts';
import {
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  onBalancedStores,
  reread,
  resultOf,
  running,
  runningOf,
  SERVICE_FAULT,
  sha256,
  storesOn,
  submitted,
  successOf,
} from '../test/fixtures.ts';
import type { ClaimableJob } from './queue.ts';

const test = ava.serial;

onBalancedStores(test, 'jobs', (test, { database, stores }) => {
  test('leases › are judged by the clock of the database, whatever this process believes', async t => {
    const { job, claim } = await runningOf(stores);
    const now = sinon.stub(Date, 'now').returns(4_000_000_000_000);
    t.teardown(() => now.restore());
    const listed = await stores.queue.listClaimable(1000);
    t.false(
      listed.some(({ id }) => id === job.id),
      'the lease is not over',
    );
    await stores.queue.succeed(claim, successOf(claim));
    t.is(publicState(await reread(stores, job.id)), 'succeeded');
  });

  test('endings › success charges, keeps the result and forgets the input', async t => {
    const { account, job, claim } = await runningOf(stores, 3);
    const result = resultOf(claim);
    const timings = { decode: 12.5, infer: 700 };
    t.true(await stores.queue.succeed(claim, successOf(claim, { result, timings })));
    const done = await reread(stores, job.id);
    t.is(publicState(done), 'succeeded');
    t.deepEqual(done.result, result);
    t.deepEqual(done.timings, timings);
    t.is(done.input, null);
    t.is(done.lease, null);
    t.is(done.expiresAtMs! - done.finishedAtMs!, HOUR_MS);
    t.is(done.idempotencyKeyHash, job.idempotencyKeyHash, 'replays find it');
    t.deepEqual(await stores.ledger.balances(account), { available: 2, reserved: 0 });
    t.is((await stores.ledger.credits(account))?.charged, 1);
    t.is((await stores.jobs.findByResultToken(result.sealedToken))?.id, job.id);
  });

  test('endings › a result is found by its token, and by nothing that its row has of it', async t => {
    const { claim } = await runningOf(stores);
    const token = 'a-token-of-a-link';
    const sealedToken = `${'0'.repeat(16)}.c2VhbGVk`;
    const result = { ...resultOf(claim), token: sha256(token), sealedToken };
    t.truthy(await stores.queue.succeed(claim, successOf(claim, { result })));
    t.is((await stores.jobs.findByResultToken(token))?.id, claim.jobId);
    const done = await reread(stores, claim.jobId);
    t.deepEqual(done.result, result);
    for (const known of [sha256(token), sealedToken, sha256(sha256(token))]) {
      t.is(await stores.jobs.findByResultToken(known), undefined, known);
    }
    t.truthy(await stores.queue.succeed(claim, successOf(claim, { result })), 'said twice');
  });

  test('endings › failure returns the credit from every open state, and is replayed', async t => {
    const account = await fundedAccount(stores, 1);
    const fetching = await claimed(
      stores,
      await submitted(stores, newJob(account, { sourceUrl: 'https://a.example/' })),
    );
    t.true(await stores.queue.fail(fetching, IMAGE_FAULT));
    const ready = await claimed(stores, await submitted(stores, newJob(account)));
    t.true(await stores.queue.fail(ready, IMAGE_FAULT));
    const { claim: admitted } = await running(stores, newJob(account));
    t.true(await stores.queue.fail(admitted, IMAGE_FAULT));
    t.is(await stores.queue.fail(admitted, IMAGE_FAULT), true, 'said twice');
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
    const account = await fundedAccount(stores, 1);
    const first = newJob(account);
    const { claim } = await running(stores, first);
    t.true(await stores.queue.fail(claim, SERVICE_FAULT));
    t.is((await reread(stores, first.id)).idempotencyKeyHash, null);
    const again = newJob(account, { idempotencyKeyHash: first.idempotencyKeyHash });
    await submitted(stores, again);
    t.not(again.id, first.id);
  });

  test('endings › a failure never fails on its own text', async t => {
    const account = await fundedAccount(stores, 1);
    const claim = await claimed(stores, await submitted(stores, newJob(account)));
    const detail = `${'😀'.repeat(3000)}\ud800`;
    t.true(await stores.queue.fail(claim, { ...IMAGE_FAULT, detail: `\ud800${detail}` }));
    const kept = (await reread(stores, claim.jobId)).failure!.detail;
    t.truthy(kept.isWellFormed() && kept.startsWith('\ufffd😀'));
  });

  test('endings › write the outbox with the state, and move the secret there', async t => {
    const account = await fundedAccount(stores, 2);
    const callback = {
      url: 'https://a.example/hook',
      secret: Uint8Array.of(0, 255, 39, 92),
      secretKeyId: 'k1',
    };
    const ok = await running(stores, newJob(account, { callback }));
    // The next holder reports the same end.
    t.true(await stores.queue.renew(ok.claim, 0));
    const heir = await claimed(stores, await reread(stores, ok.job.id), { holder: 'heir' });
    t.true(await stores.queue.succeed(heir, successOf(heir)));
    const bad = await running(stores, newJob(account, { callback }));
    await stores.queue.fail(bad.claim, SERVICE_FAULT);
    const silent = await running(stores, newJob(account));
    await stores.queue.fail(silent.claim, SERVICE_FAULT);
    const rows = await rowsOf(database.kysely, 'outbox', { account_id: account });
    const bodies = rows.map(row => JSON.parse(row.body).state).sort();
    t.deepEqual(bodies, ['failed', 'succeeded']);
    for (const row of rows) {
      t.deepEqual([...row.secret!], [...callback.secret]);
      t.is(row.status, 'pending');
      t.is(row.next_attempt_at, row.created_at);
      t.is(row.secret_erase_at! - row.created_at, 24 * HOUR_MS);
    }
    const { callback_secret } = await rowOf(database.kysely, 'jobs', { id: ok.job.id });
    t.is(callback_secret, null);
    const told = (await reread(stores, ok.job.id)).callback;
    t.true(told?.status === 'pending' && told.nextAttemptAtMs! >= ok.job.createdAtMs);
    t.like(ok.job.callback, { status: 'pending', attempts: 0, nextAttemptAtMs: null });
    t.is((await reread(stores, silent.job.id)).callback, null);
  });

  test('endings › a body that cannot be rendered leaves job and money as they were', async t => {
    const account = await fundedAccount(stores, 1);
    const callback = { url: 'https://a.example/hook', secret: null, secretKeyId: null };
    const { job, claim } = await running(stores, newJob(account, { callback }));
    const broken = createStores(database, {
      settled: [],
      renderOutboxBody: () => {
        throw new Error('render');
      },
    });
    await t.throwsAsync(broken.queue.fail(claim, IMAGE_FAULT), { message: /render/ });
    t.is((await reread(stores, job.id)).state, 'running');
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
  });
});

function withActAfter(
  database: Database,
  kind: 'SelectQueryNode' | 'UpdateQueryNode',
  act: () => Promise<void>,
): Database {
  const ofKind = new WeakSet<QueryId>();
  let done = false;
  const plugin: KyselyPlugin = {
    transformQuery: ({ node, queryId }) => {
      if (node.kind === kind) ofKind.add(queryId);
      return node;
    },
    transformResult: async ({ result, queryId }) => {
      if (ofKind.has(queryId) && !done) {
        done = true;
        await act();
      }
      return result;
    },
  };
  return { ...database, kysely: database.kysely.withPlugin(plugin) };
}

onBalancedStores(test, 'the fence of a job', (test, { dialect, database, replica }) => {
  const stores = replica();
  async function takenOver(claim: Claim, holder: string): Promise<Claim> {
    assert.ok(await stores.queue.renew(claim, 0));
    return claimed(stores, await reread(stores, claim.jobId), { holder });
  }

  test('a claim that was overtaken before its answer came is no claim', async t => {
    const job = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    const listed = { id: job.id, fence: job.fence } as ClaimableJob;
    let heir: Claim | undefined;
    const slow = withActAfter(database, 'UpdateQueryNode', async () => {
      heir = await claimed(stores, await reread(stores, job.id), { holder: 'heir' });
    });
    t.is(await storesOn(slow).queue.claim(listed, 'slow', 0), undefined);
    assert.ok(heir);
    t.true(await stores.queue.renew(heir, LEASE_MS));
  });

  // SQLite has one writing transaction at a time, so nothing comes between.
  if (dialect === 'sqlite') return;

  test('an ending that is overtaken by its own replica ends nothing', async t => {
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      await takenOver(claim, claim.holder);
    });
    t.false(await storesOn(slow).queue.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'running');
  });

  test('a job does not end under a lease that was given back meanwhile', async t => {
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      t.truthy(await stores.queue.release(claim));
    });
    t.false(await storesOn(slow).queue.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'running');
  });

  test('refuses the second of two endings at the same time', async t => {
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      t.truthy(await stores.queue.succeed(claim, successOf(claim)));
    });
    t.false(await storesOn(slow).queue.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'succeeded');
  });
});
