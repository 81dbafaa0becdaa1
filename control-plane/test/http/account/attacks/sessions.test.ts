/**
 * Sessions under attack: one that was planted before sign-in, one that was stolen and is used after
 * its end, one whose person has lost a role, and what a copy of the database is worth.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createSecret } from '../../../../src/http/account/session/cookies.ts';
import { hashOfSecret } from '../../../../src/services/people/sign-in.ts';
import { type Registered, registerPerson, signIn } from '../../../support/area/sign-in.ts';
import { useWorld } from '../../../support/area/world.ts';

const SESSION = '__Host-matting-session';

describe('sessions under attack', () => {
  let known: Registered;
  const world = useWorld({}, async () => {
    known = await registerPerson(world, 'owner');
  });

  it('a session that was planted before sign-in is worth nothing after it', async () => {
    const planted = createSecret();
    const victim = world.stranger();
    victim.cookies.set(SESSION, planted);
    victim.cookies.set('__Host-matting-visitor', createSecret());
    const attacker = victim.copy();
    await signIn(victim, known);
    assert.equal((await victim.get('/account/profile')).statusCode, 200);
    assert.notEqual(victim.cookies.get(SESSION), planted);
    assert.equal((await attacker.get('/account/profile')).statusCode, 303);
  });

  it('signing in again ends the session that the browser had', async () => {
    const person = world.stranger();
    await signIn(person, known);
    const first = person.copy();
    await signIn(person, known);
    assert.notEqual(person.cookies.get(SESSION), first.cookies.get(SESSION));
    assert.equal((await first.get('/account/profile')).statusCode, 303);
    assert.equal((await person.get('/account/profile')).statusCode, 200);
  });

  it('a stolen cookie is worth nothing after sign-out', async () => {
    const person = world.stranger();
    await signIn(person, known);
    const thief = person.copy();
    assert.equal((await thief.get('/account/profile')).statusCode, 200);
    const answer = await person.post('/account/sign-out');
    assert.equal(answer.statusCode, 303, answer.body);
    assert.equal(person.cookies.get(SESSION), undefined);
    assert.equal((await thief.get('/account/profile')).statusCode, 303);
    assert.equal((await thief.get('/account/sessions')).statusCode, 303);
  });

  it('a stolen cookie is worth nothing after the person has ended it from elsewhere', async () => {
    const person = world.stranger();
    await signIn(person, known);
    const thief = person.copy();
    const elsewhere = world.stranger();
    await signIn(elsewhere, known);
    const sessions = await elsewhere.page('/account/sessions');
    const form = sessions.forms.find(({ action }) => action.endsWith('/end-others'));
    assert.ok(form, 'no form ends the other sessions');
    assert.equal((await elsewhere.post(form.action)).statusCode, 303);
    assert.equal((await thief.get('/account/profile')).statusCode, 303);
    assert.equal((await elsewhere.get('/account/profile')).statusCode, 200);
  });

  it('a role that was lost counts with the next request, and a membership ends the session', async () => {
    const { accountId, people } = world.ours;
    const person = await world.join(accountId, 'owner');
    assert.equal((await person.get('/account/people')).statusCode, 200);
    const change = `/account/people/${person.userId}`;
    const demoted = await people.owner.post(`${change}/role`, { role: 'viewer' });
    assert.equal(demoted.statusCode, 303, demoted.body);
    assert.equal((await person.get('/account/people')).statusCode, 403);
    assert.equal((await person.get('/account/profile')).statusCode, 200);
    const removed = await people.owner.post(`${change}/remove`);
    assert.equal(removed.statusCode, 303, removed.body);
    assert.equal((await person.get('/account/profile')).statusCode, 303);
  });

  it('what the database holds of a session is no cookie', async () => {
    const { owner } = world.ours.people;
    const secret = owner.cookies.get(SESSION) ?? '';
    assert.ok(!JSON.stringify(world.rows()).includes(secret));
    const thief = world.stranger();
    thief.cookies.set(SESSION, hashOfSecret(secret));
    assert.equal((await thief.get('/account/profile')).statusCode, 303);
  });

  it('a changed password ends the other sessions, and asks for the current one', async () => {
    const own = await registerPerson(world, 'member');
    const person = world.stranger();
    await signIn(person, own);
    const thief = person.copy();
    const elsewhere = world.stranger();
    await signIn(elsewhere, own);
    const next = 'another long sentence 17';
    const wrong = await elsewhere.post('/account/profile/password', { current: 'no', next });
    assert.equal(wrong.statusCode, 422, wrong.body);
    const fields = { current: own.password, next };
    const changed = await elsewhere.post('/account/profile/password', fields);
    assert.equal(changed.statusCode, 303, changed.body);
    assert.equal((await thief.get('/account/profile')).statusCode, 303);
    await assert.rejects(signIn(world.stranger(), own));
    await signIn(world.stranger(), { ...own, password: next });
  });
});
