import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import ava from 'ava';
import { CallbackSecrets, SecretBox } from '../secrets/secret-box.ts';
import type { Stores } from '../stores.ts';
import {
  database,
  delivered,
  ended,
  isFinal,
  replica,
  rowOf,
  SCHEDULE,
  SECRET,
  stores,
  testDatabase,
  told,
  useDeliveries,
} from '../test/deliveries.ts';
import { HOUR_MS, storesOn } from '../test/fixtures.ts';
import { until } from '../test/harness.ts';
import { Receiver, reset, taken } from '../test/receiver.ts';

const test = ava.serial;

useDeliveries(test);

test('a notification › goes out at once, signed over the bytes that are sent', async t => {
  await using receiver = await Receiver.open(SECRET);
  await using sender = replica();
  const jobId = await ended(receiver.url('/a?b=%20c'));
  const stored = await rowOf(jobId);
  sender.events.notificationDue();
  await until(isFinal(jobId));
  t.deepEqual(await told(jobId), ['delivered', 1, 204, null]);
  const [delivery, ...more] = receiver.of(jobId);
  assert.ok(delivery);
  t.deepEqual(more, []);
  t.true(delivery.signatureHolds);
  t.deepEqual([delivery.method, delivery.path], ['POST', '/a?b=%20c']);
  const row = await rowOf(jobId);
  t.is(JSON.parse(delivery.body.toString()).job_id, jobId);
  t.false(stored.body.includes('job_id'), 'sealed while it waits');
  t.is(row.body, '', 'erased with the secret');
  assert.ok(row.last_duration_ms !== null && row.last_duration_ms >= 0);
  t.deepEqual(Object.keys(delivery.headers).sort(), [
    'accept',
    'accept-encoding',
    'connection',
    'content-length',
    'content-type',
    'host',
    'user-agent',
    'webhook-id',
    'webhook-signature',
    'webhook-timestamp',
  ]);
  t.is(delivery.headers['content-type'], 'application/json');
  t.deepEqual([row.secret, row.secret_key_id, row.secret_erase_at], [null, null, null]);
  t.deepEqual(sender.observed, ['delivered']);
  const [delayMs = Number.NaN] = sender.delaysMs;
  t.true(delayMs >= 0 && delayMs < HOUR_MS);
});

test('a notification › is tried on the schedule, then has failed, its secret kept for a retry', async t => {
  await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
    response.writeHead(500).end('x'.repeat(100_000));
  });
  await using sender = replica();
  const jobId = await delivered(sender, receiver.url());
  t.deepEqual(await told(jobId), ['failed', SCHEDULE.length, 500, 'status']);
  t.is(receiver.of(jobId).length, SCHEDULE.length);
  const ids = new Set(receiver.of(jobId).map(({ headers }) => headers['webhook-id']));
  t.deepEqual([...ids], [`msg_${jobId}`]);
  t.truthy((await rowOf(jobId)).secret);
  receiver.answer = taken;
  t.is(await stores.outbox.retry(jobId), 'retried');
  sender.events.notificationDue();
  await until(isFinal(jobId));
  t.deepEqual(await told(jobId), ['delivered', SCHEDULE.length + 1, 204, null]);
});

test('a notification › stops at 410, and its secret is gone', async t => {
  await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
    response.writeHead(410).end();
  });
  await using sender = replica();
  const jobId = await delivered(sender, receiver.url());
  t.deepEqual(await told(jobId), ['failed', 1, 410, 'gone']);
  t.is((await rowOf(jobId)).secret, null);
  t.is(await stores.outbox.retry(jobId), 'secret-erased');
});

test('a notification › is put off by Retry-After', async t => {
  await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
    response.writeHead(503, { 'retry-after': '120' }).end();
  });
  await using sender = replica({ scheduleMs: [0, 5, 5] });
  const jobId = await ended(receiver.url());
  sender.events.notificationDue();
  await until(async () => (await rowOf(jobId)).attempts === 1);
  const row = await rowOf(jobId);
  const waitMs = row.next_attempt_at! - row.last_attempt_at!;
  t.true(waitMs >= 120_000 && waitMs < 180_000, `${waitMs} ms`);
});

test('a notification › that is not answered is sent again', async t => {
  await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
    // The next one may come before the test has seen this one.
    receiver.answer = taken;
    reset(response);
  });
  await using sender = replica();
  const jobId = await delivered(sender, receiver.url());
  t.deepEqual(await told(jobId), ['delivered', 2, 204, null]);
  t.deepEqual(sender.observed, ['unanswered', 'delivered']);
});

test('a notification › follows no redirect, whatever its status', async t => {
  await using other = await Receiver.open(SECRET);
  for (const status of [300, 301, 302, 303, 304, 307, 308]) {
    await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
      response.writeHead(status, { location: other.url('/moved') }).end();
    });
    await using sender = replica({ scheduleMs: [0] });
    const jobId = await delivered(sender, receiver.url());
    t.deepEqual(await told(jobId), ['failed', 1, status, 'redirect']);
  }
  t.deepEqual(other.deliveries, []);
});

