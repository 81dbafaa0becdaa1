/**
 * Real answers against the OpenAPI document and the document against real answers: whatever is
 * answered is described, and every status, code and header described is provoked here.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type TestContext, test } from 'node:test';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import {
  BASE_URL,
  imageBody,
  openTestApp,
  pngHeader,
  useTestApp,
} from '../../control-plane/test/support/test-app.ts';
import { AnswerChecker } from '../support/openapi.ts';
import { openLeadingApp, type Request, sendTo } from './send.ts';

const SYNC = '/v1/matting';
const ASYNC = '/v1/matting/jobs';
const USAGE = '/v1/account/usage';
const URL_BODY = { image_url: 'https://example.com/a.jpg' };

const app = useTestApp({ syncWaitMs: 200 }, async () => {
  document = (await app.app.inject('/v1/openapi.json')).json();
  checker = new AnswerChecker(document);
  paths = document.paths as typeof paths;
});
let checker: AnswerChecker;
let document: Record<string, unknown>;
let paths: Record<string, Record<string, { security: unknown[] }>>;

const send = (request: Request) => sendTo(app, request);

/** Sends it, holds the answer against the document and gives it back. */
async function ask(request: Request, status: number, code?: ErrorCode) {
  const answer = await send(request);
  assert.equal(answer.status, status, `${request.method} ${request.url}\n${answer.payload}`);
  checker.check({ ...answer, headers: answer.headers });
  if (code !== undefined && request.method !== 'HEAD') checkProblem(answer, code);
  return { headers: answer.headers, json: () => JSON.parse(answer.payload) };
}

const provoked = new Set<ErrorCode>();

/** What the catalogue says of a code, and nothing that it does not. */
function checkProblem({ headers, payload }: Awaited<ReturnType<typeof send>>, code: ErrorCode) {
  provoked.add(code);
  const spec = ERROR_CATALOGUE[code];
  assert.equal(headers['content-type'], 'application/problem+json');
  assert.equal(headers['cache-control'], 'no-store');
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.equal(headers['www-authenticate'], spec.http === 401 ? 'Bearer' : undefined);
  const { detail, instance, retryable, job_id: jobId, errors: _, ...problem } = JSON.parse(payload);
  assert.ok(typeof detail === 'string' && detail.length > 0);
  assert.match(instance, /^\//);
  assert.deepEqual(problem, {
    type: `${BASE_URL}/docs/errors#${code.toLowerCase()}`,
    title: spec.title,
    status: spec.http,
    code,
    request_id: headers['x-request-id'],
  });
  if (spec.retry === 'never' && jobId === undefined) assert.equal(retryable, false);
  // Where a job is named it is said that nothing is charged now.
  assert.equal(headers['x-credits-charged'], jobId === undefined ? undefined : '0');
}

/** A refusal moves no credit. */
async function post(url: string, body: unknown, status: number, code?: ErrorCode, headers = {}) {
  const before = await app.stores.ledger.credits(app.accountId);
  const answer = await ask({ method: 'POST', url, body, headers }, status, code);
  if (status >= 400 && status < 500) {
    assert.deepEqual(await app.stores.ledger.credits(app.accountId), before);
  }
  return answer;
}

/** Every GET of the document, with a real path, and whether it asks for a key. */
function reads(jobId: string, token: string) {
  return Object.entries(paths)
    .flatMap(([path, { get }]) => (get === undefined ? [] : [{ path, get }]))
    .map(({ path, get }) => ({
      url: path.replace('{job_id}', jobId).replace('{token}', token),
      keyed: get.security.length > 0,
    }));
}

const broken = () => Promise.reject(new Error('a bug'));
const away = () => Promise.reject(new ContractError('SERVICE_UNAVAILABLE', 'the database is away'));

async function submitted(body: unknown = imageBody(), of = app) {
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: jobId } = (await of.post(ASYNC, body, key)).json();
  assert.ok(jobId);
  return { key, jobId: jobId as string };
}

