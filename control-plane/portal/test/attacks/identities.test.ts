import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import ava from 'ava';
import { createSecret, hashOfSecret } from '../../session/secret.ts';
import { FAILURES_MAX } from '../../sign-in/sign-in-throttle.ts';
import { APP_ROUTES } from '../area/app-routes.ts';
import { ReadPage } from '../area/pages.ts';
import { multipartOf, type Person } from '../area/person.ts';
import {
  operatorLink,
  type Registered,
  registerPerson,
  signIn,
  trySignIn,
} from '../area/sign-in.ts';
import { makeThings } from '../area/things.ts';
import { filled, type Member, openWorld, useWorld, type World } from '../area/world.ts';
import { linkUse, newLink, OPERATOR } from '../people.ts';
import { areaOf } from '../portal-app.ts';

const CHANGES_A_MINUTE_MAX = 60;
const test = ava.serial;

const LINK = /https:\/\/matting\.example\.com(\/account\/invitations\/([\w-]{43}))/;
const DEVICE = '__Host-matting-device';
const PROFILE = '/account/profile/password';

/** Every test has its own addresses, since attempts are counted by them. */
let address: () => string;
let tests = 0;
const world = useWorld(test, {}, async () => {
  known = await registerPerson(world, 'owner');
});
let known: Registered;
test.beforeEach(() => {
  tests += 1;
  let count = 0;
  address = () => `10.${tests}.0.${++count}`;
});

const mailOf = () => `ann-${randomUUID().slice(0, 8)}@alpha.example`;

async function invite(inviter: Person, mail: string, role = 'member'): Promise<string> {
  const answer = await inviter.post('/account/people/invite', { mail, role });
  const path = LINK.exec(answer.body)?.[1];
  assert.ok(path, answer.body);
  return path;
}

async function accept(path: string, password: string, person = world.stranger()) {
  const csrf = (await person.page(path)).csrf ?? '';
  const answer = await person.post(path, { password }, { csrf, address: address() });
  return { person, answer };
}

async function useSignInLink(accountId: string, mail: string, role: 'owner' | 'member') {
  const path = await operatorLink(world.test, { accountId, mail, role });
  const person = world.stranger();
  const csrf = (await person.page(path)).csrf ?? '';
  assert.equal((await person.post(path, {}, { csrf })).statusCode, 303);
  return person;
}

const statusOf = async (person: Person, path = '/account/profile') =>
  (await person.get(path)).statusCode;

test('a name that somebody typed › gives no way into the account of whoever has that mail later', async t => {
  const mail = mailOf();
  const { theirs, ours } = world;
  const password = 'the word of mallory 1';
  const mallory = await accept(await invite(theirs.people.owner, mail), password);
  t.is(mallory.answer.statusCode, 303);
  const known = mallory.person.cookies.get(DEVICE) ?? '';
  // An invitation that its inviter saw proves nothing.
  const path = await invite(ours.people.owner, mail, 'owner');
  t.is((await accept(path, 'a new one of ann 2')).answer.statusCode, 422);
  const joins = await accept(path, password);
  t.is(joins.answer.statusCode, 422);
  t.regex(joins.answer.body, /is not verified/);
  const inside = await accept(path, password, mallory.person);
  t.regex(inside.answer.body, /is not verified/);
  // The operator's link is a proof, and ends what was there.
  const ann = await useSignInLink(ours.accountId, mail, 'owner');
  t.is(await statusOf(ann, '/account/people'), 200);
  t.is(await statusOf(mallory.person), 303);
  const again = world.stranger();
  again.cookies.set(DEVICE, known);
  const refused = await trySignIn(again, { mail, password }, { address: address() });
  t.is(refused.statusCode, 422);
  const next = 'a sentence of ann 3';
  t.is((await ann.post(PROFILE, { next })).statusCode, 303);
  await signIn(world.stranger(), { mail, password: next });
  const members = await world.test.stores.people.listMembers(ours.accountId);
  t.truthy(members.find(one => one.mail === mail)?.isProven);
});

