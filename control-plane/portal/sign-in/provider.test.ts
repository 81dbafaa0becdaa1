/** Against a real identity provider. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { BASE_URL } from '@matting/core/test/support/test-app.ts';
import { OpenIdProvider } from '@matting/test-support/openid-provider.ts';
import ava from 'ava';
import { addressOf } from '../mails/mail-address.ts';
import { hashOfSecret } from '../session/secret.ts';
import { identityEntry, newLink, OPERATOR } from '../test/people.ts';
import { openTestApp, type PortalApp } from '../test/portal-app.ts';
import { Browser, signIn } from '../test/signed-in-browser.ts';
import { FAILURES_MAX } from './sign-in-throttle.ts';

const test = ava.serial;

const START = '/account/sign-in/provider';
const BACK = `${BASE_URL}${START}/back`;
const SESSION = '__Host-matting-session';
const TOKEN = 'x'.repeat(43);

async function throughProvider(start: string, subject: string): Promise<string> {
  const cookies = new Map<string, string>();
  let url = new URL(start);
  for (let steps = 0; steps < 10; steps += 1) {
    if (url.href.startsWith(BACK)) return url.href.slice(BASE_URL.length);
    const isForm = url.pathname.startsWith('/who-are-you/');
    const answer = await fetch(url, {
      method: isForm ? 'POST' : 'GET',
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(isForm && { body: new URLSearchParams({ subject }) }),
    });
    for (const cookie of answer.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      cookies.set(name, value);
    }
    url = new URL(answer.headers.get('location') ?? '', url);
  }
  throw new Error('the provider redirects for ever');
}

let provider: OpenIdProvider;
let fixture: PortalApp;
let otherId: string;

test.before(async () => {
  provider = await OpenIdProvider.start({ redirectUris: [BACK] });
  fixture = await openTestApp({
    settings: {
      portal: {
        accountArea: {
          canSignIn: true,
          playgroundImages: 0,
          oidc: {
            issuer: provider.issuer,
            clientId: provider.clientId,
            clientSecret: provider.clientSecret,
            scopes: ['openid', 'email', 'groups'],
            groupsClaim: 'groups',
            grants: [
              { group: 'shop-owners', account: 'tester', role: 'owner' },
              { group: 'shop-staff', account: 'tester', role: 'viewer' },
              { group: 'other-staff', account: 'other', role: 'member' },
              { group: 'shop-staff', account: 'not there yet', role: 'owner' },
            ],
          },
        },
      },
    },
  });
  otherId = (await fixture.stores.accounts.create('other'))?.id ?? '';
});
test.after.always(async () => {
  await fixture.close();
  await provider.close();
});

function somebody(groups: readonly string[], email = `${randomUUID()}@example.org`) {
  const subject = randomUUID();
  provider.people.set(subject, { email, groups });
  return { subject, email };
}

async function start(own: Browser, path = START): Promise<string> {
  const answer = await own.get(path);
  assert.equal(answer.statusCode, 303, answer.body);
  return answer.headers.location as string;
}

async function signInAs(subject: string, own = new Browser(fixture), path = START) {
  return { own, answer: await own.get(await throughProvider(await start(own, path), subject)) };
}

const statusOf = async (own: Browser, path: string) => (await own.get(path)).statusCode;

test('are asked for a click where another site led them', async t => {
  const path = `${START}?to=/account/audit`;
  for (const site of ['cross-site', 'same-site']) {
    const answer = await new Browser(fixture).get(path, { headers: { 'sec-fetch-site': site } });
    t.is(answer.headers.location, '/account/sign-in?to=%2Faccount%2Faudit');
  }
  for (const site of ['same-origin', 'none']) {
    const answer = await new Browser(fixture).get(path, { headers: { 'sec-fetch-site': site } });
    t.true(String(answer.headers.location).startsWith(provider.issuer), site);
  }
});

test('see the way to it, and come in and back to where they were', async t => {
  const { subject, email } = somebody(['shop-owners', 'shop-staff']);
  const page = await new Browser(fixture).get('/account/sign-in?to=/account/audit');
  const href = /href="(\/account\/sign-in\/provider[^"]*)"/.exec(page.body)?.[1] ?? '';
  t.regex(page.body, /Sign in with SSO/);
  const { own, answer } = await signInAs(subject, undefined, href);
  t.is(answer.headers.location, '/account/audit', answer.body);
  const log = await own.get('/account/audit');
  t.regex(log.body, new RegExp(email));
  t.regex(log.body, /Person joined by a group/);
  t.false(own.cookies.has('__Host-matting-flow'));
});

test('are looked up by requests that name this service', async t => {
  provider.agents.clear();
  await signInAs(somebody(['shop-owners']).subject);
  // The other agent is this test's browser.
  t.deepEqual(provider.agents, new Set(['node', 'matting-service/1 (sign-in)']));
});

test('are never taken for who has their mail', async t => {
  const known = await signIn(fixture, { mail: 'boss@example.org' });
  const { subject } = somebody(['other-staff'], 'boss@example.org');
  const { own } = await signInAs(subject);
  t.is(await statusOf(own, '/account/people'), 403);
  const members = await fixture.stores.people.listMembers(otherId);
  t.true(members.every(({ userId }) => userId !== known.userId));
});

test('accept no invitation to the mail that they claim', async t => {
  const mail = `boss-${randomUUID()}@example.org`;
  const link = newLink(otherId, { mail, role: 'owner', tokenHash: hashOfSecret(TOKEN) });
  t.is(await fixture.stores.links.create(link, OPERATOR), 'created');
  const path = `/account/invitations/${TOKEN}`;
  const { own } = await signInAs(somebody(['shop-staff'], mail).subject);
  t.regex((await own.get(path)).body, /You are signed in as/);
  const answer = await own.post(path, { password: 'seven green bicycles' });
  t.is(answer.statusCode, 422);
  t.regex(answer.body, /You are signed in as/);
  t.is((await own.post('/account/switch', { account: otherId })).statusCode, 404);
  t.truthy(await fixture.stores.links.find(link.tokenHash, 'invitation'));
});

test('are called by what the provider says with its host, as nobody else can be', async t => {
  const host = new URL(provider.issuer).host;
  const results = [
    'the operator',
    'a@b.example, c@d.example',
    `boss@b.example (${host})`,
    '',
    '\ud800',
  ];
  for (const email of results) {
    const { subject } = somebody(['shop-staff'], email);
    await signInAs(subject);
    const members = await fixture.stores.people.listMembers(fixture.accountId);
    const one = members.find(({ mail }) => mail.startsWith(subject));
    assert.ok(one);
    t.is(one.mail, `${subject} (${host})`, email);
    t.is(addressOf(one.mail), undefined);
  }
  const claimed = `ann-${randomUUID()}@example.org`;
  const { own } = await signInAs(somebody(['shop-owners'], claimed).subject);
  const log = await own.get('/account/audit');
  t.true(log.body.includes(`${claimed} (${host})`));
  await own.post('/account/people/invite', { mail: 'guest@example.org', role: 'viewer' });
  const [invited] = await fixture.stores.links.listOpen(fixture.accountId);
  assert.ok(invited);
  t.is(invited.createdBy, `${claimed} (${host})`);
  t.is(addressOf(invited.createdBy), claimed);
});

test('leave nothing here without a group of the list', async t => {
  const { subject, email } = somebody(['strangers']);
  const nobody = await signInAs(subject);
  t.is(nobody.answer.statusCode, 422);
  t.false(nobody.own.cookies.has(SESSION));
  provider.people.set(subject, { email, groups: ['shop-staff'] });
  t.is((await signInAs(subject)).answer.statusCode, 303);
  const members = await fixture.stores.people.listMembers(fixture.accountId);
  const known = members.find(({ mail }) => mail.startsWith(email));
  assert.ok(known);
  // A person who had a group once is known, and has no account without one.
  provider.people.set(subject, { email, groups: [] });
  t.is((await signInAs(subject)).answer.statusCode, 422);
  t.truthy(await fixture.stores.people.find(known.userId));
  const entry = { ...identityEntry([]), mail: 'stranger@example.org' };
  t.deepEqual(await fixture.stores.identities.enter(entry), { kind: 'no-account' });
  t.is(await fixture.stores.people.find(entry.newUserId), undefined);
});

test('have the provider asked few times an address for what is no way back of theirs', async t => {
  const forger = new Browser(fixture, '198.51.100.77');
  const statuses: number[] = [];
  for (let n = 0; n < FAILURES_MAX.provider + 2; n += 1) {
    const state = new URL(await start(forger)).searchParams.get('state');
    statuses.push(await statusOf(forger, `${START}/back?code=forged-${n}&state=${state}`));
  }
  t.deepEqual(statuses, [...Array(FAILURES_MAX.provider).fill(502), 429, 429]);
  // A confirmed sign-in does not count, and another address has its own count.
  const { subject } = somebody(['shop-staff']);
  for (let n = 0; n < 3; n += 1) {
    const { answer } = await signInAs(subject, new Browser(fixture, '198.51.100.78'));
    t.is(answer.statusCode, 303);
  }
});

test('may from now on what their groups say, and lose sessions with the group', async t => {
  const { subject, email } = somebody(['shop-owners', 'other-staff']);
  const { own: first } = await signInAs(subject);
  const other = fixture.stores.people;
  t.is((await first.post('/account/switch', { account: otherId })).statusCode, 303);
  const { own: second } = await signInAs(subject);
  provider.people.set(subject, { email, groups: ['shop-staff'] });
  const { own: third } = await signInAs(subject);
  // The first session acted for the lost account, and the second may do less.
  t.is(await statusOf(first, '/account/profile'), 303);
  t.true((await other.listMembers(otherId)).every(({ mail }) => !mail.startsWith(email)));
  for (const own of [second, third]) {
    if (own === third) t.is(await statusOf(own, '/account/profile'), 200);
    t.not(await statusOf(own, '/account/people'), 200);
  }
  provider.people.set(subject, { email, groups: [] });
  t.is((await signInAs(subject)).answer.statusCode, 422);
  t.is(await statusOf(third, '/account/profile'), 303);
});

test('are refused with what is not of their own flow', async t => {
  const { subject } = somebody(['shop-owners']);
  const own = new Browser(fixture);
  const back = await throughProvider(await start(own), subject);
  const stranger = new Browser(fixture);
  t.is(await statusOf(stranger, back), 403);
  // The cookie has another flow's state, nonce and verifier.
  await start(stranger);
  t.is(await statusOf(stranger, back), 502);
  t.false(stranger.cookies.has(SESSION));
  t.is(await statusOf(own, back.replace(/state=[^&]+/, 'state=x')), 502);
  // The failed attempt used up the flow.
  t.is(await statusOf(own, back), 403);
  const denied = new Browser(fixture);
  await start(denied);
  t.is(await statusOf(denied, `${START}/back?error=access_denied`), 502);
});

test('are told where it does not answer, and passwords go on', async t => {
  const gone = await OpenIdProvider.start({ redirectUris: [BACK] });
  const { issuer, clientId, clientSecret } = gone;
  await gone.close();
  const settings = { scopes: ['openid'], groupsClaim: 'groups', grants: [] };
  const oidc = { issuer, clientId, clientSecret, ...settings };
  const accountArea = { canSignIn: true, playgroundImages: 0, oidc };
  const own = new Browser(await openTestApp({ settings: { portal: { accountArea } } }, t));
  const answer = await own.get(START);
  t.is(answer.statusCode, 502);
  t.regex(answer.body, /identity provider is not responding/);
  t.is(await statusOf(own, '/account/sign-in'), 200);
});
