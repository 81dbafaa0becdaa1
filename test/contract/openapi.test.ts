import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { ContractError, ERROR_CATALOGUE } from '#contract/errors.ts';
import {
  imageBody,
  openTestApp,
  pngHeader,
  type TestApp,
} from '../../control-plane/test/support/test-app.ts';
import { AnswerChecker } from '../support/openapi.ts';

let app: TestApp;
let checker: AnswerChecker;
let document: { openapi: string; paths: unknown };

before(async () => {
  app = await openTestApp({ syncWaitMs: 200 });
  document = (await app.app.inject('/v1/openapi.json')).json();
  checker = new AnswerChecker(document);
});
after(() => app.close());

interface Request {
  readonly method: string;
  readonly url: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string | string[] | undefined>;
}

/** Sends it, holds the answer against the document and gives it back. */
async function ask(request: Request, status: number) {
  const { method, url, body } = request;
  const answer = await app.app.inject({
    method: method as 'GET',
    url,
    headers: app.headers({
      ...(body === undefined ? { 'content-type': undefined } : {}),
      ...request.headers,
    }),
    payload: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
  });
  assert.equal(answer.statusCode, status, answer.payload);
  checker.check({
    method,
    url,
    status,
    headers: answer.headers,
    body: answer.rawPayload,
  });
  return answer;
}

function post(url: string, body: unknown, status: number, headers = {}) {
  return ask({ method: 'POST', url, body, headers }, status);
}

const SYNC = '/v1/matting';
const ASYNC = '/v1/matting/jobs';

test('every reference leads somewhere, every operation has a name of its own', () => {
  const names: string[] = [];
  const visit = (node: unknown): void => {
    if (node === null || typeof node !== 'object') return;
    for (const [name, value] of Object.entries(node)) {
      if (name === 'operationId') names.push(String(value));
      if (name === '$ref') {
        const parts = String(value).slice(2).split('/');
        const target = parts.reduce<unknown>(
          (at, part) => (at as Record<string, unknown> | undefined)?.[part],
          document,
        );
        assert.ok(target, String(value));
      }
      visit(value);
    }
  };
  visit(document);
  assert.ok(names.length >= 9);
  assert.equal(new Set(names).size, names.length);
  assert.equal(document.openapi, '3.1.0');
});

test('every public code but those of unknown paths is named by some answer', () => {
  const text = JSON.stringify(document.paths);
  const missing = Object.entries(ERROR_CATALOGUE)
    .filter(([code, spec]) => spec.scope === 'public' && !text.includes(`"${code}"`))
    .map(([code]) => code);
  assert.deepEqual(missing, ['METHOD_NOT_ALLOWED']);
});

test('an answer that departs from the document is found out', () => {
  const answer = {
    method: 'GET',
    url: '/livez',
    status: 200,
    headers: {
      'x-request-id': 'req_1',
      'cache-control': 'no-store',
      'content-type': 'application/json; charset=utf-8',
    },
    body: '{"status":"alive"}',
  };
  checker.check(answer);
  const { 'x-request-id': _, ...nameless } = answer.headers;
  const departures = [
    { ...answer, method: 'POST' },
    { ...answer, url: '/livezz' },
    { ...answer, status: 201 },
    { ...answer, headers: nameless },
    { ...answer, headers: { ...answer.headers, 'content-type': 'text/plain' } },
    { ...answer, body: '{"status":"asleep"}' },
    { ...answer, body: '{"status":"alive","more":1}' },
    { ...answer, body: '{}' },
  ];
  for (const departure of departures) assert.throws(() => checker.check(departure));
});

test('refusals of a submission', async () => {
  for (const url of [SYNC, ASYNC]) {
    await post(url, '{', 400);
    await post(url, {}, 400);
    await post(url, { image_base64: 'not Base64!' }, 400);
    await post(url, { image_base64: 'AAAA' }, 400);
    await post(url, imageBody({ output_format: 'gif' }), 400);
    await post(url, imageBody({ callback_url: 'https://a.example' }), 400);
    await post(url, { image_base64: pngHeader(10_001, 1).toString('base64') }, 400);
    await post(url, imageBody(), 400, { 'idempotency-key': undefined });
    await post(url, imageBody(), 401, { authorization: undefined });
    await post(url, imageBody(), 401, { authorization: 'Basic x' });
    await post(url, imageBody(), 413, { 'content-length': '99999999' });
    await post(url, imageBody(), 415, { 'content-type': 'text/plain' });
    app.refuseNewJobs(new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 9 }));
    await post(url, imageBody(), 503);
    app.refuseNewJobs(new ContractError('RATE_LIMITED', 'too fast', { retryAfterS: 9 }));
    await post(url, imageBody(), 429);
    app.refuseNewJobs(new Error('a bug') as ContractError);
    await post(url, imageBody(), 500);
    app.refuseNewJobs(undefined);
  }
});

