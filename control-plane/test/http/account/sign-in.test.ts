/** Invitations, sign-in, sessions and sign-out, as browsers see them. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import type { Role } from '../../../src/domain/account/roles.ts';
import { operatorLink } from '../../support/area/sign-in.ts';
import { Browser, signIn } from '../../support/signed-in-browser.ts';
import { BASE_URL, useTestApp } from '../../support/test-app.ts';

const PASSWORD = 'seven green bicycles';
const SESSION = '__Host-matting-session';

describe('people who sign in', () => {
  const test = useTestApp();

  const browser = (address?: string) => new Browser(test, address);

  async function invited(role: Role = 'owner', mail = `${randomUUID()}@example.org`) {
    const { links } = test.services.accountArea;
    const made = await links.invite(
      test.accountId,
      { mail, role, accountName: 'tester' },
      { kind: 'operator' },
    );
    assert.ok(typeof made === 'object' && made.url !== undefined);
    return { mail, path: made.url.slice(BASE_URL.length) };
  }

  /** Who has set a password, in a browser that is signed in. */
  async function member(role: Role = 'owner') {
    const { mail, path } = await invited(role);
    const own = browser();
    await own.get(path);
    const answer = await own.post(path, { password: PASSWORD });
    assert.equal(answer.headers.location, '/account', answer.body);
    return { mail, browser: own };
  }

  async function signInWith(own: Browser, mail: string, password = PASSWORD, more = {}) {
    await own.get('/account/sign-in');
    return own.post('/account/sign-in', { mail, password, ...more });
  }

  const isSignedIn = async (own: Browser) =>
    (await own.get('/account/sessions')).statusCode === 200;

  it('accept an invitation with a password of their own, once', async () => {
    const { mail, path } = await invited('viewer');
    const own = browser();
    const page = await own.get(path);
    assert.match(page.body, new RegExp(`${mail} is invited to the account tester. Role: Viewer`));
    for (const password of ['short', 'password1234!', 'passwordpassword', mail]) {
      const refused = await own.post(path, { password });
      assert.equal(refused.statusCode, 422, password);
      assert.match(refused.body, /aria-invalid="true"/);
      assert.ok(!refused.body.includes(`value="${password}"`) || password === mail);
    }
    assert.equal((await own.post(path, { password: PASSWORD })).statusCode, 303);
    assert.ok(await isSignedIn(own));
    assert.equal((await own.get('/account/people')).statusCode, 403);
    assert.equal((await browser().get(path)).statusCode, 404);
    const again = browser();
    await again.get('/account/sign-in');
    assert.equal((await again.post(path, { password: PASSWORD })).statusCode, 404);
  });

  it('come in with the password, and back to where they were', async () => {
    const { mail } = await member();
    const own = browser();
    const asked = await own.get('/account/audit?after=1');
    const page = await own.get(asked.headers.location as string);
    assert.match(page.body, /name="to" value="\/account\/audit\?after=1"/);
    const answer = await signInWith(own, mail, PASSWORD, { to: '/account/audit?after=1' });
    assert.equal(answer.headers.location, '/account/audit?after=1');
    const cookie = [answer.headers['set-cookie']].flat().find(one => one?.startsWith(SESSION));
    assert.match(cookie ?? '', /; Max-Age=604800; Path=\/; HttpOnly; Secure; SameSite=Lax$/);
  });

  it('see and end their sessions, and nobody else’s', async () => {
    const { mail, browser: own } = await member();
    const other = browser();
    await signInWith(other, mail);
    const page = await own.get('/account/sessions');
    const ids = [...page.body.matchAll(/\/account\/sessions\/([0-9a-f-]{36})\/end"/g)];
    assert.equal(ids.length, 1);
    const id = ids[0]?.[1];
    const stranger = await member();
    assert.equal((await stranger.browser.post(`/account/sessions/${id}/end`)).statusCode, 404);
    assert.ok(await isSignedIn(other));
    assert.equal((await own.post(`/account/sessions/${id}/end`)).statusCode, 303);
    assert.ok(!(await isSignedIn(other)));
    await signInWith(other, mail);
    await own.post('/account/sessions/end-others');
    assert.ok(!(await isSignedIn(other)));
    assert.ok(await isSignedIn(own));
  });

  it('keep the language that they chose', async () => {
    const { browser: own } = await member();
    const answer = await own.post('/account/language', {
      language: 'zh-CN',
      back: '/account/profile',
    });
    assert.equal(answer.headers.location, '/account/profile');
    assert.match((await own.get('/account/profile')).body, /<html lang="zh-CN">/);
    assert.equal((await own.post('/account/language', { language: 'xx' })).statusCode, 400);
  });

  it('switch between accounts of theirs, and to no other', async () => {
    const { mail, browser: own } = await member();
    const other = await test.stores.accounts.create(`other ${randomUUID().slice(0, 8)}`);
    assert.ok(other);
    assert.equal((await own.post('/account/switch', { account: other.id })).statusCode, 404);
    const { userId } = await signIn(test, { accountId: other.id, mail, role: 'viewer' });
    assert.equal((await own.post('/account/switch', { account: other.id })).statusCode, 303);
    assert.match((await own.get('/account/profile')).body, new RegExp(other.name));
    assert.equal((await own.get('/account/people')).statusCode, 403);
    assert.ok(userId);
  });

  it('use a sign-in link once, by its button', async () => {
    const { accountId } = test;
    const path = await operatorLink(test, { accountId, mail: 'owner@localhost', role: 'owner' });
    const own = browser();
    for (let count = 0; count < 2; count += 1) {
      assert.match((await own.get(path)).body, /owner@localhost/);
    }
    assert.equal((await own.post(path)).headers.location, '/account');
    assert.ok(await isSignedIn(own));
    assert.equal((await browser().get(path)).statusCode, 404);
    // Who came by a link has no password to be asked for.
    const next = 'eight purple umbrellas';
    assert.equal((await own.post('/account/profile/password', { next })).statusCode, 303);
  });
});