test('a name that somebody typed › tells nobody who exists: one page, and a link that was opened and withdrawn', async t => {
  const { owner } = world.theirs.people;
  const typed = mailOf();
  await accept(await invite(owner, typed), 'some words of a guest');
  const proven = await registerPerson(world, 'viewer');
  const pages = new Set<string>();
  for (const mail of [mailOf(), typed, proven.mail]) {
    const path = await invite(world.ours.people.owner, mail);
    for (const password of [undefined, 'short', 'password1234!']) {
      const guest = world.stranger();
      const page = await guest.get(path);
      const csrf = new ReadPage(page.body).csrf ?? '';
      const answer =
        password === undefined
          ? page
          : await guest.post(path, { password }, { csrf, address: address() });
      t.is(answer.statusCode, password === undefined ? 200 : 422);
      const { body } = answer;
      const plain = body.replaceAll(path, 'PATH').replaceAll(mail, 'MAIL');
      pages.add(`${password} ${plain.replaceAll(/ name="csrf" value="[^"]*"/g, '')}`);
    }
  }
  t.is(pages.size, 3);
});

test('a name that somebody typed › is asked for the password, with a bound, before it joins', async t => {
  const known = await registerPerson(world, 'viewer');
  const path = await invite(world.theirs.people.owner, known.mail);
  const statuses: number[] = [];
  for (let n = 0; n < FAILURES_MAX.mail + 2; n += 1) {
    statuses.push((await accept(path, `a wrong sentence ${n}`)).answer.statusCode);
  }
  t.deepEqual(statuses, [...Array(FAILURES_MAX.mail).fill(422), 429, 429]);
  const own = world.stranger();
  const elsewhere = await registerPerson(world, 'viewer');
  await signIn(own, elsewhere);
  const theirs = await invite(world.theirs.people.owner, elsewhere.mail);
  const csrf = (await own.page(theirs)).csrf ?? '';
  t.is((await own.post(theirs, {}, { csrf })).statusCode, 422);
  const { password } = elsewhere;
  t.is((await own.post(theirs, { password }, { csrf })).statusCode, 303);
  // Without a session the password alone is the same proof.
  const third = await registerPerson(world, 'viewer');
  const last = await accept(await invite(world.theirs.people.owner, third.mail), third.password);
  t.is(last.answer.statusCode, 303);
});

test('a name that somebody typed › leaves keys that an owner is told of, and may revoke', async t => {
  const { accountId, people } = world.ours;
  const former = await world.join(accountId, 'owner');
  const form = await former.page('/account/keys/new');
  const fields = Object.fromEntries(form.forms.find(f => f.fields.has('name'))?.fields ?? []);
  const made = await former.post('/account/keys', { ...fields, name: 'left behind' });
  const token = /mk_\w+/.exec(made.body)?.[0];
  assert.ok(token, made.body);
  const removed = await people.owner.post(`/account/people/${former.userId}/remove`);
  const page = await people.owner.get(String(removed.headers.location));
  t.regex(page.body, /left behind/);
  const authorization = `Bearer ${token}`;
  const call = () => world.test.get('/v1/account', { authorization });
  t.is((await call()).statusCode, 200);
  const revoke = `/account/people/${former.userId}/revoke-keys`;
  t.is((await world.theirs.people.owner.post(revoke)).statusCode, 404);
  t.is((await call()).statusCode, 200);
  t.is((await people.owner.post(revoke)).statusCode, 303);
  t.is((await call()).statusCode, 401);
  const after = await people.owner.get(String(removed.headers.location));
  t.false(after.body.includes('left behind'));
});

