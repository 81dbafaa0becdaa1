/** Real answers against the document. Needs: batches, object-storage, removebg, portal. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { withBatches } from '../../control-plane/batches/test/fixtures.ts';
import { BASE_URL, imageBody, pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import { ABILITIES } from '../../control-plane/nodes/test/nodes-seen.ts';
import { portalOf } from '../../control-plane/portal/test/portal-app.ts';
import { openTestApp, useTestApp } from '../../control-plane/test/app.ts';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '../../proto/contract/errors.ts';
import { missingStore, OBJECT_STORE } from '../support/object-storage/object-store.ts';
import { AnswerChecker } from '../support/openapi.ts';
import { sameNames } from '../support/same-names.ts';
import { isNotTested } from '../support/skip.ts';
import { openLeadingApp, type Request, sendTo } from './send.ts';

const test = ava.serial;

const SYNC = '/v1/matting';
const ASYNC = '/v1/matting/jobs';
const USAGE = '/v1/account/usage';
const URL_BODY = { image_url: 'https://example.com/a.jpg' };

const app = useTestApp(test, { syncWaitMs: 200 }, async () => {
  document = (await app.app.inject('/v1/openapi.json')).json();
  checker = new AnswerChecker(document);
  paths = document.paths as typeof paths;
});
let checker: AnswerChecker;
let document: Record<string, unknown>;
let paths: Record<string, Record<string, { security: unknown[] }>>;

const send = (request: Request) => sendTo(app, request);

async function ask(t: ExecutionContext, request: Request, status: number, code?: ErrorCode) {
  const answer = await send(request);
  t.is(answer.status, status, `${request.method} ${request.url}\n${answer.payload}`);
  checker.check({ ...answer, headers: answer.headers });
  if (code !== undefined && request.method !== 'HEAD') checkProblem(t, answer, code);
  return { headers: answer.headers, json: () => JSON.parse(answer.payload) };
}

const provoked = new Set<ErrorCode>();

function checkProblem(
  t: ExecutionContext,
  { headers, payload }: Awaited<ReturnType<typeof send>>,
  code: ErrorCode,
) {
  provoked.add(code);
  const spec = ERROR_CATALOGUE[code];
  t.is(headers['content-type'], 'application/problem+json');
  t.is(headers['cache-control'], 'no-store');
  t.is(headers['x-content-type-options'], 'nosniff');
  t.is(headers['www-authenticate'], spec.http === 401 ? 'Bearer' : undefined);
  const { detail, instance, retryable, job_id: jobId, errors: _, ...problem } = JSON.parse(payload);
  t.true(typeof detail === 'string' && detail.length > 0);
  t.regex(instance, /^\//);
  t.deepEqual(problem, {
    type: `${BASE_URL}/docs/errors#${code.toLowerCase()}`,
    title: spec.title,
    status: spec.http,
    code,
    request_id: headers['x-request-id'],
  });
  if (spec.retry === 'never' && jobId === undefined) t.false(retryable);
  // An answer with a job's id states that nothing is charged.
  t.is(headers['x-credits-charged'], jobId === undefined ? undefined : '0');
}

/** Also checks that the refusal moves no credit. */
async function post(
  t: ExecutionContext,
  url: string,
  body: unknown,
  status: number,
  code?: ErrorCode,
  headers = {},
) {
  const act = () => ask(t, { method: 'POST', url, body, headers }, status, code);
  return status >= 400 && status < 500 ? unpaid(t, act) : act();
}

async function unpaid<T>(t: ExecutionContext, act: () => Promise<T>): Promise<T> {
  const before = await app.stores.ledger.credits(app.accountId);
  const answer = await act();
  t.deepEqual(await app.stores.ledger.credits(app.accountId), before);
  return answer;
}

