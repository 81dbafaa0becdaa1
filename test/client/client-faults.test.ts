/** Needs: portal. */

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import ava from 'ava';
import sinon from 'sinon';
import type { MattingError, Retry } from '../../client/src/index.ts';
import { makeTimersDisposable } from '../support/disposable-timers.ts';
import { rejectsWith } from '../support/throws.ts';
import { until } from '../support/waiting.ts';
import { type ClientHarness, newPicture, openClientHarness } from './client-harness.ts';
import type { Fault } from './faulty-proxy.ts';

const test = ava.serial;

const CUT_OUT = randomBytes(300_000);
const BUSY: Fault = { status: 503, headers: { 'retry-after': '1' } };

let harness: ClientHarness;
let node: { stop(): Promise<void> } | undefined;

test.before(async () => {
  harness = await openClientHarness();
});
test.beforeEach(() => {
  node = harness.serve(CUT_OUT);
});
test.afterEach.always(async () => {
  await node?.stop();
  harness.proxy.clear();
});
test.after.always(() => harness.close());

async function spent(): Promise<number> {
  const credits = await harness.app.stores.ledger.credits(harness.app.accountId);
  assert.equal(credits?.reserved, 0);
  return credits.charged;
}

async function cutOutThrough(
  faults: Fault[],
  client = harness.client,
  heed: (retry: Retry) => void = () => undefined,
): Promise<Retry[]> {
  const { proxy } = harness;
  const spentBefore = await spent();
  proxy.faults = [...faults];
  const retries: Retry[] = [];
  const onRetry = (retry: Retry) => {
    retries.push(retry);
    heed(retry);
  };
  const { bytes } = await client.cutOut({ image: newPicture() }, { onRetry });
  assert.ok(CUT_OUT.equals(bytes));
  const posts = proxy.sent('POST');
  assert.equal(new Set(posts.map(({ headers }) => headers['idempotency-key'])).size, 1);
  assert.equal(new Set(posts.map(({ body }) => body.toString('latin1'))).size, 1);
  assert.equal((await spent()) - spentBefore, 1);
  return retries;
}

const CASES: Readonly<Record<string, Fault[]>> = {
  'connections that break': ['refuse', 'refuse'],
  'answers that are lost': ['lose', 'lose'],
  'a proxy that has no service behind it': [{ status: 502 }, { status: 504 }, { status: 500 }],
  'a picture that breaks off, and again at the rest': ['half', 'half', 'refuse'],
  'the rest of a picture that is refused for now': ['half', BUSY, 'lose'],
};
for (const [what, faults] of Object.entries(CASES)) {
  test(`a call succeeds after ${what}`, async t => {
    const retries = await cutOutThrough(faults);
    t.is(retries.length, faults.length);
  });
}

test('a form that is sent again, with another boundary, is the same request', async t => {
  const { client, proxy } = harness;
  const before = await spent();
  proxy.faults = ['lose', 'lose'];
  const callback_url = 'https://example.com/hooks';
  const callback_secret = 'a raw callback secret, kept';
  const { bytes } = await client.cutOut({ image: newPicture(), callback_url, callback_secret });
  t.true(CUT_OUT.equals(bytes));
  const types = proxy.sent('POST').map(({ headers }) => headers['content-type'] ?? '');
  t.true(types.every(type => type.startsWith('multipart/form-data')));
  t.is(types.length, 3);
  t.is((await spent()) - before, 1);
});

test('a retry waits as long as Retry-After says', async t => {
  const clock = sinon.useFakeTimers({
    toFake: ['setTimeout', 'clearTimeout'],
    shouldAdvanceTime: true,
  });
  makeTimersDisposable();
  t.teardown(() => clock.restore());
  const limited: Fault = {
    status: 429,
    headers: { 'retry-after': '600' },
    body: '{"code":"RATE_LIMITED","detail":"too many","retryable":true,"status":429}',
  };
  const busy: Fault = { status: 503, headers: { 'retry-after': '300' } };
  const sentAtMs: number[] = [];
  const timed = (url: string, init: RequestInit) => {
    if (init.method === 'POST') sentAtMs.push(clock.now);
    return fetch(url, init);
  };
  const retries = await cutOutThrough(
    [limited, busy],
    harness.clientWith({ fetch: timed }),
    // The wait starts after this call.
    ({ waitMs }) => setImmediate(() => clock.tickAsync(waitMs)),
  );
  t.deepEqual(
    retries.map(({ error, waitMs }) => [error.code, waitMs]),
    [
      ['RATE_LIMITED', 600_000],
      ['UNREADABLE_ANSWER', 300_000],
    ],
  );
  const [first = 0, second = 0, third = 0] = sentAtMs;
  t.true(second - first >= 600_000 && third - second >= 300_000, String(sentAtMs));
});

test('the rest of a result is asked for, not the whole again', async t => {
  await cutOutThrough(['half']);
  const [rest] = harness.proxy.sent('GET');
  t.regex(rest?.headers.range ?? '', /^bytes=[1-9]\d*-$/);
  t.regex(String(rest?.headers['if-match']), /^"[0-9a-f]{64}"$/);
});

test('an answer that ends early is not taken for whole', async t => {
  const { client, proxy, clientWith } = harness;
  const job = await client.run({ image: newPicture() });
  // A runtime or proxy that truncates a body without an error.
  const early = async (url: string, init: RequestInit) => {
    const answer = await fetch(url, init);
    if (proxy.sent('GET').length > 1) return answer;
    const body = new Uint8Array(await answer.arrayBuffer()).subarray(0, 1000);
    return new Response(body, { status: answer.status, headers: answer.headers });
  };
  proxy.clear();
  t.true(CUT_OUT.equals((await clientWith({ fetch: early }).download(job)).bytes));
  t.is(proxy.sent('GET')[1]?.headers.range, 'bytes=1000-');
});

