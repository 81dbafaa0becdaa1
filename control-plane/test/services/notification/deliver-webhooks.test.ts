/** One notification and its receiver, on loopback: a real store, real sockets. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { PostLimits } from '../../../src/sources/guard/guarded-post.ts';
import { HOUR_MS } from '../../store/fixtures.ts';
import { until } from '../dispatch/harness.ts';
import {
  delivered,
  ended,
  isFinal,
  replica,
  rowOf,
  SCHEDULE,
  SECRET,
  stores,
  told,
} from './deliveries.ts';
import { type Answer, Receiver, reset, taken } from './receiver.ts';

/** For receivers that do not answer; what is sent again has to be taken in it. */
const IMPATIENT: Partial<PostLimits> = { totalMs: 2000 };

describe('a notification', () => {
  it('goes out at once, signed over the bytes that are sent', async () => {
    await using receiver = await Receiver.open(SECRET);
    await using sender = replica();
    const jobId = await ended(receiver.url('/a?b=%20c'));
    const stored = await rowOf(jobId);
    sender.events.notificationDue();
    await until(isFinal(jobId));
    assert.deepEqual(await told(jobId), ['delivered', 1, 204]);
    const [delivery, ...more] = receiver.of(jobId);
    assert.ok(delivery);
    assert.deepEqual(more, []);
    assert.equal(delivery.signatureHolds, true);
    assert.deepEqual([delivery.method, delivery.path], ['POST', '/a?b=%20c']);
    const row = await rowOf(jobId);
    assert.equal(JSON.parse(delivery.body.toString()).job_id, jobId);
    assert.ok(!stored.body.includes('job_id'), 'sealed while it waits');
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
    const [delayMs = Number.NaN] = sender.delaysMs;
    assert.ok(delayMs >= 0 && delayMs < HOUR_MS);
  });

  it('is tried on the schedule, then has failed, its secret kept for a retry', async () => {
    await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
      response.writeHead(500).end('x'.repeat(100_000));
    });
    await using sender = replica();
    const jobId = await delivered(sender, receiver.url());
    assert.deepEqual(await told(jobId), ['failed', SCHEDULE.length, 500]);
    assert.equal(receiver.of(jobId).length, SCHEDULE.length);
    const ids = new Set(receiver.of(jobId).map(({ headers }) => headers['webhook-id']));
    assert.deepEqual([...ids], [`msg_${jobId}`]);
    assert.ok((await rowOf(jobId)).secret);
    receiver.answer = taken;
    assert.equal(await stores.outbox.retry(jobId), 'retried');
    sender.events.notificationDue();
    await until(isFinal(jobId));
    assert.deepEqual(await told(jobId), ['delivered', SCHEDULE.length + 1, 204]);
  });

  it('stops at 410, and its secret is gone', async () => {
    await using receiver = await Receiver.open(SECRET, (_delivery, response) => {
      response.writeHead(410).end();
    });
    await using sender = replica();
    const jobId = await delivered(sender, receiver.url());
    assert.deepEqual(await told(jobId), ['failed', 1, 410]);
    assert.equal((await rowOf(jobId)).secret, null);
    assert.equal(await stores.outbox.retry(jobId), 'secret-erased');
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
        // The next one may come before the test has seen this one.
        receiver.answer = taken;
        return answer(delivery, response);
      });
      await using sender = replica({ limits: IMPATIENT });
      const jobId = await delivered(sender, receiver.url());
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
      const jobId = await delivered(sender, receiver.url());
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
      const jobId = await delivered(sender, receiver.url());
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
    await delivered(sender, receiver.url());
    assert.deepEqual(receiver.deliveries, []);
  });
});
