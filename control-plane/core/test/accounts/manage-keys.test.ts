import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { ActingPerson } from '@matting/accounts/audit-log.ts';
import { KEYS_ALIVE_MAX } from '@matting/accounts/keys/key-policy.ts';
import { ManageKeys } from '@matting/accounts/keys/manage-keys.ts';
import ava from 'ava';
import { imageBody, useTestApp } from '../support/test-app.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
const app = useTestApp(test, { credits: 100 }, async () => {
  keys = new ManageKeys(app.stores.apiKeys);
});
let keys: ManageKeys;
const person: ActingPerson = {
  kind: 'person',
  userId: randomUUID(),
  mail: 'owner@example.org',
  address: '192.0.2.7',
  refusal: async () => undefined,
};

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

async function made(name = 'shop') {
  const outcome = await keys.create(app.accountId, { name }, person);
  assert.ok(outcome !== 'too-many');
  return outcome;
}

test('a rotation › keeps jobs and retries: one under the new secret joins the job of the old', async t => {
  const { key, token } = await made();
  const retry = { 'idempotency-key': 'the picture of a shop' };
  const first = await app.post(JOBS, imageBody(), { ...bearer(token), ...retry });
  t.is(first.statusCode, 202);
  const rotated = await keys.rotate(app.accountId, key.id, '1h', person);
  assert.ok(rotated);
  t.is(rotated.key.id, key.id);
  const { job_id: jobId } = first.json();
  for (const secret of [token, rotated.token]) {
    const again = await app.post(JOBS, imageBody(), { ...bearer(secret), ...retry });
    t.deepEqual([again.statusCode, again.json().job_id], [202, jobId]);
    t.is((await app.get(`${JOBS}/${jobId}`, bearer(secret))).statusCode, 200);
  }
  const other = await app.post(JOBS, imageBody({ output_format: 'webp' }), {
    ...bearer(rotated.token),
    ...retry,
  });
  t.is(other.json().code, 'IDEMPOTENCY_CONFLICT', 'the keys of requests are its own');
});

test('a rotation › at once ends the old secret here and now, and says when', async t => {
  const { key, token } = await made();
  t.is((await app.get('/v1/account', bearer(token))).statusCode, 200);
  const rotated = await keys.rotate(app.accountId, key.id, 'at-once', person);
  assert.ok(rotated);
  t.is(rotated.key.previousSecret, null);
  const refused = await app.get('/v1/account', bearer(token));
  t.is(refused.statusCode, 401);
  t.regex(refused.json().detail, /This secret of the API key was replaced/);
  t.is((await app.get('/v1/account', bearer(rotated.token))).statusCode, 200);
});

test('a rotation › within an overlap ends the oldest secret, and keeps the two others', async t => {
  const { key, token } = await made();
  const second = await keys.rotate(app.accountId, key.id, '24h', person);
  const third = await keys.rotate(app.accountId, key.id, '24h', person);
  const statusOf = async (text = '') => (await app.get('/v1/account', bearer(text))).statusCode;
  t.deepEqual(
    [await statusOf(token), await statusOf(second?.token), await statusOf(third?.token)],
    [401, 200, 200],
  );
  await keys.revoke(app.accountId, key.id, person);
  t.deepEqual([await statusOf(second?.token), await statusOf(third?.token)], [401, 401]);
  t.is(await keys.rotate(app.accountId, key.id, '1h', person), undefined);
});

test('a rotation › keeps the counts of the cap and the rate', async t => {
  const cap = { credits: 2, period: 'day' } as const;
  const outcome = await keys.create(app.accountId, { name: 'capped', policy: { cap } }, person);
  assert.ok(outcome !== 'too-many');
  await app.post(JOBS, imageBody(), bearer(outcome.token));
  const rotated = await keys.rotate(app.accountId, outcome.key.id, 'at-once', person);
  t.is(rotated?.key.capUse?.used, 1);
  const { token = '' } = rotated ?? {};
  t.is((await app.post(JOBS, imageBody(), bearer(token))).statusCode, 202);
  t.is((await app.post(JOBS, imageBody(), bearer(token))).statusCode, 402);
});

