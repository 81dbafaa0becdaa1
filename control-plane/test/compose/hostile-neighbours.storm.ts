/**
 * One of three accounts takes all it can in every way at once: the others are never refused, and
 * their turns come first.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { until } from '@matting/core/test/harness.ts';
import { Receiver } from '@matting/core/test/receiver.ts';
import { type Caller, pictureBody, type RestAnswer } from '@matting/core/test/support/replicas.ts';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import {
  type LoopbackSource,
  openRawSource,
  openSource,
} from '@matting/http/test/loopback-source.ts';
import type { ScriptedNode } from '@matting/nodes/test/scripted-node.ts';
import { onDatabases } from '@matting/test-support/database.ts';
import ava from 'ava';
import { Replicas } from '../programs.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
const IN_FLIGHT_MAX = 80;
const QUEUE_MEGAPIXELS_MAX = 300;
const KEYS = 10;
const SLOW_JOBS = 60;
/** Half of the slots, and some that wait until they are refused. */
const UPLOADS = 128 + 20;
/** Pipelined; each connection stays below its bound, all together exceed the database's queue. */
const READ_CONNECTIONS = 250;
const READS_EACH = 12;
const SECRET = 'a secret for notifications';

/** Often enough that only the whole download's minute ends it. */
const DRIP_MS = 1000;

const silence = () => openRawSource(() => undefined);

const drip = () =>
  openSource((_request, response) => {
    response.writeHead(200, { 'content-type': 'image/png', 'content-length': 10_000_000 });
    const drops = setInterval(() => response.write('x'), DRIP_MS);
    response.once('close', () => clearInterval(drops));
  });

