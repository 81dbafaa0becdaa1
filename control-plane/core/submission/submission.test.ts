import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { NodeAbility } from '@matting/nodes/node-view.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import { ASYNC, assertRefused, SYNC, snapshot } from '../test/refusals.ts';
import { converse, headOf } from '../test/support/raw-http.ts';
import { imageBody, openTestApp, useTestApp } from '../test/support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test, { syncWaitMs: 20_000, jobsInFlightMax: 1000 }, async () => {
  port = await app.listen();
});
let port: number;
const hasty = useTestApp(test, { syncWaitMs: 50 });
test.afterEach.always(() => app.refuseNewJobs(undefined));

async function untilOneWaits(of = app): Promise<void> {
  await until('a request that waits', () => of.services.waitForJob.waiting > 0);
}

test('a new job: on the wire, in the store, in the ledger', async t => {
  const { credits } = (await app.get('/v1/account')).json();
  const answer = await app.post(ASYNC, imageBody({ output_format: 'WebP' }));
  t.is(answer.statusCode, 202);
  const job = answer.json();
  const { created_at: createdAt, job_id: jobId, ...rest } = job;
  t.regex(jobId, /^[0-9a-f-]{36}$/);
  t.regex(createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  t.deepEqual(rest, {
    status: 'queued',
    started_at: null,
    finished_at: null,
    status_url: `https://matting.example.com/v1/matting/jobs/${jobId}`,
    credits: { reserved: 1, charged: 0 },
  });
  t.is(answer.headers.location, job.status_url);
  t.is(answer.headers['retry-after'], '2');
  t.is(answer.headers['x-credits-charged'], '0');
  t.is(answer.headers['idempotent-replayed'], undefined);
  t.is((await app.stores.jobs.find(jobId))?.outputFormat, 'webp');
  t.is((await app.stores.jobs.find(jobId))?.class, 'async');
  t.deepEqual((await app.get('/v1/account')).json().credits, {
    available: credits.available - 1,
    reserved: credits.reserved + 1,
  });
});

test('done while the caller waits', async t => {
  const runner = app.onSubmitted(id => app.succeedJob(id));
  const key = { 'idempotency-key': randomUUID() };
  const first = await app.post(SYNC, imageBody(), key);
  await runner.stop();
  t.is(first.statusCode, 200, first.payload);
  const job = first.json();
  t.is(job.status, 'succeeded');
  t.deepEqual(job.credits, { reserved: 0, charged: 1 });
  t.is(first.headers['x-credits-charged'], '1');
  t.is(first.headers['server-timing'], 'decode;dur=12.3, infer;dur=250');
  t.is(first.headers['retry-after'], undefined);
  t.is((await app.stores.jobs.find(job.job_id))?.class, 'sync');

  for (const [url, prefer] of [[SYNC], [ASYNC], [SYNC, 'respond-async']] as const) {
    const again = await app.post(url, imageBody(), { ...key, prefer });
    t.is(again.statusCode, 200);
    t.deepEqual(again.json(), job);
    t.is(again.headers['x-credits-charged'], '0');
    t.is(again.headers['idempotent-replayed'], 'true');
  }
});

test('not done in time: the job is handed over', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const answer = await hasty.post(SYNC, imageBody(), key);
  t.is(answer.statusCode, 202);
  const { sync_timeout: syncTimeout, status_url: statusUrl } = answer.json();
  t.true(syncTimeout);
  t.is(answer.headers.location, statusUrl);
  t.is(answer.headers['x-credits-charged'], '0');

  // 60 s exceed the service's own bound, which ends the wait.
  const longer = await hasty.post(SYNC, imageBody(), { ...key, prefer: 'wait=60' });
  t.true(longer.json().sync_timeout);
  t.is(longer.headers['preference-applied'], undefined);
});

