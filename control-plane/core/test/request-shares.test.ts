import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Authenticate } from '@matting/accounts/keys/authenticate.ts';
import { NotBegunError, RequestShares } from '@matting/database/database.ts';
import {
  noteRequestAccount,
  noteRequestSecret,
  outsideRequests,
  requestOwner,
  serveRequest,
} from '@matting/program/request-owner.ts';
import ava from 'ava';
import { fundedCaller } from './fixtures.ts';
import { imageBody, openTestApp, type TestApp } from './support/test-app.ts';

const test = ava.serial;

/** SQLite's: twice the statements of a common commit. */
const SLOTS_MAX = 128;

let app: TestApp;
let other: { readonly authorization: string };
test.before(async () => {
  app = await openTestApp();
  other = { authorization: `Bearer ${(await fundedCaller(app.stores, 10)).token}` };
});
test.after.always(() => app.close());

/** Requests slots endlessly: some are held until `end`, some wait, the rest are refused. */
function hold(shares: RequestShares, owner: Parameters<typeof serveRequest>[0]) {
  const free = Promise.withResolvers<void>();
  let refused = 0;
  let done = 0;
  const taken: Promise<unknown>[] = [];
  const one = () =>
    serveRequest(owner, () => shares.run(() => free.promise)).then(
      () => {
        done += 1;
      },
      (error: unknown) => {
        assert.ok(error instanceof NotBegunError && error.code === 'SERVICE_UNAVAILABLE');
        refused += 1;
      },
    );
  return {
    counts: () => ({ refused, done }),
    fill: async (count: number) => {
      for (let n = 0; n < count; n += 1) taken.push(one());
      await new Promise(setImmediate);
    },
    end: async () => {
      free.resolve();
      await Promise.all(taken);
    },
  };
}

const READS = ['/v1/account', '/v1/account/keys'];

test('others read and submit while an account holds its slots and its places to wait', async t => {
  const { job_id: own } = (await app.post('/v1/matting/jobs', imageBody())).json();
  const hostile = hold(app.stores.shares, { accountId: app.accountId });
  await hostile.fill(5000);
  const taken = SLOTS_MAX / 2 + 2048;
  t.deepEqual(hostile.counts(), { refused: 5000 - taken, done: 0 });
  try {
    const made = await app.post('/v1/matting/jobs', imageBody(), other);
    t.is(made.statusCode, 202, made.payload);
    for (const path of [`/v1/matting/jobs/${made.json().job_id}`, ...READS]) {
      const answer = await app.get(path, other);
      t.is(answer.statusCode, 200, answer.payload);
    }
    for (const path of [`/v1/matting/jobs/${own}`, ...READS]) {
      const late = await app.get(path);
      t.is(late.statusCode, 503, late.payload);
      t.is(late.json().code, 'SERVICE_UNAVAILABLE');
      t.is(late.headers['retry-after'], '2');
    }
    const files = await app.storedFiles();
    const refused = await app.post('/v1/matting/jobs', imageBody());
    t.is(refused.statusCode, 503, refused.payload);
    t.deepEqual(await app.storedFiles(), files);
    t.is(hostile.counts().done, 0);
  } finally {
    await hostile.end();
  }
  t.is((await app.get(`/v1/matting/jobs/${own}`)).statusCode, 200);
});

