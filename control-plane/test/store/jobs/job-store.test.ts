/** The life of a job in the database: what each statement changes, and what it refuses. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterEach, before, describe, it } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { DIALECTS, skipReason, useTestDatabase } from '../../../../test/support/database.ts';
import { ASYNC_HEAD_START_MS } from '../../../src/domain/dispatch/job-turns.ts';
import { publicState } from '../../../src/domain/job.ts';
import { LEASE_MS } from '../../../src/domain/lease.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import { createStores, type Stores } from '../../../src/store/stores.ts';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  reread,
  resultOf,
  running,
  SERVICE_FAULT,
  sha256,
  storedInput,
  storesOn,
  submitted,
} from '../fixtures.ts';

for (const dialect of DIALECTS) {
  describe(`jobs on ${dialect}`, { skip: skipReason(dialect) }, () => {
    const databases = useTestDatabase(dialect);
    let database: Database;
    let stores: Stores;

    before(async () => {
      database = await databases.open();
      stores = storesOn(database);
    });
    afterEach(() => assertBalanced(stores));

    describe('submission', () => {
      it('refuses without a credit, and remembers nothing', async () => {
        const account = await fundedAccount(stores, 0);
        const job = newJob(account);
        assert.deepEqual(await stores.jobs.submit(job, LIMITS), { kind: 'insufficient-credits' });
        assert.equal(await stores.jobs.find(job.id), undefined);
        await stores.ledger.grant(account, 1, 'later');
        assert.equal((await stores.jobs.submit(job, LIMITS)).kind, 'created');
      });

      it('refuses at the bound in flight, before it looks at credits', async () => {
        const account = await fundedAccount(stores, 1);
        await submitted(stores, newJob(account));
        assert.deepEqual(await stores.jobs.submit(newJob(account), { jobsInFlightMax: 1 }), {
          kind: 'too-many-in-flight',
        });
        assert.deepEqual(await stores.jobs.submit(newJob(account), { jobsInFlightMax: 2 }), {
          kind: 'insufficient-credits',
        });
      });

      it('refuses at the bound in flight, however many credits there are', async () => {
        const account = await fundedAccount(stores, 2);
        await submitted(stores, newJob(account));
        const { kind } = await stores.jobs.submit(newJob(account), { jobsInFlightMax: 1 });
        assert.equal(kind, 'too-many-in-flight');
        assert.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 1 });
      });

      it('refuses both sources and none', async () => {
        const account = await fundedAccount(stores, 1);
        const id = randomUUID();
        const both = newJob(account, {
          id,
          sourceUrl: 'https://a.example/',
          input: storedInput(id),
        });
        await assert.rejects(stores.jobs.submit(both, LIMITS), /either/);
        await assert.rejects(stores.jobs.submit({ ...both, input: null, sourceUrl: null }, LIMITS));
        assert.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
      });

      it('refuses an account that does not exist', async () => {
        await assert.rejects(stores.jobs.submit(newJob(randomUUID()), LIMITS), /does not exist/);
      });

      it('reserves one credit and keeps every field', async () => {
        const account = await fundedAccount(stores, 5);
        const job = newJob(account, { mode: 'sync', outputFormat: 'avif' });
        const created = await submitted(stores, job);
        assert.deepEqual(await stores.ledger.balances(account), { available: 4, reserved: 1 });
        assert.equal(created.state, 'ready');
        assert.deepEqual(created.input, job.input);
        assert.equal(created.outputFormat, 'avif');
        assert.equal(created.mode, 'sync');
        assert.equal(created.fingerprint, job.fingerprint);
        assert.equal(created.idempotencyKeyHash, job.idempotencyKeyHash);
        assert.equal(created.lease, null);
        assert.equal(created.fence, 0);
        assert.equal(created.startedAtMs, null);
        assert.ok(created.readAtMs >= created.createdAtMs);
        assert.deepEqual(
          { ...(await reread(stores, job.id)), readAtMs: 0 },
          {
            ...created,
            readAtMs: 0,
          },
        );
      });

      it('takes a URL as it is, and makes the job accepted', async () => {
        const account = await fundedAccount(stores, 1);
        const sourceUrl = `https://bücher.example/${'é'.repeat(1000)}?q='"\\%00`;
        const created = await submitted(stores, newJob(account, { sourceUrl }));
        assert.equal(created.state, 'accepted');
        assert.equal(created.sourceUrl, sourceUrl);
      });

      it('finds the earlier job of a key and leaves the credits alone', async () => {
        const account = await fundedAccount(stores, 1);
        const first = await submitted(stores, newJob(account));
        const twin = newJob(account, { idempotencyKeyHash: first.idempotencyKeyHash! });
        const outcome = await stores.jobs.submit(twin, LIMITS);
        assert.equal(outcome.kind, 'exists');
        assert.equal((outcome as { job: { id: string } }).job.id, first.id);
        assert.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
      });

      it('repeated by itself after a lost answer is the same success', async () => {
        const account = await fundedAccount(stores, 2);
        const job = newJob(account);
        await submitted(stores, job);
        await submitted(stores, job);
        assert.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 1 });
      });

      it('keeps apart the keys that a collation would merge, and API keys', async () => {
        const account = await fundedAccount(stores, 10);
        const hashes = ['abc', 'ABC', 'ábc', 'abc ', 'a', 'a '].map(sha256);
        for (const idempotencyKeyHash of hashes) {
          await submitted(stores, newJob(account, { idempotencyKeyHash }));
        }
        const idempotencyKeyHash = at(hashes, 0);
        await submitted(stores, newJob(account, { idempotencyKeyHash, apiKeyId: 'KEY000000001' }));
        assert.equal(
          await stores.jobs.findByIdempotencyKey('key000000001', idempotencyKeyHash.toUpperCase()),
          undefined,
        );
      });
    });

    describe('lookups', () => {
      it('answer nothing to what is no id, token or hash', async () => {
        const account = await fundedAccount(stores, 1);
        const { id } = await submitted(stores, newJob(account));
        const odd = ['', 'x', '日本', `${id} `, id.toUpperCase(), `${id}'--`, '\u0000', '%'];
        for (const text of odd) {
          assert.equal(await stores.jobs.find(text), undefined);
          assert.equal(await stores.jobs.findForKey(text, 'key000000001'), undefined);
          assert.equal(await stores.jobs.findByResultToken(text), undefined);
          assert.equal(await stores.jobs.findByIdempotencyKey('key000000001', text), undefined);
        }
      });

      it('show a job to its own key alone', async () => {
        const account = await fundedAccount(stores, 1);
        const { id } = await submitted(stores, newJob(account));
        assert.equal((await stores.jobs.findForKey(id, 'key000000001'))?.id, id);
        assert.equal(await stores.jobs.findForKey(id, 'key000000002'), undefined);
        assert.equal(await stores.jobs.findForKey(id, 'KEY000000001'), undefined);
      });
    });

    describe('leases', () => {
      it('let one claim win, raise the fence, and hide the job from others', async () => {
        const account = await fundedAccount(stores, 1);
        const job = await submitted(stores, newJob(account));
        const listed = (await stores.jobs.listClaimable(1000)).find(({ id }) => id === job.id);
        assert.ok(listed);
        assert.equal(listed.leaseExpired, false);
        assert.deepEqual(listed.input, job.input);
        const won = await stores.jobs.claim(listed, 'replica-1', LEASE_MS);
        assert.equal(won?.claim.fence, 1);
        assert.equal(won?.job.lease?.holder, 'replica-1');
        assert.equal(await stores.jobs.claim(listed, 'replica-2', LEASE_MS), undefined);
        assert.equal(await stores.jobs.claim({ ...listed, fence: 1 }, 'r2', LEASE_MS), undefined);
        assert.ok(!(await stores.jobs.listClaimable(1000)).some(({ id }) => id === job.id));
        assert.equal(await stores.jobs.release(won!.claim), true);
        const stale = await stores.jobs.claim(listed, 'replica-2', LEASE_MS);
        assert.equal(stale, undefined, 'a listing from before that claim would repeat its fence');
      });

      it('make accepted fetching, and stored input ready', async () => {
        const account = await fundedAccount(stores, 1);
        const job = await submitted(stores, newJob(account, { sourceUrl: 'https://a.example/' }));
        const claim = await claimed(stores, job);
        assert.equal((await reread(stores, job.id)).state, 'fetching');
        assert.equal(await stores.jobs.admitted(claim), false, 'nothing to admit yet');
        assert.equal(await stores.jobs.inputStored(claim, storedInput(job.id)), true);
        assert.equal(await stores.jobs.inputStored(claim, storedInput(job.id)), true, 'again');
        const ready = await reread(stores, job.id);
        assert.equal(ready.state, 'ready');
        assert.deepEqual(ready.input, storedInput(job.id));
        assert.equal(ready.lease?.holder, 'replica-1');
        const other = { ...storedInput(job.id), blob: 'inputs/other' };
        assert.equal(await stores.jobs.inputStored(claim, other), false);
      });

      it('are renewed by their holder, late too while nobody replaced it', async () => {
        const account = await fundedAccount(stores, 1);
        const job = await submitted(stores, newJob(account));
        const claim = await claimed(stores, job, { leaseMs: 0 });
        assert.equal(await stores.jobs.renew({ ...claim, holder: 'replica-2' }, LEASE_MS), false);
        assert.equal(await stores.jobs.renew(claim, HOUR_MS), true);
        const { lease, readAtMs } = await reread(stores, job.id);
        assert.ok(lease && lease.expiresAtMs > readAtMs + HOUR_MS / 2);
      });

      it('that ran out are taken over, counted, and void for the old holder', async () => {
        const account = await fundedAccount(stores, 1);
        const { job, claim: old } = await running(stores, newJob(account));
        await stores.jobs.renew(old, 0);
        const listed = (await stores.jobs.listClaimable(1000)).find(({ id }) => id === job.id);
        assert.equal(listed?.leaseExpired, true);
        const won = await stores.jobs.claim(listed!, 'replica-2', LEASE_MS);
        assert.equal(won?.job.takeovers, 1);
        assert.equal(won?.job.state, 'running', 'there is no way back to queued');
        assert.equal(won?.claim.fence, 2);

        assert.equal(await stores.jobs.renew(old, LEASE_MS), false);
        assert.equal(await stores.jobs.release(old), false);
        assert.equal(await stores.jobs.admitted(old), false);
        assert.equal(await stores.jobs.attemptLost(old, true), undefined);
        assert.equal(await stores.jobs.succeed(old, resultOf(old), HOUR_MS, {}), false);
        assert.equal(await stores.jobs.fail(old, IMAGE_FAULT), false);
        const untouched = await reread(stores, job.id);
        assert.equal(untouched.state, 'running');
        assert.equal(untouched.lostAttempts, 0);
        assert.equal(
          await stores.jobs.succeed(won!.claim, resultOf(won!.claim), HOUR_MS, {}),
          true,
        );
      });

      it('claimed anew by the same replica are void for its own earlier claim', async () => {
        const account = await fundedAccount(stores, 1);
        const { job, claim: old } = await running(stores, newJob(account));
        await stores.jobs.renew(old, 0);
        const young = await claimed(stores, job, { holder: old.holder });
        assert.equal(await stores.jobs.renew(old, LEASE_MS), false);
        assert.equal(await stores.jobs.release(old), false);
        assert.equal(await stores.jobs.admitted(old), false);
        assert.equal(await stores.jobs.attemptLost(old, false), undefined);
        assert.equal(await stores.jobs.inputStored(old, storedInput(job.id)), false);
        assert.equal(await stores.jobs.succeed(old, resultOf(old), HOUR_MS, {}), false);
        assert.equal(await stores.jobs.fail(old, IMAGE_FAULT), false);
        assert.equal(await stores.jobs.renew(young, LEASE_MS), true);
      });

      it('given back cost nothing', async () => {
        const account = await fundedAccount(stores, 1);
        const job = await submitted(stores, newJob(account));
        const claim = await claimed(stores, job);
        assert.equal(await stores.jobs.release(claim), true);
        assert.equal(await stores.jobs.release(claim), false);
        const free = await reread(stores, job.id);
        assert.equal(free.lease, null);
        assert.deepEqual([free.takeovers, free.lostAttempts, free.state], [0, 0, 'ready']);
        const again = await claimed(stores, free);
        assert.equal(again.fence, 2);
        assert.equal((await reread(stores, job.id)).takeovers, 0);
      });

      it('count lost attempts, and those that took a process with them', async () => {
        const account = await fundedAccount(stores, 1);
        const { job, claim } = await running(stores, newJob(account));
        const once = await stores.jobs.attemptLost(claim, false);
        assert.deepEqual([once?.lostAttempts, once?.lostWithProcess, once?.lease], [1, 0, null]);
        assert.equal(await stores.jobs.attemptLost(claim, false), undefined, 'given back already');
        const second = await claimed(stores, job);
        const twice = await stores.jobs.attemptLost(second, true);
        assert.deepEqual([twice?.lostAttempts, twice?.lostWithProcess], [2, 1]);
        assert.equal(twice?.state, 'running');
        assert.equal(twice?.takeovers, 0);
      });

      it('set started_at once', async () => {
        const account = await fundedAccount(stores, 1);
        const { job, claim } = await running(stores, newJob(account));
        await database.kysely
          .updateTable('jobs')
          .set({ started_at: 1000 })
          .where('id', '=', job.id)
          .execute();
        assert.equal(await stores.jobs.admitted(claim), true);
        assert.equal((await reread(stores, job.id)).startedAtMs, 1000);
      });

      it('are judged by the clock of the database, whatever this process believes', async t => {
        const account = await fundedAccount(stores, 1);
        const { job, claim } = await running(stores, newJob(account));
        t.mock.method(Date, 'now', () => 4_000_000_000_000);
        const listed = await stores.jobs.listClaimable(1000);
        assert.ok(!listed.some(({ id }) => id === job.id), 'the lease is not over');
        await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {});
        assert.equal(publicState(await reread(stores, job.id)), 'succeeded');
      });

      it('are offered sync first, then oldest, async before much later sync', async () => {
        const account = await fundedAccount(stores, 5);
        const older = await submitted(stores, newJob(account));
        const oldest = await submitted(stores, newJob(account));
        const sync = await submitted(stores, newJob(account, { mode: 'sync' }));
        const late = await submitted(stores, newJob(account, { mode: 'sync' }));
        const age = (id: string, ms: number) =>
          database.kysely
            .updateTable('jobs')
            .set(eb => ({ queue_at: eb('queue_at', '+', ms) }))
            .where('id', '=', id)
            .execute();
        await age(oldest.id, -ASYNC_HEAD_START_MS / 2);
        await age(late.id, ASYNC_HEAD_START_MS + 1000);
        const mine = (await stores.jobs.listClaimable(1000))
          .filter(({ accountId }) => accountId === account)
          .map(({ id }) => id);
        assert.deepEqual(mine, [sync.id, oldest.id, older.id, late.id]);
        assert.equal((await stores.jobs.listClaimable(2)).length, 2);
      });
    });

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
        assert.deepEqual((await stores.jobs.findByResultToken(result.token))?.id, job.id);
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
          .selectFrom('webhook_outbox')
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

    describe('retention', () => {
      it('a result expires by the clock; its name is taken once, the row stays', async () => {
        const account = await fundedAccount(stores, 2);
        const { job, claim } = await running(stores, newJob(account));
        const result = resultOf(claim);
        await stores.jobs.succeed(claim, result, 0, {});
        assert.equal(publicState(await reread(stores, job.id)), 'expired', 'before any sweep');
        const kept = await running(stores, newJob(account));
        await stores.jobs.succeed(kept.claim, resultOf(kept.claim), HOUR_MS, {});
        assert.deepEqual(await stores.jobs.takeExpiredResultBlobs(1000), [result.blob]);
        assert.deepEqual(await stores.jobs.takeExpiredResultBlobs(1000), []);
        const swept = await stores.jobs.findByResultToken(result.token);
        assert.equal(publicState(swept!), 'expired');
        assert.equal(swept!.result, null);
        assert.ok((await reread(stores, kept.job.id)).result);
      });

      it('rows go after their time with their outbox; the ledger stays and adds up', async () => {
        const account = await fundedAccount(stores, 3);
        const callback = { url: 'https://a.example/hook', secret: null, secretKeyId: null };
        const gone = await running(stores, newJob(account, { callback }));
        await stores.jobs.succeed(gone.claim, resultOf(gone.claim), 0, {});
        const failed = await running(stores, newJob(account));
        await stores.jobs.fail(failed.claim, IMAGE_FAULT);
        const open = await running(stores, newJob(account));
        const unswept = await running(stores, newJob(account));
        await stores.jobs.succeed(unswept.claim, resultOf(unswept.claim), HOUR_MS, {});
        await stores.jobs.takeExpiredResultBlobs(1000);
        const young = await stores.jobs.removeFinalOlderThan(HOUR_MS, 1000);
        assert.deepEqual(young, { rows: 0, blobs: [] });
        await stores.jobs.removeFinalOlderThan(0, 1000);
        assert.equal(await stores.jobs.find(gone.job.id), undefined);
        assert.equal(await stores.jobs.find(failed.job.id), undefined);
        assert.ok(await stores.jobs.find(open.job.id));
        assert.ok(await stores.jobs.find(unswept.job.id), 'its blob has still a name');
        const left = await database.kysely
          .selectFrom('webhook_outbox')
          .select('job_id')
          .where('job_id', '=', gone.job.id)
          .execute();
        assert.deepEqual(left, []);
        const credits = await stores.ledger.credits(account);
        assert.deepEqual(credits?.sums, { grant: 3, reserve: 4, charge: 2, release: 1, revoke: 0 });
      });

      it('says which blobs are still named', async () => {
        const account = await fundedAccount(stores, 2);
        const open = await submitted(stores, newJob(account));
        const { job, claim } = await running(stores, newJob(account));
        const result = resultOf(claim);
        await stores.jobs.succeed(claim, result, HOUR_MS, {});
        const strangers = Array.from({ length: 1200 }, (_, index) => `inputs/none-${index}`);
        const named = await stores.jobs.referencedBlobs([
          ...strangers,
          open.input!.blob,
          job.input!.blob,
          result.blob,
          result.blob.toUpperCase(),
        ]);
        assert.deepEqual([...named].sort(), [open.input!.blob, result.blob].sort());
        assert.deepEqual(await stores.jobs.referencedBlobs([]), new Set());
      });

      it('measures the queue by account: what waits for a node or for its download', async () => {
        const account = await fundedAccount(stores, 10);
        const other = await fundedAccount(stores, 1);
        const input = { bytes: 5, format: 'png' as const };
        const sized = (blob: string, width: number | null, height: number | null) =>
          newJob(account, { input: { ...input, blob, width, height } });
        await submitted(stores, newJob(account));
        await submitted(stores, newJob(account, { sourceUrl: 'https://a.example/' }));
        await submitted(stores, sized('inputs/without-size', null, null));
        await submitted(stores, sized('inputs/tiny', 10, 10));
        const lost = await running(stores, newJob(account));
        await running(stores, newJob(account));
        await stores.jobs.attemptLost(lost.claim, false);
        await submitted(stores, newJob(other));
        const queued = await stores.jobs.queued();
        // Not downloaded yet: 4, of unknown size: 100, tiny: 1.
        const megapixels = 3 + 4 + 100 + 1 + 3;
        assert.deepEqual(queued.byAccount.get(account), { jobs: 5, megapixels, unfetched: 1 });
        assert.deepEqual(queued.byAccount.get(other), { jobs: 1, megapixels: 3, unfetched: 0 });
        const accounts = [...queued.byAccount.values()];
        const sumOf = (what: 'jobs' | 'megapixels') =>
          accounts.reduce((sum, each) => sum + each[what], 0);
        assert.deepEqual([queued.jobs, queued.megapixels], [sumOf('jobs'), sumOf('megapixels')]);
        assert.ok(queued.oldestAgeMs >= 0 && queued.oldestAgeMs < HOUR_MS);
      });

      it('measures what was done lately by its results, and nothing that failed', async () => {
        const account = await fundedAccount(stores, 4);
        const [done, old, failed] = [
          await running(stores, newJob(account)),
          await running(stores, newJob(account)),
          await running(stores, newJob(account)),
        ];
        const before = await stores.jobs.doneWithin(60_000);
        for (const { claim } of [done, old]) {
          assert.ok(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
        }
        assert.ok(await stores.jobs.fail(failed.claim, IMAGE_FAULT));
        await database.kysely
          .updateTable('jobs')
          .set(eb => ({ finished_at: eb('finished_at', '-', 61_000) }))
          .where('id', '=', old.job.id)
          .execute();
        const after = await stores.jobs.doneWithin(60_000);
        assert.deepEqual([after.jobs - before.jobs, after.megapixels - before.megapixels], [1, 3]);
      });
    });
  });
}