function reads(jobId: string, token: string, batchId: string) {
  return Object.entries(paths)
    .flatMap(([path, { get }]) => (get === undefined ? [] : [{ path, get }]))
    .map(({ path, get }) => ({
      url: path
        .replace('{job_id}', jobId)
        .replace('{batch_id}', batchId)
        .replace('{token}', token)
        .replace('{page}', 'rest')
        .replace('images/{name}', 'images/finishing-scale.webp')
        .replace('examples/{name}', 'examples/receiver.py'),
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

async function refusedByHeaders(t: ExecutionContext, method: string, url: string, body?: unknown) {
  const elsewhere = `Bearer ${await app.createKey({ networks: ['192.0.2.0/24'] })}`;
  const wrong: readonly (readonly [number, ErrorCode, Record<string, string | undefined>])[] = [
    [400, 'INVALID_IDEMPOTENCY_KEY', { 'idempotency-key': '' }],
    [401, 'MISSING_API_KEY', { authorization: undefined }],
    [401, 'INVALID_API_KEY', { authorization: 'Bearer ' }],
    [401, 'INVALID_API_KEY', { authorization: 'Basic x' }],
    [401, 'INVALID_API_KEY', { authorization: 'Bearer mk_unknown' }],
    [403, 'KEY_NOT_ALLOWED', { authorization: elsewhere }],
  ];
  const wrongOfBodies = [
    [413, 'IMAGE_TOO_LARGE', { 'content-length': '99999999' }],
    [415, 'UNSUPPORTED_MEDIA_TYPE', { 'content-encoding': 'gzip' }],
    [415, 'UNSUPPORTED_MEDIA_TYPE', { 'content-type': 'text/plain' }],
  ] as const;
  const all = body === undefined ? wrong : [...wrong, ...wrongOfBodies];
  for (const [status, code, headers] of all) {
    await unpaid(t, () => ask(t, { method, url, body, headers }, status, code));
  }
}

for (const url of [SYNC, ASYNC]) {
  test(`POST ${url}: refusals by the headers`, t => refusedByHeaders(t, 'POST', url, imageBody()));

  test(`POST ${url}: refusals by the body`, async t => {
    await post(t, url, '{', 400, 'INVALID_REQUEST');
    await post(t, url, {}, 400, 'INVALID_IMAGE_SOURCE');
    await post(t, url, { image_base64: 'AAAA' }, 400, 'UNSUPPORTED_IMAGE_FORMAT');
    await post(t, url, imageBody({ output_format: 'gif' }), 400, 'UNSUPPORTED_OUTPUT_FORMAT');
    await post(t, url, imageBody({ background: 'no colour' }), 400, 'INVALID_PARAMETER');
    await post(t, url, imageBody({ callback_url: 'https://a.example' }), 400, 'INVALID_CALLBACK');
    const wide = { image_base64: pngHeader(10_001, 1).toString('base64') };
    await post(t, url, wide, 400, 'IMAGE_RESOLUTION_TOO_LARGE');
    const { key } = await submitted();
    const other = imageBody({ output_format: 'webp' });
    await post(t, url, other, 409, 'IDEMPOTENCY_CONFLICT', key);
  });

  test(`POST ${url}: refusals of a new job`, async t => {
    t.teardown(() => app.refuseNewJobs(undefined));
    app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 9 }));
    await post(t, url, imageBody(), 503, 'SERVICE_UNAVAILABLE');
    app.refuseNewJobs(new Error('a bug') as ContractError);
    await post(t, url, imageBody(), 500, 'INTERNAL_ERROR');
    const poor = await openTestApp({ credits: 0, submissionsPerMinute: 1 }, t);
    const request = { method: 'POST', url, body: imageBody(), of: poor };
    await ask(t, request, 402, 'INSUFFICIENT_CREDITS');
    await untilLimited(t, request);
    const cap = { credits: 1, period: 'total' } as const;
    const authorization = `Bearer ${await app.createKey({ cap })}`;
    t.teardown(() => app.refuseNewJobs(undefined));
    app.refuseNewJobs(undefined);
    await post(t, ASYNC, imageBody(), 202, undefined, { authorization });
    await post(t, url, imageBody(), 402, 'KEY_CAP_REACHED', { authorization });
  });
}

/** Tries again if the minute has just ended. */
async function untilLimited(t: ExecutionContext, request: Request): Promise<void> {
  for (let tries = 0; tries < 3; tries += 1) {
    if ((await send(request)).status === 429) break;
  }
  await ask(t, request, 429, 'RATE_LIMITED');
}

/** The key is checked again after the body. */
async function revokedMeanwhile(t: ExecutionContext, url: string, body: unknown): Promise<void> {
  const { authenticator } = app.services;
  const asked = sinon.stub(authenticator, 'authenticate').callThrough();
  t.teardown(() => asked.restore());
  asked.onCall(1).resolves('unknown');
  const jobs = await app.countJobs();
  const refused = await post(t, url, body, 401, 'INVALID_API_KEY');
  t.truthy(refused.headers.ratelimit);
  t.is(asked.callCount, 2);
  const owner = { accountId: app.accountId, apiKeyId: 'any', policy: { scopes: [] } };
  asked.onCall(3).resolves(owner);
  await post(t, url, body, 403, 'KEY_NOT_ALLOWED');
  t.is(await app.countJobs(), jobs);
}

for (const url of [SYNC, ASYNC]) {
  test(`POST ${url}: a key that is revoked while the body comes`, t =>
    revokedMeanwhile(t, url, imageBody()));
}

test('a job from its submission to its link', async t => {
  const key = { 'idempotency-key': randomUUID() };
  const first = await post(t, SYNC, imageBody(), 202, undefined, { ...key, prefer: 'wait=0' });
  const { job_id: jobId } = first.json();
  await post(t, ASYNC, imageBody(), 202, undefined, key);
  await post(t, SYNC, imageBody(), 202, undefined, { ...key, prefer: 'respond-async' });
  const read = { method: 'GET', url: `${ASYNC}/${jobId}` };
  await ask(t, read, 200);
  const claim = await app.startJob(jobId);
  t.is((await ask(t, read, 200)).json().status, 'processing');
  const { token } = await app.succeedJob(jobId, Buffer.from('0123456789'), { infer: 1 }, claim);
  t.is((await ask(t, read, 200)).json().status, 'succeeded');
  await post(t, SYNC, imageBody(), 200, undefined, { ...key, prefer: 'respond-async' });
  await post(t, ASYNC, imageBody(), 200, undefined, key);

  const url = `/v1/results/${token}`;
  const whole = await ask(t, { method: 'GET', url }, 200);
  await ask(t, { method: 'HEAD', url }, 200);
  const range = 'bytes=1-2';
  await ask(t, { method: 'GET', url, headers: { range } }, 206);
  await ask(t, { method: 'GET', url, headers: { range, 'if-range': '"another"' } }, 200);
  await ask(
    t,
    { method: 'GET', url, headers: { range: 'bytes=10-' } },
    416,
    'RANGE_NOT_SATISFIABLE',
  );
  const unchanged = { 'if-none-match': String(whole.headers.etag) };
  for (const method of ['GET', 'HEAD']) {
    await ask(t, { method, url, headers: unchanged }, 304);
    const another = { 'if-match': '"another"' };
    await ask(t, { method, url, headers: another }, 412, 'PRECONDITION_FAILED');
    await ask(t, { method, url: '/v1/results/unknown' }, 404, 'NOT_FOUND');
  }
  await ask(t, { method: 'GET', url: `${ASYNC}/${randomUUID()}` }, 404, 'JOB_NOT_FOUND');
});

test('a synchronous request whose job ends while it waits', async t => {
  const quick = await openTestApp({ syncWaitMs: 20_000 });
  const jobs = quick.onSubmitted(jobId => quick.succeedJob(jobId));
  try {
    const headers = { prefer: 'wait=20' };
    const request = { method: 'POST', url: SYNC, body: imageBody(), headers, of: quick };
    t.is((await ask(t, request, 200)).headers['x-credits-charged'], '1');
  } finally {
    await jobs.stop();
    await quick.close();
  }
});

test('a picture as the answer, its replay, and what may stand in its way and in that of its link', async t => {
  const limits = { linkMax: 1, accountMax: 1, max: 1 };
  const few = await openTestApp({ resultReaders: limits }, t);
  const { key, jobId } = await submitted(imageBody(), few);
  const box = { left: 1, top: 2, width: 3, height: 4 };
  const subject = { inputBox: box, resultBox: box, share: 0.25, cutOff: true };
  few.sight = { inputWidth: 10, inputHeight: 10, subject };
  const { token } = await few.succeedJob(jobId);
  const headers = { ...key, accept: 'image/*', prefer: 'wait=1' };
  const request = { method: 'POST', url: SYNC, body: imageBody(), headers, of: few };
  const picture = await ask(t, request, 200);
  t.is(picture.headers['content-type'], 'image/png');
  const readers = few.services.resultReaders;
  const link = { method: 'GET', url: `/v1/results/${token}`, of: few };
  const leave = readers.enter({ jobId, accountId: few.accountId });
  t.is((await ask(t, request, 429, 'RATE_LIMITED')).json().job_id, jobId);
  await ask(t, link, 429, 'RATE_LIMITED');
  leave();
  readers.enter({ jobId: 'another', accountId: 'another' });
  for (const read of [request, link]) await ask(t, read, 503, 'SERVICE_UNAVAILABLE');
  const { key: keyOfOther, jobId: other } = await submitted();
  const lost = await app.succeedJob(other);
  const openRead = sinon.stub(app.blobs, 'openRead').callThrough();
  t.teardown(() => openRead.restore());
  openRead.onFirstCall().callsFake(broken);
  const unread = { ...request, headers: { ...headers, ...keyOfOther }, of: app };
  await ask(t, unread, 500, 'INTERNAL_ERROR');
  await app.blobs.remove(lost.blob);
  await ask(t, unread, 500, 'RESULT_LOST');
  await ask(t, { method: 'GET', url: `/v1/results/${lost.token}` }, 500, 'RESULT_LOST');
  const contrary = imageBody({ output_format: 'png' });
  await post(t, SYNC, contrary, 406, 'NOT_ACCEPTABLE', { accept: 'image/webp' });
});

const CORRECTABLE = imageBody({ correctable: true });
const correctionsOf = (jobId: string) => `${ASYNC}/${jobId}/corrections`;

test('a correction, and what is in its way', async t => {
  const { jobId } = await submitted(CORRECTABLE);
  const url = correctionsOf(jobId);
  await post(t, url, {}, 409, 'JOB_NOT_CORRECTABLE');
  await app.succeedJob(jobId);
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: correction } = (await post(t, url, {}, 202, undefined, key)).json();
  await post(t, url, {}, 202, undefined, { ...key, prefer: 'wait=0' });
  await ask(t, { method: 'GET', url: `${ASYNC}/${correction}` }, 200);
  await app.succeedJob(correction);
  const done = await post(t, url, {}, 200, undefined, { ...key, prefer: 'wait=0' });
  t.is(done.json().corrects, jobId);
  await ask(t, { method: 'GET', url: `${ASYNC}/${correction}` }, 200);
  await post(t, url, { crop: true }, 409, 'IDEMPOTENCY_CONFLICT', key);
  await post(t, url, '{', 400, 'INVALID_REQUEST');
  await post(t, url, { output_format: 'gif' }, 400, 'UNSUPPORTED_OUTPUT_FORMAT');
  await post(t, url, { background: 'no colour' }, 400, 'INVALID_PARAMETER');
  await post(t, url, { callback_url: 'https://a.example' }, 400, 'INVALID_CALLBACK');
  const form = `--b\r\ncontent-disposition: form-data; name="background_file"; filename="b"\r\n\r\nno\r\n--b--\r\n`;
  const typed = { 'content-type': 'multipart/form-data; boundary=b' };
  await post(t, url, form, 400, 'UNSUPPORTED_IMAGE_FORMAT', typed);
  await post(t, url, form.replace('no\r\n', '\r\n'), 400, 'INVALID_IMAGE_SOURCE', typed);
  const picture = { 'content-type': 'image/png' };
  await post(t, url, 'png', 415, 'UNSUPPORTED_MEDIA_TYPE', picture);
  await post(t, correctionsOf(randomUUID()), {}, 404, 'JOB_NOT_FOUND');
  const rows = (columns: object) =>
    app.database.kysely.updateTable('jobs').set(columns).where('id', '=', jobId).execute();
  await rows({ corrections: 20 });
  await post(t, url, {}, 409, 'CORRECTIONS_EXHAUSTED');
  await rows({ expires_at: 1 });
  await post(t, url, {}, 410, 'RESULT_EXPIRED');
});