test('a name that somebody typed › has known browsers until the password is another, and few guesses by all of them', async t => {
  const known = await registerPerson(world, 'viewer');
  const { mail } = known;
  const cookies: string[] = [];
  for (let n = 0; n < 5; n += 1) {
    const person = world.stranger();
    await trySignIn(person, known, { address: address() });
    cookies.push(person.cookies.get(DEVICE) ?? '');
  }
  const guess = async (cookie: string, password = 'a wrong sentence') => {
    const person = world.stranger();
    person.cookies.set(DEVICE, cookie);
    return (await trySignIn(person, { mail, password }, { address: address() })).statusCode;
  };
  const judged: number[] = [];
  for (const cookie of cookies) {
    for (let n = 0; n < FAILURES_MAX.browser + 1; n += 1) judged.push(await guess(cookie));
  }
  t.is(judged.filter(status => status === 422).length, FAILURES_MAX.browsers);
  const next = { mail, password: 'another sentence 9' };
  const own = world.stranger();
  // A stranger's bound is separate, so the person gets in from elsewhere.
  await signIn(own, known);
  const { password: current } = known;
  t.is((await own.post(PROFILE, { current, next: next.password })).statusCode, 303);
  const strangers: number[] = [];
  for (const cookie of cookies) {
    for (let n = 0; n < 4; n += 1) strangers.push(await guess(cookie));
  }
  t.is(strangers.filter(status => status === 422).length, FAILURES_MAX.mail);
  // The browser that changed the password is known by the new one.
  await own.post('/account/sign-out');
  t.is((await trySignIn(own, next, { address: address() })).statusCode, 303);
});

{
  const world = useWorld(test, {
    settings: { portal: { mail: { smtpUrl: 'smtp://127.0.0.1:1', from: 'matting@example.com' } } },
  });

  test('an invitation where there is a mail server › is seen by its reader alone, whom it proves', async t => {
    const mail = `${randomUUID()}@alpha.example`;
    const answer = await world.ours.people.owner.post('/account/people/invite', {
      mail,
      role: 'owner',
    });
    t.is(answer.statusCode, 200);
    t.true(!LINK.test(answer.body) && !answer.body.includes('/account/invitations/'));
    t.regex(answer.body, new RegExp(`invitation to ${mail}`));
    const [link] = await world.test.stores.links.listOpen(world.ours.accountId);
    t.is(link?.mail, mail);
    const { proves_mail } = world.row('one_time_links', link?.id ?? '');
    t.is(proves_mail, 1);
    const waiting = world.row('outbox', mail, 'address');
    t.is(waiting.account_id, world.ours.accountId);
  });

  test('an invitation where there is a mail server › comes as a forgotten password’s link does', async t => {
    const { body } = await world.stranger().get('/account/sign-in');
    t.regex(body, /Ask the operator of this service to email you a sign-in link/);
  });
}

const KEY = { name: 'a key of a held form', expires: 'never', period: 'month', scopes: 'submit' };
const NEXT = 'another long sentence 17';
const SIGN_IN = '/account/sign-in';

async function signedInTwice() {
  const known = await registerPerson(world, 'owner');
  const person = world.stranger();
  await signIn(person, known);
  const elsewhere = world.stranger();
  await signIn(elsewhere, known);
  return { person, elsewhere, known };
}

const keys = () => world.rows().api_keys?.length;
const idOf = async (mail: string) => {
  const members = await world.test.stores.people.listMembers(world.ours.accountId);
  return members.find(one => one.mail === mail)?.userId ?? assert.fail(`no member ${mail}`);
};

test('held forms › make a key where nothing has changed', async t => {
  const { person } = await signedInTwice();
  const held = await person.hold('/account/keys', KEY);
  const before = keys() ?? 0;
  const { status, body } = await held.release();
  t.is(status, 200, body);
  t.is(keys(), before + 1);
});

type Ends = (of: Awaited<ReturnType<typeof signedInTwice>>) => Promise<unknown>;
const byOwner = async (mail: string, change: string, fields = {}) => {
  const url = `/account/people/${await idOf(mail)}/${change}`;
  return world.ours.people.owner.post(url, fields);
};

