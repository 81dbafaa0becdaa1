/** Sign-in by an identity provider, against a real one. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { OpenIdProvider } from '../../../../test/support/openid-provider.ts';
import { addressOf } from '../../../src/domain/account/mail-address.ts';
import { FAILURES_MAX } from '../../../src/domain/account/sign-in-throttle.ts';
import { hashOfSecret } from '../../../src/services/people/sign-in.ts';
import { identityEntry, newLink, OPERATOR } from '../../store/people.ts';
import { Browser, signIn } from '../../support/signed-in-browser.ts';
import { BASE_URL, openTestApp, type TestApp } from '../../support/test-app.ts';

const START = '/account/sign-in/provider';
const BACK = `${BASE_URL}${START}/back`;
const SESSION = '__Host-matting-session';
const TOKEN = 'x'.repeat(43);

/** Through the provider's pages, to where it sends the browser back. */
async function throughProvider(start: string, subject: string): Promise<string> {
  const cookies = new Map<string, string>();
  let place = new URL(start);
  for (let steps = 0; steps < 10; steps += 1) {
    if (place.href.startsWith(BACK)) return place.href.slice(BASE_URL.length);
    const isForm = place.pathname.startsWith('/who-are-you/');
    const answer = await fetch(place, {
      method: isForm ? 'POST' : 'GET',
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(isForm && { body: new URLSearchParams({ subject }) }),
    });
    for (const cookie of answer.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      cookies.set(name, value);
    }
    place = new URL(answer.headers.get('location') ?? '', place);
  }
  throw new Error('the provider redirects for ever');
}

