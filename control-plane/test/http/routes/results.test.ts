/** Jobs and the links to their results: what is read, for how long, and what is told where a file is gone. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import ava from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { type SignedInBrowser, signIn } from '../../support/signed-in-browser.ts';
import { imageBody, openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
const FILE = Buffer.from('0123456789');

const told: string[] = [];
const logged: [fields: Record<string, unknown>, message: string][] = [];
const app = useTestApp(test, {
  log: { error: (...line: unknown[]) => logged.push(line as never) } as never,
  lossObserver: {
    resultLost: by => told.push(by),
    resultsMissing: () => told.push('missing'),
  },
});

async function submit(to = app): Promise<string> {
  return (await to.post(JOBS, imageBody())).json().job_id;
}

test('unknown jobs, malformed ids and jobs of other keys get the same answer', async t => {
  const mine = await submit();
  const authorization = `Bearer ${await app.createKey()}`;
  const answers = [
    await app.get(`${JOBS}/${randomUUID()}`),
    await app.get(`${JOBS}/not-a-uuid`),
    await app.get(`${JOBS}/${'a'.repeat(4000)}`),
    await app.get(`${JOBS}/${mine}x`),
    await app.get(`${JOBS}/..%2f..%2fetc`),
    await app.get(`${JOBS}/${mine}`, { authorization }),
  ];
  for (const answer of answers) {
    t.is(answer.statusCode, 404);
    const { instance, request_id: _, ...problem } = answer.json();
    t.true(instance.startsWith(JOBS));
    t.is(problem.code, 'JOB_NOT_FOUND');
    t.deepEqual(Object.keys(problem).sort(), [
      'code',
      'detail',
      'retryable',
      'status',
      'title',
      'type',
    ]);
  }
  t.is((await app.get(`${JOBS}/${mine.toUpperCase()}`)).statusCode, 200);
});

test('a job through its states', async t => {
  const id = await submit();
  const read = async () => app.get(`${JOBS}/${id}`);
  const queued = await read();
  t.is(queued.json().status, 'queued');
  t.is(queued.headers['retry-after'], '2');
  t.is(queued.headers['cache-control'], 'no-store');
  t.is(queued.headers['x-credits-charged'], undefined);

  const claim = await app.startJob(id);
  const processing = await read();
  t.is(processing.json().status, 'processing');
  t.not(processing.json().started_at, null);
  t.is(processing.json().finished_at, null);
  t.is(processing.headers['retry-after'], '2');

  const { token } = await app.succeedJob(id, FILE, { 'odd stage': 1.25 }, claim);
  const succeeded = await read();
  const job = succeeded.json();
  t.is(job.status, 'succeeded');
  t.is(succeeded.headers['retry-after'], undefined);
  t.is(succeeded.headers['server-timing'], 'odd_stage;dur=1.3');
  t.is(Date.parse(job.result.expiresAt) - Date.parse(job.finished_at), 86_400_000);
  t.deepEqual(job.result, {
    url: `https://matting.example.com/v1/results/${token}`,
    format: 'png',
    contentType: 'image/png',
    sizeBytes: FILE.length,
    width: 2,
    height: 1,
    expiresAt: job.result.expiresAt,
  });
  const head = await app.app.inject({
    method: 'HEAD',
    url: `${JOBS}/${id}`,
    headers: app.headers(),
  });
  t.is(head.statusCode, 200);
  t.is(head.payload, '');
});

test('a failed job is read with 200, its error inside', async t => {
  const id = await submit();
  await app.failJob(id, { code: 'PROCESSING_FAILED', detail: 'decode', retryable: false });
  const answer = await app.get(`${JOBS}/${id}`);
  t.is(answer.statusCode, 200);
  const job = answer.json();
  t.is(job.status, 'failed');
  t.false('result' in job);
  t.deepEqual(job.error, { code: 'PROCESSING_FAILED', detail: 'decode', retryable: false });
  t.deepEqual(job.credits, { reserved: 0, charged: 0 });
});

async function storeResult(): Promise<{ id: string; url: string }> {
  const id = await submit();
  const { token } = await app.succeedJob(id, FILE);
  return { id, url: `/v1/results/${token}` };
}

test('a link that leads nowhere', async t => {
  for (const token of ['x', randomUUID(), 'a'.repeat(5000), '%00', '..', 'a%2fb']) {
    const answer = await app.app.inject(`/v1/results/${token}`);
    t.is(answer.statusCode, 404, token);
    t.is(answer.json().code, 'NOT_FOUND');
    t.is(answer.headers['cache-control'], 'no-store');
  }
});

test('the file behind a link, without a key', async t => {
  const { id, url } = await storeResult();
  const get = await app.app.inject(url);
  t.is(get.statusCode, 200);
  t.deepEqual(get.rawPayload, FILE);
  const { headers } = get;
  t.is(headers['content-type'], 'image/png');
  t.is(headers['content-length'], '10');
  t.is(headers['content-disposition'], `attachment; filename="cutout-${id}.png"`);
  t.is(headers.etag, `"${'ab'.repeat(32)}"`);
  t.is(headers['accept-ranges'], 'bytes');
  t.is(headers['x-content-type-options'], 'nosniff');
  const maxAgeS = Number(/^private, max-age=(\d+)$/.exec(String(headers['cache-control']))?.[1]);
  t.true(maxAgeS <= 86_400 && maxAgeS > 86_000);

  const head = await app.app.inject({ method: 'HEAD', url });
  t.is(head.statusCode, 200);
  t.is(head.payload, '');
  for (const name of ['content-type', 'content-length', 'content-disposition', 'etag']) {
    t.is(head.headers[name], headers[name]);
  }
});

// headers/conditions.test.ts and byte-range.test.ts have every way to ask.
test('ranges and conditions', async t => {
  const { url } = await storeResult();
  const etag = `"${'ab'.repeat(32)}"`;
  const ask = (headers: Record<string, string>) => app.app.inject({ url, headers });

  const part = await ask({ range: 'bytes=2-4' });
  t.is(part.statusCode, 206);
  t.is(part.payload, '234');
  t.is(part.headers['content-range'], 'bytes 2-4/10');
  t.is(part.headers['content-length'], '3');
  t.is((await ask({ range: 'bytes=0-0,2-2' })).statusCode, 200);

  const outside = await ask({ range: 'bytes=10-' });
  t.is(outside.statusCode, 416);
  t.is(outside.headers['content-range'], 'bytes */10');
  t.is(outside.json().code, 'RANGE_NOT_SATISFIABLE');
  t.is(outside.headers['cache-control'], 'no-store');

  const held = { range: 'bytes=2-4' };
  t.is((await ask({ ...held, 'if-range': etag })).statusCode, 206);
  t.is((await ask({ ...held, 'if-range': '"other"' })).payload, '0123456789');

  const unchanged = await ask({ 'if-none-match': `"x", ${etag}` });
  t.is(unchanged.statusCode, 304);
  t.is(unchanged.payload, '');
  t.is(unchanged.headers.etag, etag);

  const made = String(part.headers['last-modified']);
  t.is(new Date(made).toUTCString(), made);
  const statuses: [number, Record<string, string>][] = [
    [412, { 'if-match': '"x"' }],
    [200, { 'if-unmodified-since': made }],
    [206, { 'if-range': made, ...held }],
    [304, { 'if-modified-since': made, ...held }],
  ];
  for (const [status, headers] of statuses) {
    const answer = await ask(headers);
    t.is(answer.statusCode, status, JSON.stringify(headers));
    if (status === 304) t.is(answer.headers['last-modified'], made);
    const same = await app.app.inject({ method: 'HEAD', url, headers });
    t.is(same.statusCode, status === 206 ? 200 : status);
    t.is(same.payload, '');
  }
  const head = await app.app.inject({ method: 'HEAD', url, headers: held });
  t.is(head.headers['content-length'], '10');
});

