/** Who may deliver a notification, and what is written of it: on every database. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { before, it } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import type { FullPlaces } from '../../../src/domain/shared-places.ts';
import type { DueQuery } from '../../../src/store/outbox/outbox-due.ts';
import { createStores } from '../../../src/store/stores.ts';
import {
  describeStores,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  NONE_FULL,
  newJob,
  running,
  storesOn,
} from '../fixtures.ts';

const END = { statusCode: 500, durationMs: 40 };
const SECRET = Uint8Array.of(1, 2, 3);

describeStores('the lease of a notification', ({ databases, database, stores }) => {
  let accountId: string;
  /** Each test's notifications are told apart by their key. */
  let keyId: string;

  before(async () => {
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

  const test = (name: string, run: () => Promise<void>) =>
    it(name, () => {
      keyId = randomUUID().slice(0, 8);
      return run();
    });

  test('is won once, however many replicas saw it', async () => {
    const jobId = await ended();
    const seen = at(await due(), 0);
    assert.deepEqual(
      [seen.id, seen.receiver, seen.attempts, seen.fence],
      [jobId, 'a.example:443', 0, 0],
    );
    assert.deepEqual(new Uint8Array(seen.secret!), SECRET);
    assert.ok(seen.readAtMs >= seen.createdAtMs);
    const others = await Promise.all([databases.open(), databases.open(), databases.open()]);
    const claims = await Promise.all(
      others.map((other, index) =>
        storesOn(other).outbox.claim({ id: jobId, holder: `r${index}`, fence: 1 }, 20_000),
      ),
    );
    assert.equal(claims.filter(Boolean).length, 1);
    assert.deepEqual(await due(), []);
  });

  test('runs out with its holder, whose words count no more', async () => {
    const jobId = await ended();
    const dead = await won(jobId, 'dead', 0);
    const claim = await won(jobId, 'heir');
    assert.equal(claim.fence, dead.fence + 1);
    assert.equal(await stores.outbox.delivered(dead, END), false);
    assert.equal(await stores.outbox.retryLater(dead, END, 5), false);
    assert.equal(await stores.outbox.failed(dead, END, { eraseSecret: true }), false);
    assert.equal(await stores.outbox.release(dead), false);
    assert.ok(await stores.outbox.release(claim));
    const row = await rowOf(jobId);
    assert.deepEqual([row.attempts, row.fence, row.lease_holder], [0, 2, null]);
    assert.deepEqual(await dueIds(), [jobId]);
  });

  test('ends with what came of the attempt', async () => {
    const [again, taken, gone, last] = [await ended(), await ended(), await ended(), await ended()];
    assert.ok(await stores.outbox.retryLater(await won(again), END, HOUR_MS));
    assert.ok(await stores.outbox.delivered(await won(taken), { ...END, statusCode: 204 }));
    assert.ok(await stores.outbox.failed(await won(gone), END, { eraseSecret: true }));
    const unanswered = { ...END, statusCode: null };
    assert.ok(await stores.outbox.failed(await won(last), unanswered, { eraseSecret: false }));
    const told = async (jobId: string) => {
      const row = await rowOf(jobId);
      assert.equal(row.lease_holder, null);
      assert.equal(row.attempts, 1);
      assert.equal(row.next_attempt_at === null, row.finished_at !== null);
      assert.ok(Math.abs(row.last_attempt_at! - Date.now()) < HOUR_MS);
      assert.equal(row.secret === null, row.secret_key_id === null);
      return [row.status, row.last_status_code, row.secret === null];
    };
    assert.deepEqual(await told(again), ['pending', 500, false]);
    assert.deepEqual(await told(taken), ['delivered', 204, true]);
    assert.deepEqual(await told(gone), ['failed', 500, true]);
    assert.deepEqual(await told(last), ['failed', null, false]);
    assert.deepEqual(await due(), []);
  });

  test('is offered past those who have no room, and to those who can sign', async () => {
    const other = await fundedAccount(stores, 10);
    const a = await ended('https://a.example/1');
    const b = await ended('https://B.example.:443/1');
    const c = await ended('https://a.example:8443/1', other);
    assert.deepEqual(new Set(await dueIds()), new Set([a, b, c]));
    const [hostA, hostB] = ['a.example:443', 'b.example:443'];
    const without = (changes: Partial<FullPlaces>) =>
      dueIds({ full: { ...NONE_FULL, ...changes } });
    assert.deepEqual(new Set(await without({ destinations: [hostA] })), new Set([b, c]));
    assert.deepEqual(await without({ destinations: [hostB, hostA] }), [c]);
    assert.deepEqual(await without({ accounts: [accountId] }), [c]);
    const ofOther = { accountId: other, destination: hostA };
    const uses = [{ accountId, destination: hostA }, ofOther];
    assert.deepEqual(new Set(await without({ uses })), new Set([b, c]));
    const slow = { accounts: [accountId], destinations: [hostA, 'a.example:8443'] };
    assert.deepEqual(new Set(await without({ slow })), new Set([b, c]));
    assert.equal((await due({ limit: 1 })).length, 1);
    assert.deepEqual(await due({ secretKeyIds: ['another'] }), []);
    assert.equal((await due({ secretKeyIds: ['another', keyId] })).length, 3);
    const strangers = await stores.outbox.countSealedWithOthers([keyId]);
    assert.equal(await stores.outbox.countSealedWithOthers(['another']), strangers + 3);
    assert.ok((await stores.outbox.due()).count >= 3);
  });

  test('begins after the first wait of the schedule', async () => {
    const late = createStores(database, {
      renderOutboxBody: () => '{}',
      webhookFirstWaitMs: HOUR_MS,
    });
    const callback = { url: 'https://a.example/', secret: SECRET, secretKeyId: keyId };
    const { job, claim } = await running(stores, newJob(accountId, { callback }));
    assert.ok(await late.jobs.fail(claim, IMAGE_FAULT));
    const row = await rowOf(job.id);
    assert.equal(row.next_attempt_at! - row.created_at, HOUR_MS);
    assert.deepEqual(await due(), []);
    assert.equal(await stores.outbox.claim({ id: job.id, holder: 'r', fence: 1 }, 1000), false);
  });

  test('is had again by the operator while the secret is there', async () => {
    const jobId = await ended();
    assert.equal(await stores.outbox.retry(randomUUID()), 'absent');
    assert.equal(await stores.outbox.retry('é'), 'absent');
    assert.ok(await stores.outbox.retryLater(await won(jobId), END, HOUR_MS));
    assert.equal(await stores.outbox.retry(jobId), 'retried');
    assert.ok(await stores.outbox.failed(await won(jobId), END, { eraseSecret: false }));
    assert.equal(await stores.outbox.retry(jobId), 'retried');
    const row = await rowOf(jobId);
    assert.deepEqual([row.status, row.attempts, row.finished_at], ['pending', 2, null]);
    const claim = await won(jobId);
    assert.equal(await stores.outbox.retry(jobId), 'retried', 'it is being sent');
    assert.equal((await rowOf(jobId)).lease_holder, claim.holder);
    assert.ok(await stores.outbox.failed(claim, END, { eraseSecret: true }));
    assert.equal(await stores.outbox.retry(jobId), 'secret-erased');
    const late = await ended();
    await database.kysely
      .updateTable('outbox')
      .set({ secret_erase_at: 5 })
      .where('id', '=', late)
      .execute();
    assert.deepEqual(await dueIds(), [], 'its day is over, swept or not');
    assert.equal(await stores.outbox.retry(late), 'secret-erased');
    const delivered = await ended();
    assert.ok(await stores.outbox.delivered(await won(delivered), END));
    assert.equal(await stores.outbox.retry(delivered), 'delivered');
    const told = at(await stores.outbox.list({ jobId, limit: 10 }), 0);
    assert.deepEqual(
      [told.jobId, told.status, told.attempts, told.receiver, told.secretEraseAtMs],
      [jobId, 'failed', 3, 'a.example:443', null],
    );
    const listed = await stores.outbox.list({ status: 'delivered', limit: 1000 });
    assert.ok(listed.some(one => one.jobId === delivered));
    assert.ok(listed.every(one => one.status === 'delivered'));
    assert.deepEqual(await stores.outbox.list({ jobId: 'é', limit: 1 }), []);
  });
});