test('a correction that is refused by its headers, or by the service', async t => {
  const { jobId } = await submitted(CORRECTABLE);
  await app.succeedJob(jobId);
  const url = correctionsOf(jobId);
  await refusedByHeaders(t, 'POST', url, {});
  const authorization = `Bearer ${await app.createKey({ scopes: ['read'] })}`;
  await post(t, url, {}, 403, 'KEY_NOT_ALLOWED', { authorization });
  t.teardown(() => app.refuseNewJobs(undefined));
  app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 9 }));
  await post(t, url, {}, 503, 'SERVICE_UNAVAILABLE');
  app.refuseNewJobs(new Error('a bug') as ContractError);
  await post(t, url, {}, 500, 'INTERNAL_ERROR');
  app.refuseNewJobs(undefined);
  await revokedMeanwhile(t, url, {});
  const slow = await openTestApp({ submissionsPerMinute: 1 }, t);
  await untilLimited(t, { method: 'POST', url, body: {}, of: slow });
});

test('a job with a callback', async t => {
  const callback = {
    callback_url: 'https://example.com/hook',
    callback_secret: 'a secret of 24 characters',
  };
  const { jobId } = await submitted(imageBody(callback));
  const read = { method: 'GET', url: `${ASYNC}/${jobId}` };
  t.is((await ask(t, read, 200)).json().callback.status, 'pending');
  await app.succeedJob(jobId);
  t.is((await ask(t, read, 200)).json().callback.status, 'pending');
});

