import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { imageBody, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const SUBMISSIONS_MAX = 3;
const READS_MAX = 4;

const app = useTestApp(
  test,
  { submissionsPerMinute: SUBMISSIONS_MAX, readsPerMinute: READS_MAX },
  async () => {
    const other = await app.stores.accounts.create('other');
    assert.ok(other);
    otherToken = (await app.stores.apiKeys.create(other.id, 'other')).token;
  },
);
let otherToken: string;

/** `"name";x=1;y=2`: a list of one string item with integer parameters (RFC 9651). */
function structured(value: unknown): { name: string; parameters: Record<string, number> } {
  const [, name, rest] = /^"([a-z]+)"((?:;[a-z]+=\d+)+)$/.exec(String(value)) ?? [];
  assert.ok(name !== undefined && rest !== undefined, String(value));
  const pairs = rest.slice(1).split(';');
  const parameters = pairs.map(pair => pair.split('=')).map(([name, n]) => [name, Number(n)]);
  return { name, parameters: Object.fromEntries(parameters) };
}

function assertStanding(answer: LightMyRequestResponse, kind: string, q: number, r: number) {
  const policy = structured(answer.headers['ratelimit-policy']);
  assert.deepEqual(policy, { name: kind, parameters: { q, w: 60 } });
  const { name, parameters } = structured(answer.headers.ratelimit);
  assert.equal(name, kind);
  assert.deepEqual(Object.keys(parameters), ['r', 't']);
  assert.equal(parameters.r, r);
  const { t = 0 } = parameters;
  assert.ok(t >= 1 && t <= 60);
}

function assertRefused(answer: LightMyRequestResponse, kind: string, q: number) {
  assert.equal(answer.statusCode, 429, answer.payload);
  assert.equal(answer.headers['content-type'], 'application/problem+json');
  const { code, retryable, job_id } = answer.json();
  assert.deepEqual([code, retryable, job_id], ['RATE_LIMITED', true, undefined]);
  assertStanding(answer, kind, q, 0);
  const { t } = structured(answer.headers.ratelimit).parameters;
  assert.equal(answer.headers['retry-after'], String(t));
}

/** Until less than half of it is left the window may not end under the test. */
async function earlyInAWindow(): Promise<void> {
  while ((await app.stores.rateQuotas.nowMs()) % 60_000 > 50_000) {
    await new Promise(resolve => setTimeout(resolve, 200));
  }
}

test('submissions and reads are counted apart, over all keys of the account', async t => {
  await earlyInAWindow();
  const second = { authorization: `Bearer ${await app.createKey()}` };
  const credits = await app.services.readAccount.credits({
    accountId: app.accountId,
    apiKeyId: '',
  });

  // What is refused before the count, or reaches nothing, is not counted.
  for (let sent = 0; sent < 5; sent += 1) {
    const keyless = await app.post('/v1/matting/jobs', imageBody(), { 'idempotency-key': '' });
    t.is(keyless.headers.ratelimit, undefined);
    t.is((await app.get('/v1/nothing')).headers.ratelimit, undefined);
  }

  const first = await app.post('/v1/matting/jobs', imageBody());
  t.is(first.statusCode, 202);
  assertStanding(first, 'submissions', SUBMISSIONS_MAX, 2);
  // What is refused after it is.
  const wrong = await app.post('/v1/matting', 'x', { ...second, 'content-type': 'text/plain' });
  t.is(wrong.statusCode, 415);
  assertStanding(wrong, 'submissions', SUBMISSIONS_MAX, 1);
  const key = randomUUID();
  const last = await app.post('/v1/matting/jobs', imageBody(), { 'idempotency-key': key });
  assertStanding(last, 'submissions', SUBMISSIONS_MAX, 0);

  for (const [url, headers] of [
    ['/v1/matting', {}],
    ['/v1/matting/jobs', second],
    // A replay is a submission too: the count comes before the body that would tell.
    ['/v1/matting/jobs', { 'idempotency-key': key }],
  ] as const) {
    assertRefused(await app.post(url, imageBody(), headers), 'submissions', SUBMISSIONS_MAX);
  }

  const jobUrl = `/v1/matting/jobs/${first.json().job_id}`;
  const urls = ['/v1/account', '/v1/account/packages', '/v1/account/keys', jobUrl];
  for (const [index, url] of urls.entries()) {
    const answer = await app.get(url, index === 1 ? second : {});
    t.is(answer.statusCode, 200);
    assertStanding(answer, 'reads', READS_MAX, READS_MAX - 1 - index);
  }
  for (const url of urls) assertRefused(await app.get(url), 'reads', READS_MAX);
  // Another account's are its own; what needs no key is not counted.
  const other = await app.get('/v1/account', { authorization: `Bearer ${otherToken}` });
  assertStanding(other, 'reads', READS_MAX, READS_MAX - 1);
  t.is((await app.app.inject('/v1/openapi.json')).headers.ratelimit, undefined);

  const left = await app.services.readAccount.credits({ accountId: app.accountId, apiKeyId: '' });
  t.is(left.available, credits.available - 2);
  t.is(left.reserved, 2);
});

test('over the rate: before the media type, the length and the body', async t => {
  await earlyInAWindow();
  for (let sent = 0; sent < SUBMISSIONS_MAX; sent += 1) await app.post('/v1/matting', '{');
  const wrong = { 'content-type': 'text/plain', 'content-length': '999999999' };
  assertRefused(await app.post('/v1/matting', 'x', wrong), 'submissions', SUBMISSIONS_MAX);
  const unkeyed = await app.post('/v1/matting', 'x', { ...wrong, 'idempotency-key': '' });
  t.is(unkeyed.json().code, 'INVALID_IDEMPOTENCY_KEY');
  const unknown = await app.post('/v1/matting', 'x', { ...wrong, authorization: 'Bearer x' });
  t.is(unknown.json().code, 'INVALID_API_KEY');
});
