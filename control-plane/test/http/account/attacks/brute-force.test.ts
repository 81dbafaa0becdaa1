/**
 * Guessing: passwords of one person and of many, from one address and from many; who exists; and
 * that the person who is attacked still gets in.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { FAILURES_MAX } from '../../../../src/domain/account/sign-in-throttle.ts';
import {
  type Registered,
  registerPerson,
  signIn,
  trySignIn,
} from '../../../support/area/sign-in.ts';
import { openWorld, useWorld } from '../../../support/area/world.ts';

const test = ava.serial;

let known: Registered;
const world = useWorld(test, {}, async () => {
  known = await registerPerson(world, 'owner');
});

const guess = (mail: string, address: string) =>
  trySignIn(world.stranger(), { mail, password: 'not the password' }, { address });

test('says the same of who is unknown, has no password, or another', async t => {
  const { mail: withoutPassword } = world.ours.people.viewer;
  const answers = await Promise.all(
    [known.mail, withoutPassword, `${randomUUID()}@example.org`, 'no mail'].map((mail, index) =>
      guess(mail, `192.0.2.${index + 1}`),
    ),
  );
  const [first, ...others] = answers;
  assert.ok(first);
  // What was typed comes back in its field, and a form has its own token.
  const plain = (body: string) =>
    body.replaceAll(/ value="[^"]*"/g, '').replaceAll(/[0-9a-f-]{36}/g, '');
  for (const answer of others) {
    t.is(answer.statusCode, first.statusCode);
    t.is(plain(answer.body), plain(first.body));
  }
});

test('ends for a person after some attempts, wherever they come from, and for no other', async t => {
  const person = await registerPerson(world, 'member');
  const own = world.stranger();
  await signIn(own, person);
  const statuses: number[] = [];
  for (let n = 0; n < FAILURES_MAX.mail + 3; n += 1) {
    statuses.push((await guess(person.mail, `198.51.100.${n + 1}`)).statusCode);
  }
  t.deepEqual(statuses.slice(-3), [429, 429, 429]);
  t.false(statuses.slice(0, FAILURES_MAX.mail - 1).includes(429), String(statuses));
  // The right password from a stranger's browser is not told from a wrong one.
  const right = await trySignIn(world.stranger(), person, { address: '198.51.100.200' });
  t.is(right.statusCode, 429);
  t.true(Number(right.headers['retry-after']) > 0, 'no Retry-After');
  // Nobody is locked out of the browser that they have signed in with before.
  await own.post('/account/sign-out');
  await signIn(own, person);
  await signIn(world.stranger(), known);
});

test('ends for an address after some attempts, whomever they are for', async t => {
  // All at once: a race lets none through that a queue would not.
  const answers = await Promise.all(
    Array.from({ length: FAILURES_MAX.address + 2 }, () =>
      guess(`${randomUUID()}@example.org`, '203.0.113.7'),
    ),
  );
  const refused = answers.filter(({ statusCode }) => statusCode === 429);
  t.is(refused.length, 2);
  t.is((await guess(`${randomUUID()}@example.org`, '203.0.113.8')).statusCode, 422);
});

test('takes no address from a header that no proxy of ours has written', async t => {
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

test('takes the port that a proxy of ours has written for no part of the address', async t => {
  const behind = await openWorld({ trustedProxies: ['127.0.0.0/8'] }, t);
  const guessFrom = async (address: string) => {
    const person = behind.stranger();
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

test('links cannot be guessed', async t => {
  const person = world.stranger();
  for (const token of ['a', 'a'.repeat(43), '..%2fsign-in', '%00', '0', randomUUID()]) {
    for (const path of ['invitations', 'links']) {
      const answer = await person.get(`/account/${path}/${token}`);
      t.true([303, 404, 410, 200].includes(answer.statusCode), `${path}: ${answer.statusCode}`);
      t.false(answer.body.includes('password"'), `${path}/${token} shows a form`);
    }
  }
});
