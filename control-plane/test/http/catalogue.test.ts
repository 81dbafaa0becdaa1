/**
 * Every public code of the catalogue, provoked over HTTP: its status, its body, the headers that
 * belong to it, and that no credit moved.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, afterEach, before, test } from 'node:test';
import type { LightMyRequestResponse } from 'fastify';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '#contract/errors.ts';
import { BASE_URL, imageBody, openTestApp, pngHeader, type TestApp } from '../support/test-app.ts';

const SYNC = '/v1/matting';
const ASYNC = '/v1/matting/jobs';
const SUBMISSIONS = [SYNC, ASYNC];

let app: TestApp;
before(async () => {
  app = await openTestApp({ resultTtlMs: 1, syncWaitMs: 60_000 });
});
afterEach(() => app.refuseNewJobs(undefined));
after(() => app.close());

type Headers = Record<string, string | string[] | undefined>;

interface Expected {
  /** A job of that id is named, and with it that nothing is charged now. */
  readonly jobId?: string;
  readonly retryable?: boolean;
  /** By name; absent ones must be absent. */
  readonly headers?: Readonly<Record<string, RegExp>>;
  /** The field that is wrong. */
  readonly field?: string;
}

/** Headers that belong to some codes and to no others. */
const TELLING = [
  'www-authenticate',
  'allow',
  'accept',
  'accept-encoding',
  'retry-after',
  'x-credits-charged',
  'location',
  'idempotent-replayed',
  'access-control-allow-origin',
];

const provoked = new Set<ErrorCode>();