const ends: Readonly<Record<string, { readonly status: number; readonly end: Ends }>> = {
  'the person was removed': {
    status: 303,
    end: ({ known }) => byOwner(known.mail, 'remove'),
  },
  'the person lost the role': {
    status: 403,
    end: ({ known }) => byOwner(known.mail, 'role', { role: 'viewer' }),
  },
  'the person signed out': {
    status: 303,
    end: ({ person }) => person.copy().post('/account/sign-out'),
  },
  'the session was ended from elsewhere': {
    status: 303,
    end: async ({ elsewhere }) => {
      const page = await elsewhere.page('/account/sessions');
      const form = page.forms.find(({ action }) => /sessions\/[0-9a-f-]{36}\/end$/.test(action));
      await elsewhere.post(form?.action ?? assert.fail('no session to end'));
    },
  },
  'the others were ended': {
    status: 303,
    end: ({ elsewhere }) => elsewhere.post('/account/sessions/end-others'),
  },
  'the password was changed': {
    status: 303,
    end: ({ elsewhere, known }) =>
      elsewhere.post('/account/profile/password', { current: known.password, next: NEXT }),
  },
  'the person was disabled': {
    status: 303,
    end: async ({ known }) => {
      const file = path.join(world.test.storageDir, '../matting.sqlite');
      const database = new DatabaseSync(file);
      database.prepare('update users set disabled_at = 1 where mail = ?').run(known.mail);
      database.close();
    },
  },
};

for (const [name, { status, end }] of Object.entries(ends)) {
  test(`held forms › make nothing once ${name}`, async t => {
    const of = await signedInTwice();
    const forms = [
      await of.person.hold('/account/keys', KEY),
      await of.person.hold('/account/people/invite', { mail: 'later@x.example', role: 'owner' }),
    ];
    await end(of);
    const before = world.rows();
    for (const form of forms) {
      const answer = await form.release();
      t.is(answer.status, status);
      t.is(answer.location, status === 303 ? SIGN_IN : undefined);
    }
    t.deepEqual(world.rows(), before);
  });
}

test('held forms › make nothing at any route once the person was removed', async t => {
  const { accountId } = world.ours;
  // A new person, since a person may change only so much a minute.
  const owner = await world.join(accountId, 'owner');
  const things = await makeThings(world.test, world.ours);
  const routes = Object.entries(APP_ROUTES).filter(([name]) => name.startsWith('POST '));
  for (const [name, { params = {}, fields = {}, things: named = {} }] of routes) {
    const person = await world.join(accountId, 'owner');
    const chosen = Object.entries(named).map(([field, thing]) => [field, things[thing]]);
    const url = filled(name.slice('POST '.length), given => things[params[given] ?? 'jobId']);
    const own = { csrf: await person.token(), once: createSecret() };
    const marks = { ...own, keep: '[{"box":[0,0,1,1]}]' };
    const sent = url.endsWith('/corrections')
      ? multipartOf(marks)
      : url === '/account/playground'
        ? multipartOf(own, pngHeader(4, 3))
        : {};
    const held = await person.hold(url, { ...fields, ...Object.fromEntries(chosen) }, sent);
    const removed = await owner.post(`/account/people/${person.userId}/remove`);
    t.is(removed.statusCode, 303, removed.body);
    const before = world.rows();
    const { status, location, body } = await held.release();
    t.is(status, 303, `${name}: ${body}`);
    t.is(location, SIGN_IN, name);
    t.deepEqual(world.rows(), before, name);
  }
});

test('held forms › with a picture make no job once the person may not any more', async t => {
  const { accountId, people } = world.ours;
  const person = await world.join(accountId, 'member');
  const fields = { csrf: await person.token(), once: createSecret() };
  const held = await person.hold('/account/playground', {}, multipartOf(fields, pngHeader(4, 3)));
  const files = await world.test.storedFiles();
  const change = `/account/people/${person.userId}/role`;
  t.is((await people.owner.post(change, { role: 'viewer' })).statusCode, 303);
  const before = world.rows();
  const { status, body } = await held.release();
  t.is(status, 403, body);
  t.deepEqual(world.rows(), before);
  t.true((await world.test.storedFiles()).length <= files.length);
});