test('usage, by each of its groups, and of no day that there is', async t => {
  const { jobId } = await submitted();
  await app.succeedJob(jobId);
  for (const group of ['day', 'key', 'outcome', 'format']) {
    const { usage } = (await ask(t, { method: 'GET', url: `${USAGE}?group=${group}` }, 200)).json();
    t.true(usage.length > 0);
  }
  await ask(t, { method: 'GET', url: `${USAGE}?from=never` }, 400, 'INVALID_PARAMETER');
});

test('a list of jobs, and jobs that are deleted', async t => {
  const list = { method: 'GET', url: ASYNC };
  t.true((await ask(t, { ...list, url: `${ASYNC}?limit=3` }, 200)).json().jobs.length === 3);
  await ask(t, { ...list, url: `${ASYNC}?limit=none` }, 400, 'INVALID_PARAMETER');
  const { jobId } = await submitted(imageBody({ reference: 'order 1' }));
  const read = { method: 'GET', url: `${ASYNC}/${jobId}` };
  const deletion = { ...read, method: 'DELETE' };
  t.is((await ask(t, read, 200)).json().reference, 'order 1');
  const claim = await app.startJob(jobId);
  await ask(t, deletion, 409, 'JOB_NOT_CANCELLABLE');
  await app.succeedJob(jobId, Buffer.from('x'), {}, claim);
  t.is((await ask(t, deletion, 200)).json().status, 'expired');
  t.truthy((await ask(t, read, 200)).json().deleted_at);
  const queued = `${ASYNC}/${(await submitted()).jobId}`;
  t.is((await ask(t, { method: 'DELETE', url: queued }, 200)).json().status, 'failed');
  const refused = (more: object, status: number, code: ErrorCode) =>
    ask(t, { ...deletion, ...more }, status, code);
  await refused({ url: `${ASYNC}/${randomUUID()}` }, 404, 'JOB_NOT_FOUND');
  await refusedByHeaders(t, 'DELETE', read.url);
  const authorization = `Bearer ${await app.createKey({ scopes: ['read'] })}`;
  await refused({ headers: { authorization } }, 403, 'KEY_NOT_ALLOWED');
  await refused({ headers: { host: ['a.example', 'b.example'] } }, 400, 'INVALID_REQUEST');
  const poor = await openTestApp({ readsPerMinute: 1 }, t);
  await untilLimited(t, { ...deletion, of: poor });
});

