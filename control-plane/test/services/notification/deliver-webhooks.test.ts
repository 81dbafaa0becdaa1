/** Deliveries from the outbox to receivers on loopback: a real store, real sockets. */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { after, before, beforeEach, describe, it } from 'node:test';
import { createTestDatabase, type TestDatabase } from '../../../../test/support/database.ts';
import type { WebhookSchedule } from '../../../src/domain/webhook-schedule.ts';
import { CallbackSecrets } from '../../../src/secrets/callback-secret.ts';
import { SecretBox } from '../../../src/secrets/secret-box.ts';
import { JobEvents } from '../../../src/services/job-events.ts';
import { WebhookDelivery } from '../../../src/services/notification/deliver-webhooks.ts';
import { GuardedPost, type PostLimits } from '../../../src/sources/guard/guarded-post.ts';
import { OutgoingGuard } from '../../../src/sources/guard/outgoing-guard.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import type { Stores } from '../../../src/store/stores.ts';
import {
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  reread,
  resultOf,
  running,
  storesOn,
} from '../../store/fixtures.ts';
import { silent, until } from '../dispatch/harness.ts';
import { type Answer, Receiver, reset, taken } from './receiver.ts';

const SECRET = `whsec_${randomBytes(32).toString('base64')}`;
const SCHEDULE: WebhookSchedule = [0, 10, 20, 30];
const TRUSTED = { fetchPorts: [80, 443], allowPrivateAddresses: true, allowHttpCallbacks: true };
/** The usual limit, never the reason here, but for what is read of an answer behind its status. */
const LIMITS: Partial<PostLimits> = { totalMs: 15_000, replyMs: 100 };
/** For receivers that do not answer; what is sent again has to be taken in it. */
const IMPATIENT: Partial<PostLimits> = { totalMs: 2000 };

let test: TestDatabase;
let database: Database;
let stores: Stores;
let accountId: string;
let secrets: CallbackSecrets;

before(async () => {
  test = await createTestDatabase('sqlite');
  database = await test.open();
  stores = storesOn(database);
});
after(() => test.close());
beforeEach(async () => {
  accountId = await fundedAccount(stores, 1000);
  // Another key each time, so that no test delivers what another left.
  secrets = new CallbackSecrets(new SecretBox(randomBytes(32)));
});

interface Replica extends AsyncDisposable {
  readonly delivery: WebhookDelivery;
  readonly events: JobEvents;
  readonly observed: string[];
  readonly delaysMs: number[];
}

function replica(
  options: {
    scheduleMs?: WebhookSchedule;
    policy?: Partial<typeof TRUSTED>;
    limits?: Partial<PostLimits>;
    secrets?: CallbackSecrets;
    outbox?: Stores['webhookOutbox'];
  } = {},
): Replica {
  const events = new JobEvents();
  const observed: string[] = [];
  const delaysMs: number[] = [];
  const policy = { ...TRUSTED, ...options.policy };
  const guard = new OutgoingGuard({ policy });
  const delivery = new WebhookDelivery({
    outbox: options.outbox ?? stores.webhookOutbox,
    guardedPost: new GuardedPost({ guard, policy, limits: { ...LIMITS, ...options.limits } }),
    secrets: options.secrets ?? secrets,
    events,
    observer: {
      webhookAttempted: outcome => observed.push(outcome),
      webhookDelivered: delayMs => delaysMs.push(delayMs),
    },
    log: silent,
    holder: `replica-${randomUUID()}`,
    scheduleMs: options.scheduleMs ?? SCHEDULE,
  });
  delivery.start();
  return {
    delivery,
    events,
    observed,
    delaysMs,
    async [Symbol.asyncDispose]() {
      delivery.hurry();
      await delivery.stop(0);
    },
  };
}

let endings = 0;