test('requests of two accounts that follow each other on one connection keep their owners', async t => {
  const hostile = hold(app.stores.shares, { accountId: app.accountId });
  await hostile.fill(5000);
  try {
    await app.app.listen({ host: '127.0.0.1', port: 0 });
    const socket = connect((app.app.server.address() as AddressInfo).port, '127.0.0.1');
    const ask = (authorization: string, close: boolean) =>
      'GET /v1/account HTTP/1.1\r\nHost: a\r\nIdempotency-Key: a-key\r\n' +
      `Authorization: ${authorization}\r\n${close ? 'Connection: close\r\n' : ''}\r\n`;
    const mine = app.headers().authorization!;
    const order = [mine, other.authorization, mine, other.authorization, mine];
    socket.write(order.map((key, n) => ask(key, n === order.length - 1)).join(''));
    let answers = '';
    socket.on('data', (bytes: Buffer) => {
      answers += bytes.toString('latin1');
    });
    await once(socket, 'close');
    const statuses = [...answers.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
    t.deepEqual(statuses, ['503', '200', '503', '200', '503']);
  } finally {
    await hostile.end();
  }
});

test('one link, or one key, that is asked for without end keeps nobody from another', async t => {
  const { job_id: jobId } = (await app.post('/v1/matting/jobs', imageBody(), other)).json();
  const { token } = await app.succeedJob(jobId);
  const hostile = hold(app.stores.shares, { shows: 'one' });
  await hostile.fill(100);
  try {
    t.is((await app.get(`/v1/results/${token}`)).statusCode, 200);
    const key = await app.createKey();
    const answer = await app.get('/v1/account', { authorization: `Bearer ${key}` });
    t.is(answer.statusCode, 200, answer.payload);
    t.is(hostile.counts().done, 0);
  } finally {
    await hostile.end();
  }
});

test('a submission that found no slot for its row leaves no image behind', async t => {
  const files = await app.storedFiles();
  const { shares } = app.stores;
  const { run } = shares;
  let asked = 0;
  // The row is its second query, after the Idempotency-Key: the API key is cached.
  shares.run = <T>(work: () => Promise<T>): Promise<T> => {
    asked += 1;
    if (asked < 2) return run.call(shares, work) as Promise<T>;
    return Promise.reject(new NotBegunError('SERVICE_UNAVAILABLE', 'no slot'));
  };
  try {
    const answer = await app.post('/v1/matting/jobs', imageBody(), other);
    t.is(answer.statusCode, 503, answer.payload);
    t.is(asked, 2);
  } finally {
    shares.run = run;
  }
  t.deepEqual(await app.storedFiles(), files);
});

function counted() {
  const { apiKeys } = app.stores;
  let reads = 0;
  const authenticate = new Authenticate({
    recall: token => apiKeys.recall(token),
    authenticate: token => {
      reads += 1;
      return apiKeys.authenticate(token);
    },
  });
  return { authenticate, reads: () => reads };
}

test('a thousand requests with one key that is not remembered read its row once', async t => {
  const token = await app.createKey();
  const { authenticate, reads } = counted();
  const all = Array.from({ length: 1000 }, () => authenticate.authenticate(token));
  for (const owner of await Promise.all(all)) t.true(typeof owner === 'object');
  t.is(reads(), 1);
});

test('a key that was good is read again in its account’s share, whatever others show', async t => {
  const { authenticate, reads } = counted();
  const token = await app.createKey();
  assert.ok(typeof (await authenticate.authenticate(token)) === 'object');
  const hostile = [1, 2, 3].map(n => hold(app.stores.shares, { shows: String(n) }));
  for (const one of hostile) await one.fill(100);
  try {
    // The store's cache uses real time.
    while (true) {
      const known = app.stores.apiKeys.recall(token);
      assert.ok(typeof known === 'object');
      if (!known.isFresh) break;
      await delay(50);
    }
    const owner = await serveRequest({ shows: '127.0.0.1' }, () =>
      authenticate.authenticate(token),
    );
    assert.ok(typeof owner === 'object' && 'accountId' in owner);
    t.deepEqual([owner.accountId, reads()], [app.accountId, 2]);
  } finally {
    await Promise.all(hostile.map(one => one.end()));
  }
});

test('work within a slot, and work of no request, waits for none', async t => {
  t.timeout(30_000);
  const shares = new RequestShares(1);
  const inside = async () => {
    t.is(requestOwner(), undefined);
    return shares.run(async () => 'inside');
  };
  await serveRequest({ accountId: 'a' }, async () => {
    t.is(await shares.run(inside), 'inside');
    t.deepEqual(requestOwner(), { accountId: 'a' });
    const held = hold(shares, { accountId: 'b' });
    await held.fill(1);
    t.is(await outsideRequests(() => shares.run(inside)), 'inside');
    await held.end();
  });
});

test('a request is of its address, then of its secret, then of its account', async t => {
  await serveRequest({ shows: '127.0.0.1' }, async () => {
    noteRequestSecret('key');
    await delay(1);
    t.deepEqual(requestOwner(), { shows: 'key' });
    noteRequestAccount('a');
    noteRequestSecret('link');
    await delay(1);
    t.deepEqual(requestOwner(), { accountId: 'a' });
  });
  noteRequestAccount('a');
  t.is(requestOwner(), undefined);
});