function assertProblem(answer: LightMyRequestResponse, code: ErrorCode, expected: Expected = {}) {
  provoked.add(code);
  const spec = ERROR_CATALOGUE[code];
  assert.equal(answer.statusCode, spec.http, answer.payload);
  const { headers } = answer;
  assert.equal(headers['content-type'], 'application/problem+json');
  assert.equal(headers['cache-control'], 'no-store');
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.equal(headers['content-length'], String(answer.rawPayload.length));
  const { detail, instance, errors, ...problem } = answer.json();
  assert.ok(typeof detail === 'string' && detail.length > 0);
  assert.match(instance, /^\//);
  assert.deepEqual(problem, {
    type: `${BASE_URL}/docs/errors#${code.toLowerCase()}`,
    title: spec.title,
    status: spec.http,
    code,
    request_id: headers['x-request-id'],
    retryable: expected.retryable ?? spec.retry !== 'never',
    ...(expected.jobId === undefined ? {} : { job_id: expected.jobId }),
  });
  assert.equal(errors?.[0].field, expected.field);
  const told = Object.fromEntries(
    TELLING.flatMap(name => (headers[name] === undefined ? [] : [[name, String(headers[name])]])),
  );
  const due = {
    ...(expected.jobId === undefined ? {} : { 'x-credits-charged': /^0$/ }),
    ...expected.headers,
  };
  assert.deepEqual(Object.keys(told).sort(), Object.keys(due).sort(), answer.payload);
  for (const [name, pattern] of Object.entries(due)) assert.match(told[name] ?? '', pattern, name);
}

/** What may not change: every entry of the ledger, the balances, jobs, stored files. */
async function snapshot() {
  return {
    credits: await app.stores.ledger.credits(app.accountId),
    jobs: await app.countJobs(),
    files: await app.storedFiles(),
    uploads: app.services.uploads.open,
  };
}

async function unmoved(work: () => Promise<void>): Promise<void> {
  const before = await snapshot();
  await work();
  assert.deepEqual(await snapshot(), before);
  assert.deepEqual(await app.stores.ledger.check(), []);
}

/** On both submission paths. */
function refused(code: ErrorCode, body: unknown, headers: Headers = {}, expected: Expected = {}) {
  return unmoved(async () => {
    for (const url of SUBMISSIONS) {
      assertProblem(await app.post(url, body, headers), code, expected);
    }
  });
}

const png = (width: number, height: number) => pngHeader(width, height).toString('base64');
const url = 'https://example.com/photo.jpg';

test('the request as a whole', async () => {
  await refused('INVALID_REQUEST', '{"image_url":');
  await refused('INVALID_REQUEST', { image_url: 7 }, {}, { field: 'image_url' });
  await refused(
    'UNSUPPORTED_MEDIA_TYPE',
    'x',
    { 'content-type': 'text/plain' },
    {
      headers: { accept: /^application\/json, multipart\/form-data, image\/\*, / },
    },
  );
  const charset = { 'content-type': 'application/json; charset=utf-16' };
  await refused('UNSUPPORTED_MEDIA_TYPE', '{}', charset, {
    headers: { accept: /^application\/json, multipart\/form-data, image\/\*, / },
  });
  await refused(
    'UNSUPPORTED_MEDIA_TYPE',
    '{}',
    { 'content-encoding': 'br' },
    {
      headers: { 'accept-encoding': /^identity$/ },
    },
  );
});

test('the keys', async () => {
  const challenge = { headers: { 'www-authenticate': /^Bearer$/ } };
  await refused('MISSING_API_KEY', imageBody(), { authorization: undefined }, challenge);
  await refused('INVALID_API_KEY', imageBody(), { authorization: 'Basic eDp5' }, challenge);
  await refused('INVALID_IDEMPOTENCY_KEY', imageBody(), { 'idempotency-key': undefined });
  const reader = await app.createKey({ scopes: ['read'] });
  await refused('KEY_NOT_ALLOWED', imageBody(), { authorization: `Bearer ${reader}` });
  const spent = await app.createKey({ cap: { credits: 1, period: 'day' } });
  const authorization = `Bearer ${spent}`;
  assert.equal((await app.post(ASYNC, imageBody(), { authorization })).statusCode, 202);
  await refused('KEY_CAP_REACHED', imageBody(), { authorization });
});

test('the image and the fields', async () => {
  const source = { field: 'image_url' };
  await refused('INVALID_IMAGE_SOURCE', { ...imageBody(), image_url: url }, {}, source);
  await refused('INVALID_IMAGE_SOURCE', {}, {}, source);
  await refused('INVALID_IMAGE_SOURCE', { image_url: 'http://127.0.0.1/' }, {}, source);
  const base64 = { field: 'image_base64' };
  await refused('INVALID_IMAGE_SOURCE', { image_base64: '*' }, {}, base64);
  await refused('UNSUPPORTED_IMAGE_FORMAT', { image_base64: 'R0lGODlhAQABAA==' });
  await refused('IMAGE_RESOLUTION_TOO_LARGE', { image_base64: png(10_001, 1) });
  const colour = imageBody({ background: 'no colour' });
  await refused('INVALID_PARAMETER', colour, {}, { field: 'background' });
  await refused(
    'UNSUPPORTED_OUTPUT_FORMAT',
    imageBody({ output_format: 'gif' }),
    {},
    {
      field: 'output_format',
    },
  );
  await refused(
    'INVALID_CALLBACK',
    imageBody({ callback_url: 'https://example.com/' }),
    {},
    {
      field: 'callback_secret',
    },
  );
  await refused('IMAGE_TOO_LARGE', '{}', { 'content-length': String(72 * 1024 * 1024 + 1) });
  await unmoved(async () => {
    const contrary = imageBody({ output_format: 'png' });
    const answer = await app.post(SYNC, contrary, { accept: 'image/webp' });
    assertProblem(answer, 'NOT_ACCEPTABLE', { field: 'output_format' });
  });
});

test('the account and the service', async () => {
  const poor = await openTestApp({ credits: 0 });
  const strict = await openTestApp({ submissionsPerMinute: 1, readsPerMinute: 1 });
  const full = await openTestApp({ jobsInFlightMax: 1 });
  try {
    for (const path of SUBMISSIONS) {
      assertProblem(await poor.post(path, imageBody()), 'INSUFFICIENT_CREDITS');
    }
    assert.equal(await poor.countJobs(), 0);
    assert.deepEqual(await poor.storedFiles(), []);
    const later = { headers: { 'retry-after': /^\d+$/ } };
    let limited = await strict.post(ASYNC, imageBody());
    // One is let through a minute, and another should the minute end in between.
    while (limited.statusCode === 202) limited = await strict.post(ASYNC, imageBody());
    assertProblem(limited, 'RATE_LIMITED', later);
    assert.equal((await full.post(ASYNC, imageBody())).statusCode, 202);
    assertProblem(await full.post(SYNC, imageBody()), 'RATE_LIMITED', later);
    assert.equal((await full.stores.ledger.balances(full.accountId))?.reserved, 1);
  } finally {
    await Promise.all([poor.close(), strict.close(), full.close()]);
  }
  const saturated = new ContractError('SERVICE_UNAVAILABLE', 'full', { retryAfterS: 7 });
  app.refuseNewJobs(saturated);
  await refused('SERVICE_UNAVAILABLE', imageBody(), {}, { headers: { 'retry-after': /^7$/ } });
  app.refuseNewJobs(new Error('a bug') as never);
  await refused('INTERNAL_ERROR', imageBody());
});

test('paths, methods and what is not there', async () => {
  await unmoved(async () => {
    assertProblem(await app.get('/v1/nothing'), 'NOT_FOUND');
    assertProblem(await app.app.inject(`/v1/results/${randomUUID()}`), 'NOT_FOUND');
    assertProblem(await app.get(SYNC), 'METHOD_NOT_ALLOWED', { headers: { allow: /^POST$/ } });
    assertProblem(await app.get(`${ASYNC}/${randomUUID()}`), 'JOB_NOT_FOUND');
    assertProblem(await app.get(`${ASYNC}/not-a-uuid`), 'JOB_NOT_FOUND');
    assertProblem(await app.app.inject('/%zz'), 'INVALID_REQUEST');
  });
});

test('the same key with other content', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: jobId } = (await app.post(ASYNC, imageBody(), key)).json();
  const other = imageBody({ output_format: 'webp' });
  await refused('IDEMPOTENCY_CONFLICT', other, key, { jobId });
});

