/** Who may deliver a notification, and what is written of it: on every database. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava, { type ExecutionContext } from 'ava';
import { at } from '../../../../test/support/at.ts';
import type { FullPlaces } from '../../../src/domain/shared-places.ts';
import type { DueQuery } from '../../../src/store/outbox/outbox-due.ts';
import { createStores } from '../../../src/store/stores.ts';
import {
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  NONE_FULL,
  newJob,
  onStores,
  running,
  storesOn,
} from '../fixtures.ts';

const test = ava.serial;

const END = { statusCode: 500, durationMs: 40 };
const SECRET = Uint8Array.of(1, 2, 3);

onStores(test, 'the lease of a notification', (test, { databases, database, stores }) => {
  let accountId: string;
  /** Each test's notifications are told apart by their key. */
  let keyId: string;

  test.before(async () => {
    accountId = await fundedAccount(stores, 1000);
  });

  async function ended(url = 'https://a.example/hook', account = accountId): Promise<string> {
    const callback = { url, secret: SECRET, secretKeyId: keyId };
    const { job, claim } = await running(stores, newJob(account, { callback }));
    assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
    return job.id;
  }

  function due(changes: Partial<DueQuery> = {}) {
    return stores.outbox.listDue({
      kind: 'webhook',
      limit: 100,
      secretKeyIds: [keyId],
      full: NONE_FULL,
      ...changes,
    });
  }

  const dueIds = async (changes?: Partial<DueQuery>) => (await due(changes)).map(n => n.id);

  async function won(jobId: string, holder = 'replica-1', leaseMs = 20_000) {
    const found = (await due()).find(notification => notification.id === jobId);
    assert.ok(found, 'it is not due');
    const claim = { id: jobId, holder, fence: found.fence + 1 };
    assert.ok(await stores.outbox.claim(claim, leaseMs));
    return claim;
  }

  async function rowOf(jobId: string) {
    return database.kysely
      .selectFrom('outbox')
      .selectAll()
      .where('id', '=', jobId)
      .executeTakeFirstOrThrow();
  }

  const fixture = (name: string, run: (t: ExecutionContext) => Promise<void>) =>
    test(name, t => {
      keyId = randomUUID().slice(0, 8);
      return run(t);
    });

  fixture('is won once, however many replicas saw it', async t => {
    const jobId = await ended();
    const seen = at(await due(), 0);
    t.deepEqual(
      [seen.id, seen.receiver, seen.attempts, seen.fence],
      [jobId, 'a.example:443', 0, 0],
    );
    t.deepEqual(new Uint8Array(seen.secret!), SECRET);
    t.true(seen.readAtMs >= seen.createdAtMs);
    const others = await Promise.all([databases.open(), databases.open(), databases.open()]);
    const claims = await Promise.all(
      others.map((other, index) =>
        storesOn(other).outbox.claim({ id: jobId, holder: `r${index}`, fence: 1 }, 20_000),
      ),
    );
    t.is(claims.filter(Boolean).length, 1);
    t.deepEqual(await due(), []);
  });

  fixture('runs out with its holder, whose words count no more', async t => {
    const jobId = await ended();
    const dead = await won(jobId, 'dead', 0);
    const claim = await won(jobId, 'heir');
    t.is(claim.fence, dead.fence + 1);
    t.false(await stores.outbox.delivered(dead, END));
    t.false(await stores.outbox.retryLater(dead, END, 5));
    t.false(await stores.outbox.failed(dead, END, { eraseSecret: true }));
    t.false(await stores.outbox.release(dead));
    t.true(await stores.outbox.release(claim));
    const row = await rowOf(jobId);
    t.deepEqual([row.attempts, row.fence, row.lease_holder], [0, 2, null]);
    t.deepEqual(await dueIds(), [jobId]);
  });

  fixture('ends with what came of the attempt', async t => {
    const [again, taken, gone, last] = [await ended(), await ended(), await ended(), await ended()];
    t.true(await stores.outbox.retryLater(await won(again), END, HOUR_MS));
    t.true(await stores.outbox.delivered(await won(taken), { ...END, statusCode: 204 }));
    t.true(await stores.outbox.failed(await won(gone), END, { eraseSecret: true }));
    const unanswered = { ...END, statusCode: null };
    t.true(await stores.outbox.failed(await won(last), unanswered, { eraseSecret: false }));
    const told = async (jobId: string) => {
      const row = await rowOf(jobId);
      t.is(row.lease_holder, null);
      t.is(row.attempts, 1);
      t.is(row.next_attempt_at === null, row.finished_at !== null);
      t.true(Math.abs(row.last_attempt_at! - Date.now()) < HOUR_MS);
      t.is(row.secret === null, row.secret_key_id === null);
      return [row.status, row.last_status_code, row.secret === null];
    };
    t.deepEqual(await told(again), ['pending', 500, false]);
    t.deepEqual(await told(taken), ['delivered', 204, true]);
    t.deepEqual(await told(gone), ['failed', 500, true]);
    t.deepEqual(await told(last), ['failed', null, false]);
    t.deepEqual(await due(), []);
  });

  fixture('is offered past those who have no room, and to those who can sign', async t => {
    const other = await fundedAccount(stores, 10);
    const a = await ended('https://a.example/1');
    const b = await ended('https://B.example.:443/1');
    const c = await ended('https://a.example:8443/1', other);
    t.deepEqual((await dueIds()).sort(), [a, b, c].sort());
    const [hostA, hostB] = ['a.example:443', 'b.example:443'];
    const without = (changes: Partial<FullPlaces>) =>
      dueIds({ full: { ...NONE_FULL, ...changes } });
    t.deepEqual((await without({ destinations: [hostA] })).sort(), [b, c].sort());
    t.deepEqual(await without({ destinations: [hostB, hostA] }), [c]);
    t.deepEqual(await without({ accounts: [accountId] }), [c]);
    const ofOther = { accountId: other, destination: hostA };
    const uses = [{ accountId, destination: hostA }, ofOther];
    t.deepEqual((await without({ uses })).sort(), [b, c].sort());
    const slow = { accounts: [accountId], destinations: [hostA, 'a.example:8443'] };
    t.deepEqual((await without({ slow })).sort(), [b, c].sort());
    t.is((await due({ limit: 1 })).length, 1);
    t.deepEqual(await due({ secretKeyIds: ['another'] }), []);
    t.is((await due({ secretKeyIds: ['another', keyId] })).length, 3);
    const strangers = await stores.outbox.countSealedWithOthers([keyId]);
    t.is(await stores.outbox.countSealedWithOthers(['another']), strangers + 3);
    t.true((await stores.outbox.due()).count >= 3);
  });

  fixture('begins after the first wait of the schedule', async t => {
    const late = createStores(database, {
      renderOutboxBody: () => '{}',
      webhookFirstWaitMs: HOUR_MS,
    });
    const callback = { url: 'https://a.example/', secret: SECRET, secretKeyId: keyId };
    const { job, claim } = await running(stores, newJob(accountId, { callback }));
    t.true(await late.jobs.fail(claim, IMAGE_FAULT));
    const row = await rowOf(job.id);
    t.is(row.next_attempt_at! - row.created_at, HOUR_MS);
    t.deepEqual(await due(), []);
    t.false(await stores.outbox.claim({ id: job.id, holder: 'r', fence: 1 }, 1000));
  });

  fixture('is had again by the operator while the secret is there', async t => {
    const jobId = await ended();
    t.is(await stores.outbox.retry(randomUUID()), 'absent');
    t.is(await stores.outbox.retry('é'), 'absent');
    t.true(await stores.outbox.retryLater(await won(jobId), END, HOUR_MS));
    t.is(await stores.outbox.retry(jobId), 'retried');
    t.true(await stores.outbox.failed(await won(jobId), END, { eraseSecret: false }));
    t.is(await stores.outbox.retry(jobId), 'retried');
    const row = await rowOf(jobId);
    t.deepEqual([row.status, row.attempts, row.finished_at], ['pending', 2, null]);
    const claim = await won(jobId);
    t.is(await stores.outbox.retry(jobId), 'retried', 'it is being sent');
    t.is((await rowOf(jobId)).lease_holder, claim.holder);
    t.true(await stores.outbox.failed(claim, END, { eraseSecret: true }));
    t.is(await stores.outbox.retry(jobId), 'secret-erased');
    const late = await ended();
    await database.kysely
      .updateTable('outbox')
      .set({ secret_erase_at: 5 })
      .where('id', '=', late)
      .execute();
    t.deepEqual(await dueIds(), [], 'its day is over, swept or not');
    t.is(await stores.outbox.retry(late), 'secret-erased');
    const delivered = await ended();
    t.true(await stores.outbox.delivered(await won(delivered), END));
    t.is(await stores.outbox.retry(delivered), 'delivered');
    const told = at(await stores.outbox.list({ jobId, limit: 10 }), 0);
    t.deepEqual(
      [told.jobId, told.status, told.attempts, told.receiver, told.secretEraseAtMs],
      [jobId, 'failed', 3, 'a.example:443', null],
    );
    const listed = await stores.outbox.list({ status: 'delivered', limit: 1000 });
    t.true(listed.some(one => one.jobId === delivered));
    t.true(listed.every(one => one.status === 'delivered'));
    t.deepEqual(await stores.outbox.list({ jobId: 'é', limit: 1 }), []);
  });
});
