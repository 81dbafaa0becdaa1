import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { KeyPolicy } from '@matting/accounts/keys/key-policy.ts';
import ava from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import { imageBody, openTestApp, type TestApp, useTestApp } from '../support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test);

/** The test takes a second on a busy machine and must not meet the window's end. */
async function earlyInAWindow({ stores }: TestApp): Promise<void> {
  while ((await stores.rateQuotas.nowMs()) % 60_000 > 56_000) {
    await new Promise(resolve => setTimeout(resolve, 100));
  }
}

test('the account › keys: of this account, oldest first, with nothing in them that opens anything', async t => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'web shop');
  await app.stores.apiKeys.revoke(key.id);
  const other = await app.stores.accounts.create('somebody else');
  assert.ok(other);
  await app.stores.apiKeys.create(other.id, 'theirs');

  const answer = await app.get('/v1/account/keys');
  t.is(answer.statusCode, 200);
  t.is(answer.headers['cache-control'], 'no-store');
  const { keys } = answer.json();
  t.is(keys.length, 2);
  const named = (name: string) => keys.find((one: { name: string }) => one.name === name);
  t.is(named('first key').revoked_at, null);
  t.is(named('web shop').prefix, key.prefix);
  t.not(named('web shop').revoked_at, null);
  for (const secret of [token, app.token]) {
    t.true(secret.startsWith('mk_'));
    t.notRegex(answer.payload, new RegExp(secret.split('_').at(-1) as string));
    const prefix = keys.find((one: { prefix: string }) => secret.startsWith(one.prefix));
    assert.ok(prefix);
    const opened = await app.get('/v1/account', { authorization: `Bearer ${prefix.prefix}` });
    t.is(opened.json().code, 'INVALID_API_KEY');
  }
});

const JOBS = '/v1/matting/jobs';

async function keyed(policy: KeyPolicy) {
  return { authorization: `Bearer ${await app.createKey(policy)}` };
}

test('scopes › is checked before the Idempotency-Key and before the body', async t => {
  const headers = await keyed({ scopes: ['read'] });
  const none = { ...headers, 'idempotency-key': undefined, 'content-length': '99999999' };
  t.is((await app.post(JOBS, '{', none)).json().code, 'KEY_NOT_ALLOWED');
});

test('networks › let in who is in one of them, by the address of the connection', async t => {
  t.is((await app.get('/v1/account', await keyed({ networks: ['127.0.0.0/8'] }))).statusCode, 200);
  const answer = await app.get('/v1/account', await keyed({ networks: ['192.0.2.0/24'] }));
  t.is(answer.json().code, 'KEY_NOT_ALLOWED');
  t.regex(answer.json().detail, /127\.0\.0\.1/);
  const headers = await keyed({ networks: ['192.0.2.0/24'] });
  const forged = { ...headers, 'x-forwarded-for': '192.0.2.1', forwarded: 'for=192.0.2.1' };
  t.is((await app.get('/v1/account', forged)).statusCode, 403);
});

test('networks behind a proxy › are compared with whom a proxy that is named has seen, and with no other word', async t => {
  const behind = await openTestApp({ trustedProxies: ['127.0.0.0/8'] }, t);
  const networks = ['192.0.2.0/24'];
  const authorization = `Bearer ${await behind.createKey({ networks })}`;
  const statusFrom = async (chain: string) =>
    (await behind.get('/v1/account', { authorization, 'x-forwarded-for': chain })).statusCode;
  t.is(await statusFrom('192.0.2.7'), 200);
  t.is(await statusFrom('198.51.100.7'), 403);
  // The caller may forge the first words; the proxy adds the last address.
  t.is(await statusFrom('192.0.2.7, 198.51.100.7'), 403);
  // Some proxies write the port too; a text that is no address is in no network.
  t.is(await statusFrom('192.0.2.7:4711'), 200);
  t.is(await statusFrom('192.0.2.7:4711, 127.0.0.9:80'), 200);
  t.is(await statusFrom('192.0.2.7:4711, 198.51.100.7:4712'), 403);
  t.is(await statusFrom('unknown'), 403);
});