test('a notification › is sent to no address that is not public, and tells nothing of what is there', async t => {
  await using receiver = await Receiver.open(SECRET);
  await using sender = replica({ policy: { allowPrivateAddresses: false }, scheduleMs: [0, 5] });
  const jobs = [
    await ended(receiver.url()),
    await ended(`http://127.0.0.1:9/`),
    await ended(`http://[::ffff:127.0.0.1]:${receiver.port}/`),
  ];
  sender.events.notificationDue();
  for (const jobId of jobs) {
    await until(isFinal(jobId));
    t.deepEqual(await told(jobId), ['failed', 2, null, 'forbidden']);
  }
  t.deepEqual(receiver.deliveries, []);
});

test('a receiver that is slow or dead › delays no other, however many wait for it', async t => {
  await using dead = await Receiver.open(SECRET, () => undefined);
  await using healthy = await Receiver.open(SECRET);
  for (let count = 0; count < 40; count += 1) await ended(dead.url());
  const last = await ended(healthy.url());
  await using sender = replica({ limits: { totalMs: 60_000 } });
  await until(isFinal(last), 'the delivery past the backlog');
  await until(() => dead.deliveries.length === 8);
  const next = await ended(healthy.url());
  sender.events.notificationDue();
  await until(isFinal(next));
  t.is(dead.deliveries.length, 8, 'its places and no more');
});

test('several replicas › deliver each once between them', async t => {
  await using receiver = await Receiver.open(SECRET);
  const jobs: string[] = [];
  for (let count = 0; count < 15; count += 1) jobs.push(await ended(receiver.url()));
  const [first, second] = [
    storesOn(await testDatabase.open()),
    storesOn(await testDatabase.open()),
  ];
  await using _one = replica({ outbox: first.outbox });
  await using _two = replica({ outbox: second.outbox });
  for (const jobId of jobs) await until(isFinal(jobId));
  t.is(receiver.deliveries.length, 15);
  t.true(receiver.deliveries.every(delivery => delivery.signatureHolds));
});

test('several replicas › leave a secret they cannot open to one who can', async t => {
  await using receiver = await Receiver.open(SECRET);
  const [old, next] = [new SecretBox(randomBytes(32)), new SecretBox(randomBytes(32))];
  const both = new CallbackSecrets(next, [old]);
  const ofOld = await ended(receiver.url(), new CallbackSecrets(old));
  const ofNext = await ended(receiver.url(), both);
  const one = replica({ secrets: new CallbackSecrets(old) });
  await until(isFinal(ofOld));
  await one.delivery.stop(1000);
  t.deepEqual(await told(ofNext), ['pending', 0, null, null]);
  await using _two = replica({ secrets: both });
  await until(isFinal(ofNext));
  t.true(receiver.deliveries.every(delivery => delivery.signatureHolds));
});

test('several replicas › fail a notification whose body is not its own', async t => {
  await using receiver = await Receiver.open(SECRET);
  const [jobId, other] = [await ended(receiver.url()), await ended(receiver.url())];
  const { body } = await rowOf(other);
  await database.kysely.updateTable('outbox').set({ body }).where('id', '=', jobId).execute();
  await using sender = replica();
  await until(isFinal(jobId));
  await until(isFinal(other));
  t.deepEqual(sender.observed.sort(), ['delivered', 'unsignable']);
  t.deepEqual(await told(jobId), ['failed', 1, null, 'unsignable']);
  t.is(receiver.of(jobId).length, 0);
});

test('a replica that ends › finishes what is under way', async t => {
  const { promise: go, resolve } = Promise.withResolvers<void>();
  await using receiver = await Receiver.open(SECRET, async (_delivery, response) => {
    await go;
    response.writeHead(200).end();
  });
  const sender = replica({ limits: { totalMs: 60_000 } });
  const jobId = await ended(receiver.url());
  sender.events.notificationDue();
  await until(() => receiver.of(jobId).length === 1);
  const stopped = sender.delivery.stop(60_000);
  const later = await ended(receiver.url());
  resolve();
  await stopped;
  t.deepEqual(await told(jobId), ['delivered', 1, 200, null]);
  t.deepEqual(await told(later), ['pending', 0, null, null], 'claims nothing more');
});

test('a replica that ends › outlives a database that is away for a while', async t => {
  await using receiver = await Receiver.open(SECRET);
  let failures = 3;
  const flaky = {
    ...stores.outbox,
    listDue: async (...given: Parameters<Stores['outbox']['listDue']>) => {
      if (failures-- > 0) throw new Error('away');
      return stores.outbox.listDue(...given);
    },
  };
  await using sender = replica({ outbox: flaky });
  const jobId = await ended(receiver.url());
  sender.events.notificationDue();
  await until(isFinal(jobId));
  t.is(receiver.of(jobId).length, 1);
});
