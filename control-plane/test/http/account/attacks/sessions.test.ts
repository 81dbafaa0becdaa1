/**
 * Sessions under attack: one that was planted before sign-in, one that was stolen and is used after
 * its end, one whose person has lost a role, and what a copy of the database is worth.
 */
import assert from 'node:assert/strict';
import ava from 'ava';
import { createSecret } from '../../../../src/http/account/session/cookies.ts';
import { hashOfSecret } from '../../../../src/services/people/sign-in.ts';
import { type Registered, registerPerson, signIn } from '../../../support/area/sign-in.ts';
import { useWorld } from '../../../support/area/world.ts';

const test = ava.serial;

const SESSION = '__Host-matting-session';

let known: Registered;
const world = useWorld(test, {}, async () => {
  known = await registerPerson(world, 'owner');
});

test('a session that was planted before sign-in is worth nothing after it', async t => {
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

test('signing in again ends the session that the browser had', async t => {
  const person = world.stranger();
  await signIn(person, known);
  const first = person.copy();
  await signIn(person, known);
  t.not(person.cookies.get(SESSION), first.cookies.get(SESSION));
  t.is((await first.get('/account/profile')).statusCode, 303);
  t.is((await person.get('/account/profile')).statusCode, 200);
});

test('a stolen cookie is worth nothing after sign-out', async t => {
  const person = world.stranger();
  await signIn(person, known);
  const thief = person.copy();
  t.is((await thief.get('/account/profile')).statusCode, 200);
  const answer = await person.post('/account/sign-out');
  t.is(answer.statusCode, 303, answer.body);
  t.is(person.cookies.get(SESSION), undefined);
  t.is((await thief.get('/account/profile')).statusCode, 303);
  t.is((await thief.get('/account/sessions')).statusCode, 303);
});

test('a stolen cookie is worth nothing after the person has ended it from elsewhere', async t => {
  const person = world.stranger();
  await signIn(person, known);
  const thief = person.copy();
  const elsewhere = world.stranger();
  await signIn(elsewhere, known);
  const sessions = await elsewhere.page('/account/sessions');
  const form = sessions.forms.find(({ action }) => action.endsWith('/end-others'));
  assert.ok(form, 'no form ends the other sessions');
  t.is((await elsewhere.post(form.action)).statusCode, 303);
  t.is((await thief.get('/account/profile')).statusCode, 303);
  t.is((await elsewhere.get('/account/profile')).statusCode, 200);
});

test('a role that was lost counts with the next request, and a membership ends the session', async t => {
  const { accountId, people } = world.ours;
  const person = await world.join(accountId, 'owner');
  t.is((await person.get('/account/people')).statusCode, 200);
  const change = `/account/people/${person.userId}`;
  const demoted = await people.owner.post(`${change}/role`, { role: 'viewer' });
  t.is(demoted.statusCode, 303, demoted.body);
  t.is((await person.get('/account/people')).statusCode, 403);
  t.is((await person.get('/account/profile')).statusCode, 200);
  const removed = await people.owner.post(`${change}/remove`);
  t.is(removed.statusCode, 303, removed.body);
  t.is((await person.get('/account/profile')).statusCode, 303);
});

test('what the database holds of a session is no cookie', async t => {
  const { owner } = world.ours.people;
  const secret = owner.cookies.get(SESSION) ?? '';
  t.false(JSON.stringify(world.rows()).includes(secret));
  const thief = world.stranger();
  thief.cookies.set(SESSION, hashOfSecret(secret));
  t.is((await thief.get('/account/profile')).statusCode, 303);
});

test('a changed password ends the other sessions, and asks for the current one', async t => {
  const own = await registerPerson(world, 'member');
  const person = world.stranger();
  await signIn(person, own);
  const thief = person.copy();
  const elsewhere = world.stranger();
  await signIn(elsewhere, own);
  const next = 'another long sentence 17';
  const wrong = await elsewhere.post('/account/profile/password', { current: 'no', next });
  t.is(wrong.statusCode, 422, wrong.body);
  const fields = { current: own.password, next };
  const changed = await elsewhere.post('/account/profile/password', fields);
  t.is(changed.statusCode, 303, changed.body);
  t.is((await thief.get('/account/profile')).statusCode, 303);
  await t.throwsAsync(signIn(world.stranger(), own));
  await signIn(world.stranger(), { ...own, password: next });
});
