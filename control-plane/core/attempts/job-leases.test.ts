/** Jobs under a lease: who wins one and who loses it, each guard of its fence by itself, what ends write and refuse. */
import assert from 'node:assert/strict';
import type { Database } from '@matting/database/database.ts';
import { addTo, rowOf, setIn } from '@matting/database/test/rows.ts';
import { at } from '@matting/test-support/at.ts';
import ava from 'ava';
import type { KyselyPlugin, QueryId } from 'kysely';
import sinon from 'sinon';
import { publicState } from '../jobs/job.ts';
import type { ClaimableJob } from '../jobs/job-queue.ts';
import { ASYNC_HEAD_START_MS } from '../jobs/lanes.ts';
import { type Claim, LEASE_MS } from '../jobs/lease-rules.ts';
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
  storedInput,
  storesOn,
  submitted,
} from '../test/fixtures.ts';

const test = ava.serial;

onBalancedStores(test, 'jobs', (test, { database, stores }) => {
  test('leases › let one claim win, raise the fence, and hide the job from others', async t => {
    const job = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    const listed = (await stores.jobs.listClaimable(1000)).find(({ id }) => id === job.id);
    assert.ok(listed);
    t.false(listed.leaseExpired);
    t.deepEqual(listed.input, job.input);
    const won = await stores.jobs.claim(listed, 'replica-1', LEASE_MS);
    t.is(won?.claim.fence, 1);
    t.is(won?.job.lease?.holder, 'replica-1');
    t.is(await stores.jobs.claim(listed, 'replica-2', LEASE_MS), undefined);
    t.is(await stores.jobs.claim({ ...listed, fence: 1 }, 'r2', LEASE_MS), undefined);
    t.false((await stores.jobs.listClaimable(1000)).some(({ id }) => id === job.id));
    t.true(await stores.jobs.release(won!.claim));
    const stale = await stores.jobs.claim(listed, 'replica-2', LEASE_MS);
    t.is(stale, undefined, 'a listing from before that claim would repeat its fence');
  });

  test('leases › make accepted fetching, and stored input ready', async t => {
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account, { sourceUrl: 'https://a.example/' }));
    const claim = await claimed(stores, job);
    t.is((await reread(stores, job.id)).state, 'fetching');
    t.is(await stores.jobs.admitted(claim), false, 'nothing to admit yet');
    t.true(await stores.jobs.inputStored(claim, storedInput(job.id)));
    t.is(await stores.jobs.inputStored(claim, storedInput(job.id)), true, 'again');
    const ready = await reread(stores, job.id);
    t.is(ready.state, 'ready');
    t.deepEqual(ready.input, storedInput(job.id));
    t.is(ready.lease?.holder, 'replica-1');
    const other = { ...storedInput(job.id), blob: 'inputs/other' };
    t.false(await stores.jobs.inputStored(claim, other));
  });

  test('leases › are renewed by their holder, late too while nobody replaced it', async t => {
    const job = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    const claim = await claimed(stores, job, { leaseMs: 0 });
    t.false(await stores.jobs.renew({ ...claim, holder: 'replica-2' }, LEASE_MS));
    t.true(await stores.jobs.renew(claim, HOUR_MS));
    const { lease, readAtMs } = await reread(stores, job.id);
    t.truthy(lease && lease.expiresAtMs > readAtMs + HOUR_MS / 2);
  });

  test('leases › that ran out are taken over, and counted', async t => {
    const { job, claim: old } = await runningOf(stores);
    await stores.jobs.renew(old, 0);
    const listed = (await stores.jobs.listClaimable(1000)).find(({ id }) => id === job.id);
    t.true(listed?.leaseExpired);
    const won = await stores.jobs.claim(listed!, 'replica-2', LEASE_MS);
    t.is(won?.job.takeovers, 1);
    t.is(won?.job.state, 'running', 'there is no way back to queued');
    t.is(won?.claim.fence, 2);
    t.true(await stores.jobs.succeed(won!.claim, resultOf(won!.claim), HOUR_MS, {}));
  });

  test('leases › claimed again by the same replica are void for its own earlier claim', async t => {
    const { job, claim: old } = await runningOf(stores);
    await stores.jobs.renew(old, 0);
    const young = await claimed(stores, job, { holder: old.holder });
    t.false(await stores.jobs.renew(old, LEASE_MS));
    t.false(await stores.jobs.release(old));
    t.false(await stores.jobs.admitted(old));
    t.is(await stores.jobs.attemptLost(old, false), undefined);
    t.false(await stores.jobs.inputStored(old, storedInput(job.id)));
    t.false(await stores.jobs.succeed(old, resultOf(old), HOUR_MS, {}));
    t.false(await stores.jobs.fail(old, IMAGE_FAULT));
    t.true(await stores.jobs.renew(young, LEASE_MS));
  });

  test('leases › given back cost nothing', async t => {
    const job = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    const claim = await claimed(stores, job);
    t.true(await stores.jobs.release(claim));
    t.false(await stores.jobs.release(claim));
    const free = await reread(stores, job.id);
    t.is(free.lease, null);
    t.deepEqual([free.takeovers, free.lostAttempts, free.state], [0, 0, 'ready']);
    const again = await claimed(stores, free);
    t.is(again.fence, 2);
    t.is((await reread(stores, job.id)).takeovers, 0);
  });

  test('leases › count lost attempts, and those that took a process with them', async t => {
    const { job, claim } = await runningOf(stores);
    const once = await stores.jobs.attemptLost(claim, false);
    t.deepEqual([once?.lostAttempts, once?.lostWithProcess, once?.lease], [1, 0, null]);
    t.is(await stores.jobs.attemptLost(claim, false), undefined, 'given back already');
    const second = await claimed(stores, job);
    const twice = await stores.jobs.attemptLost(second, true);
    t.deepEqual([twice?.lostAttempts, twice?.lostWithProcess], [2, 1]);
    t.is(twice?.state, 'running');
    t.is(twice?.takeovers, 0);
  });

  test('leases › set started_at once', async t => {
    const { job, claim } = await runningOf(stores);
    await setIn(database.kysely, 'jobs', { id: job.id }, { started_at: 1000 });
    t.true(await stores.jobs.admitted(claim));
    t.is((await reread(stores, job.id)).startedAtMs, 1000);
  });

  test('leases › are judged by the clock of the database, whatever this process believes', async t => {
    const { job, claim } = await runningOf(stores);
    const now = sinon.stub(Date, 'now').returns(4_000_000_000_000);
    t.teardown(() => now.restore());
    const listed = await stores.jobs.listClaimable(1000);
    t.false(
      listed.some(({ id }) => id === job.id),
      'the lease is not over',
    );
    await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {});
    t.is(publicState(await reread(stores, job.id)), 'succeeded');
  });

  test('leases › are offered sync first, then oldest, async before much later sync', async t => {
    const account = await fundedAccount(stores, 5);
    const older = await submitted(stores, newJob(account));
    const oldest = await submitted(stores, newJob(account));
    const sync = await submitted(stores, newJob(account, { class: 'sync' }));
    const late = await submitted(stores, newJob(account, { class: 'sync' }));
    const age = (id: string, ms: number) =>
      addTo(database.kysely, 'jobs', { id }, { queue_at: ms });
    await age(oldest.id, -ASYNC_HEAD_START_MS / 2);
    await age(late.id, ASYNC_HEAD_START_MS + 1000);
    const mine = (await stores.jobs.listClaimable(1000))
      .filter(({ accountId }) => accountId === account)
      .map(({ id }) => id);
    t.deepEqual(mine, [sync.id, oldest.id, older.id, late.id]);
    t.is((await stores.jobs.listClaimable(2)).length, 2);
  });

  test('endings › success charges, keeps the result and forgets the input', async t => {
    const { account, job, claim } = await runningOf(stores, 3);
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
    const { claim } = await runningOf(stores);
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

  test('endings › a repeated success is one success; another ending is refused', async t => {
    const { account, claim } = await runningOf(stores);
    const result = resultOf(claim);
    t.true(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
    t.true(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
    t.false(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
    t.false(await stores.jobs.fail(claim, IMAGE_FAULT));
    t.false(await stores.jobs.renew(claim, LEASE_MS));
    t.is((await stores.ledger.credits(account))?.sums.charge, 1);
  });

  test('endings › a job that no node admitted cannot succeed', async t => {
    const account = await fundedAccount(stores, 1);
    const claim = await claimed(stores, await submitted(stores, newJob(account)));
    t.false(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
  });

  test('endings › failure returns the credit from every open state, and is replayed', async t => {
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
    const account = await fundedAccount(stores, 1);
    const claim = await claimed(stores, await submitted(stores, newJob(account)));
    const detail = `${'😀'.repeat(3000)}\ud800`;
    t.true(await stores.jobs.fail(claim, { ...IMAGE_FAULT, detail: `\ud800${detail}` }));
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
    const { callback_secret } = await rowOf(database.kysely, 'jobs', { id: ok.job.id });
    t.is(callback_secret, null);
    const told = (await reread(stores, ok.job.id)).callback;
    t.true(told?.status === 'pending' && told.nextAttemptAtMs! >= at(rows, 0).created_at);
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
    await t.throwsAsync(broken.jobs.fail(claim, IMAGE_FAULT), { message: /render/ });
    t.is((await reread(stores, job.id)).state, 'running');
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
  });
});

/** Wraps the database: `act` runs once, after the first statement of that kind. */
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
    assert.ok(await stores.jobs.renew(claim, 0));
    return claimed(stores, await reread(stores, claim.jobId), { holder });
  }

  test('an ended job is claimed by nobody', async t => {
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    t.truthy(await stores.jobs.fail(claim, IMAGE_FAULT));
    const listed = { id: job.id, fence: claim.fence } as ClaimableJob;
    t.is(await stores.jobs.claim(listed, 'replica-2', LEASE_MS), undefined);
  });

  test('a claim that was overtaken before its answer came is no claim', async t => {
    const job = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    const listed = { id: job.id, fence: job.fence } as ClaimableJob;
    let heir: Claim | undefined;
    const slow = withActAfter(database, 'UpdateQueryNode', async () => {
      heir = await claimed(stores, await reread(stores, job.id), { holder: 'heir' });
    });
    t.is(await storesOn(slow).jobs.claim(listed, 'slow', 0), undefined);
    assert.ok(heir);
    t.true(await stores.jobs.renew(heir, LEASE_MS));
  });

  test('an input that was stored under an earlier claim is not stored again by it', async t => {
    const sourceUrl = 'https://a.example/';
    const account = await fundedAccount(stores, 1);
    const old = await claimed(stores, await submitted(stores, newJob(account, { sourceUrl })));
    const input = storedInput(old.jobId);
    t.true(await stores.jobs.inputStored(old, input));
    await takenOver(old, 'heir');
    t.false(await stores.jobs.inputStored(old, input));
  });

  test('a job is ended by the holder of its lease alone', async t => {
    const { claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const stranger = { ...claim, holder: 'stranger' };
    t.false(await stores.jobs.fail(stranger, IMAGE_FAULT));
    t.false(await stores.jobs.succeed(stranger, resultOf(claim), HOUR_MS, {}));
  });

  // SQLite runs one writing transaction at a time: nothing comes between its statements.
  if (dialect === 'sqlite') return;

  test('an ending that is overtaken by its own replica ends nothing', async t => {
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      await takenOver(claim, claim.holder);
    });
    t.false(await storesOn(slow).jobs.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'running');
  });

  test('a job does not end under a lease that was given back meanwhile', async t => {
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      t.truthy(await stores.jobs.release(claim));
    });
    t.false(await storesOn(slow).jobs.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'running');
  });

  test('refuses the second of two endings at the same time', async t => {
    const { job, claim } = await running(stores, newJob(await fundedAccount(stores, 1)));
    const slow = withActAfter(database, 'SelectQueryNode', async () => {
      t.truthy(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
    });
    t.false(await storesOn(slow).jobs.fail(claim, IMAGE_FAULT));
    t.is((await reread(stores, job.id)).state, 'succeeded');
  });
});
