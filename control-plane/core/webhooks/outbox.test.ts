import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { addTo, rowOf, setIn } from '@matting/database/test/rows.ts';
import type { FullSlots } from '@matting/http/outgoing/shared-slots.ts';
import { signingKeyOf } from '@matting/http/outgoing/webhook-signature.ts';
import { at } from '@matting/test-support/at.ts';
import {
  accountOf,
  fillLargeTables,
  HANGING_RECEIVER,
  quietReceiverOf,
  SECRET_KEY_ID,
} from '@matting/test-support/large-tables.ts';
import ava, { type ExecutionContext } from 'ava';
import { CallbackSecrets, SecretBox } from '../secrets/secret-box.ts';
import { createStores } from '../stores.ts';
import {
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  NONE_FULL,
  newJob,
  onStores,
  onStoresInCi,
  reread,
  resultOf,
  running,
  runningOf,
  storesOn,
  successOf,
} from '../test/fixtures.ts';
import { countSealedWithOthers } from './due-messages.ts';

const test = ava.serial;

const END = { statusCode: 500, durationMs: 40 };
const SECRET = Uint8Array.of(1, 2, 3);

onStores(test, 'the lease of a notification', (test, { databases, database, stores }) => {
  let accountId: string;
  let keyId: string;

  test.before(async () => {
    accountId = await fundedAccount(stores, 1000);
  });

  async function ended(url = 'https://a.example/hook', account = accountId): Promise<string> {
    const callback = { url, secret: SECRET, secretKeyId: keyId };
    const { job, claim } = await running(stores, newJob(account, { callback }));
    assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
    return job.id;
  }

  type Changes = Partial<Parameters<typeof stores.outbox.listDue>[0]>;

  function due(changes: Changes = {}) {
    return stores.outbox.listDue({
      kind: 'webhook',
      limit: 100,
      secretKeyIds: [keyId],
      full: NONE_FULL,
      ...changes,
    });
  }

  const dueIds = async (changes?: Changes) => (await due(changes)).map(n => n.id);

  async function won(jobId: string, holder = 'replica-1', leaseMs = 20_000) {
    const found = (await due()).find(notification => notification.id === jobId);
    assert.ok(found, 'it is not due');
    const claim = { id: jobId, holder, fence: found.fence + 1 };
    assert.ok(await stores.outbox.claim(claim, leaseMs));
    return claim;
  }

  const messageOf = (id: string) => rowOf(database.kysely, 'outbox', { id });

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

  fixture('ends with what came of the attempt', async t => {
    const [again, taken, gone, last] = [await ended(), await ended(), await ended(), await ended()];
    t.true(await stores.outbox.retryLater(await won(again), END, HOUR_MS));
    t.true(await stores.outbox.delivered(await won(taken), { ...END, statusCode: 204 }));
    t.true(await stores.outbox.failed(await won(gone), END, { eraseSecret: true }));
    const unanswered = { ...END, statusCode: null };
    t.true(await stores.outbox.failed(await won(last), unanswered, { eraseSecret: false }));
    const told = async (jobId: string) => {
      const row = await messageOf(jobId);
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
    const without = (changes: Partial<FullSlots>) => dueIds({ full: { ...NONE_FULL, ...changes } });
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
      settled: [],
      webhookFirstWaitMs: HOUR_MS,
    });
    const callback = { url: 'https://a.example/', secret: SECRET, secretKeyId: keyId };
    const { job, claim } = await running(stores, newJob(accountId, { callback }));
    t.true(await late.queue.fail(claim, IMAGE_FAULT));
    const row = await messageOf(job.id);
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
    const row = await messageOf(jobId);
    t.deepEqual([row.status, row.attempts, row.finished_at], ['pending', 2, null]);
    const claim = await won(jobId);
    t.is(await stores.outbox.retry(jobId), 'retried', 'it is being sent');
    t.is((await messageOf(jobId)).lease_holder, claim.holder);
    t.true(await stores.outbox.failed(claim, END, { eraseSecret: true }));
    t.is(await stores.outbox.retry(jobId), 'secret-erased');
    const late = await ended();
    await setIn(database.kysely, 'outbox', { id: late }, { secret_erase_at: 5 });
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

onStores(test, 'the fence of a notification', (test, { stores }) => {
  async function claimedOnce(leaseMs: number) {
    const callback = {
      url: 'https://a.example/hook',
      secret: Uint8Array.of(1),
      secretKeyId: 'k',
    };
    const job = newJob(await fundedAccount(stores, 1), { callback });
    const { claim: ofJob } = await running(stores, job);
    assert.ok(await stores.queue.fail(ofJob, IMAGE_FAULT));
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

const BACKLOG = 1200;
const QUIET = 60;
const QUIET_RECEIVERS = Array.from({ length: QUIET }, (_, index) => quietReceiverOf(index)).sort();

type Without = Partial<Pick<FullSlots, 'destinations' | 'accounts'>>;

onStoresInCi(test, `a backlog of ${BACKLOG}`, (test, { database, stores }) => {
  test.before(async () => {
    const due = { dueNotifications: BACKLOG, quietReceivers: QUIET };
    await fillLargeTables(database, { jobs: 100, ...due });
  });

  function due({ destinations = [HANGING_RECEIVER], accounts = [] }: Without = {}) {
    return stores.outbox.listDue({
      kind: 'webhook',
      limit: 32,
      secretKeyIds: [SECRET_KEY_ID],
      full: { ...NONE_FULL, destinations, accounts },
    });
  }

  /** Claims as a delivery does until nothing is left; returns the receivers. */
  async function drained(changes: Without = {}) {
    const receivers: string[] = [];
    for (let polls = 0; polls < 20; polls += 1) {
      const found = await due(changes);
      if (found.length === 0) return receivers.sort();
      for (const { id, fence, receiver } of found) {
        const claim = { id, holder: 'replica-1', fence: fence + 1 };
        assert.ok(await stores.outbox.claim(claim, HOUR_MS));
        receivers.push(receiver);
      }
    }
    return assert.fail('there is no end of them');
  }

  async function givenBack() {
    await setIn(database.kysely, 'outbox', {}, { lease_holder: null, lease_expires_at: null });
  }

  test('hides no other receiver, however many there are', async t => {
    t.deepEqual(await drained(), QUIET_RECEIVERS);
    await givenBack();
  });

  test('is taken from its beginning where its receiver has places', async t => {
    const first = await due({ destinations: [] });
    t.is(first.length, 32);
    t.true(first.every(({ receiver }) => receiver === HANGING_RECEIVER));
  });

  test('of an account without slots does not hide another account’s notifications', async t => {
    const beside = { destinations: [], accounts: [accountOf(0)] };
    const receivers = await drained(beside);
    t.true(receivers.length > 0);
    await givenBack();
    const own = await database.kysely
      .selectFrom('outbox')
      .select('receiver')
      .where('status', '=', 'pending')
      .where('account_id', '<>', accountOf(0))
      .execute();
    t.deepEqual(receivers, own.map(({ receiver }) => receiver).sort());
  });

  test('at a receiver that two accounts share does not hide the other account’s notifications', async t => {
    const [quiet] = await due();
    const shared = { address: `https://${HANGING_RECEIVER}/`, receiver: HANGING_RECEIVER };
    const row = database.kysely.updateTable('outbox').where('id', '=', quiet!.id);
    await row.set({ ...shared, account_id: accountOf(7) }).execute();
    const others = { destinations: QUIET_RECEIVERS, accounts: [accountOf(0)] };
    t.deepEqual(
      (await due(others)).map(({ id }) => id),
      [quiet!.id],
    );
    const { receiver, accountId, address } = quiet!;
    const before = { receiver, account_id: accountId, address };
    await row.set(before).execute();
  });

  test('under a key that this replica has not hides none of those it can open', async t => {
    const rows = database.kysely.updateTable('outbox');
    const hanging = rows.where('receiver', '=', HANGING_RECEIVER);
    await hanging.set({ secret_key_id: 'another' }).execute();
    t.deepEqual(await drained({ destinations: [] }), QUIET_RECEIVERS);
    await givenBack();
    await hanging.set({ secret_key_id: SECRET_KEY_ID }).execute();
    t.is(await stores.outbox.countSealedWithOthers([SECRET_KEY_ID]), 0);
  });

  test('of many receivers is searched for other keys only up to a bound', async t => {
    const last = [...QUIET_RECEIVERS, HANGING_RECEIVER].sort().at(-1)!;
    const rows = database.kysely.updateTable('outbox').where('receiver', '=', last);
    await rows.set({ secret_key_id: 'another' }).execute();
    t.is(await countSealedWithOthers(database, [SECRET_KEY_ID], QUIET), 0);
    t.true((await countSealedWithOthers(database, [SECRET_KEY_ID])) > 0);
    await rows.set({ secret_key_id: SECRET_KEY_ID }).execute();
  });
});

const CALLBACK = {
  url: 'https://a.example/hook',
  secret: Uint8Array.of(0, 255, 39, 92),
  secretKeyId: 'k1',
};

onStores(test, 'the webhook outbox', (test, { database, stores, replica }) => {
  const others = replica();

  async function ended(): Promise<string> {
    const { job, claim } = await runningOf(stores, 1, { callback: CALLBACK });
    assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
    return job.id;
  }

  function change(jobId: string, columns: Record<string, string | number | null>) {
    return database.kysely.updateTable('outbox').set(columns).where('id', '=', jobId).execute();
  }

  function age(jobId: string, ms: number) {
    return addTo(database.kysely, 'outbox', { id: jobId }, { secret_erase_at: -ms });
  }

  const messageOf = (id: string) => rowOf(database.kysely, 'outbox', { id });

  test('hands over what opens for its job and no other', async t => {
    const secrets = new CallbackSecrets(new SecretBox(randomBytes(32)));
    const account = await fundedAccount(stores, 1);
    const id = randomUUID();
    const text = `whsec_${randomBytes(64).toString('base64')}`;
    const callback = { url: `https://a.example/${'ü'.repeat(2030)}`, ...secrets.seal(id, text) };
    const { claim } = await running(stores, newJob(account, { id, callback }));
    t.truthy(await stores.queue.succeed(claim, successOf(claim)));
    const row = await messageOf(id);
    const stored = { secret: row.secret, secretKeyId: row.secret_key_id };
    t.deepEqual(secrets.open(id, stored), signingKeyOf(text));
    t.is(secrets.open(randomUUID(), stored), undefined);
    t.is(row.address, callback.url);
  });

  test('keeps a secret for 24 hours and not longer, undelivered or not', async t => {
    const jobId = await ended();
    await age(jobId, 24 * HOUR_MS - 60_000);
    t.is(await stores.outbox.eraseDueSecrets(100), 0);
    assert.ok((await messageOf(jobId)).secret);
    await age(jobId, 60_000);
    t.is(await stores.outbox.eraseDueSecrets(100), 1);
    const row = await messageOf(jobId);
    t.deepEqual(
      [row.secret, row.secret_key_id, row.secret_erase_at, row.next_attempt_at],
      [null, null, null, null],
    );
    t.deepEqual([row.status, row.fence], ['failed', 1]);
    t.truthy(row.finished_at);
    const { callback } = await reread(stores, jobId);
    t.deepEqual([callback?.status, callback?.nextAttemptAtMs], ['failed', null]);
    t.is(await stores.outbox.eraseDueSecrets(100), 0);
  });

  test('takes a delivery its lease with its secret, and leaves an ended one as it is', async t => {
    const held = await ended();
    await change(held, { lease_holder: 'replica-1', lease_expires_at: Date.now() + HOUR_MS });
    const stopped = await ended();
    await change(stopped, { status: 'failed', finished_at: 5, next_attempt_at: null });
    await age(held, 25 * HOUR_MS);
    await age(stopped, 25 * HOUR_MS);
    t.is(await stores.outbox.eraseDueSecrets(100), 2);
    const [freed, left] = [await messageOf(held), await messageOf(stopped)] as const;
    t.deepEqual([freed.status, freed.lease_holder, freed.fence], ['failed', null, 1]);
    t.deepEqual([left.finished_at, left.fence, left.secret], [5, 0, null]);
  });

  test('erases in bounded steps, and two sweepers at once do no harm', async t => {
    const jobs: string[] = [];
    for (let count = 0; count < 6; count += 1) jobs.push(await ended());
    for (const jobId of jobs) await age(jobId, 25 * HOUR_MS);
    t.is(await stores.outbox.eraseDueSecrets(2), 2);
    const [mine, theirs] = await Promise.all([
      stores.outbox.eraseDueSecrets(100),
      others.outbox.eraseDueSecrets(100),
    ]);
    t.is(mine + theirs, 4);
    for (const jobId of jobs) t.is((await messageOf(jobId)).secret, null);
  });

  test('is told with its job, whichever way the job is read', async t => {
    const job = newJob(await fundedAccount(stores, 1), { callback: CALLBACK });
    const { claim } = await running(stores, job);
    const result = resultOf(claim);
    t.truthy(await stores.queue.succeed(claim, successOf(claim, { result })));
    await change(job.id, {
      status: 'delivered',
      attempts: 3,
      last_status_code: 204,
      last_error: 'timeout',
      last_attempt_at: 1_800_000_000_000,
      next_attempt_at: null,
      finished_at: 1_800_000_000_000,
    });
    const told = {
      url: CALLBACK.url,
      status: 'delivered',
      attempts: 3,
      lastStatusCode: 204,
      lastFailure: 'timeout',
      lastAttemptAtMs: 1_800_000_000_000,
      nextAttemptAtMs: null,
    };
    const reads = [
      await stores.jobs.find(job.id),
      await stores.jobs.findForKey(job.id, job.apiKeyId),
      await stores.queue.findByKey(job.apiKeyId, { hash: job.idempotencyKeyHash }),
      await stores.jobs.findByResultToken(result.sealedToken),
      ...(await stores.jobs.findFinal([job.id])),
    ];
    t.deepEqual(
      reads.map(read => read?.callback),
      Array(5).fill(told),
    );
  });
});