test('caps › refuse a job over the cap, but neither the account’s other keys nor replays', async t => {
  const headers = await keyed({ cap: { credits: 2, period: 'day' } });
  const again = { ...headers, 'idempotency-key': 'the first' };
  const first = await app.post(JOBS, imageBody(), again);
  t.is(first.statusCode, 202);
  t.is((await app.post(JOBS, imageBody(), headers)).statusCode, 202);
  const refused = await app.post(JOBS, imageBody(), headers);
  t.is(refused.statusCode, 402);
  const { code, detail, retryable } = refused.json();
  t.deepEqual([code, retryable], ['KEY_CAP_REACHED', false]);
  t.regex(detail, /2 credits a day\. .* \d{4}-\d\d-\d\dT00:00:00\.000Z\.$/);
  t.is((await app.post(JOBS, imageBody(), again)).json().job_id, first.json().job_id);
  t.is((await app.post(JOBS, imageBody())).statusCode, 202);
  await app.failJob(first.json().job_id, {
    code: 'PROCESSING_FAILED',
    detail: 'x',
    retryable: false,
  });
  t.is((await app.post(JOBS, imageBody(), headers)).statusCode, 202);
  t.is((await app.post(JOBS, imageBody(), headers)).statusCode, 402);
  t.deepEqual(await app.stores.ledger.check(), []);
});

test('caps › are shown with their count', async t => {
  const headers = await keyed({
    cap: { credits: 9, period: 'total' },
    scopes: ['submit', 'account'],
  });
  await app.post(JOBS, imageBody(), headers);
  const { keys } = (await app.get('/v1/account/keys', headers)).json();
  const [own] = keys.filter((key: { cap: { credits: number } | null }) => key.cap?.credits === 9);
  t.deepEqual(own.cap, { credits: 9, period: 'total', used: 1, resets_at: null });
  t.deepEqual(own.scopes, ['submit', 'account']);
});

test('a rate of its own › refuses a key beyond it, and takes nothing of the account’s then', async t => {
  const headers = await keyed({ submissionsPerMinute: 2 });
  await earlyInAWindow(app);
  const answers = [];
  for (let n = 0; n < 5; n += 1) answers.push(await app.post(JOBS, imageBody(), headers));
  t.deepEqual(
    answers.map(({ statusCode }) => statusCode),
    [202, 202, 429, 429, 429],
  );
  const [first, , refused] = answers;
  const both = [first?.headers['ratelimit-policy'], first?.headers.ratelimit].join('; ');
  t.regex(both, /^"submissions";q=\d+;w=60, "key-submissions";q=2;w=60; "submissions";r=/);
  t.regex(both, /"key-submissions";r=1;t=\d+$/);
  t.is(refused?.headers['ratelimit-policy'], '"key-submissions";q=2;w=60');
  t.regex(String(refused?.headers.ratelimit), /^"key-submissions";r=0;t=\d+$/);
  t.regex(String(refused?.headers['retry-after']), /^\d+$/);
  t.regex(refused?.json().detail, /The API key is over its limit of 2 submissions/);
  const left = async () => {
    const answer = await app.post(JOBS, imageBody());
    return Number(/^"submissions";r=(\d+)/.exec(String(answer.headers.ratelimit))?.[1]);
  };
  const before = await left();
  await app.post(JOBS, imageBody(), headers);
  t.is(await left(), before - 1);
  t.is((await app.get('/v1/account', headers)).statusCode, 200, 'reads have no such rate');
});

test('the expiry of a key › is shown to the key’s holder', async t => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'ends', {
    expiresInMs: 1,
  });
  const endMs = key.expiresAtMs ?? 0;
  // A fast call comes within the same millisecond.
  while ((await app.stores.rateQuotas.nowMs()) <= endMs) await new Promise(setImmediate);
  const answer = await app.get('/v1/account', { authorization: `Bearer ${token}` });
  t.is(answer.statusCode, 401);
  t.is(answer.headers['www-authenticate'], 'Bearer');
  const { code, detail } = answer.json();
  const at = new Date(endMs).toISOString();
  t.is(code, 'INVALID_API_KEY');
  t.regex(detail, new RegExp(`expired at ${at}`));
});

