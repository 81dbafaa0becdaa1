/** A result whose file is gone while its link is good, at every door that leads to it. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { type SignedInBrowser, signIn } from '../support/signed-in-browser.ts';
import { imageBody, openTestApp, useTestApp } from '../support/test-app.ts';

const test = ava.serial;

const SYNC = '/v1/matting';
const JOBS = '/v1/matting/jobs';
const FILE = Buffer.from('0123456789');

interface Result {
  readonly id: string;
  readonly key: string;
  readonly link: string;
  readonly file: string;
}

const app = useTestApp(test, {
  log: { error: (...line: unknown[]) => logged.push(line as never) } as never,
  lossObserver: {
    resultLost: by => told.push(by),
    resultsMissing: () => told.push('missing'),
  },
});
let owner: SignedInBrowser;
const told: string[] = [];
const logged: [fields: Record<string, unknown>, message: string][] = [];

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
