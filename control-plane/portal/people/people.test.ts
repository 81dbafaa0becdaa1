import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { dueMails, mailEnd } from '@matting/core/test/mails.ts';
import { BASE_URL } from '@matting/core/test/support/test-app.ts';
import ava from 'ava';
import type { Role } from '../session/roles.ts';
import { operatorLink } from '../test/area/sign-in.ts';
import { areaOf, openTestApp, useTestApp } from '../test/portal-app.ts';
import {
  Browser,
  type SignedInBrowser,
  signIn,
  signInElsewhere,
} from '../test/signed-in-browser.ts';

const test = ava.serial;

/** No mail server: mails wait in the outbox. */
const SMTP = { smtpUrl: 'smtps://mail.example', from: 'matting@example.org' };

let owner: SignedInBrowser;
let stranger: SignedInBrowser;
const fixture = useTestApp(test, {}, async () => {
  owner = await signIn(fixture, { mail: 'first@example.org' });
  stranger = await signInElsewhere(fixture);
});

test('people › are invited by a link that is shown once', async t => {
  const mail = '<b>guest</b>@example.org';
  const wrong = await owner.post('/account/people/invite', { mail, role: 'member' });
  t.is(wrong.statusCode, 422);
  t.false(wrong.body.includes('<b>guest'));
  const made = await owner.post('/account/people/invite', {
    mail: 'guest@example.org',
    role: 'member',
  });
  t.regex(made.body, /https:\/\/matting\.example\.com\/account\/invitations\/[\w-]{43}/);
  t.is(made.headers['cache-control'], 'no-store');
  const page = await owner.get('/account/people');
  t.regex(page.body, /guest@example\.org/);
  t.false(page.body.includes('/account/invitations/'));
  const id = /invitations\/([0-9a-f-]{36})\/withdraw/.exec(page.body)?.[1];
  const path = `/account/people/invitations/${id}/withdraw`;
  t.is((await stranger.post(path)).statusCode, 404);
  t.is((await owner.post(path)).statusCode, 303);
});

test('people › keep an owner', async t => {
  const path = `/account/people/${owner.userId}`;
  for (const change of [`${path}/remove`, `${path}/role`]) {
    const answer = await owner.post(change, { role: 'viewer' });
    t.is(answer.statusCode, 422);
  }
  t.is((await owner.get('/account/people')).statusCode, 200);
});

const PASSWORD = 'seven green bicycles';
const SESSION = '__Host-matting-session';

const browser = (address?: string) => new Browser(fixture, address);

test('people › get a new link for an invitation, and the old one ends', async t => {
  const mail = `${randomUUID()}@example.org`;
  const made = await owner.post('/account/people/invite', { mail, role: 'viewer' });
  const linkIn = (body: string) => /\/account\/invitations\/[\w-]{43}/.exec(body)?.[0] ?? '';
  const idIn = (body: string) => {
    const cells = body.split('<tr>').find(row => row.includes(mail) && row.includes('/resend'));
    return /invitations\/([0-9a-f-]{36})\/resend/.exec(cells ?? '')?.[1];
  };
  const old = linkIn(made.body);
  const path = `/account/people/invitations/${idIn(made.body)}/resend`;
  const again = await owner.post(path);
  t.is(again.statusCode, 200);
  const link = linkIn(again.body);
  t.not(link, old);
  t.is((await browser().get(old)).statusCode, 404);
  t.regex((await browser().get(link)).body, new RegExp(`${mail} is invited .* Role: Viewer`));
  t.is((await owner.post(path)).statusCode, 404, 'the old one is not sent again');
});

async function invited(role: Role = 'owner', mail = `${randomUUID()}@example.org`) {
  const { invitations } = areaOf(fixture);
  const made = await invitations.invite(
    fixture.accountId,
    { mail, role, accountName: 'tester' },
    { kind: 'operator' },
  );
  assert.ok(typeof made === 'object' && made.url !== undefined);
  return { mail, path: made.url.slice(BASE_URL.length) };
}

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

