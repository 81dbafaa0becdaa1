/**
 * A name that somebody typed is no proven identity: people who are invited in another's name, links
 * that outlive who made them, passwords that change while somebody uses the one before.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { FAILURES_MAX } from '../../../../src/domain/account/sign-in-throttle.ts';
import { createSecret } from '../../../../src/http/account/session/cookies.ts';
import { hashOfSecret } from '../../../../src/services/people/sign-in.ts';
import { newLink, OPERATOR } from '../../../store/people.ts';
import { ReadPage } from '../../../support/area/pages.ts';
import type { Person } from '../../../support/area/person.ts';
import { operatorLink, registerPerson, signIn, trySignIn } from '../../../support/area/sign-in.ts';
import { useWorld } from '../../../support/area/world.ts';

const test = ava.serial;

const LINK = /https:\/\/matting\.example\.com(\/account\/invitations\/([\w-]{43}))/;
const DEVICE = '__Host-matting-device';
const PROFILE = '/account/profile/password';

/** Addresses of their own for every test: attempts are counted by them. */
let address: () => string;
let tests = 0;
const world = useWorld(test);
const prepare = () => {
  tests += 1;
  let count = 0;
  address = () => `10.${tests}.0.${++count}`;
};

const mailOf = () => `ann-${randomUUID().slice(0, 8)}@alpha.example`;

/** The link as the page shows it to the inviter. */
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

/** The operator's, used. */
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
  await prepare();
  const mail = mailOf();
  const { theirs, ours } = world;
  const password = 'the word of mallory 1';
  const mallory = await accept(await invite(theirs.people.owner, mail), password);
  t.is(mallory.answer.statusCode, 303);
  const known = mallory.person.cookies.get(DEVICE) ?? '';
  // An invitation that its inviter saw is no proof, whoever opens it.
  const path = await invite(ours.people.owner, mail, 'owner');
  t.is((await accept(path, 'a new one of ann 2')).answer.statusCode, 422);
  const joins = await accept(path, password);
  t.is(joins.answer.statusCode, 422);
  t.regex(joins.answer.body, /Nobody has proven yet/);
  const inside = await accept(path, password, mallory.person);
  t.regex(inside.answer.body, /Nobody has proven yet/);
  // The operator's link is one: it ends what was there.
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
  await prepare();
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
  await prepare();
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