test('batches, and what each of their operations may refuse', async t => {
  const url = '/v1/matting/batches';
  const items = [
    { image_url: 'https://example.com/1.jpg' },
    { image_url: 'https://example.com/2.jpg' },
  ];
  const key = { 'idempotency-key': randomUUID() };
  const made = await post(t, url, { items }, 202, undefined, key);
  const { batch_id: id } = made.json();
  await post(t, url, { items: items.slice(1) }, 409, 'IDEMPOTENCY_CONFLICT', key);
  const ofJob = (await submitted()).key;
  await post(t, url, { items }, 409, 'IDEMPOTENCY_CONFLICT', ofJob);
  for (const [body, code] of [
    ['{', 'INVALID_REQUEST'],
    [{ items: [{ image_url: 'ftp://x/' }] }, 'INVALID_IMAGE_SOURCE'],
    [{ items, output_format: 'gif' }, 'UNSUPPORTED_OUTPUT_FORMAT'],
    [{ items, background: 'nothing' }, 'INVALID_PARAMETER'],
    [{ items, callback_url: 'https://a.example' }, 'INVALID_CALLBACK'],
  ] as const) {
    await post(t, url, body, 400, code);
  }
  await refusedByHeaders(t, 'POST', url, { items });
  await post(t, url, { items }, 415, 'UNSUPPORTED_MEDIA_TYPE', { 'content-type': 'image/png' });
  const cap = { credits: 1, period: 'total' } as const;
  const capped = { authorization: `Bearer ${await app.createKey({ cap })}` };
  await post(t, url, { items }, 402, 'KEY_CAP_REACHED', capped);
  const foreign = { authorization: `Bearer ${await app.createKey({ scopes: ['account'] })}` };
  await post(t, url, { items }, 403, 'KEY_NOT_ALLOWED', foreign);
  const poor = await openTestApp({ credits: 1, submissionsPerMinute: 2, readsPerMinute: 1 }, t);
  await ask(t, { method: 'POST', url, body: { items }, of: poor }, 402, 'INSUFFICIENT_CREDITS');
  await untilLimited(t, { method: 'POST', url, body: { items }, of: poor });
  const one = `${url}/${id}`;
  for (const [method, path] of [
    ['GET', url],
    ['GET', one],
    ['GET', `${one}/results`],
    ['DELETE', one],
  ] as const) {
    await ask(t, { method, url: path }, 200);
    await refusedByHeaders(t, method, path);
    const twoHosts = { host: ['a.example', 'b.example'] };
    await ask(t, { method, url: path, headers: twoHosts }, 400, 'INVALID_REQUEST');
    await ask(t, { method, url: path, headers: foreign }, 403, 'KEY_NOT_ALLOWED');
    const unknown = path.replace(id, randomUUID());
    if (path !== url) await ask(t, { method, url: unknown }, 404, 'BATCH_NOT_FOUND');
    await untilLimited(t, { method, url: unknown, of: poor });
  }
  await ask(t, { method: 'GET', url: `${one}/results?limit=0` }, 400, 'INVALID_PARAMETER');
  const paged = await ask(t, { method: 'GET', url: `${one}/results?limit=1` }, 200);
  t.regex(String(paged.headers.link), /rel="next"/);
  // The items become jobs, which are cancelled: the batch is over.
  const { batches } = withBatches(app.database, app.stores);
  while ((await batches.enterItems(id, app.accountId, 1000)) > 0);
  await batches.finishBatch(id);
  await post(t, url, { items }, 200, undefined, key);
  await ask(t, { method: 'GET', url: `${url}?status=x` }, 400, 'INVALID_PARAMETER');
});