for (const url of [SYNC, ASYNC]) {
  test(`POST ${url}: refusals by the headers`, async () => {
    await post(url, imageBody(), 400, 'INVALID_IDEMPOTENCY_KEY', { 'idempotency-key': undefined });
    await post(url, imageBody(), 401, 'MISSING_API_KEY', { authorization: undefined });
    await post(url, imageBody(), 401, 'INVALID_API_KEY', { authorization: 'Basic x' });
    const authorization = `Bearer ${await app.createKey({ networks: ['192.0.2.0/24'] })}`;
    await post(url, imageBody(), 403, 'KEY_NOT_ALLOWED', { authorization });
    await post(url, imageBody(), 413, 'IMAGE_TOO_LARGE', { 'content-length': '99999999' });
    const coded = { 'content-encoding': 'gzip' };
    await post(url, imageBody(), 415, 'UNSUPPORTED_MEDIA_TYPE', coded);
    const typed = { 'content-type': 'text/plain' };
    await post(url, imageBody(), 415, 'UNSUPPORTED_MEDIA_TYPE', typed);
  });

  test(`POST ${url}: refusals by the body`, async () => {
    await post(url, '{', 400, 'INVALID_REQUEST');
    await post(url, {}, 400, 'INVALID_IMAGE_SOURCE');
    await post(url, { image_base64: 'AAAA' }, 400, 'UNSUPPORTED_IMAGE_FORMAT');
    await post(url, imageBody({ output_format: 'gif' }), 400, 'UNSUPPORTED_OUTPUT_FORMAT');
    await post(url, imageBody({ background: 'no colour' }), 400, 'INVALID_PARAMETER');
    await post(url, imageBody({ callback_url: 'https://a.example' }), 400, 'INVALID_CALLBACK');
    const wide = { image_base64: pngHeader(10_001, 1).toString('base64') };
    await post(url, wide, 400, 'IMAGE_RESOLUTION_TOO_LARGE');
    const { key } = await submitted();
    const other = imageBody({ output_format: 'webp' });
    await post(url, other, 409, 'IDEMPOTENCY_CONFLICT', key);
  });

  test(`POST ${url}: refusals of a new job`, async t => {
    t.after(() => app.refuseNewJobs(undefined));
    app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 9 }));
    await post(url, imageBody(), 503, 'SERVICE_UNAVAILABLE');
    app.refuseNewJobs(new Error('a bug') as ContractError);
    await post(url, imageBody(), 500, 'INTERNAL_ERROR');
    const poor = await openTestApp({ credits: 0, submissionsPerMinute: 1 }, t);
    const request = { method: 'POST', url, body: imageBody(), of: poor };
    await ask(request, 402, 'INSUFFICIENT_CREDITS');
    await untilLimited(request);
    const cap = { credits: 1, period: 'total' } as const;
    const authorization = `Bearer ${await app.createKey({ cap })}`;
    t.after(() => app.refuseNewJobs(undefined));
    app.refuseNewJobs(undefined);
    await post(ASYNC, imageBody(), 202, undefined, { authorization });
    await post(url, imageBody(), 402, 'KEY_CAP_REACHED', { authorization });
  });
}

/** Asks until the account's quota is spent, once more where the minute has just ended. */
async function untilLimited(request: Request): Promise<void> {
  for (let tries = 0; tries < 3; tries += 1) {
    if ((await send(request)).status === 429) break;
  }
  await ask(request, 429, 'RATE_LIMITED');
}

for (const url of [SYNC, ASYNC]) {
  test(`POST ${url}: a key that is revoked while the body comes`, async t => {
    const { authenticator } = app.services;
    const asked = t.mock.method(authenticator, 'authenticate');
    asked.mock.mockImplementationOnce(async () => 'unknown', 1);
    const jobs = await app.countJobs();
    const refused = await post(url, imageBody(), 401, 'INVALID_API_KEY');
    assert.ok(refused.headers.ratelimit);
    assert.equal(asked.mock.callCount(), 2);
    const owner = { accountId: app.accountId, apiKeyId: 'any', policy: { scopes: [] } };
    asked.mock.mockImplementationOnce(async () => owner, 3);
    await post(url, imageBody(), 403, 'KEY_NOT_ALLOWED');
    assert.equal(await app.countJobs(), jobs);
  });
}

