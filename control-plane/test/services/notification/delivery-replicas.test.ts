/** Deliveries beside each other: slow receivers, several replicas, replicas that end. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, it } from 'node:test';
import { CallbackSecrets } from '../../../src/secrets/callback-secret.ts';
import { SecretBox } from '../../../src/secrets/secret-box.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { storesOn } from '../../store/fixtures.ts';
import { until } from '../dispatch/harness.ts';
import {
  database,
  ended,
  isFinal,
  replica,
  rowOf,
  SECRET,
  stores,
  test,
  told,
} from './deliveries.ts';
import { Receiver, taken } from './receiver.ts';

describe('a receiver that is slow or dead', () => {
  it('delays no other, however many wait for it', async () => {
    await using dead = await Receiver.open(SECRET, () => undefined);
    await using healthy = await Receiver.open(SECRET);
    for (let count = 0; count < 40; count += 1) await ended(dead.url());
    const last = await ended(healthy.url());
    await using sender = replica({ limits: { totalMs: 60_000 } });
    await until(isFinal(last), 'the delivery past the backlog');
    await until(() => dead.deliveries.length === 8);
    // The same for what ends from now on.
    const next = await ended(healthy.url());
    sender.events.notificationDue();
    await until(isFinal(next));
    assert.equal(dead.deliveries.length, 8, 'its places and no more');
  });

  it('gets its backlog as places come free', async () => {
    await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
      setTimeout(() => response.writeHead(200).end(), 5);
    });
    const jobs: string[] = [];
    for (let count = 0; count < 20; count += 1) jobs.push(await ended(receiver.url()));
    await using sender = replica();
    for (const jobId of jobs) await until(isFinal(jobId));
    // Once each, but where the machine stands still for longer than a lease.
    assert.deepEqual(new Set(receiver.deliveries.map(({ jobId }) => jobId)), new Set(jobs));
    await until(() => sender.delivery.inFlight === 0);
  });
});

describe('several replicas', () => {
  it('deliver each once between them', async () => {
    await using receiver = await Receiver.open(SECRET);
    const jobs: string[] = [];
    for (let count = 0; count < 15; count += 1) jobs.push(await ended(receiver.url()));
    const [first, second] = [storesOn(await test.open()), storesOn(await test.open())];
    await using _one = replica({ outbox: first.outbox });
    await using _two = replica({ outbox: second.outbox });
    for (const jobId of jobs) await until(isFinal(jobId));
    assert.equal(receiver.deliveries.length, 15);
    assert.ok(receiver.deliveries.every(delivery => delivery.signatureHolds));
  });

  it('take over from one that died in the middle, and one word counts', async () => {
    await using receiver = await Receiver.open(SECRET);
    const jobId = await ended(receiver.url());
    const claim = { id: jobId, holder: 'dead', fence: 1 };
    assert.ok(await stores.outbox.claim(claim, 300));
    await using sender = replica();
    await until(isFinal(jobId));
    assert.equal(receiver.of(jobId).length, 1);
    const end = { statusCode: 500, durationMs: 1 };
    assert.equal(await stores.outbox.retryLater(claim, end, 1), false);
    assert.deepEqual(await told(jobId), ['delivered', 1, 204]);
    assert.deepEqual(sender.observed, ['delivered']);
  });

  it('leave a secret they cannot open to one who can', async () => {
    await using receiver = await Receiver.open(SECRET);
    const [old, next] = [new SecretBox(randomBytes(32)), new SecretBox(randomBytes(32))];
    const both = new CallbackSecrets(next, [old]);
    const ofOld = await ended(receiver.url(), new CallbackSecrets(old));
    const ofNext = await ended(receiver.url(), both);
    const one = replica({ secrets: new CallbackSecrets(old) });
    await until(isFinal(ofOld));
    await one.delivery.stop(1000);
    assert.deepEqual(await told(ofNext), ['pending', 0, null]);
    await using _two = replica({ secrets: both });
    await until(isFinal(ofNext));
    assert.ok(receiver.deliveries.every(delivery => delivery.signatureHolds));
  });

  it('fail a notification whose body is not its own', async () => {
    await using receiver = await Receiver.open(SECRET);
    const [jobId, other] = [await ended(receiver.url()), await ended(receiver.url())];
    const { body } = await rowOf(other);
    await database.kysely.updateTable('outbox').set({ body }).where('id', '=', jobId).execute();
    await using sender = replica();
    await until(isFinal(jobId));
    await until(isFinal(other));
    assert.deepEqual(sender.observed.sort(), ['delivered', 'unsignable']);
    assert.equal(receiver.of(jobId).length, 0);
  });

  it('fail a notification whose sealed secret was altered', async () => {
    await using receiver = await Receiver.open(SECRET);
    const jobId = await ended(receiver.url());
    const { secret } = await rowOf(jobId);
    assert.ok(secret);
    secret.set([(secret.at(-1) ?? 0) ^ 1], secret.length - 1);
    await database.kysely.updateTable('outbox').set({ secret }).where('id', '=', jobId).execute();
    await using sender = replica();
    await until(isFinal(jobId));
    assert.deepEqual([receiver.deliveries, sender.observed], [[], ['unsignable']]);
  });
});

describe('a replica that ends', () => {
  it('finishes what is under way', async () => {
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
    assert.deepEqual(await told(jobId), ['delivered', 1, 200]);
    assert.deepEqual(await told(later), ['pending', 0, null], 'claims nothing more');
  });

  it('gives back what it may not wait for, for another to send at once', async () => {
    await using receiver = await Receiver.open(SECRET, () => undefined);
    const sender = replica({ limits: { totalMs: 60_000 } });
    const jobId = await ended(receiver.url());
    sender.events.notificationDue();
    await until(() => receiver.of(jobId).length === 1);
    await sender.delivery.stop(1);
    const row = await rowOf(jobId);
    assert.deepEqual([row.status, row.lease_holder, row.attempts], ['pending', null, 0]);
    receiver.answer = taken;
    await using _heir = replica();
    await until(isFinal(jobId));
    assert.deepEqual(await told(jobId), ['delivered', 1, 204]);
  });

  it('outlives a database that is away for a while', async () => {
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
    assert.equal(receiver.of(jobId).length, 1);
  });
});