test("expiry is the row's, whether the sweeper came or not", async t => {
  const brief = await openTestApp({ resultTtlMs: 1 }, t);
  const key = { 'idempotency-key': randomUUID() };
  const id = (await brief.post(JOBS, imageBody(), key)).json().job_id;
  const { token } = await brief.succeedJob(id);
  // The link lives for 1 ms of the database's clock.
  while ((await brief.get(`${JOBS}/${id}`)).json().status === 'succeeded') {
    await new Promise(resolve => setTimeout(resolve, 1));
  }
  const assertExpired = async () => {
    const job = (await brief.get(`${JOBS}/${id}`)).json();
    t.is(job.status, 'expired');
    t.false('result' in job);
    t.deepEqual(job.credits, { reserved: 0, charged: 1 });
    const link = await brief.app.inject(`/v1/results/${token}`);
    t.is(link.statusCode, 410);
    t.is(link.json().code, 'RESULT_EXPIRED');
    const again = await brief.post('/v1/matting', imageBody(), key);
    t.is(again.statusCode, 410);
    t.is(again.json().job_id, id);
    t.is(again.headers['idempotent-replayed'], 'true');
    t.is(again.headers['x-credits-charged'], '0');
    const asJob = await brief.post(JOBS, imageBody(), key);
    t.is(asJob.statusCode, 200);
    t.is(asJob.json().status, 'expired');
  };
  await assertExpired();
  t.is((await brief.stores.jobs.takeExpiredResultBlobs(10)).length, 1);
  await assertExpired();
});

const SYNC = '/v1/matting';