test('a job from its submission to its link', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const first = await post(SYNC, imageBody(), 202, undefined, { ...key, prefer: 'wait=0' });
  const { job_id: jobId } = first.json();
  await post(ASYNC, imageBody(), 202, undefined, key);
  await post(SYNC, imageBody(), 202, undefined, { ...key, prefer: 'respond-async' });
  const read = { method: 'GET', url: `${ASYNC}/${jobId}` };
  await ask(read, 200);
  const claim = await app.startJob(jobId);
  assert.equal((await ask(read, 200)).json().status, 'processing');
  const { token } = await app.succeedJob(jobId, Buffer.from('0123456789'), { infer: 1 }, claim);
  assert.equal((await ask(read, 200)).json().status, 'succeeded');
  await post(SYNC, imageBody(), 200, undefined, { ...key, prefer: 'respond-async' });
  await post(ASYNC, imageBody(), 200, undefined, key);

  const url = `/v1/results/${token}`;
  const whole = await ask({ method: 'GET', url }, 200);
  await ask({ method: 'HEAD', url }, 200);
  await ask({ method: 'GET', url, headers: { range: 'bytes=1-2' } }, 206);
  await ask({ method: 'GET', url, headers: { range: 'bytes=10-' } }, 416, 'RANGE_NOT_SATISFIABLE');
  const unchanged = { 'if-none-match': String(whole.headers.etag) };
  for (const method of ['GET', 'HEAD']) {
    await ask({ method, url, headers: unchanged }, 304);
    const another = { 'if-match': '"another"' };
    await ask({ method, url, headers: another }, 412, 'PRECONDITION_FAILED');
    await ask({ method, url: '/v1/results/unknown' }, 404, 'NOT_FOUND');
  }
  await ask({ method: 'GET', url: `${ASYNC}/${randomUUID()}` }, 404, 'JOB_NOT_FOUND');
});

test('a synchronous request whose job ends while it waits', async () => {
  const quick = await openTestApp({ syncWaitMs: 20_000 });
  const jobs = quick.onSubmitted(jobId => quick.succeedJob(jobId));
  try {
    const headers = { prefer: 'wait=20' };
    const request = { method: 'POST', url: SYNC, body: imageBody(), headers, of: quick };
    assert.equal((await ask(request, 200)).headers['x-credits-charged'], '1');
  } finally {
    await jobs.stop();
    await quick.close();
  }
});

test('a picture as the answer, its replay, and what may stand in its way', async t => {
  const limits = { linkMax: 1, accountMax: 1, max: 1 };
  const few = await openTestApp({ resultReaders: limits }, t);
  const { key, jobId } = await submitted(imageBody(), few);
  const box = { left: 1, top: 2, width: 3, height: 4 };
  const subject = { inputBox: box, resultBox: box, share: 0.25 };
  few.sight = { inputWidth: 10, inputHeight: 10, subject };
  await few.succeedJob(jobId);
  const headers = { ...key, accept: 'image/*', prefer: 'wait=1' };
  const request = { method: 'POST', url: SYNC, body: imageBody(), headers, of: few };
  const picture = await ask(request, 200);
  assert.equal(picture.headers['content-type'], 'image/png');
  const readers = few.services.resultReaders;
  const leave = readers.enter({ jobId: 'another', accountId: few.accountId });
  await ask(request, 429, 'RATE_LIMITED');
  leave();
  readers.enter({ jobId: 'another', accountId: 'another' });
  await ask(request, 503, 'SERVICE_UNAVAILABLE');
  const { key: keyOfOther, jobId: other } = await submitted();
  const lost = await app.succeedJob(other);
  t.mock.method(app.blobs, 'openRead').mock.mockImplementationOnce(broken);
  const unread = { ...request, headers: { ...headers, ...keyOfOther }, of: app };
  await ask(unread, 500, 'INTERNAL_ERROR');
  await app.blobs.remove(lost.blob);
  await ask(unread, 500, 'RESULT_LOST');
  await ask({ method: 'GET', url: `/v1/results/${lost.token}` }, 500, 'RESULT_LOST');
  const contrary = imageBody({ output_format: 'png' });
  await post(SYNC, contrary, 406, 'NOT_ACCEPTABLE', { accept: 'image/webp' });
});

test('a job with a callback', async () => {
  const callback = {
    callback_url: 'https://example.com/hook',
    callback_secret: 'a secret of 24 characters',
  };
  const { jobId } = await submitted(imageBody(callback));
  const read = { method: 'GET', url: `${ASYNC}/${jobId}` };
  assert.equal((await ask(read, 200)).json().callback.status, 'pending');
  await app.succeedJob(jobId);
  assert.equal((await ask(read, 200)).json().callback.status, 'pending');
});

