/** The pages of API keys: made and shown once, changed, rotated, revoked; and who may. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { type SignedInBrowser, signIn } from '../../support/signed-in-browser.ts';
import { imageBody, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const TOKEN = /mk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}/;
const ALL = ['submit', 'read', 'account'];
const FORM = { name: 'shop', expires: '90', cap: '', period: 'month', rate: '', networks: '' };

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
const fixture = useTestApp(test, { credits: 10 }, async () => {
  owner = await signIn(fixture);
  viewer = await signIn(fixture, { role: 'viewer' });
});

async function made(fields: Record<string, string | string[]> = {}) {
  const answer = await owner.post('/account/keys', { ...FORM, scopes: ALL, ...fields });
  assert.equal(answer.statusCode, 200, answer.body);
  const token = TOKEN.exec(answer.body)?.[0] ?? '';
  return { token, id: token.slice(3, 15), path: `/account/keys/${token.slice(3, 15)}`, answer };
}

const statusOf = async (token: string) =>
  (await fixture.get('/v1/account', { authorization: `Bearer ${token}` })).statusCode;

test('show a new key once, with a line that works', async t => {
  const { token, path, answer } = await made({ name: 'once' });
  t.is(answer.headers['cache-control'], 'no-store');
  t.regex(answer.body, /curl -sS https:\/\/matting\.example\.com\/v1\/matting/);
  t.regex(answer.body, new RegExp(`data-copy="${token}"`));
  t.is(await statusOf(token), 200);
  const page = (await owner.get(path)).body;
  const list = (await owner.get('/account/keys')).body;
  for (const body of [page, list]) {
    t.regex(body, /once/);
    t.false(body.includes(token.slice(16)), 'nothing of its secret');
  }
  const reader = await made({ scopes: ['read'] });
  t.false(reader.answer.body.includes('curl -sS'), 'one that may not submit has no such line');
});

test('take limits, and show them with what is used', async t => {
  const { token, path } = await made({
    ...{ name: 'limited', expires: '7', cap: '3', period: 'day', rate: '60' },
    ...{ scopes: ['submit'], networks: '127.0.0.0/8\n2001:DB8::/32' },
  });
  await fixture.post('/v1/matting/jobs', imageBody(), { authorization: `Bearer ${token}` });
  t.is(await statusOf(token), 403);
  const page = (await owner.get(path)).body;
  for (const text of ['1 of 3, every day', 'Submit pictures', '2001:db8::/32', '60', 'Active']) {
    t.true(page.includes(text), text);
  }
  t.regex((await owner.get('/account/keys')).body, /1 of 3, every day/);
});

test('keep what was typed beside what is wrong with it', async t => {
  const answer = await owner.post('/account/keys', {
    ...{ name: '<i>-</i>', expires: '8', cap: '1.5', period: 'week', rate: '0' },
    networks: '10.0.0.1/8',
  });
  t.is(answer.statusCode, 422);
  for (const field of ['expires', 'cap', 'period', 'rate', 'scopes', 'networks']) {
    t.regex(answer.body, new RegExp(`id="${field}-error"`), field);
  }
  t.false(answer.body.includes('<i>'));
  t.regex(answer.body, /value="1\.5"/);
  t.regex(answer.body, />10\.0\.0\.1\/8<\/textarea>/);
  const nameless = await owner.post('/account/keys', { ...FORM, scopes: ALL, name: ' ' });
  t.regex(nameless.body, /id="name-error"/);
  t.false(TOKEN.test(nameless.body));
});

test('change a key, and leave its expiry where it is to stay', async t => {
  const { token, id, path } = await made({ name: 'before' });
  const expiresAtMs = (await fixture.stores.apiKeys.find(id))?.expiresAtMs;
  const form = { ...FORM, name: 'after', expires: 'keep', scopes: ['read', 'account'] };
  const answer = await owner.post(path, form);
  t.is(answer.statusCode, 303);
  t.is(answer.headers.location, `${path}?said=changed`);
  t.regex((await owner.get(`${path}?said=changed`)).body, /The key is changed/);
  const key = await fixture.stores.apiKeys.find(id);
  t.deepEqual([key?.name, key?.policy.scopes], ['after', ['read', 'account']]);
  t.is(key?.expiresAtMs, expiresAtMs);
  const authorization = `Bearer ${token}`;
  const refused = await fixture.post('/v1/matting/jobs', imageBody(), { authorization });
  t.is(refused.statusCode, 403);
  t.is((await owner.post(path, { ...form, cap: 'x' })).statusCode, 422);
  await owner.post(path, { ...form, expires: 'never', scopes: ALL });
  const freed = await fixture.stores.apiKeys.find(id);
  t.deepEqual([freed?.expiresAtMs, freed?.policy], [null, {}]);
});

test('rotate with an overlap and at once, each secret shown once', async t => {
  const { token, path } = await made();
  const first = await owner.post(`${path}/rotate`, { overlap: '24h' });
  const second = TOKEN.exec(first.body)?.[0] ?? '';
  t.not(second, token);
  t.regex(first.body, /The old secret goes on until/);
  t.deepEqual([await statusOf(token), await statusOf(second)], [200, 200]);
  t.regex((await owner.get(path)).body, /Two secrets/);
  const last = await owner.post(`${path}/rotate`, { overlap: 'at-once' });
  t.regex(last.body, /The old secret has ended/);
  const third = TOKEN.exec(last.body)?.[0] ?? '';
  t.deepEqual(
    [await statusOf(token), await statusOf(second), await statusOf(third)],
    [401, 401, 200],
  );
  t.is((await owner.post(`${path}/rotate`, { overlap: '2h' })).statusCode, 400);
});

test('revoke with a look at the last use', async t => {
  const { token, path } = await made();
  t.regex((await owner.get(path)).body, /It was never used/);
  t.is(await statusOf(token), 200);
  await fixture.services.keyUses.write();
  t.regex((await owner.get(path)).body, /It was last used/);
  const answer = await owner.post(`${path}/revoke`);
  t.is(answer.headers.location, `${path}?said=revoked`);
  t.is(await statusOf(token), 401);
  const page = (await owner.get(path)).body;
  t.regex(page, /Revoked/);
  t.false(page.includes(`action="${path}`), 'nothing is left to be done');
  t.is((await owner.post(`${path}/rotate`, { overlap: '1h' })).statusCode, 404);
});

test('show viewers keys, and no way to change them', async t => {
  const { path } = await made();
  const page = await viewer.get(path);
  t.is(page.statusCode, 200);
  t.false(page.body.includes(`action="${path}`));
  t.false((await viewer.get('/account/keys')).body.includes('/account/keys/new'));
  t.is((await viewer.get('/account/keys/new')).statusCode, 403);
});

test('list page after page', async t => {
  for (let n = 0; n < 50; n += 1)
    await fixture.stores.apiKeys.create(fixture.accountId, `many ${n}`);
  const first = (await owner.get('/account/keys')).body;
  const next = /href="([^"]+)" rel="next"/.exec(first)?.[1];
  assert.ok(next);
  const second = (await owner.get(next.replaceAll('&amp;', '&'))).body;
  t.regex(second, /first key/);
  t.is((await owner.get('/account/keys?after=x')).statusCode, 400);
});