test('a name that somebody typed › has links that end with the right of who made them, and keys that an owner is told of', async t => {
  await prepare();
  const { accountId, people } = world.ours;
  const former = await world.join(accountId, 'owner');
  const path = await invite(former, mailOf(), 'owner');
  const { mail } = former;
  const url = await operatorLink(world.test, { accountId, mail, role: 'owner' });
  const listed = await people.owner.get('/account/people');
  t.regex(listed.body, /Open sign-in links/);
  const form = await former.page('/account/keys/new');
  const fields = Object.fromEntries(form.forms.find(f => f.fields.has('name'))?.fields ?? []);
  const made = await former.post('/account/keys', { ...fields, name: 'left behind' });
  const token = /mk_\w+/.exec(made.body)?.[0];
  assert.ok(token, made.body);
  const removed = await people.owner.post(`/account/people/${former.userId}/remove`);
  const told = await people.owner.get(String(removed.headers.location));
  t.regex(told.body, /left behind/);
  t.is((await world.stranger().get(path)).statusCode, 404);
  t.is((await world.stranger().get(url)).statusCode, 404);
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

test('a name that somebody typed › comes by a link and sets a password without the one before, once', async t => {
  await prepare();
  const mail = mailOf();
  const person = await useSignInLink(world.ours.accountId, mail, 'member');
  t.false(person.cookies.has(DEVICE));
  const first = 'the first sentence 1';
  t.is((await person.post(PROFILE, { next: first })).statusCode, 303);
  const second = { next: 'the second sentence 2' };
  t.is((await person.post(PROFILE, second)).statusCode, 422);
  t.regex((await person.get('/account/profile')).body, /Current password/);
  t.is((await person.post(PROFILE, { ...second, current: first })).statusCode, 303);
});

test('a name that somebody typed › is helped by the operator’s link where the password is forgotten', async t => {
  await prepare();
  const known = await registerPerson(world, 'viewer');
  const elsewhere = world.stranger();
  await signIn(elsewhere, known);
  const person = await useSignInLink(world.ours.accountId, known.mail, 'member');
  // Their address was proven: nothing of theirs ends until they have set another password.
  t.is(await statusOf(elsewhere), 200);
  t.is(await statusOf(person, '/account/people'), 403);
  const next = 'a sentence that is new 1';
  t.is((await person.post(PROFILE, { next })).statusCode, 303);
  t.is(await statusOf(elsewhere), 303);
  const old = await trySignIn(world.stranger(), known, { address: address() });
  t.is(old.statusCode, 422);
  await signIn(world.stranger(), { mail: known.mail, password: next });
});

test('a name that somebody typed › has known browsers until the password is another, and few guesses by all of them', async t => {
  await prepare();
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
  // A stranger's bound is its own: the person gets in from elsewhere.
  await signIn(own, known);
  const { password: current } = known;
  t.is((await own.post(PROFILE, { current, next: next.password })).statusCode, 303);
  const strangers: number[] = [];
  for (const cookie of cookies) {
    for (let n = 0; n < 4; n += 1) strangers.push(await guess(cookie));
  }
  t.is(strangers.filter(status => status === 422).length, FAILURES_MAX.mail);
  // The browser in which it was changed is known by the new one.
  await own.post('/account/sign-out');
  t.is((await trySignIn(own, next, { address: address() })).statusCode, 303);
});

{
  const world = useWorld(test, {
    mail: { smtpUrl: 'smtp://127.0.0.1:1', from: 'matting@example.com' },
  });

  test('an invitation where there is a mail server › is seen by its reader alone, whom it proves', async t => {
    const mail = `${randomUUID()}@alpha.example`;
    const answer = await world.ours.people.owner.post('/account/people/invite', {
      mail,
      role: 'owner',
    });
    t.is(answer.statusCode, 200);
    t.true(!LINK.test(answer.body) && !answer.body.includes('/account/invitations/'));
    t.regex(answer.body, new RegExp(`The invitation of ${mail} is on its way`));
    const [link] = await world.test.stores.links.listOpen(world.ours.accountId);
    t.is(link?.mail, mail);
    const { proves_mail } = world.row('one_time_links', link?.id ?? '');
    t.is(proves_mail, 1);
    const waiting = world.row('outbox', mail, 'address');
    t.is(waiting.account_id, world.ours.accountId);
  });

  test('an invitation where there is a mail server › takes a mail over that somebody typed before', async t => {
    const { accept, mail } = await typedAndProven();
    const mallory = await accept('typed', 'the word of mallory 1', world.stranger());
    t.is(await statusOf(mallory), 200);
    const ann = await accept('proof', 'a sentence of ann 2', world.stranger());
    t.is(await statusOf(ann), 200);
    t.is(await statusOf(mallory), 303);
    await signIn(world.stranger(), { mail, password: 'a sentence of ann 2' });
  });

  test('an invitation where there is a mail server › keeps the password of who proves the mail while they are signed in', async t => {
    const { accept, mail, paths } = await typedAndProven();
    const password = 'a sentence of ann 1';
    const first = await accept('typed', password, world.stranger());
    const own = world.stranger();
    await signIn(own, { mail, password });
    const csrf = (await own.page(paths.proof)).csrf ?? '';
    const slip = await own.post(paths.proof, { password: 'a sentence of ann' }, { csrf });
    t.is(slip.statusCode, 422);
    await accept('proof', password, own);
    t.is(await statusOf(own), 200);
    t.is(await statusOf(first), 303);
    await signIn(world.stranger(), { mail, password });
    const members = await world.test.stores.people.listMembers(world.ours.accountId);
    t.truthy(members.find(one => one.mail === mail)?.isProven);
  });

  /** A link that its inviter saw, of one account, and one that proves the mail, of another. */
  async function typedAndProven() {
    const mail = `${randomUUID()}@alpha.example`;
    const links = {
      typed: newLink(world.theirs.accountId, { mail, provesMail: false }),
      proof: newLink(world.ours.accountId, { mail }),
    };
    const paths = { typed: '', proof: '' };
    for (const name of ['typed', 'proof'] as const) {
      const token = createSecret();
      paths[name] = `/account/invitations/${token}`;
      const link = { ...links[name], tokenHash: hashOfSecret(token) };
      assert.equal(await world.test.stores.links.create(link, OPERATOR), 'created');
    }
    const accept = async (name: keyof typeof paths, password: string, person: Person) => {
      const csrf = (await person.page(paths[name])).csrf ?? '';
      const answer = await person.post(paths[name], { password }, { csrf });
      assert.equal(answer.statusCode, 303, answer.body);
      return person;
    };
    return { accept, mail, paths };
  }
}