test('no credit', async () => {
  const poor = await openTestApp({ credits: 0 });
  try {
    const answer = await poor.post(SYNC, imageBody());
    assert.equal(answer.statusCode, 402);
    const { headers, rawPayload } = answer;
    checker.check({ method: 'POST', url: SYNC, status: 402, headers, body: rawPayload });
  } finally {
    await poor.close();
  }
});

test('a job from its submission to its expired link', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const first = await post(SYNC, imageBody(), 202, key);
  const { job_id: jobId } = first.json();
  await post(ASYNC, imageBody(), 202, key);
  await post(SYNC, imageBody(), 202, { ...key, prefer: 'respond-async' });
  await post(SYNC, imageBody({ output_format: 'webp' }), 409, key);
  const read = { method: 'GET', url: `${ASYNC}/${jobId}` };
  await ask(read, 200);
  const claim = await app.startJob(jobId);
  assert.equal((await ask(read, 200)).json().status, 'processing');
  const { token } = await app.succeedJob(jobId, Buffer.from('0123456789'), { infer: 1 }, claim);
  assert.equal((await ask(read, 200)).json().status, 'succeeded');
  await post(SYNC, imageBody(), 200, key);
  await post(ASYNC, imageBody(), 200, key);

  const url = `/v1/results/${token}`;
  const whole = await ask({ method: 'GET', url }, 200);
  await ask({ method: 'HEAD', url }, 200);
  await ask({ method: 'GET', url, headers: { range: 'bytes=1-2' } }, 206);
  await ask({ method: 'GET', url, headers: { range: 'bytes=10-' } }, 416);
  const unchanged = { 'if-none-match': String(whole.headers.etag) };
  await ask({ method: 'GET', url, headers: unchanged }, 304);
  await ask({ method: 'HEAD', url, headers: unchanged }, 304);
  await ask({ method: 'GET', url: '/v1/results/unknown' }, 404);
  await ask({ method: 'HEAD', url: '/v1/results/unknown' }, 404);
});

test('an expired job', async () => {
  const brief = await openTestApp({ resultTtlMs: 1 });
  try {
    const key = { 'idempotency-key': randomUUID() };
    const { job_id: jobId } = (await brief.post(ASYNC, imageBody(), key)).json();
    const { token } = await brief.succeedJob(jobId);
    // SQLite's clock has steps of a millisecond.
    await new Promise(resolve => setTimeout(resolve, 5));
    const answers = [
      ['GET', `${ASYNC}/${jobId}`, await brief.get(`${ASYNC}/${jobId}`), 200],
      ['GET', `/v1/results/${token}`, await brief.get(`/v1/results/${token}`), 410],
      ['POST', SYNC, await brief.post(SYNC, imageBody(), key), 410],
      ['POST', ASYNC, await brief.post(ASYNC, imageBody(), key), 200],
    ] as const;
    for (const [method, url, { statusCode, headers, rawPayload }, status] of answers) {
      assert.equal(statusCode, status);
      checker.check({ method, url, status, headers, body: rawPayload });
    }
  } finally {
    await brief.close();
  }
});

test('a failed job', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: jobId } = (await post(ASYNC, imageBody(), 202, key)).json();
  await app.failJob(jobId, { code: 'PROCESSING_FAILED', detail: 'no', retryable: false });
  await ask({ method: 'GET', url: `${ASYNC}/${jobId}` }, 200);
  await post(SYNC, imageBody(), 422, key);
  await post(ASYNC, imageBody(), 200, key);
});

test('reads', async () => {
  await ask({ method: 'GET', url: '/v1/account' }, 200);
  await ask({ method: 'GET', url: '/v1/account', headers: { authorization: undefined } }, 401);
  await ask({ method: 'GET', url: '/v1/account', headers: { 'idempotency-key': '' } }, 400);
  await ask({ method: 'GET', url: `${ASYNC}/${randomUUID()}` }, 404);
  await ask({ method: 'GET', url: '/v1/openapi.json' }, 200);
  await ask({ method: 'GET', url: '/livez' }, 200);
  await ask({ method: 'GET', url: '/readyz' }, 200);
  app.setReadiness({ ready: false, causes: ['database', 'no-node-yet'] });
  await ask({ method: 'GET', url: '/readyz' }, 503);
  app.setReadiness({ ready: true });
});
