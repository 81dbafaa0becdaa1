/** The pages of API keys: made and shown once, changed, rotated, revoked; and who may. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type SignedInBrowser, signIn } from '../../support/signed-in-browser.ts';
import { imageBody, useTestApp } from '../../support/test-app.ts';

const TOKEN = /mk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}/;
const ALL = ['submit', 'read', 'account'];
const FORM = { name: 'shop', expires: '90', cap: '', period: 'month', rate: '', networks: '' };

describe('the pages of API keys', () => {
  let owner: SignedInBrowser;
  let viewer: SignedInBrowser;
  const test = useTestApp({ credits: 10 }, async () => {
    owner = await signIn(test);
    viewer = await signIn(test, { role: 'viewer' });
  });

  async function made(fields: Record<string, string | string[]> = {}) {
    const answer = await owner.post('/account/keys', { ...FORM, scopes: ALL, ...fields });
    assert.equal(answer.statusCode, 200, answer.body);
    const token = TOKEN.exec(answer.body)?.[0] ?? '';
    return { token, id: token.slice(3, 15), path: `/account/keys/${token.slice(3, 15)}`, answer };
  }

  const statusOf = async (token: string) =>
    (await test.get('/v1/account', { authorization: `Bearer ${token}` })).statusCode;

  it('show a new key once, with a line that works', async () => {
    const { token, path, answer } = await made({ name: 'once' });
    assert.equal(answer.headers['cache-control'], 'no-store');
    assert.match(answer.body, /curl -sS https:\/\/matting\.example\.com\/v1\/matting/);
    assert.match(answer.body, new RegExp(`data-copy="${token}"`));
    assert.equal(await statusOf(token), 200);
    const page = (await owner.get(path)).body;
    const list = (await owner.get('/account/keys')).body;
    for (const body of [page, list]) {
      assert.match(body, /once/);
      assert.ok(!body.includes(token.slice(16)), 'nothing of its secret');
    }
    const reader = await made({ scopes: ['read'] });
    assert.ok(!reader.answer.body.includes('curl -sS'), 'one that may not submit has no such line');
  });

  it('take limits, and show them with what is used', async () => {
    const { token, path } = await made({
      ...{ name: 'limited', expires: '7', cap: '3', period: 'day', rate: '60' },
      ...{ scopes: ['submit'], networks: '127.0.0.0/8\n2001:DB8::/32' },
    });
    await test.post('/v1/matting/jobs', imageBody(), { authorization: `Bearer ${token}` });
    assert.equal(await statusOf(token), 403);
    const page = (await owner.get(path)).body;
    for (const text of ['1 of 3, every day', 'Submit pictures', '2001:db8::/32', '60', 'Active']) {
      assert.ok(page.includes(text), text);
    }
    assert.match((await owner.get('/account/keys')).body, /1 of 3, every day/);
  });

  it('keep what was typed beside what is wrong with it', async () => {
    const answer = await owner.post('/account/keys', {
      ...{ name: '<i>-</i>', expires: '8', cap: '1.5', period: 'week', rate: '0' },
      networks: '10.0.0.1/8',
    });
    assert.equal(answer.statusCode, 422);
    for (const field of ['expires', 'cap', 'period', 'rate', 'scopes', 'networks']) {
      assert.match(answer.body, new RegExp(`id="${field}-error"`), field);
    }
    assert.ok(!answer.body.includes('<i>'));
    assert.match(answer.body, /value="1\.5"/);
    assert.match(answer.body, />10\.0\.0\.1\/8<\/textarea>/);
    const nameless = await owner.post('/account/keys', { ...FORM, scopes: ALL, name: ' ' });
    assert.match(nameless.body, /id="name-error"/);
    assert.ok(!TOKEN.test(nameless.body));
  });

  it('change a key, and leave its expiry where it is to stay', async () => {
    const { token, id, path } = await made({ name: 'before' });
    const expiresAtMs = (await test.stores.apiKeys.find(id))?.expiresAtMs;
    const form = { ...FORM, name: 'after', expires: 'keep', scopes: ['read', 'account'] };
    const answer = await owner.post(path, form);
    assert.equal(answer.statusCode, 303);
    assert.equal(answer.headers.location, `${path}?said=changed`);
    assert.match((await owner.get(`${path}?said=changed`)).body, /The key is changed/);
    const key = await test.stores.apiKeys.find(id);
    assert.deepEqual([key?.name, key?.policy.scopes], ['after', ['read', 'account']]);
    assert.equal(key?.expiresAtMs, expiresAtMs);
    const authorization = `Bearer ${token}`;
    const refused = await test.post('/v1/matting/jobs', imageBody(), { authorization });
    assert.equal(refused.statusCode, 403);
    assert.equal((await owner.post(path, { ...form, cap: 'x' })).statusCode, 422);
    await owner.post(path, { ...form, expires: 'never', scopes: ALL });
    const freed = await test.stores.apiKeys.find(id);
    assert.deepEqual([freed?.expiresAtMs, freed?.policy], [null, {}]);
  });

  it('rotate with an overlap and at once, each secret shown once', async () => {
    const { token, path } = await made();
    const first = await owner.post(`${path}/rotate`, { overlap: '24h' });
    const second = TOKEN.exec(first.body)?.[0] ?? '';
    assert.notEqual(second, token);
    assert.match(first.body, /The old secret goes on until/);
    assert.deepEqual([await statusOf(token), await statusOf(second)], [200, 200]);
    assert.match((await owner.get(path)).body, /Two secrets/);
    const last = await owner.post(`${path}/rotate`, { overlap: 'at-once' });
    assert.match(last.body, /The old secret has ended/);
    const third = TOKEN.exec(last.body)?.[0] ?? '';
    assert.deepEqual(
      [await statusOf(token), await statusOf(second), await statusOf(third)],
      [401, 401, 200],
    );
    assert.equal((await owner.post(`${path}/rotate`, { overlap: '2h' })).statusCode, 400);
  });

  it('revoke with a look at the last use', async () => {
    const { token, path } = await made();
    assert.match((await owner.get(path)).body, /It was never used/);
    assert.equal(await statusOf(token), 200);
    await test.services.keyUses.write();
    assert.match((await owner.get(path)).body, /It was last used/);
    const answer = await owner.post(`${path}/revoke`);
    assert.equal(answer.headers.location, `${path}?said=revoked`);
    assert.equal(await statusOf(token), 401);
    const page = (await owner.get(path)).body;
    assert.match(page, /Revoked/);
    assert.ok(!page.includes(`action="${path}`), 'nothing is left to be done');
    assert.equal((await owner.post(`${path}/rotate`, { overlap: '1h' })).statusCode, 404);
  });

  it('show viewers keys, and no way to change them', async () => {
    const { path } = await made();
    const page = await viewer.get(path);
    assert.equal(page.statusCode, 200);
    assert.ok(!page.body.includes(`action="${path}`));
    assert.ok(!(await viewer.get('/account/keys')).body.includes('/account/keys/new'));
    assert.equal((await viewer.get('/account/keys/new')).statusCode, 403);
  });

  it('list page after page', async () => {
    for (let n = 0; n < 50; n += 1) await test.stores.apiKeys.create(test.accountId, `many ${n}`);
    const first = (await owner.get('/account/keys')).body;
    const next = /href="([^"]+)" rel="next"/.exec(first)?.[1];
    assert.ok(next);
    const second = (await owner.get(next.replaceAll('&amp;', '&'))).body;
    assert.match(second, /first key/);
    assert.equal((await owner.get('/account/keys?after=x')).statusCode, 400);
  });
});