test('the use of a key is recorded only if the key has the right', async t => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'used', {
    policy: { scopes: ['account'] },
  });
  const authorization = `Bearer ${token}`;
  const lastUse = async () => {
    await app.services.keyUses.write();
    return (await app.stores.apiKeys.find(key.id))?.lastUsedAtMs ?? null;
  };
  await app.post(JOBS, imageBody(), { authorization });
  t.is(await lastUse(), null);
  await app.get('/v1/account', { authorization });
  t.true(((await lastUse()) ?? 0) > 0);
});

const SUBMISSIONS_MAX = 3;
const READS_MAX = 4;

const limited = useTestApp(
  test,
  { submissionsPerMinute: SUBMISSIONS_MAX, readsPerMinute: READS_MAX },
  async () => {
    const other = await limited.stores.accounts.create('other');
    assert.ok(other);
    otherToken = (await limited.stores.apiKeys.create(other.id, 'other')).token;
  },
);
let otherToken: string;

function assertStanding(answer: LightMyRequestResponse, kind: string, q: number, r: number) {
  assert.equal(answer.headers['ratelimit-policy'], `"${kind}";q=${q};w=60`);
  const standing = new RegExp(`^"${kind}";r=${r};t=(\\d+)$`).exec(String(answer.headers.ratelimit));
  const t = Number(standing?.[1]);
  assert.ok(t >= 1 && t <= 60, String(answer.headers.ratelimit));
  return t;
}

function assertRefused(answer: LightMyRequestResponse, kind: string, q: number) {
  assert.equal(answer.statusCode, 429, answer.payload);
  assert.equal(answer.headers['content-type'], 'application/problem+json');
  const { code, retryable, job_id } = answer.json();
  assert.deepEqual([code, retryable, job_id], ['RATE_LIMITED', true, undefined]);
  assert.equal(answer.headers['retry-after'], String(assertStanding(answer, kind, q, 0)));
}

test('rates › submissions and reads are counted apart, over all keys of the account', async t => {
  await earlyInAWindow(limited);
  const second = { authorization: `Bearer ${await limited.createKey()}` };

  for (let sent = 0; sent < 5; sent += 1) {
    const keyless = await limited.post('/v1/matting/jobs', imageBody(), { 'idempotency-key': '' });
    t.is(keyless.headers.ratelimit, undefined);
    t.is((await limited.get('/v1/nothing')).headers.ratelimit, undefined);
  }

  const first = await limited.post('/v1/matting/jobs', imageBody());
  t.is(first.statusCode, 202);
  assertStanding(first, 'submissions', SUBMISSIONS_MAX, 2);
  const wrong = await limited.post('/v1/matting', 'x', { ...second, 'content-type': 'text/plain' });
  t.is(wrong.statusCode, 415);
  assertStanding(wrong, 'submissions', SUBMISSIONS_MAX, 1);
  const key = randomUUID();
  const last = await limited.post('/v1/matting/jobs', imageBody(), { 'idempotency-key': key });
  assertStanding(last, 'submissions', SUBMISSIONS_MAX, 0);

  for (const [url, headers] of [
    ['/v1/matting', {}],
    ['/v1/matting/jobs', second],
    // A replay counts as a submission: the count comes before the body.
    ['/v1/matting/jobs', { 'idempotency-key': key }],
  ] as const) {
    assertRefused(await limited.post(url, imageBody(), headers), 'submissions', SUBMISSIONS_MAX);
  }

  const jobUrl = `/v1/matting/jobs/${first.json().job_id}`;
  const urls = ['/v1/account', '/v1/account', '/v1/account/keys', jobUrl];
  for (const [index, url] of urls.entries()) {
    const answer = await limited.get(url, index === 1 ? second : {});
    t.is(answer.statusCode, 200);
    assertStanding(answer, 'reads', READS_MAX, READS_MAX - 1 - index);
  }
  for (const url of urls) assertRefused(await limited.get(url), 'reads', READS_MAX);
  const other = await limited.get('/v1/account', { authorization: `Bearer ${otherToken}` });
  assertStanding(other, 'reads', READS_MAX, READS_MAX - 1);
  t.is((await limited.app.inject('/v1/openapi.json')).headers.ratelimit, undefined);

  const left = await limited.stores.ledger.balances(limited.accountId);
  t.deepEqual([left?.available, left?.reserved], [998, 2]);
});