describe('people whom an identity provider knows', () => {
  let provider: OpenIdProvider;
  let test: TestApp;
  let otherId: string;

  before(async () => {
    provider = await OpenIdProvider.start({ redirectUris: [BACK] });
    test = await openTestApp({
      accountArea: {
        canSignIn: true,
        playgroundImages: 0,
        oidc: {
          issuer: provider.issuer,
          clientId: provider.clientId,
          clientSecret: provider.clientSecret,
          name: 'Shop ID',
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
    });
    otherId = (await test.stores.accounts.create('other'))?.id ?? '';
  });
  after(async () => {
    await test.close();
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

  async function signInAs(subject: string, own = new Browser(test), path = START) {
    return { own, answer: await own.get(await throughProvider(await start(own, path), subject)) };
  }

  const statusOf = async (own: Browser, path: string) => (await own.get(path)).statusCode;

  it('are asked for a click where another site led them', async () => {
    const path = `${START}?to=/account/audit`;
    for (const site of ['cross-site', 'same-site']) {
      const answer = await new Browser(test).get(path, { headers: { 'sec-fetch-site': site } });
      assert.equal(answer.headers.location, '/account/sign-in?to=%2Faccount%2Faudit');
    }
    for (const site of ['same-origin', 'none']) {
      const answer = await new Browser(test).get(path, { headers: { 'sec-fetch-site': site } });
      assert.ok(String(answer.headers.location).startsWith(provider.issuer), site);
    }
  });

  it('see the way to it, and come in and back to where they were', async () => {
    const { subject, email } = somebody(['shop-owners', 'shop-staff']);
    const page = await new Browser(test).get('/account/sign-in?to=/account/audit');
    const href = /href="(\/account\/sign-in\/provider[^"]*)"/.exec(page.body)?.[1] ?? '';
    assert.match(page.body, /Sign in with Shop ID/);
    const { own, answer } = await signInAs(subject, undefined, href);
    assert.equal(answer.headers.location, '/account/audit', answer.body);
    const log = await own.get('/account/audit');
    assert.match(log.body, new RegExp(email));
    assert.match(log.body, /Joined by a group/);
    assert.ok(!own.cookies.has('__Host-matting-flow'));
  });

  it('are nobody here without a group of the list', async () => {
    const { answer, own } = await signInAs(somebody(['strangers']).subject);
    assert.equal(answer.statusCode, 422);
    assert.match(answer.body, /You belong to no account/);
    assert.ok(!own.cookies.has(SESSION));
  });

  it('are never taken for who has their mail', async () => {
    const known = await signIn(test, { mail: 'boss@example.org' });
    const { subject } = somebody(['other-staff'], 'boss@example.org');
    const { own } = await signInAs(subject);
    assert.equal(await statusOf(own, '/account/people'), 403);
    const members = await test.stores.people.listMembers(otherId);
    assert.ok(members.every(({ userId }) => userId !== known.userId));
  });

  it('accept no invitation to the mail that they claim', async () => {
    const mail = `boss-${randomUUID()}@example.org`;
    const link = newLink(otherId, { mail, role: 'owner', tokenHash: hashOfSecret(TOKEN) });
    assert.equal(await test.stores.links.create(link, OPERATOR), 'created');
    const path = `/account/invitations/${TOKEN}`;
    const { own } = await signInAs(somebody(['shop-staff'], mail).subject);
    assert.match((await own.get(path)).body, /You are signed in as/);
    const answer = await own.post(path, { password: 'seven green bicycles' });
    assert.equal(answer.statusCode, 422);
    assert.match(answer.body, /You are signed in as/);
    assert.equal((await own.post('/account/switch', { account: otherId })).statusCode, 404);
    assert.ok(await test.stores.links.find(link.tokenHash, 'invitation'));
  });

  it('are called by what the provider says with its host, as nobody else can be', async () => {
    const host = new URL(provider.issuer).host;
    const said = [
      'the operator',
      'a@b.example, c@d.example',
      `boss@b.example (${host})`,
      '',
      '\ud800',
    ];
    for (const email of said) {
      const { subject } = somebody(['shop-staff'], email);
      await signInAs(subject);
      const members = await test.stores.people.listMembers(test.accountId);
      const one = members.find(({ mail }) => mail.startsWith(subject));
      assert.equal(one?.mail, `${subject} (${host})`, email);
      assert.equal(addressOf(one.mail), undefined);
    }
    const claimed = `ann-${randomUUID()}@example.org`;
    const { own } = await signInAs(somebody(['shop-owners'], claimed).subject);
    const log = await own.get('/account/audit');
    assert.ok(log.body.includes(`${claimed} (${host})`));
    await own.post('/account/people/invite', { mail: 'guest@example.org', role: 'viewer' });
    const [invited] = await test.stores.links.listOpen(test.accountId);
    assert.equal(invited?.createdBy, `${claimed} (${host})`);
    assert.equal(addressOf(invited.createdBy), claimed);
  });

  it('make no browser known: their claim says nothing of a person here', async () => {
    const { own } = await signInAs(somebody(['shop-staff'], 'first@example.org').subject);
    assert.ok(own.cookies.has(SESSION));
    assert.ok(!own.cookies.has('__Host-matting-device'));
  });

  it('leave nothing here without a group of the list', async () => {
    const { subject, email } = somebody(['strangers']);
    assert.equal((await signInAs(subject)).answer.statusCode, 422);
    provider.people.set(subject, { email, groups: ['shop-staff'] });
    assert.equal((await signInAs(subject)).answer.statusCode, 303);
    const members = await test.stores.people.listMembers(test.accountId);
    const known = members.find(({ mail }) => mail.startsWith(email));
    assert.ok(known);
    // Who had a group once is known, and is nobody without one.
    provider.people.set(subject, { email, groups: [] });
    assert.equal((await signInAs(subject)).answer.statusCode, 422);
    assert.ok(await test.stores.people.find(known.userId));
    const entry = { ...identityEntry([]), mail: 'stranger@example.org' };
    assert.deepEqual(await test.stores.identities.enter(entry), { kind: 'no-account' });
    assert.equal(await test.stores.people.find(entry.newUserId), undefined);
  });

  it('have the provider asked few times an address for what is no way back of theirs', async () => {
    const forger = new Browser(test, '198.51.100.77');
    const statuses: number[] = [];
    for (let n = 0; n < FAILURES_MAX.provider + 2; n += 1) {
      const state = new URL(await start(forger)).searchParams.get('state');
      statuses.push(await statusOf(forger, `${START}/back?code=forged-${n}&state=${state}`));
    }
    assert.deepEqual(statuses, [...Array(FAILURES_MAX.provider).fill(502), 429, 429]);
    // What it confirms is not counted, and another address is another.
    const { subject } = somebody(['shop-staff']);
    for (let n = 0; n < 3; n += 1) {
      const { answer } = await signInAs(subject, new Browser(test, '198.51.100.78'));
      assert.equal(answer.statusCode, 303);
    }
  });

  it('may from now on what their groups say, and lose sessions with the group', async () => {
    const { subject, email } = somebody(['shop-owners', 'other-staff']);
    const { own: first } = await signInAs(subject);
    const other = test.stores.people;
    assert.equal((await first.post('/account/switch', { account: otherId })).statusCode, 303);
    const { own: second } = await signInAs(subject);
    provider.people.set(subject, { email, groups: ['shop-staff'] });
    const { own: third } = await signInAs(subject);
    // The first acted for the account that is lost, and the second may less.
    assert.equal(await statusOf(first, '/account/profile'), 303);
    assert.ok((await other.listMembers(otherId)).every(({ mail }) => !mail.startsWith(email)));
    for (const own of [second, third]) {
      if (own === third) assert.equal(await statusOf(own, '/account/profile'), 200);
      assert.notEqual(await statusOf(own, '/account/people'), 200);
    }
    provider.people.set(subject, { email, groups: [] });
    assert.equal((await signInAs(subject)).answer.statusCode, 422);
    assert.equal(await statusOf(third, '/account/profile'), 303);
  });

  it('are refused with what is not of their own flow', async () => {
    const { subject } = somebody(['shop-owners']);
    const own = new Browser(test);
    const back = await throughProvider(await start(own), subject);
    const stranger = new Browser(test);
    assert.equal(await statusOf(stranger, back), 403);
    // Another flow's state, nonce and verifier.
    await start(stranger);
    assert.equal(await statusOf(stranger, back), 502);
    assert.ok(!stranger.cookies.has(SESSION));
    assert.equal(await statusOf(own, back.replace(/state=[^&]+/, 'state=x')), 502);
    // The flow was used up by that.
    assert.equal(await statusOf(own, back), 403);
    const denied = new Browser(test);
    await start(denied);
    assert.equal(await statusOf(denied, `${START}/back?error=access_denied`), 502);
  });

  it('are told where it does not answer, and passwords go on', async t => {
    const gone = await OpenIdProvider.start({ redirectUris: [BACK] });
    const { issuer, clientId, clientSecret } = gone;
    await gone.close();
    const settings = { name: 'SSO', scopes: ['openid'], groupsClaim: 'groups', grants: [] };
    const oidc = { issuer, clientId, clientSecret, ...settings };
    const accountArea = { canSignIn: true, playgroundImages: 0, oidc };
    const own = new Browser(await openTestApp({ accountArea }, t));
    const answer = await own.get(START);
    assert.equal(answer.statusCode, 502);
    assert.match(answer.body, /identity provider does not answer/);
    assert.equal(await statusOf(own, '/account/sign-in'), 200);
  });
});