test('half a job in JSON is asked for again', async t => {
  const { client, proxy } = harness;
  proxy.faults = ['half', 'pass', 'half'];
  const job = await client.run({ image: newPicture() });
  t.is(proxy.sent('POST').length, 2);
  t.true(CUT_OUT.equals((await client.download(job)).bytes));
  t.is(proxy.sent('GET').length, 2);
});

test('an answer that never comes is asked for again', async t => {
  const { proxy, clientWith } = harness;
  proxy.faults = ['hang'];
  const client = clientWith({ answerMsMax: 300 });
  await client.account();
  t.is(proxy.sent('GET').length, 2);
});

test('a failure that passes is submitted again, under the same key', async t => {
  const { app, client, proxy } = harness;
  await node?.stop();
  // The status alone is not retryable.
  const failure = { code: 'IMAGE_DOWNLOAD_FAILED', detail: 'for now', retryable: true } as const;
  let jobs = 0;
  node = app.onSubmitted(jobId =>
    ++jobs <= 2 ? app.failJob(jobId, failure) : app.succeedJob(jobId, CUT_OUT),
  );
  const before = await spent();
  const { jobId } = await client.cutOut({ image: newPicture() });
  t.is((await spent()) - before, 1);
  t.is((await app.stores.jobs.find(jobId))?.state, 'succeeded');
  const keys = proxy.sent('POST').map(({ headers }) => headers['idempotency-key']);
  t.deepEqual([keys.length, new Set(keys).size], [3, 1]);
});

test('a call ends when its time is over, and says that it may go on', async t => {
  const { client, proxy } = harness;
  const wait: Fault = { status: 503, headers: { 'retry-after': '7200' } };
  proxy.choose = () => wait;
  const given = client.cutOut({ image: newPicture() }, { giveUpMs: 3_600_000 });
  // Two hours exceed the call's limit. If it waited, this test would time out.
  await rejectsWith(t, given, (error: MattingError) => error.retryable && error.status === 503);
  proxy.choose = () => 'refuse';
  const refused = client.account({ giveUpMs: 200 });
  await rejectsWith(t, refused, (error: MattingError) => {
    t.deepEqual([error.code, error.retryable, error.status], ['NO_ANSWER', true, undefined]);
    return true;
  });
});

test('a job that outlives the patience of its caller goes on, and is there for the next', async t => {
  const { app, clientWith } = harness;
  await node?.stop();
  const client = clientWith({ answerMsMax: 200 });
  const request = { image: newPicture() };
  const options = { idempotencyKey: 'patience' };
  const early = client.cutOut(request, { ...options, giveUpMs: 1000 });
  await rejectsWith(t, early, (error: MattingError) => error.retryable);
  const [job] = await app.stores.queue.listClaimable(10);
  assert.ok(job);
  await app.succeedJob(job.id, CUT_OUT);
  const before = await spent();
  const { jobId } = await client.cutOut(request, options);
  t.deepEqual([jobId, await spent()], [job.id, before]);
});

test('an abort ends every wait at once with its reason', async t => {
  const { client, proxy } = harness;
  const reason = new Error('not wanted any more');
  for (const fault of ['hang', { status: 503, headers: { 'retry-after': '60' } }] as Fault[]) {
    proxy.choose = () => fault;
    const ending = new AbortController();
    const running = client.cutOut({ image: newPicture() }, { signal: ending.signal });
    const caught = rejectsWith(t, running, error => error === reason);
    await until('a request at the proxy', () => proxy.seen.length > 0);
    ending.abort(reason);
    await caught;
    proxy.clear();
  }
  const before = AbortSignal.abort(reason);
  await rejectsWith(t, client.account({ signal: before }), error => error === reason);
  t.is(proxy.seen.length, 0);
});

test('an answer that is not the service’s is named as such, and not retried', async t => {
  const { client, proxy } = harness;
  const strange: Fault[] = [
    { status: 200 },
    { status: 404 },
    { status: 301, headers: { location: 'https://elsewhere.example/' } },
    { status: 200, headers: { 'content-type': 'application/json' }, body: '{"a":1}' },
  ];
  for (const fault of strange) {
    proxy.clear();
    proxy.faults = [fault];
    await rejectsWith(t, client.account({ giveUpMs: 5000 }), (error: MattingError) => {
      t.deepEqual([error.code, error.retryable], ['UNREADABLE_ANSWER', false]);
      if (typeof fault === 'object' && fault.status === 301) {
        t.regex(error.message, /https:\/\/elsewhere\.example/);
      }
      return true;
    });
    t.is(proxy.seen.length, 1);
  }
});

test('an error that says retryable: false is final, even with 500', async t => {
  const { app, client, proxy } = harness;
  const key = randomBytes(12).toString('hex');
  const image = newPicture();
  const job = await client.run({ image }, { idempotencyKey: key });
  const stored = await app.stores.jobs.find(job.job_id);
  await app.blobs.remove(stored?.result?.blob ?? 'none');
  const isLost = (error: MattingError) => error.code === 'RESULT_LOST' && !error.retryable;
  const retries: Retry[] = [];
  const onRetry = (retry: Retry) => retries.push(retry);
  await rejectsWith(t, client.run({ image }, { idempotencyKey: key, onRetry }), isLost);
  await rejectsWith(t, client.download(job, { onRetry }), isLost);
  t.deepEqual(retries, []);
  t.is(proxy.sent('POST').length, 2);
});