interface Result {
  readonly id: string;
  readonly key: string;
  readonly link: string;
  readonly file: string;
}

let owner: SignedInBrowser;
test.before(async () => {
  owner = await signIn(app);
});

async function stored(): Promise<Result> {
  const key = randomUUID();
  const answer = await app.post(JOBS, imageBody(), { 'idempotency-key': key });
  const id = answer.json().job_id;
  const { token, blob } = await app.succeedJob(id, FILE);
  return { id, key, link: `/v1/results/${token}`, file: path.join(app.storageDir, blob) };
}

/** One that is lost, with others beside it that are there. */
async function lost(): Promise<Result> {
  await stored();
  const result = await stored();
  await stored();
  await rm(result.file);
  return result;
}

function clear(): void {
  told.length = 0;
  logged.length = 0;
}

function assertLost(answer: LightMyRequestResponse): void {
  assert.equal(answer.statusCode, 500, answer.body);
  assert.equal(answer.headers['content-type'], 'application/problem+json');
  const { code, retryable } = answer.json();
  assert.deepEqual([code, retryable], ['RESULT_LOST', false]);
  assert.equal(answer.headers['retry-after'], undefined);
}

async function rowOf(jobId: string) {
  const open = await app.stores.lostResults.open({ atMs: 0, id: '' }, 1000);
  return open.find(one => one.jobId === jobId);
}

test('a result whose file is gone › is an incident at its link: told once, on one row, and its job stays succeeded', async t => {
  clear();
  const { id, link } = await lost();
  for (let times = 0; times < 3; times += 1) assertLost(await app.app.inject(link));
  assertLost(await app.app.inject({ url: link, headers: { range: 'bytes=0-3' } }));
  t.deepEqual(told, ['download']);
  t.is(logged.length, 1);
  const [[fields, message] = [{}, '']] = logged;
  t.deepEqual([fields.jobId, fields.foundBy], [id, 'download']);
  t.is(message, 'a result is lost');
  t.is((await rowOf(id))?.accountId, app.accountId);
  const job = (await app.get(`${JOBS}/${id}`)).json();
  t.deepEqual([job.status, job.credits.charged], ['succeeded', 1]);
});

test('a result whose file is gone › is found by HEAD, which sends nothing', async t => {
  const { id, link } = await lost();
  const answer = await app.app.inject({ method: 'HEAD', url: link });
  t.is(answer.statusCode, 500);
  t.truthy(await rowOf(id));
});

test('a result whose file is gone › is answered so by a synchronous replay, JSON and picture, with nothing charged', async t => {
  for (const accept of ['application/json', 'image/png']) {
    clear();
    const { id, key } = await lost();
    const balance = async () => (await app.get('/v1/account')).json().credits.available;
    const before = await balance();
    const answer = await app.post(SYNC, imageBody(), { 'idempotency-key': key, accept });
    assertLost(answer);
    t.is(answer.json().job_id, id);
    t.is(answer.headers['x-credits-charged'], '0');
    t.is(answer.headers['idempotent-replayed'], 'true');
    t.deepEqual(told, ['replay']);
    t.is(await balance(), before);
    // As it reads the job.
    const again = await app.post(JOBS, imageBody(), { 'idempotency-key': key });
    t.deepEqual([again.statusCode, again.json().status], [200, 'succeeded']);
  }
});

test('a result whose file is gone › is answered so by the remove.bg interface', async t => {
  const form = { image_file_b64: imageBody().image_base64 };
  const headers = { 'x-api-key': app.token, authorization: undefined };
  const made: string[] = [];
  const runner = app.onSubmitted(async jobId => {
    made.push(jobId);
    await app.succeedJob(jobId, FILE);
  });
  const first = await app.post('/v1.0/removebg', form, headers);
  await runner.stop();
  t.is(first.statusCode, 200, first.body);
  await Promise.all([stored(), stored()]);
  const [jobId = ''] = made;
  const job = await app.stores.jobs.find(jobId);
  assert.ok(job?.result);
  await rm(path.join(app.storageDir, job.result.blob));
  const again = await app.post('/v1.0/removebg', form, headers);
  t.is(again.statusCode, 500, again.body);
  t.is(again.json().errors[0].code, 'result_lost');
  t.is(again.headers['x-credits-charged'], '0');
  t.truthy(await rowOf(jobId));
});

test('a result whose file is gone › is a page of its own in the account area', async t => {
  const { id } = await lost();
  const answer = await owner.get(`/account/jobs/${id}/result`);
  t.is(answer.statusCode, 500);
  t.regex(answer.body, /This result is lost/);
  t.truthy(await rowOf(id));
  t.regex((await owner.get(`/account/jobs/${id}`)).body, new RegExp(id));
});