test('a change › applies to later requests, and keeps the fields that it does not name', async t => {
  const { key, token } = await made();
  t.is((await app.post(JOBS, imageBody(), bearer(token))).statusCode, 202);
  const policy = { scopes: ['read'] } as const;
  const changed = await keys.change(app.accountId, key.id, { policy }, person);
  t.deepEqual([changed?.name, changed?.policy], ['shop', policy]);
  t.is((await app.post(JOBS, imageBody(), bearer(token))).statusCode, 403);
  const inMs = 30 * 86_400_000;
  const expiring = await keys.change(app.accountId, key.id, { expires: { inMs } }, person);
  t.deepEqual(expiring?.policy, policy);
  t.true((expiring?.expiresAtMs ?? 0) > key.createdAtMs + inMs - 1);
  const never = await keys.change(app.accountId, key.id, { expires: 'never' }, person);
  t.is(never?.expiresAtMs, null);
});

test('a change › of the credits of a cap keeps its count; of its period it begins another', async t => {
  const { key, token } = await made();
  const set = (credits: number, period: 'day' | 'month') =>
    keys.change(app.accountId, key.id, { policy: { cap: { credits, period } } }, person);
  await set(1, 'day');
  await app.post(JOBS, imageBody(), bearer(token));
  t.is((await app.post(JOBS, imageBody(), bearer(token))).statusCode, 402);
  t.is((await set(2, 'day'))?.capUse?.used, 1);
  t.is((await app.post(JOBS, imageBody(), bearer(token))).statusCode, 202);
  t.is((await set(2, 'month'))?.capUse?.used, 0);
  t.is((await set(2, 'day'))?.capUse?.used, 0, 'a count that ended does not come back');
});

test('another account › sees none of it, and changes none of it', async t => {
  const { key, token } = await made();
  const { id: otherId } = (await app.stores.accounts.create('other')) ?? assert.fail();
  t.is(await keys.find(otherId, key.id), undefined);
  t.is(await keys.rotate(otherId, key.id, 'at-once', person), undefined);
  t.is(await keys.change(otherId, key.id, { name: 'theirs' }, person), undefined);
  t.is(await keys.revoke(otherId, key.id, person), undefined);
  t.deepEqual((await keys.list(otherId)).keys, []);
  t.is((await app.get('/v1/account', bearer(token))).statusCode, 200);
  t.is((await keys.find(app.accountId, key.id))?.name, 'shop');
});

test('the log names people and changes, and no secret', async t => {
  const { key, token } = await made('logged');
  await keys.change(app.accountId, key.id, { name: 'renamed' }, person);
  await keys.change(app.accountId, key.id, { name: 'renamed' }, person);
  const rotated = await keys.rotate(app.accountId, key.id, '7d', { kind: 'operator' });
  await keys.revoke(app.accountId, key.id, person);
  await keys.revoke(app.accountId, key.id, person);
  const log = await app.stores.audit.list(app.accountId, { limit: 4 });
  const told = log.map(({ action, mail, subject }) => [action, mail, subject]);
  const by = person.mail;
  t.deepEqual(
    told.sort(),
    [
      ['key.changed', by, `renamed (${key.prefix})`],
      ['key.created', by, `logged (${key.prefix})`],
      ['key.revoked', by, `renamed (${key.prefix})`],
      ['key.rotated', null, `renamed (${key.prefix})`],
    ],
    'what changes nothing is not in it',
  );
  const rows = JSON.stringify(log);
  for (const text of [token, rotated?.token ?? '']) {
    t.false(rows.includes(text.slice(`${key.prefix}_`.length, -6)));
  }
});

test('an account has no more keys than it may, and pages of them', async t => {
  const account = await app.stores.accounts.create('many');
  assert.ok(account);
  for (let n = 0; n < KEYS_ALIVE_MAX - 1; n += 1)
    await app.stores.apiKeys.create(account.id, `${n}`);
  const names = ['last', 'beside it', 'and beside that'];
  const outcomes = await Promise.all(names.map(name => keys.create(account.id, { name }, person)));
  const [last, ...more] = outcomes.filter(outcome => outcome !== 'too-many');
  assert.ok(last);
  t.deepEqual(more, [], 'those that come at once are counted too');
  t.is(await keys.create(account.id, { name: 'over' }, person), 'too-many');
  await keys.revoke(account.id, last.key.id, person);
  t.not(await keys.create(account.id, { name: 'in its place' }, person), 'too-many');
  const page = await keys.list(account.id);
  t.is(page.keys.length, 50);
  const seen = new Set(page.keys.map(({ id }) => id));
  for (let { next } = page; next !== undefined; ) {
    const more = await keys.list(account.id, next);
    for (const { id } of more.keys) seen.add(id);
    next = more.next;
  }
  t.is(seen.size, KEYS_ALIVE_MAX + 1);
});