test('usage, by each of its groups, and of no day that there is', async () => {
  const { jobId } = await submitted();
  await app.succeedJob(jobId);
  for (const group of ['day', 'key', 'outcome', 'format']) {
    const { usage } = (await ask({ method: 'GET', url: `${USAGE}?group=${group}` }, 200)).json();
    assert.ok(usage.length > 0);
  }
  await ask({ method: 'GET', url: `${USAGE}?from=never` }, 400, 'INVALID_PARAMETER');
});

test('an expired job', async t => {
  const brief = await openTestApp({ resultTtlMs: 1 }, t);
  const { key, jobId } = await submitted(imageBody(), brief);
  const { token } = await brief.succeedJob(jobId);
  const read = { method: 'GET', url: `${ASYNC}/${jobId}`, of: brief };
  // The link lives for a millisecond of the database's clock.
  while ((await ask(read, 200)).json().status === 'succeeded') await new Promise(setImmediate);
  assert.equal((await ask(read, 200)).json().status, 'expired');
  for (const method of ['GET', 'HEAD']) {
    await ask({ method, url: `/v1/results/${token}`, of: brief }, 410, 'RESULT_EXPIRED');
  }
  const again = { method: 'POST', body: imageBody(), of: brief };
  const headers = { ...key, prefer: 'wait=3' };
  await ask({ ...again, url: SYNC, headers }, 410, 'RESULT_EXPIRED');
  await ask({ ...again, url: ASYNC, headers: key }, 200);
});

/** What a job may end with, and the status a synchronous caller gets. */
const FAILURES: readonly (readonly [ErrorCode, number])[] = [
  ['IMAGE_DOWNLOAD_FAILED', 400],
  ['INVALID_IMAGE_SOURCE', 400],
  ['UNSUPPORTED_IMAGE_FORMAT', 400],
  ['IMAGE_RESOLUTION_TOO_LARGE', 400],
  ['IMAGE_TOO_LARGE', 413],
  ['PROCESSING_FAILED', 422],
];

for (const [code, status] of FAILURES) {
  test(`a job that failed with ${code}`, async () => {
    const { key, jobId } = await submitted(URL_BODY);
    await app.failJob(jobId, { code, detail: 'no', retryable: false });
    const read = await ask({ method: 'GET', url: `${ASYNC}/${jobId}` }, 200);
    assert.equal(read.json().error.code, code);
    const headers = { ...key, prefer: 'wait=0' };
    const replay = await post(SYNC, URL_BODY, status, code, headers);
    assert.equal(replay.headers['idempotent-replayed'], 'true');
    await post(ASYNC, URL_BODY, 200, undefined, key);
  });
}

for (const [fault, status, code] of [
  [broken, 500, 'INTERNAL_ERROR'],
  [away, 503, 'SERVICE_UNAVAILABLE'],
] as const) {
  test(`${code} on every operation that may answer it`, async t => {
    const { jobId } = await submitted();
    const fail = (target: object, name: string) => failWith(t, target, name, fault);
    const { services } = app;
    fail(services.waitForJob, 'wait');
    const left = await post(SYNC, imageBody(), status, code, { prefer: 'wait=0' });
    const made = await app.stores.jobs.find(left.json().job_id);
    assert.ok(made, 'the job that goes on is named');
    assert.equal(left.headers['x-credits-charged'], '0');
    fail(services.readJob, 'read');
    await ask({ method: 'GET', url: `${ASYNC}/${jobId}` }, status, code);
    for (const [name, path] of [
      ['view', ''],
      ['packages', '/packages'],
      ['keys', '/keys'],
    ] as const) {
      fail(services.readAccount, name);
      await ask({ method: 'GET', url: `/v1/account${path}` }, status, code);
    }
    fail(services.readUsage, 'view');
    await ask({ method: 'GET', url: '/v1/account/usage' }, status, code);
    fail(services.resultDownload, 'find');
    await ask({ method: 'GET', url: '/v1/results/any' }, status, code);
    await ask({ method: 'HEAD', url: '/v1/results/any' }, status, code);
    fail(services.readiness, 'check');
    await ask({ method: 'GET', url: '/readyz' }, status, code);
    // Before the account is known there is no quota to tell of.
    fail(services.authenticator, 'authenticate');
    await post(ASYNC, imageBody(), status, code);
    await ask({ method: 'GET', url: '/v1/account' }, status, code);
  });
}

/** For the rest of the test. */
function failWith(t: TestContext, target: object, name: string, fault: () => Promise<never>) {
  const mock = t.mock.method(target as Record<string, () => unknown>, name, fault);
  t.after(() => mock.mock.restore());
}