test('an account without credits or with too many jobs in flight is told what to do', async t => {
  const small = await openTestApp({ credits: 1, jobsInFlightMax: 1 }, t);
  const { job_id: jobId } = (await small.post(ASYNC, imageBody())).json();
  const limited = await small.post(ASYNC, imageBody());
  t.like(limited.json(), { code: 'RATE_LIMITED', retryable: true });
  t.regex(String(limited.headers['retry-after']), /^\d+$/);
  await small.succeedJob(jobId);
  const poor = await small.post(ASYNC, imageBody());
  t.is(poor.json().code, 'INSUFFICIENT_CREDITS');
  t.regex(poor.json().detail, /matting credits grant/, 'nothing is on sale here');
});

test('a burst of uploads waits for its turn and is not refused', async t => {
  const narrow = await openTestApp({ uploadSlots: { max: 2 } }, t);
  const burst = Array.from({ length: 20 }, () => narrow.post(ASYNC, imageBody()));
  const statuses = (await Promise.all(burst)).map(({ statusCode }) => statusCode);
  t.deepEqual([...new Set(statuses)], [202]);
  t.is(narrow.services.uploads.open, 0);
});

test('a URL, a join, a replay and a conflict need no place for an upload', async t => {
  const narrow = await openTestApp({ uploadSlots: { max: 2, waitMs: 1 } });
  const held = ['stalled', 'stalled too'].map(
    account => narrow.services.uploads.beginBoth(account).image,
  );
  try {
    const key = { 'idempotency-key': randomUUID() };
    const body = imageBody();
    const { job_id: jobId } = (await narrow.post(ASYNC, body, key)).json();
    for (const upload of held) await upload.write(Buffer.from('AAAA'));
    const files = await narrow.storedFiles();
    const refused = await narrow.post(ASYNC, imageBody());
    t.is(refused.statusCode, 503);
    t.true(Number(refused.headers['retry-after']) > 0);
    const url = await narrow.post(ASYNC, { image_url: 'https://images.example.com/x' });
    t.is(url.statusCode, 202);
    const joined = await narrow.post(ASYNC, body, key);
    t.is(joined.statusCode, 202);
    t.is(joined.json().job_id, jobId);
    const other = await narrow.post(ASYNC, { ...body, output_format: 'webp' }, key);
    t.is(other.json().code, 'IDEMPOTENCY_CONFLICT');
    // Bodies are checked before a slot is taken.
    const broken = { image_base64: `${body.image_base64}*` };
    t.is((await narrow.post(ASYNC, broken)).json().code, 'INVALID_IMAGE_SOURCE');
    await narrow.succeedJob(jobId);
    const replayed = await narrow.post(SYNC, body, key);
    t.is(replayed.statusCode, 200);
    t.is(replayed.headers['idempotent-replayed'], 'true');
    t.is((await narrow.stores.ledger.balances(narrow.accountId))?.reserved, 1, 'of the URL');
    t.is(narrow.services.uploads.open, 2);
    t.true((await narrow.storedFiles()).length <= files.length + 1, 'but for the result');
  } finally {
    for (const upload of held) await upload.abort();
    t.is(narrow.services.uploads.open, 0);
    await narrow.close();
  }
});

test('a replica that drains makes no job, but answers for those there are', async t => {
  const leaving = await openTestApp({ syncWaitMs: 60_000 }, t);
  const key = { 'idempotency-key': randomUUID() };
  const waiting = leaving.post(SYNC, imageBody(), key);
  await untilOneWaits(leaving);
  leaving.services.submitMatting.startDraining();
  leaving.services.waitForJob.endAllWaits();
  const handedOver = await waiting;
  t.is(handedOver.statusCode, 202);
  t.true(handedOver.json().sync_timeout);
  const refused = await leaving.post(SYNC, imageBody());
  t.is(refused.statusCode, 503);
  t.is(refused.headers['retry-after'], '1');
  const joined = await leaving.post(SYNC, imageBody(), key);
  t.is(joined.json().job_id, handedOver.json().job_id);
});