test('jobs that fail while their caller waits give the credit back', async () => {
  const causes = [
    ['PROCESSING_FAILED', false],
    ['PROCESSING_FAILED', true],
    ['IMAGE_DOWNLOAD_FAILED', false],
    ['IMAGE_DOWNLOAD_FAILED', true],
  ] as const;
  for (const [code, retryable] of causes) {
    const before = await app.stores.ledger.balances(app.accountId);
    let jobId = '';
    const submitted = app.onSubmitted(async id => {
      // Jobs of the tests before are open too.
      const job = await app.stores.jobs.find(id);
      if (job?.mode !== 'sync') return;
      jobId = id;
      await app.failJob(id, { code, detail: 'as provoked', retryable });
    });
    const answer = await app.post(SYNC, imageBody());
    await submitted.stop();
    assertProblem(answer, code, { jobId, retryable });
    assert.deepEqual(await app.stores.ledger.balances(app.accountId), before);
  }
  assert.deepEqual(await app.stores.ledger.check(), []);
});

test('a result whose time is over', async () => {
  const key = { 'idempotency-key': randomUUID() };
  const { job_id: jobId } = (await app.post(ASYNC, imageBody(), key)).json();
  const { token } = await app.succeedJob(jobId);
  const status = async () => (await app.get(`${ASYNC}/${jobId}`)).json().status;
  while ((await status()) === 'succeeded') await new Promise(resolve => setTimeout(resolve, 1));
  await unmoved(async () => {
    assertProblem(await app.app.inject(`/v1/results/${token}`), 'RESULT_EXPIRED');
    assertProblem(await app.post(SYNC, imageBody(), key), 'RESULT_EXPIRED', {
      jobId,
      headers: { 'idempotent-replayed': /^true$/ },
    });
  });
});

test('a result whose file is lost', async () => {
  const lasting = await openTestApp();
  try {
    const key = { 'idempotency-key': randomUUID() };
    const { job_id: jobId } = (await lasting.post(ASYNC, imageBody(), key)).json();
    const { token, blob } = await lasting.succeedJob(jobId);
    await lasting.blobs.remove(blob);
    assertProblem(await lasting.app.inject(`/v1/results/${token}`), 'RESULT_LOST');
    assertProblem(await lasting.post(SYNC, imageBody(), key), 'RESULT_LOST', {
      jobId,
      headers: { 'idempotent-replayed': /^true$/, 'x-credits-charged': /^0$/ },
    });
  } finally {
    await lasting.close();
  }
});

test('a file that is not the one asked for', async () => {
  const lasting = await openTestApp();
  try {
    const { job_id: jobId } = (await lasting.post(ASYNC, imageBody())).json();
    const { token } = await lasting.succeedJob(jobId, Buffer.from('0123456789'));
    const ask = (headers: Record<string, string>) =>
      lasting.app.inject({ url: `/v1/results/${token}`, headers });
    assertProblem(await ask({ 'if-match': '"another"' }), 'PRECONDITION_FAILED');
    const outside = await ask({ range: 'bytes=10-' });
    assertProblem(outside, 'RANGE_NOT_SATISFIABLE');
    assert.equal(outside.headers['content-range'], 'bytes */10');
    assert.equal(outside.headers.etag, undefined);
  } finally {
    await lasting.close();
  }
});

test('no public code was left out', () => {
  const all = Object.entries(ERROR_CATALOGUE).filter(([, { scope }]) => scope === 'public');
  assert.deepEqual([...provoked].sort(), all.map(([code]) => code).sort());
});