/** The path that resubmits a failed item of a finished batch. */
async function failedBatch(more: object = {}, of = app, headers = {}): Promise<string> {
  const items = [{ image_url: 'https://example.com/1.jpg' }];
  const answer = await of.post('/v1/matting/batches', { items, ...more }, headers);
  const path = `/v1/matting/batches/${answer.json().batch_id}`;
  const { batches } = withBatches(of.database, of.stores);
  await batches.enterItems(answer.json().batch_id, of.accountId, 1000);
  const { body } = await of.get(`${path}/results`, headers);
  const failure = { code: 'NO_SUBJECT', detail: 'no', retryable: false } as const;
  await of.failJob(JSON.parse(body).job_id, failure);
  assert.ok(await batches.finishBatch(answer.json().batch_id));
  return `${path}/again`;
}

test('the failed items of a batch again, and what may refuse them', async t => {
  const url = await failedBatch({ shadow: 'drop' });
  const key = { 'idempotency-key': randomUUID() };
  const { batch_id: id } = (await post(t, url, undefined, 202, undefined, key)).json();
  await post(t, url, { callback_url: 'https://a.example' }, 400, 'INVALID_CALLBACK');
  await post(t, url, { items: [] }, 400, 'INVALID_REQUEST');
  const ofJob = (await submitted()).key;
  await post(t, url, {}, 409, 'IDEMPOTENCY_CONFLICT', ofJob);
  await post(t, `/v1/matting/batches/${id}/again`, {}, 409, 'BATCH_NOT_REPEATABLE');
  await post(t, `/v1/matting/batches/${randomUUID()}/again`, {}, 404, 'BATCH_NOT_FOUND');
  await refusedByHeaders(t, 'POST', url, {});
  await post(t, url, 'png', 415, 'UNSUPPORTED_MEDIA_TYPE', { 'content-type': 'image/png' });
  const foreign = { authorization: `Bearer ${await app.createKey({ scopes: ['account'] })}` };
  await post(t, url, {}, 403, 'KEY_NOT_ALLOWED', foreign);
  t.teardown(() => app.advertise(undefined));
  app.advertise([{ ...ABILITIES, capabilities: new Set() }]);
  await post(t, url, {}, 400, 'INVALID_PARAMETER');
  app.advertise([{ ...ABILITIES, outputFormats: new Set(['avif']) }]);
  await post(t, await failedBatch({ output_format: 'avif' }), {}, 202);
  const plain = await failedBatch({ output_format: 'avif' });
  app.advertise([{ ...ABILITIES, outputFormats: new Set(['png']) }]);
  await post(t, plain, {}, 400, 'UNSUPPORTED_OUTPUT_FORMAT');
  app.advertise(undefined);
  const cap = { credits: 1, period: 'total' } as const;
  const capped = { authorization: `Bearer ${await app.createKey({ cap })}` };
  const ofCapped = await failedBatch({}, app, capped);
  await post(t, ASYNC, imageBody(), 202, undefined, capped);
  await post(t, ofCapped, {}, 402, 'KEY_CAP_REACHED', capped);
  const poor = await openTestApp({ credits: 1, submissionsPerMinute: 3 }, t);
  const ofPoor = await failedBatch({}, poor);
  await poor.post(ASYNC, imageBody());
  await ask(t, { method: 'POST', url: ofPoor, body: {}, of: poor }, 402, 'INSUFFICIENT_CREDITS');
  await untilLimited(t, { method: 'POST', url: ofPoor, body: {}, of: poor });
  await app.app.inject({
    method: 'DELETE',
    url: `/v1/matting/batches/${id}`,
    headers: app.headers(),
  });
  const { batches } = withBatches(app.database, app.stores);
  await batches.enterItems(id, app.accountId, 1000);
  assert.ok(await batches.finishBatch(id));
  await post(t, url, undefined, 200, undefined, key);
});