test('held forms › make nothing where the end comes between the last question and the change', async t => {
  const { accountId } = world.ours;
  const { sessions } = areaOf(world.test);
  const { people } = world.test.stores;
  const by = () => ({ actor: OPERATOR, entryId: randomUUID() });
  const ends = {
    303: (userId: string) => people.removeMember(accountId, userId, by()),
    403: (userId: string) => people.changeRole(accountId, userId, 'viewer', by()),
  };
  for (const [status, end] of Object.entries(ends)) {
    const person = await world.join(accountId, 'owner');
    const csrf = await person.token();
    const find = sessions.find.bind(sessions);
    let checks = 0;
    let before = {};
    sessions.find = async secret => {
      const found = await find(secret);
      checks += 1;
      if (checks === 2) {
        await end(person.userId);
        before = world.rows();
      }
      return found;
    };
    const answer = await person.post('/account/keys', KEY, { csrf }).finally(() => {
      sessions.find = find;
    });
    t.is(checks, 2, 'before the form, and once it is whole');
    t.is(answer.statusCode, Number(status), answer.body);
    t.deepEqual(world.rows(), before);
  }
});

test('held forms › are so many a minute, of one person', async t => {
  const person = await world.join(world.ours.accountId, 'owner');
  const csrf = await person.token();
  const change = (count: number) =>
    person.post('/account/settings/thresholds', { threshold: String(count) }, { csrf });
  for (let count = 1; count < CHANGES_A_MINUTE_MAX; count += 1) {
    t.is((await change(count)).statusCode, 303);
  }
  const before = world.rows();
  const late = await change(CHANGES_A_MINUTE_MAX);
  t.is(late.statusCode, 429, late.body);
  t.regex(late.body, /Too many attempts/);
  t.true(Number(late.headers['retry-after']) > 0);
  t.deepEqual(world.rows(), before);
  const { owner } = world.ours.people;
  t.is((await owner.post('/account/settings/thresholds')).statusCode, 303);
});

test('held forms › change no account but the one that their page was made for', async t => {
  const person = await world.join(world.ours.accountId, 'owner');
  await joinToo(world, person, world.theirs.accountId);
  const fields = { mail: 'of-alpha@x.example', role: 'owner' };
  const csrf = await person.token();
  const once = { csrf, once: createSecret() };
  const forms = [
    await person.hold('/account/people/invite', fields),
    await person.hold('/account/playground', {}, multipartOf(once, pngHeader(4, 3))),
  ];
  const switched = await person.copy().post('/account/switch', { account: world.theirs.accountId });
  t.is(switched.statusCode, 303, switched.body);
  const before = world.rows();
  for (const form of forms) t.is((await form.release()).status, 403);
  const stale = await person.post('/account/people/invite', fields, { csrf });
  t.is(stale.statusCode, 403);
  t.regex(stale.body, /has expired/);
  t.deepEqual(world.rows(), before);
  t.is((await person.post('/account/people/invite', fields)).statusCode, 200);
});

async function joinToo({ test: fixture }: World, person: Member, accountId: string): Promise<void> {
  const of = { mail: person.mail, role: 'owner', purpose: 'sign-in' } as const;
  const link = newLink(accountId, of);
  assert.equal(await fixture.stores.links.create(link, OPERATOR), 'created');
  const use = linkUse(link, { passwordHash: null });
  assert.equal((await fixture.stores.links.use(use)).kind, 'signed-in');
}

const guess = (mail: string, address: string) =>
  trySignIn(world.stranger(), { mail, password: 'not the password' }, { address });

test('guesses › says the same of who is unknown, has no password, or another', async t => {
  const { mail: withoutPassword } = world.ours.people.viewer;
  const answers = await Promise.all(
    [known.mail, withoutPassword, `${randomUUID()}@example.org`, 'no mail'].map((mail, index) =>
      guess(mail, `192.0.2.${index + 1}`),
    ),
  );
  const [first, ...others] = answers;
  assert.ok(first);
  // A typed value comes back in its field, and a form has its own token.
  const plain = (body: string) =>
    body.replaceAll(/ value="[^"]*"/g, '').replaceAll(/[0-9a-f-]{36}/g, '');
  for (const answer of others) {
    t.is(answer.statusCode, first.statusCode);
    t.is(plain(answer.body), plain(first.body));
  }
});