test('people who come in › accept an invitation with a password of their own, once', async t => {
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

test('people who come in › come in with the password, and back to where they were', async t => {
  const { mail } = await member();
  const own = browser();
  const redirect = await own.get('/account/audit?after=1');
  const page = await own.get(redirect.headers.location as string);
  t.regex(page.body, /name="to" value="\/account\/audit\?after=1"/);
  const answer = await signInWith(own, mail, PASSWORD, { to: '/account/audit?after=1' });
  t.is(answer.headers.location, '/account/audit?after=1');
  const cookie = [answer.headers['set-cookie']].flat().find(one => one?.startsWith(SESSION));
  t.regex(cookie ?? '', /; Max-Age=604800; Path=\/; HttpOnly; Secure; SameSite=Lax$/);
});

test('people who come in › see and end their sessions, and nobody else’s', async t => {
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

test('people who come in › switch between accounts of theirs, and to no other', async t => {
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

test('people who come in › use a sign-in link once, by its button', async t => {
  const { accountId } = fixture;
  const path = await operatorLink(fixture, { accountId, mail: 'owner@localhost', role: 'owner' });
  const own = browser();
  for (let count = 0; count < 2; count += 1) {
    t.regex((await own.get(path)).body, /owner@localhost/);
  }
  t.is((await own.post(path)).headers.location, '/account');
  t.truthy(await isSignedIn(own));
  t.is((await browser().get(path)).statusCode, 404);
  // A person who came by a link has no former password to type.
  const next = 'eight purple umbrellas';
  t.is((await own.post('/account/profile/password', { next })).statusCode, 303);
  t.is((await own.post('/account/profile/password', { next: PASSWORD })).statusCode, 422);
});

test('the area › can be off', async t => {
  const off = await openTestApp({ settings: { portal: { accountArea: undefined } } }, t);
  const answer = await off.app.inject({ url: '/account/sign-in' });
  t.is(answer.statusCode, 404);
  t.is(answer.headers['content-type'], 'application/problem+json');
});

const MAILS = 6;

let sender: SignedInBrowser;
const mailing = useTestApp(
  test,
  { settings: { portal: { mail: SMTP, accountMails: MAILS } } },
  async () => {
    sender = await signIn(mailing);
  },
);

const waiting = () => dueMails(mailing.stores, 100);

const invite = (mail: string) => sender.post('/account/people/invite', { mail, role: 'member' });

async function withdrawAll(): Promise<void> {
  const page = await sender.get('/account/people');
  for (const [, id] of page.body.matchAll(/invitations\/([0-9a-f-]{36})\/withdraw/g)) {
    const gone = await sender.post(`/account/people/invitations/${id}/withdraw`);
    assert.equal(gone.statusCode, 303);
  }
}

test('mails › bring no invitation that was withdrawn, not even where an attempt to send it failed', async t => {
  await invite('early@example.org');
  await withdrawAll();
  t.deepEqual(await waiting(), []);
  await invite('late@example.org');
  const [mail] = await waiting();
  assert.ok(mail);
  t.is(mail.address, 'late@example.org');
  const claim = { id: mail.id, holder: 'replica', fence: mail.fence + 1 };
  t.truthy(await mailing.stores.outbox.claim(claim, 60_000));
  await withdrawAll();
  t.false(await mailing.stores.outbox.retryLater(claim, mailEnd('E451'), 0));
  t.deepEqual(await waiting(), []);
});

test('mails › hold no link that who reads the database could use', async t => {
  await invite('sealed@example.org');
  const [mail] = await waiting();
  assert.ok(mail);
  t.false(mail.body.includes('/account/invitations/'));
  t.regex(mail.body, /^[0-9a-f]{16}\.[\w+/]+=*$/);
  await withdrawAll();
});

test('mails › are so many a day, and an invitation beyond them is refused before anything is made', async t => {
  const sent = async () =>
    (await mailing.stores.alertSettings.read(mailing.accountId)).sentToday.mails;
  for (let count = await sent(); count < MAILS; count += 1) await invite(`${count}@example.org`);
  const refused = await invite('beyond@example.org');
  t.is(refused.statusCode, 422);
  const page = await sender.get('/account/people');
  t.false(page.body.includes('beyond@example.org'));
  t.false((await sender.get('/account/audit')).body.includes('beyond@example.org'));
  t.true((await waiting()).every(mail => mail.address !== 'beyond@example.org'));
  const neighbour = await signInElsewhere(mailing);
  const made = await neighbour.post('/account/people/invite', {
    mail: 'beyond@example.org',
    role: 'member',
  });
  t.is(made.statusCode, 200, 'another account has its own');
  await withdrawAll();
  t.is((await invite('late@example.org')).statusCode, 422, 'what was withdrawn counts');
});
