/** Invitations, sign-in, sessions and sign-out, as browsers see them. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import type { Role } from '../../../src/domain/account/roles.ts';
import { operatorLink } from '../../support/area/sign-in.ts';
import { Browser, signIn } from '../../support/signed-in-browser.ts';
import { BASE_URL, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const PASSWORD = 'seven green bicycles';
const SESSION = '__Host-matting-session';

const fixture = useTestApp(test);

const browser = (address?: string) => new Browser(fixture, address);

async function invited(role: Role = 'owner', mail = `${randomUUID()}@example.org`) {
  const { links } = fixture.services.accountArea;
  const made = await links.invite(
    fixture.accountId,
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

const isSignedIn = async (own: Browser) => (await own.get('/account/sessions')).statusCode === 200;

test('accept an invitation with a password of their own, once', async t => {
  const { mail, path } = await invited('viewer');
  const own = browser();
  const page = await own.get(path);
  t.regex(page.body, new RegExp(`${mail} is invited to the account tester. Role: Viewer`));
  for (const password of ['short', 'password1234!', 'passwordpassword', mail]) {
    const refused = await own.post(path, { password });
    t.is(refused.statusCode, 422, password);
    t.regex(refused.body, /aria-invalid="true"/);
    t.true(!refused.body.includes(`value="${password}"`) || password === mail);
  }
  t.is((await own.post(path, { password: PASSWORD })).statusCode, 303);
  t.truthy(await isSignedIn(own));
  t.is((await own.get('/account/people')).statusCode, 403);
  t.is((await browser().get(path)).statusCode, 404);
  const again = browser();
  await again.get('/account/sign-in');
  t.is((await again.post(path, { password: PASSWORD })).statusCode, 404);
});

test('come in with the password, and back to where they were', async t => {
  const { mail } = await member();
  const own = browser();
  const asked = await own.get('/account/audit?after=1');
  const page = await own.get(asked.headers.location as string);
  t.regex(page.body, /name="to" value="\/account\/audit\?after=1"/);
  const answer = await signInWith(own, mail, PASSWORD, { to: '/account/audit?after=1' });
  t.is(answer.headers.location, '/account/audit?after=1');
  const cookie = [answer.headers['set-cookie']].flat().find(one => one?.startsWith(SESSION));
  t.regex(cookie ?? '', /; Max-Age=604800; Path=\/; HttpOnly; Secure; SameSite=Lax$/);
});

test('see and end their sessions, and nobody else’s', async t => {
  const { mail, browser: own } = await member();
  const other = browser();
  await signInWith(other, mail);
  const page = await own.get('/account/sessions');
  const ids = [...page.body.matchAll(/\/account\/sessions\/([0-9a-f-]{36})\/end"/g)];
  t.is(ids.length, 1);
  const id = ids[0]?.[1];
  const stranger = await member();
  t.is((await stranger.browser.post(`/account/sessions/${id}/end`)).statusCode, 404);
  t.truthy(await isSignedIn(other));
  t.is((await own.post(`/account/sessions/${id}/end`)).statusCode, 303);
  t.true(!(await isSignedIn(other)));
  await signInWith(other, mail);
  await own.post('/account/sessions/end-others');
  t.true(!(await isSignedIn(other)));
  t.truthy(await isSignedIn(own));
});

test('keep the language that they chose', async t => {
  const { browser: own } = await member();
  const answer = await own.post('/account/language', {
    language: 'zh-CN',
    back: '/account/profile',
  });
  t.is(answer.headers.location, '/account/profile');
  t.regex((await own.get('/account/profile')).body, /<html lang="zh-CN">/);
  t.is((await own.post('/account/language', { language: 'xx' })).statusCode, 400);
});

test('switch between accounts of theirs, and to no other', async t => {
  const { mail, browser: own } = await member();
  const other = await fixture.stores.accounts.create(`other ${randomUUID().slice(0, 8)}`);
  assert.ok(other);
  t.is((await own.post('/account/switch', { account: other.id })).statusCode, 404);
  const { userId } = await signIn(fixture, { accountId: other.id, mail, role: 'viewer' });
  t.is((await own.post('/account/switch', { account: other.id })).statusCode, 303);
  t.regex((await own.get('/account/profile')).body, new RegExp(other.name));
  t.is((await own.get('/account/people')).statusCode, 403);
  t.truthy(userId);
});

test('use a sign-in link once, by its button', async t => {
  const { accountId } = fixture;
  const path = await operatorLink(fixture, { accountId, mail: 'owner@localhost', role: 'owner' });
  const own = browser();
  for (let count = 0; count < 2; count += 1) {
    t.regex((await own.get(path)).body, /owner@localhost/);
  }
  t.is((await own.post(path)).headers.location, '/account');
  t.truthy(await isSignedIn(own));
  t.is((await browser().get(path)).statusCode, 404);
  // Who came by a link has no password to be asked for.
  const next = 'eight purple umbrellas';
  t.is((await own.post('/account/profile/password', { next })).statusCode, 303);
});