test('not ready', async t => {
  t.after(() => app.setReadiness({ ready: true }));
  app.setReadiness({ ready: false, causes: ['database', 'no-node-yet'] });
  await ask({ method: 'GET', url: '/readyz' }, 503, 'SERVICE_UNAVAILABLE');
});

test('a result that is read as often as may be', async t => {
  const bounds = { linkMax: 1, accountMax: 1, max: 1 };
  const full = await openTestApp({ resultReaders: bounds }, t);
  const job = await full.post('/v1/matting/jobs', imageBody());
  const { job_id: jobId } = job.json();
  const { token } = await full.succeedJob(jobId);
  const url = `/v1/results/${token}`;
  const readers = full.services.resultReaders;
  const leave = readers.enter({ jobId, accountId: 'any' });
  await ask({ method: 'GET', url, of: full }, 429, 'RATE_LIMITED');
  leave();
  readers.enter({ jobId: 'another', accountId: 'another' });
  await ask({ method: 'GET', url, of: full }, 503, 'SERVICE_UNAVAILABLE');
});

test('a result link that leads to the storage', async t => {
  const leading = await openLeadingApp(t);
  const { token } = await leading.succeedJob((await submitted(imageBody(), leading)).jobId);
  for (const method of ['GET', 'HEAD']) {
    await ask({ method, url: `/v1/results/${token}`, of: leading }, 302);
  }
});

test('what every read may answer', async t => {
  const { jobId } = await submitted();
  const { token } = await app.succeedJob((await submitted()).jobId);
  const poor = await openTestApp({ readsPerMinute: 1 }, t);
  const twoHosts = { host: ['a.example', 'b.example'] };
  const foreign = await app.createKey({ networks: ['192.0.2.0/24'] });
  const elsewhere = { authorization: `Bearer ${foreign}` };
  for (const { url, keyed } of reads(jobId, token)) {
    await ask({ method: 'GET', url }, 200);
    await ask({ method: 'HEAD', url }, 200);
    await ask({ method: 'GET', url, headers: twoHosts }, 400, 'INVALID_REQUEST');
    if (!keyed) continue;
    const keyless = { authorization: undefined };
    await ask({ method: 'GET', url, headers: keyless }, 401, 'MISSING_API_KEY');
    const unknown = { authorization: 'Bearer mk_unknown' };
    await ask({ method: 'GET', url, headers: unknown }, 401, 'INVALID_API_KEY');
    await ask({ method: 'GET', url, headers: elsewhere }, 403, 'KEY_NOT_ALLOWED');
    const empty = { 'idempotency-key': '' };
    await ask({ method: 'GET', url, headers: empty }, 400, 'INVALID_IDEMPOTENCY_KEY');
    // The path's own check comes after the account's quota, which is then named with the refusal.
    await untilLimited({ method: 'GET', url, of: poor });
  }
  await ask({ method: 'GET', url: '/docs/errors', headers: { accept: 'text/html' } }, 200);
  const head = { method: 'HEAD', url: `/v1/results/${token}`, headers: twoHosts };
  await ask(head, 400);
});

test('a path and a method that no operation describes', async () => {
  const missing = await send({ method: 'GET', url: '/v2/matting' });
  checker.checkComponent('NotFound', { ...missing, headers: missing.headers });
  checkProblem(missing, 'NOT_FOUND');
  for (const path of Object.keys(paths)) {
    const url = path.replaceAll(/\{\w+\}/g, 'any');
    const wrong = await send({ method: 'DELETE', url });
    checker.checkComponent('MethodNotAllowed', { ...wrong, headers: wrong.headers });
    checkProblem(wrong, 'METHOD_NOT_ALLOWED');
    const allowed = String(wrong.headers.allow).toLowerCase().split(', ');
    const described = Object.keys(paths[path] ?? {});
    const expected = described.includes('get') ? [...described, 'head'] : described;
    assert.deepEqual(allowed, [...new Set(expected)].sort());
  }
});

test('whatever the document describes was answered above', () => {
  assert.deepEqual(checker.unseen(), []);
});

test('no public code was left out', async () => {
  assert.deepEqual(await app.stores.ledger.check(), []);
  const all = Object.entries(ERROR_CATALOGUE).filter(([, { scope }]) => scope === 'public');
  assert.deepEqual([...provoked].sort(), all.map(([code]) => code).sort());
});