test('Prefer', async t => {
  const ask = async (prefer: string, body = imageBody()) => {
    const { statusCode, headers, payload } = await app.post(SYNC, body, { prefer });
    return { status: statusCode, applied: headers['preference-applied'], job: JSON.parse(payload) };
  };
  const async = await ask('respond-async');
  t.is(async.status, 202);
  t.is(async.applied, 'respond-async');
  t.is(async.job.sync_timeout, undefined);
  t.is((await app.stores.jobs.find(async.job.job_id))?.class, 'async');

  const none = await ask('wait=0');
  t.is(none.status, 202);
  t.is(none.applied, 'wait=0');
  t.true(none.job.sync_timeout);

  const unreadable = await hasty.post(SYNC, imageBody(), { prefer: 'wait=soon' });
  t.is(unreadable.headers['preference-applied'], undefined);

  const both = await ask('respond-async, wait=0');
  t.is(both.status, 202);
  t.is(both.applied, 'respond-async, wait=0');
  const runner = app.onSubmitted(id => app.succeedJob(id));
  const done = await ask('respond-async, wait=15');
  await runner.stop();
  t.is(done.status, 200);
  t.is(done.applied, 'respond-async, wait=15');

  const elsewhere = await app.post(ASYNC, imageBody(), { prefer: 'wait=5' });
  t.is(elsewhere.headers['preference-applied'], undefined);
});

test('the body › the body: syntax before fields before the image', async t => {
  await assertRefused(t, app, '{"image_base64":"###","oops":1}', 'INVALID_REQUEST', 'oops');
  const wrong = { image_base64: '###', output_format: 'gif', callback_url: 'x' };
  await assertRefused(t, app, { ...wrong, image_url: '' }, 'INVALID_IMAGE_SOURCE', 'image_url');
  await assertRefused(t, app, wrong, 'UNSUPPORTED_OUTPUT_FORMAT', 'output_format');
  const png = { ...wrong, output_format: 'png' };
  await assertRefused(t, app, png, 'INVALID_CALLBACK', 'callback_secret');
  await assertRefused(t, app, { image_base64: '###' }, 'INVALID_IMAGE_SOURCE', 'image_base64');
});

function head(lines: readonly string[]): string {
  return headOf('POST /v1/matting/jobs HTTP/1.1', 'Host: x', ...signed(), ...lines);
}

function signed(): string[] {
  return [
    `Authorization: Bearer ${app.token}`,
    `Idempotency-Key: ${randomUUID()}`,
    'Content-Type: application/json',
  ];
}

async function settled(before: Awaited<ReturnType<typeof snapshot>>): Promise<void> {
  const busy = async () =>
    app.services.uploads.open > 0 || (await app.storedFiles()).length !== before.files.length;
  const left = () => `the uploads to end: ${app.services.uploads.open} are open`;
  await until(left, async () => !(await busy()));
  assert.deepEqual(await snapshot(app), before);
}

const body = JSON.stringify(imageBody());

test('bad input › chunks that are cut off, in a chunk and between chunks', async t => {
  const before = await snapshot(app);
  const size = body.length.toString(16);
  const chunked = head(['Transfer-Encoding: chunked']);
  const cuts = [
    `${chunked}${size}\r\n${body.slice(0, 20)}`,
    `${chunked}${size}\r\n${body}`,
    `${chunked}${size}\r\n${body}\r\n`,
    `${chunked}${size}\r\n${body}\r\n0\r\n`,
    `${chunked}${size}`,
    chunked,
  ];
  for (const text of cuts) {
    for (const end of ['end', 'resetAndDestroy'] as const) {
      const received = await converse(port, text, { end });
      t.notRegex(received, /HTTP\/1\.1 (2|5)/, text);
    }
  }
  await settled(before);
});

function advertise(t: ExecutionContext, nodes: readonly NodeAbility[] | undefined): void {
  app.advertise(nodes);
  t.teardown(() => app.advertise(undefined));
}

test('nodes’ abilities › without any node the answer is 503, not an error of the request', async t => {
  advertise(t, []);
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'none', { retryAfterS: 10 }));
  await assertRefused(t, app, imageBody({ output_format: 'avif' }), 'SERVICE_UNAVAILABLE');
});