test('an expired job', async t => {
  const brief = await openTestApp({ resultTtlMs: 1 }, t);
  const { key, jobId } = await submitted(imageBody(), brief);
  const { token } = await brief.succeedJob(jobId);
  const read = { method: 'GET', url: `${ASYNC}/${jobId}`, of: brief };
  // The link lives for 1 ms of the database's clock.
  while ((await ask(t, read, 200)).json().status === 'succeeded') await new Promise(setImmediate);
  t.is((await ask(t, read, 200)).json().status, 'expired');
  for (const method of ['GET', 'HEAD']) {
    await ask(t, { method, url: `/v1/results/${token}`, of: brief }, 410, 'RESULT_EXPIRED');
  }
  const again = { method: 'POST', body: imageBody(), of: brief };
  const headers = { ...key, prefer: 'wait=3' };
  await ask(t, { ...again, url: SYNC, headers }, 410, 'RESULT_EXPIRED');
  await ask(t, { ...again, url: ASYNC, headers: key }, 200);
});

const FAILURES: readonly (readonly [ErrorCode, number])[] = [
  ['IMAGE_DOWNLOAD_FAILED', 400],
  ['INVALID_IMAGE_SOURCE', 400],
  ['UNSUPPORTED_IMAGE_FORMAT', 400],
  ['IMAGE_RESOLUTION_TOO_LARGE', 400],
  ['IMAGE_TOO_LARGE', 413],
  ['PROCESSING_FAILED', 422],
  ['NO_SUBJECT', 422],
  ['JOB_CANCELLED', 409],
];

for (const [code, status] of FAILURES) {
  test(`a job that failed with ${code}`, async t => {
    const { key, jobId } = await submitted(URL_BODY);
    await app.failJob(jobId, { code, detail: 'no', retryable: false });
    const read = await ask(t, { method: 'GET', url: `${ASYNC}/${jobId}` }, 200);
    t.is(read.json().error.code, code);
    const headers = { ...key, prefer: 'wait=0' };
    const replay = await post(t, SYNC, URL_BODY, status, code, headers);
    t.is(replay.headers['idempotent-replayed'], 'true');
    await post(t, ASYNC, URL_BODY, 200, undefined, key);
  });
}

test('a job that failed by no fault of its caller', async t => {
  const of = await openTestApp({ credits: 9 }, t);
  for (const [code, status] of [
    ['IMAGE_DOWNLOAD_FAILED', 400],
    ['PROCESSING_FAILED', 422],
  ] as const) {
    const failing = of.onSubmitted(id => of.failJob(id, { code, detail: 'no', retryable: true }));
    const request = { method: 'POST', url: SYNC, body: URL_BODY, of };
    const { headers } = await ask(t, request, status, code);
    t.true(Number(headers['retry-after']) > 0);
    await failing.stop();
  }
});

for (const [fault, status, code] of [
  [broken, 500, 'INTERNAL_ERROR'],
  [away, 503, 'SERVICE_UNAVAILABLE'],
] as const) {
  test(`${code} on every operation that may answer it`, async t => {
    const { jobId } = await submitted();
    const fail = (target: object, name: string) => failWith(t, target, name, fault);
    const { services } = app;
    const portal = portalOf(app);
    fail(services.waitForJob, 'wait');
    const left = await post(t, SYNC, imageBody(), status, code, { prefer: 'wait=0' });
    const made = await app.stores.jobs.find(left.json().job_id);
    t.truthy(made, 'the job that goes on is named');
    t.is(left.headers['x-credits-charged'], '0');
    fail(app.stores.jobs, 'findForKey');
    await ask(t, { method: 'GET', url: `${ASYNC}/${jobId}` }, status, code);
    fail(app.stores.jobs, 'listOfKey');
    await ask(t, { method: 'GET', url: ASYNC }, status, code);
    const body = { items: [{ image_url: 'https://example.com/1.jpg' }] };
    const { batch_id: id } = (await app.post('/v1/matting/batches', body)).json();
    const batch = `/v1/matting/batches/${id}`;
    fail(app.stores.groups, 'counts');
    for (const path of [batch, `${batch}/results`, '/v1/matting/batches']) {
      await ask(t, { method: 'GET', url: path }, status, code);
    }
    await ask(t, { method: 'DELETE', url: batch }, status, code);
    fail(services.manyJobs, 'requireFreeKey');
    for (const path of ['/v1/matting/batches', `${batch}/again`]) {
      await ask(
        t,
        { method: 'POST', url: path, body: { ...(path !== `${batch}/again` && body) } },
        status,
        code,
      );
    }
    fail(services.deleteJob, 'delete');
    await ask(t, { method: 'DELETE', url: `${ASYNC}/${jobId}` }, status, code);
    for (const [name, path] of [
      ['view', ''],
      ['keys', '/keys'],
    ] as const) {
      fail(services.readAccount, name);
      await ask(t, { method: 'GET', url: `/v1/account${path}` }, status, code);
    }
    for (const [read, path] of [
      [portal.readPackages, '/packages'],
      [portal.readUsage, '/usage'],
    ] as const) {
      fail(read, 'view');
      await ask(t, { method: 'GET', url: `/v1/account${path}` }, status, code);
    }
    fail(services.models, 'list');
    await ask(t, { method: 'GET', url: '/v1/models' }, status, code);
    fail(services.resultDownload, 'find');
    await ask(t, { method: 'GET', url: '/v1/results/any' }, status, code);
    await ask(t, { method: 'HEAD', url: '/v1/results/any' }, status, code);
    fail(services.readiness, 'check');
    await ask(t, { method: 'GET', url: '/readyz' }, status, code);
    // The quota is unknown before the account is.
    fail(services.authenticator, 'authenticate');
    await post(t, ASYNC, imageBody(), status, code);
    await ask(t, { method: 'GET', url: '/v1/account' }, status, code);
  });
}