test('a result whose file is gone › serves again once its file is there again', async t => {
  const { link, file } = await lost();
  await rename((await stored()).file, `${file}.aside`);
  assertLost(await app.app.inject(link));
  await rename(`${file}.aside`, file);
  const answer = await app.app.inject(link);
  t.deepEqual([answer.statusCode, answer.rawPayload], [200, FILE]);
});

test('no lost result › is one whose link has ended meanwhile', async t => {
  const app = await openTestApp({ resultTtlMs: 0 }, t);
  const id = (await app.post(JOBS, imageBody())).json().job_id;
  const { token, blob } = await app.succeedJob(id, FILE);
  await rm(path.join(app.storageDir, blob));
  const answer = await app.app.inject(`/v1/results/${token}`);
  t.deepEqual([answer.statusCode, answer.json().code], [410, 'RESULT_EXPIRED']);
  t.deepEqual(await app.stores.lostResults.open({ atMs: 0, id: '' }, 10), []);
});

test('no lost result › is one of a storage that is not there, or lost all it had at once', async t => {
  const told: string[] = [];
  const app = await openTestApp({
    lossObserver: {
      resultLost: by => told.push(by),
      resultsMissing: () => told.push('missing'),
    },
  });
  t.teardown(() => app.close());
  const results: { key: string; link: string }[] = [];
  for (let count = 0; count < 4; count += 1) {
    const key = randomUUID();
    const answer = await app.post(JOBS, imageBody(), { 'idempotency-key': key });
    const { token } = await app.succeedJob(answer.json().job_id, FILE);
    results.push({ key, link: `/v1/results/${token}` });
  }
  const directory = path.join(app.storageDir, 'results');
  const aside = `${directory}.aside`;
  const codes = () =>
    Promise.all(
      results.map(async ({ link }) => {
        const answer = await app.app.inject(link);
        return `${answer.statusCode} ${answer.json().code} ${answer.json().retryable}`;
      }),
    );
  // The directory is gone; then an empty one is in its place, as of a disk that is not mounted.
  await rename(directory, aside);
  t.deepEqual(new Set(await codes()), new Set(['503 SERVICE_UNAVAILABLE true']));
  t.deepEqual(told, []);
  await mkdir(directory);
  t.deepEqual(new Set(await codes()), new Set(['503 SERVICE_UNAVAILABLE true']));
  t.deepEqual(new Set(told), new Set(['missing']));
  const [first] = results;
  assert.ok(first);
  const replayed = await app.post(SYNC, imageBody(), { 'idempotency-key': first.key });
  t.is(replayed.statusCode, 503);
  t.deepEqual(await app.stores.lostResults.open({ atMs: 0, id: '' }, 10), []);
  await rm(directory, { recursive: true });
  await rename(aside, directory);
  for (const { link } of results) t.is((await app.app.inject(link)).statusCode, 200);
  const again = await app.post(SYNC, imageBody(), { 'idempotency-key': first.key });
  t.is(again.statusCode, 200);
});

const CALLBACK = {
  callback_url: 'https://receiver.example/hook',
  callback_secret: 'a secret of 24 characters',
};

let link: string;
let jobId: string;
test.before(async () => {
  const key = { 'idempotency-key': randomUUID() };
  jobId = (await app.post(JOBS, imageBody(CALLBACK), key)).json().job_id;
  const { token } = await app.succeedJob(jobId, FILE);
  link = `/v1/results/${token}`;
});

/** Every value of every row. */
function values(): string[] {
  const database = new DatabaseSync(app.databaseFile, { readOnly: true });
  const found: string[] = [];
  const tables = database.prepare("select name from sqlite_master where type = 'table'").all();
  for (const { name } of tables) {
    for (const row of database.prepare(`select * from "${name}"`).all()) {
      for (const value of Object.values(row)) {
        found.push(
          value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : `${value}`,
        );
      }
    }
  }
  database.close();
  return found;
}

test('the database › opens nothing, and is no part of the link', async t => {
  t.deepEqual((await app.app.inject(link)).rawPayload, FILE);
  const token = link.slice('/v1/results/'.length);
  const stored = values();
  t.true(stored.some(value => value.includes(jobId)));
  t.deepEqual(
    stored.filter(value => value.includes(token)),
    [],
  );
  const words = new Set(stored.flatMap(value => value.match(/[A-Za-z0-9_-]{16,128}/g) ?? []));
  t.true(words.size > 10);
  for (const word of words) {
    const answer = await app.app.inject(`/v1/results/${word}`);
    t.is(answer.statusCode, 404, word);
  }
});

test('the database › still shows the same link on every read', async t => {
  for (let times = 0; times < 2; times += 1) {
    const { url } = (await app.get(`${JOBS}/${jobId}`)).json().result;
    t.is(new URL(url).pathname, link);
  }
});