test('guesses › ends for a person after some attempts, wherever they come from, and for no other', async t => {
  const person = await registerPerson(world, 'member');
  const own = world.stranger();
  await signIn(own, person);
  const statuses: number[] = [];
  for (let n = 0; n < FAILURES_MAX.mail + 3; n += 1) {
    statuses.push((await guess(person.mail, `198.51.100.${n + 1}`)).statusCode);
  }
  t.deepEqual(statuses.slice(-3), [429, 429, 429]);
  t.false(statuses.slice(0, FAILURES_MAX.mail - 1).includes(429), String(statuses));
  // From a stranger's browser the right password looks wrong.
  const right = await trySignIn(world.stranger(), person, { address: '198.51.100.200' });
  t.is(right.statusCode, 429);
  t.true(Number(right.headers['retry-after']) > 0, 'no Retry-After');
  // A browser of an earlier sign-in is not locked out.
  await own.post('/account/sign-out');
  await signIn(own, person);
  await signIn(world.stranger(), known);
});

test('guesses › ends for an address after some attempts, whomever they are for', async t => {
  // Parallel attempts must not pass the bound either.
  const answers = await Promise.all(
    Array.from({ length: FAILURES_MAX.address + 2 }, () =>
      guess(`${randomUUID()}@example.org`, '203.0.113.7'),
    ),
  );
  const refused = answers.filter(({ statusCode }) => statusCode === 429);
  t.is(refused.length, 2);
  t.is((await guess(`${randomUUID()}@example.org`, '203.0.113.8')).statusCode, 422);
});

test('guesses › takes no address from a header that no proxy of ours has written', async t => {
  const attempts = Array.from({ length: 3 }, (_, n) => n);
  for (const n of attempts) {
    const person = world.stranger();
    const answer = await person.get('/account/sign-in', {
      headers: { 'x-forwarded-for': `10.0.0.${n}` },
    });
    t.is(answer.statusCode, 200);
  }
  const last = await guess(known.mail, '203.0.113.7');
  t.is(last.statusCode, 429);
});

test('guesses › takes the port that a proxy of ours has written for no part of the address', async t => {
  const proxied = await openWorld({ trustedProxies: ['127.0.0.0/8'] }, t);
  const guessFrom = async (address: string) => {
    const person = proxied.stranger();
    const { csrf = '' } = await person.page('/account/sign-in');
    const fields = { mail: `${randomUUID()}@example.org`, password: 'not the password' };
    const headers = { 'x-forwarded-for': address };
    return (await person.post('/account/sign-in', fields, { csrf, headers })).statusCode;
  };
  const statuses: number[] = [];
  for (let port = 4000; port < 4000 + FAILURES_MAX.address + 2; port += 1) {
    statuses.push(await guessFrom(`203.0.113.9:${port}`));
  }
  t.deepEqual(statuses.slice(FAILURES_MAX.address), [429, 429]);
  t.is(await guessFrom('203.0.113.8:4000'), 422);
});

const SESSION = '__Host-matting-session';

test('sessions › a session that was planted before sign-in is worth nothing after it', async t => {
  const planted = createSecret();
  const victim = world.stranger();
  victim.cookies.set(SESSION, planted);
  victim.cookies.set('__Host-matting-visitor', createSecret());
  const attacker = victim.copy();
  await signIn(victim, known);
  t.is((await victim.get('/account/profile')).statusCode, 200);
  t.not(victim.cookies.get(SESSION), planted);
  t.is((await attacker.get('/account/profile')).statusCode, 303);
});

test('sessions › signing in again ends the session that the browser had', async t => {
  const person = world.stranger();
  await signIn(person, known);
  const first = person.copy();
  await signIn(person, known);
  t.not(person.cookies.get(SESSION), first.cookies.get(SESSION));
  t.is((await first.get('/account/profile')).statusCode, 303);
  t.is((await person.get('/account/profile')).statusCode, 200);
});

test('sessions › what the database holds of a session is no cookie', async t => {
  const { owner } = world.ours.people;
  const secret = owner.cookies.get(SESSION) ?? '';
  t.false(JSON.stringify(world.rows()).includes(secret));
  const thief = world.stranger();
  thief.cookies.set(SESSION, hashOfSecret(secret));
  t.is((await thief.get('/account/profile')).statusCode, 303);
});