function failWith(t: ExecutionContext, target: object, name: string, fault: () => Promise<never>) {
  const stub = sinon.stub(target as Record<string, () => unknown>, name).callsFake(fault);
  t.teardown(() => stub.restore());
}

test('not ready', async t => {
  t.teardown(() => app.setReadiness({ ready: true }));
  app.setReadiness({ ready: false, causes: ['database', 'no-node-yet'] });
  await ask(t, { method: 'GET', url: '/readyz' }, 503, 'SERVICE_UNAVAILABLE');
});

const noStore = isNotTested(missingStore(OBJECT_STORE));
test.skipIf(noStore)('a result link that leads to the storage', async t => {
  const leading = await openLeadingApp(t);
  const { token } = await leading.succeedJob((await submitted(imageBody(), leading)).jobId);
  for (const method of ['GET', 'HEAD']) {
    await ask(t, { method, url: `/v1/results/${token}`, of: leading }, 302);
  }
});

test('every read gives each of its documented answers', async t => {
  const { jobId } = await submitted();
  const { token } = await app.succeedJob((await submitted()).jobId);
  const poor = await openTestApp({ readsPerMinute: 1 }, t);
  const twoHosts = { host: ['a.example', 'b.example'] };
  const items = [{ image_url: 'https://example.com/1.jpg' }];
  const batch = await app.post('/v1/matting/batches', { items });
  for (const { url, keyed } of reads(jobId, token, batch.json().batch_id)) {
    await ask(t, { method: 'GET', url }, 200);
    await ask(t, { method: 'HEAD', url }, 200);
    await ask(t, { method: 'GET', url, headers: twoHosts }, 400, 'INVALID_REQUEST');
    if (!keyed) continue;
    await refusedByHeaders(t, 'GET', url);
    // The path's own check follows the quota's, whose headers are then set.
    await untilLimited(t, { method: 'GET', url, of: poor });
  }
  await ask(t, { method: 'GET', url: '/docs/errors', headers: { accept: 'text/html' } }, 200);
  for (const url of ['/docs/none', '/docs/images/none.png', '/docs/examples/none.py']) {
    await ask(t, { method: 'GET', url }, 404, 'NOT_FOUND');
  }
  await ask(t, { method: 'GET', url: '/', headers: { accept: 'text/html' } }, 303);
  const head = { method: 'HEAD', url: `/v1/results/${token}`, headers: twoHosts };
  await ask(t, head, 400);
});

test('a path and a method that no operation describes', async t => {
  const missing = await send({ method: 'GET', url: '/v2/matting' });
  checker.checkComponent('NotFound', { ...missing, headers: missing.headers });
  checkProblem(t, missing, 'NOT_FOUND');
  for (const path of Object.keys(paths)) {
    const url = path.replaceAll(/\{\w+\}/g, 'any');
    const wrong = await send({ method: 'PUT', url });
    checker.checkComponent('MethodNotAllowed', { ...wrong, headers: wrong.headers });
    checkProblem(t, wrong, 'METHOD_NOT_ALLOWED');
    const allowed = String(wrong.headers.allow).toLowerCase().split(', ');
    const described = Object.keys(paths[path] ?? {});
    const expected = described.includes('get') ? [...described, 'head'] : described;
    t.deepEqual(allowed, [...new Set(expected)].sort());
  }
});

test('every answer of the document was given above', t => {
  const unseen = checker.unseen().filter(name => !(noStore && / 302\b/.test(name)));
  t.deepEqual(unseen, []);
});

test('no public code was left out', async t => {
  t.deepEqual(await app.stores.ledger.check(), []);
  const all = Object.entries(ERROR_CATALOGUE).filter(([, { scope }]) => scope === 'public');
  sameNames(
    t,
    [...provoked],
    all.map(([code]) => code),
  );
});