onDatabases(test, 'beside a hostile account', (test, dialect) => {
  const held = Promise.withResolvers<void>();
  const sockets = new Set<Socket>();
  let over = false;
  const unread: Promise<unknown>[] = [];
  let replicas: Replicas;
  let node: ScriptedNode;
  let slow: LoopbackSource[];
  let fast: LoopbackSource;
  let deadReceiver: LoopbackSource;
  let receiver: Receiver;
  let hostile: Caller[];
  let good: Caller[];

  test.before(async () => {
    replicas = await Replicas.open(dialect, {
      replicas: 1,
      env: {
        MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
        MATTING_ALLOW_HTTP_CALLBACKS: 'true',
        MATTING_JOBS_IN_FLIGHT_MAX: String(IN_FLIGHT_MAX),
        MATTING_QUEUE_MEGAPIXELS_MAX: String(QUEUE_MEGAPIXELS_MAX),
      },
    });
    node = await replicas.addNode({ imagesMax: 1 });
    slow = await Promise.all([drip(), drip(), drip()]);
    deadReceiver = await silence();
    fast = await openSource((_request, response) => response.end(pngHeader(4, 3)));
    receiver = await Receiver.open(SECRET);
    const first = await replicas.createCaller(10_000);
    const more = Array.from({ length: KEYS - 1 }, () => replicas.addKey(first.accountId));
    hostile = [first, ...(await Promise.all(more))];
    good = [await replicas.createCaller(100), await replicas.createCaller(100)];
  });

  test.after.always(async () => {
    held.resolve();
    over = true;
    for (const socket of sockets) socket.destroy();
    await replicas?.close();
    await Promise.allSettled(unread);
    for (const source of [...(slow ?? []), fast, deadReceiver, receiver]) {
      await source?.[Symbol.asyncDispose]();
    }
  });

  async function metric(name: string): Promise<number> {
    const { metrics } = replicas.plane(0).ports;
    const page = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
    return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(page)?.[1]);
  }

  const atLeast = (name: string, value: number) =>
    until(async () => (await metric(name)) >= value, `${name} of ${value}`);

  async function openJobs(accountId: string, state: 'ready' | 'running') {
    const rows = await replicas.database.kysely
      .selectFrom('jobs')
      .select('id')
      .where('account_id', '=', accountId)
      .where('state', '=', state)
      .execute();
    return rows.map(({ id }) => id);
  }

  function hostileKey(count: number): Caller {
    const key = hostile[count % hostile.length];
    assert.ok(key);
    return key;
  }

  /** Starts a body and stops. If the service ends the upload, another takes its slot. */
  function stallUpload(caller: Caller): void {
    const url = new URL(replicas.url(0, JOBS));
    const socket = connect(Number(url.port), url.hostname);
    socket.on('error', () => socket.destroy());
    sockets.add(socket);
    socket.once('close', () => {
      sockets.delete(socket);
      if (!over) stallUpload(caller);
    });
    socket.write(
      [
        `POST ${JOBS} HTTP/1.1`,
        'host: matting',
        `authorization: Bearer ${caller.token}`,
        `idempotency-key: ${randomUUID()}`,
        'content-type: application/json',
        'content-length: 100000',
        '',
        `{"image_base64":"${pngHeader(40, 30).toString('base64')}${'A'.repeat(1000)}`,
      ].join('\r\n'),
    );
  }

  /** Sent together; returns the statuses. */
  async function readAtOnce(caller: Caller, place: string, count: number): Promise<string[]> {
    const url = new URL(replicas.url(0, place));
    const socket = connect(Number(url.port), url.hostname);
    const read = (connection: string) =>
      [
        `GET ${place} HTTP/1.1`,
        'host: matting',
        `authorization: Bearer ${caller.token}`,
        `idempotency-key: ${randomUUID()}`,
        `connection: ${connection}`,
        '\r\n',
      ].join('\r\n');
    const reads = Array.from({ length: count }, (_, n) =>
      read(n < count - 1 ? 'keep-alive' : 'close'),
    );
    socket.write(reads.join(''));
    let text = '';
    for await (const chunk of socket) text += chunk;
    return [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status = '']) => status);
  }

  test('takes what it may have of everything', async t => {
    const first = hostileKey(0);
    const callback = {
      callback_url: `${deadReceiver.url}/never`,
      callback_secret: SECRET,
    };
    const told = Array.from({ length: 20 }, () => replicas.post(first, pictureBody(callback)));
    for (const answer of await Promise.all(told)) t.is(answer.status, 200);
    await atLeast('matting_control_webhooks_in_flight', 8);
    node.script = async exchange => {
      exchange.admit();
      const input = await exchange.receive();
      await held.promise;
      exchange.answer(input);
    };
    const large = () =>
      replicas.post(first, {
        image_base64: Buffer.concat([pngHeader(10_000, 10_000), Buffer.from(randomUUID())]) //
          .toString('base64'),
      });
    unread.push(large());
    await until(() => node.headers.length === 21, 'the node to be taken');
    const submitSlow = (count: number) => {
      const image_url = `${slow.at(count % slow.length)?.url}/${count}`;
      return replicas.post(hostileKey(count), { image_url }, { path: JOBS });
    };
    // Four megapixels each: the queue is not full yet.
    for (let count = 0; count < SLOW_JOBS; count += 1) {
      t.is((await submitSlow(count)).status, 202);
    }
    for (let count = 0; count < 3; count += 1) unread.push(large());
    await atLeast('matting_control_queue_megapixels', QUEUE_MEGAPIXELS_MAX + 1);
    const refused: RestAnswer[] = [];
    for (let count = SLOW_JOBS; refused.length < KEYS; count += 1) {
      const answer = await submitSlow(count);
      if (answer.status !== 202) refused.push(answer);
    }
    for (let count = 0; count < UPLOADS; count += 1) stallUpload(hostileKey(count));
    await atLeast('matting_control_uploads', 128);
    await atLeast('matting_control_source_fetches_in_flight', 32);
    // The hostile account met its own bounds, with Retry-After.
    for (const { status, headers } of refused) {
      t.true(status === 429 || status === 503, String(status));
      t.true(Number(headers.get('retry-after')) <= 120);
    }
  });

  test('has no request of the others refused, and their turns come before its own', async t => {
    const answers = good.flatMap((caller, index) => [
      replicas.post(caller, pictureBody()),
      replicas.post(caller, { image_url: `${fast.url}/${index}` }),
      replicas.post(
        caller,
        pictureBody({
          callback_url: `http://127.0.0.1:${receiver.port}/hook`,
          callback_secret: SECRET,
        }),
      ),
    ]);
    const waiting = async () => {
      const ready = await Promise.all(good.map(({ accountId }) => openJobs(accountId, 'ready')));
      return ready.flat();
    };
    // A refused submission would never wait.
    const refused = Promise.race(answers).then(({ body }) => assert.fail(JSON.stringify(body)));
    const allWait = until(async () => (await waiting()).length === answers.length, 'all six');
    await Promise.race([refused, allWait]);
    const theirs = await waiting();
    const before = node.headers.length;
    t.is(before, 21, 'the node still has the one image');
    held.resolve();
    for (const { status, body } of await Promise.all(answers)) {
      t.is(status, 200, JSON.stringify(body));
    }
    const next = node.headers.slice(before, before + theirs.length).map(({ jobId }) => jobId);
    t.deepEqual(next.sort(), theirs.sort());
    await until(() => receiver.deliveries.length === good.length, 'their notifications');
  });

  test('keeps the others from nothing while it goes on: they submit, read and are answered', async t => {
    const flood = Array.from({ length: READ_CONNECTIONS }, (_, n) =>
      readAtOnce(hostileKey(n), '/v1/account', READS_EACH),
    );
    for (const caller of good) {
      const made = await replicas.post(caller, pictureBody(), { path: JOBS });
      t.is(made.status, 202);
      const read = await replicas.get(caller, `${JOBS}/${made.body.job_id}`);
      t.is(read.status, 200);
      const url = await replicas.post(caller, { image_url: `${fast.url}/again` });
      t.is(url.status, 200);
    }
    const statuses = (await Promise.all(flood)).flat();
    t.is(statuses.length, READ_CONNECTIONS * READS_EACH);
    t.deepEqual(
      statuses.filter(status => status !== '200' && status !== '503'),
      [],
    );
  });
});