/** A job that ended with a notification to send: every other one of a failure. */
async function ended(url: string, sealer = secrets): Promise<string> {
  endings += 1;
  const id = randomUUID();
  const callback = { url, ...sealer.seal(id, SECRET) };
  const { claim } = await running(stores, newJob(accountId, { id, callback }));
  if (endings % 2 === 0) assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
  else assert.ok(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
  return id;
}

async function rowOf(jobId: string) {
  return database.kysely
    .selectFrom('webhook_outbox')
    .selectAll()
    .where('job_id', '=', jobId)
    .executeTakeFirstOrThrow();
}

const isFinal = (jobId: string) => async () => (await rowOf(jobId)).status !== 'pending';

async function told(jobId: string) {
  const { callback } = await reread(stores, jobId);
  const { status, attempts, lastStatusCode } = callback!;
  return [status, attempts, lastStatusCode];
}

describe('a notification', () => {
  it('goes out at once, signed over the bytes that are sent', async () => {
    await using receiver = await Receiver.open(SECRET);
    await using sender = replica();
    const jobId = await ended(receiver.url('/a?b=%20c'));
    const { body } = await rowOf(jobId);
    sender.events.notificationDue();
    await until(isFinal(jobId));
    assert.deepEqual(await told(jobId), ['delivered', 1, 204]);
    const [delivery, ...more] = receiver.of(jobId);
    assert.deepEqual(more, []);
    assert.equal(delivery.signatureHolds, true);
    assert.deepEqual([delivery.method, delivery.path], ['POST', '/a?b=%20c']);
    const row = await rowOf(jobId);
    assert.equal(delivery.body.toString(), body);
    assert.equal(row.body, '', 'erased with the secret');
    assert.ok(row.last_duration_ms !== null && row.last_duration_ms >= 0);
    assert.deepEqual(Object.keys(delivery.headers).sort(), [
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
    assert.equal(delivery.headers['content-type'], 'application/json');
    assert.deepEqual([row.secret, row.secret_key_id, row.secret_erase_at], [null, null, null]);
    assert.deepEqual(sender.observed, ['delivered']);
    assert.ok(sender.delaysMs[0] >= 0 && sender.delaysMs[0] < HOUR_MS);
  });

  it('is tried on the schedule, then has failed, its secret kept for a retry', async () => {
    await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
      response.writeHead(500).end('x'.repeat(100_000));
    });
    await using sender = replica();
    const jobId = await ended(receiver.url());
    sender.events.notificationDue();
    await until(isFinal(jobId));
    assert.deepEqual(await told(jobId), ['failed', SCHEDULE.length, 500]);
    assert.equal(receiver.of(jobId).length, SCHEDULE.length);
    const ids = new Set(receiver.of(jobId).map(({ headers }) => headers['webhook-id']));
    assert.deepEqual([...ids], [`msg_${jobId}`]);
    assert.ok((await rowOf(jobId)).secret);
    receiver.answer = taken;
    assert.equal(await stores.webhookOutbox.retry(jobId), 'retried');
    sender.events.notificationDue();
    await until(isFinal(jobId));
    assert.deepEqual(await told(jobId), ['delivered', SCHEDULE.length + 1, 204]);
  });

  it('stops at 410, and its secret is gone', async () => {
    await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
      response.writeHead(410).end();
    });
    await using sender = replica();
    const jobId = await ended(receiver.url());
    sender.events.notificationDue();
    await until(isFinal(jobId));
    assert.deepEqual(await told(jobId), ['failed', 1, 410]);
    assert.equal((await rowOf(jobId)).secret, null);
    assert.equal(await stores.webhookOutbox.retry(jobId), 'secret-erased');
  });

  for (const [status, header, putOff] of [
    [429, '120', true],
    [503, '86400', true],
    [503, 'in a while', false],
    [500, '120', false],
  ] as const) {
    it(`answered ${status} with Retry-After: ${header} is ${putOff ? '' : 'not '}put off`, async () => {
      await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
        response.writeHead(status, { 'retry-after': header }).end();
      });
      await using sender = replica({ scheduleMs: [0, 5, 5] });
      const jobId = await ended(receiver.url());
      sender.events.notificationDue();
      await until(async () => (await rowOf(jobId)).attempts === (putOff ? 1 : 3));
      const row = await rowOf(jobId);
      if (!putOff) return assert.equal(row.status, 'failed');
      const waitMs = row.next_attempt_at! - row.last_attempt_at!;
      const wishMs = Math.min(Number(header) * 1000, HOUR_MS);
      assert.ok(waitMs >= wishMs && waitMs < wishMs + 60_000, `${waitMs} ms`);
    });
  }

  const unanswered: Record<string, Answer> = {
    hangs: () => undefined,
    'drips its headers': (_delivery, response) => {
      const drip = setInterval(() => response.socket?.write('H'), 20);
      response.socket?.once('close', () => clearInterval(drip));
    },
    'resets the connection': (_delivery, response) => reset(response),
    'sends headers without end': (_delivery, response) => {
      response.socket?.write('HTTP/1.1 200 OK\r\n');
      const flood = setInterval(() => response.socket?.write(`x: ${'y'.repeat(8000)}\r\n`), 1);
      response.socket?.once('close', () => clearInterval(flood));
    },
    'speaks no HTTP': (_delivery, response) => {
      response.socket?.end('+OK nothing here\r\n');
    },
    'says "continue" for ever': (_delivery, response) => {
      const flood = setInterval(() => response.socket?.write('HTTP/1.1 102 Wait\r\n\r\n'), 5);
      response.socket?.once('close', () => clearInterval(flood));
    },
  };
  for (const [name, answer] of Object.entries(unanswered)) {
    it(`whose receiver ${name} is sent again`, async () => {
      await using receiver = await Receiver.open(SECRET, (delivery, response) => {
        // The next one may come before anybody here has looked.
        receiver.answer = taken;
        return answer(delivery, response);
      });
      await using sender = replica({ limits: IMPATIENT });
      const jobId = await ended(receiver.url());
      sender.events.notificationDue();
      await until(isFinal(jobId));
      assert.deepEqual(await told(jobId), ['delivered', 2, 204]);
      assert.deepEqual(sender.observed, ['unanswered', 'delivered']);
    });
  }

  for (const [name, answer] of Object.entries<Answer>({
    'drips its body': (_delivery, response) => {
      response.writeHead(200);
      const drip = setInterval(() => response.write('z'), 20);
      response.once('close', () => clearInterval(drip));
    },
    'answers without end': (_delivery, response) => {
      response.writeHead(200);
      const flood = setInterval(() => response.write(Buffer.alloc(65_536)), 1);
      response.once('close', () => clearInterval(flood));
    },
    'cuts its own answer off': (_delivery, response) => {
      response.writeHead(200, { 'content-length': '1000' });
      response.write('half');
      setTimeout(() => reset(response), 20);
    },
    'sends its answer packed': (_delivery, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' }).end('no gzip at all');
    },
  })) {
    it(`whose receiver says 200 and ${name} is delivered`, async () => {
      await using receiver = await Receiver.open(SECRET, answer);
      await using sender = replica();
      const jobId = await ended(receiver.url());
      sender.events.notificationDue();
      await until(isFinal(jobId));
      assert.deepEqual(await told(jobId), ['delivered', 1, 200]);
    });
  }

  it('follows no redirect, whatever its status', async () => {
    await using other = await Receiver.open(SECRET);
    for (const status of [300, 301, 302, 303, 304, 307, 308]) {
      await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
        response.writeHead(status, { location: other.url('/moved') }).end();
      });
      await using sender = replica({ scheduleMs: [0] });
      const jobId = await ended(receiver.url());
      sender.events.notificationDue();
      await until(isFinal(jobId));
      assert.deepEqual(await told(jobId), ['failed', 1, status]);
    }
    assert.deepEqual(other.deliveries, []);
  });

  it('is sent to no address that is not public, and tells nothing of what is there', async () => {
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
      assert.deepEqual(await told(jobId), ['failed', 2, null]);
    }
    assert.deepEqual(receiver.deliveries, []);
  });

  it('over http fails once the operator closed that door', async () => {
    await using receiver = await Receiver.open(SECRET);
    await using sender = replica({ policy: { allowHttpCallbacks: false }, scheduleMs: [0] });
    const jobId = await ended(receiver.url());
    sender.events.notificationDue();
    await until(isFinal(jobId));
    assert.deepEqual(receiver.deliveries, []);
  });
});

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
    const others = [storesOn(await test.open()), storesOn(await test.open())];
    await using _one = replica({ outbox: others[0].webhookOutbox });
    await using _two = replica({ outbox: others[1].webhookOutbox });
    for (const jobId of jobs) await until(isFinal(jobId));
    assert.equal(receiver.deliveries.length, 15);
    assert.ok(receiver.deliveries.every(delivery => delivery.signatureHolds));
  });

  it('take over from one that died in the middle, and one word counts', async () => {
    await using receiver = await Receiver.open(SECRET);
    const jobId = await ended(receiver.url());
    const claim = { jobId, holder: 'dead', fence: 1 };
    assert.ok(await stores.webhookOutbox.claim(claim, 300));
    await using sender = replica();
    await until(isFinal(jobId));
    assert.equal(receiver.of(jobId).length, 1);
    const end = { statusCode: 500, durationMs: 1 };
    assert.equal(await stores.webhookOutbox.retryLater(claim, end, 1), false);
    assert.deepEqual(await told(jobId), ['delivered', 1, 204]);
    assert.deepEqual(sender.observed, ['delivered']);
  });

  it('leave a secret they cannot open to one who can', async () => {
    await using receiver = await Receiver.open(SECRET);
    const [old, next] = [new SecretBox(randomBytes(32)), new SecretBox(randomBytes(32))];
    const both = new CallbackSecrets(next, [old]);
    const jobs = [
      await ended(receiver.url(), new CallbackSecrets(old)),
      await ended(receiver.url(), both),
    ];
    const one = replica({ secrets: new CallbackSecrets(old) });
    await until(isFinal(jobs[0]));
    await one.delivery.stop(1000);
    assert.deepEqual(await told(jobs[1]), ['pending', 0, null]);
    await using _two = replica({ secrets: both });
    await until(isFinal(jobs[1]));
    assert.ok(receiver.deliveries.every(delivery => delivery.signatureHolds));
  });

  it('fail a notification whose sealed secret was altered', async () => {
    await using receiver = await Receiver.open(SECRET);
    const jobId = await ended(receiver.url());
    const { secret } = await rowOf(jobId);
    secret![secret!.length - 1] ^= 1;
    await database.kysely
      .updateTable('webhook_outbox')
      .set({ secret })
      .where('job_id', '=', jobId)
      .execute();
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
      ...stores.webhookOutbox,
      listDue: async (...given: Parameters<Stores['webhookOutbox']['listDue']>) => {
        if (failures-- > 0) throw new Error('away');
        return stores.webhookOutbox.listDue(...given);
      },
    };
    await using sender = replica({ outbox: flaky });
    const jobId = await ended(receiver.url());
    sender.events.notificationDue();
    await until(isFinal(jobId));
    assert.equal(receiver.of(jobId).length, 1);
  });
});
