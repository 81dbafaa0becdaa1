/** Where sign-in leads afterwards: to a page of the area, whatever the address said. */
import ava, { type ExecutionContext } from 'ava';
import { type Registered, registerPerson, trySignIn } from '../../../support/area/sign-in.ts';
import { routesOf, useWorld } from '../../../support/area/world.ts';

const test = ava.serial;

const ELSEWHERE = [
  'https://evil.example',
  '//evil.example',
  '/\\evil.example',
  '\\\\evil.example',
  '/account//evil.example',
  '/account/../..//evil.example',
  '/account@evil.example',
  '/accountevil.example',
  'javascript:alert(1)',
  'data:text/html,hi',
  '/account\r\nset-cookie: a=b',
  '/account%0d%0aset-cookie:%20a=b',
  '/account\t//evil.example',
  '/account?x=https://evil.example#//evil.example',
  ' https://evil.example',
  'https:evil.example',
  '/account/keys/%2e%2e//evil.example',
  '/account/sign-out',
  '/account/'.padEnd(9000, 'a'),
];

let known: Registered;
const world = useWorld(test, {}, async () => {
  known = await registerPerson(world, 'owner');
});

function requireOwnPath(t: ExecutionContext, location: unknown, what: string): void {
  t.is(typeof location, 'string', what);
  const to = new URL(String(location), world.origin);
  t.is(to.origin, world.origin, what);
  t.true(to.pathname === '/account' || /^\/account\/[\w/-]*$/.test(to.pathname), what);
}

test('leads back to the page that was asked for', async t => {
  const answer = await trySignIn(world.stranger(), known, { to: '/account/keys?after=x' });
  t.is(answer.statusCode, 303);
  t.is(answer.headers.location, '/account/keys?after=x');
});

test('never leads elsewhere', async t => {
  const { owner } = world.ours.people;
  for (const to of ELSEWHERE) {
    // Who is signed in is led on at once; the form of a stranger keeps where to.
    const query = `?to=${encodeURIComponent(to)}`;
    const led = await owner.get(`/account/sign-in${query}`);
    t.is(led.statusCode, 303, to);
    requireOwnPath(t, led.headers.location, to);
    t.is(led.headers['set-cookie'], undefined, to);
    const form = (await world.stranger().page(`/account/sign-in${query}`)).forms[0];
    const kept = form?.fields.get('to');
    if (kept !== undefined) requireOwnPath(t, kept, to);
  }
});

test('never leads elsewhere by a forged field', async t => {
  for (const to of ELSEWHERE.slice(0, 3)) {
    const person = world.stranger();
    const csrf = (await person.page('/account/sign-in')).csrf ?? '';
    const answer = await person.post('/account/sign-in', { ...known, to }, { csrf });
    t.is(answer.statusCode, 303, `${to}: ${answer.body}`);
    requireOwnPath(t, answer.headers.location, to);
  }
});

test('no page that redirects takes its target from the address', async t => {
  const { owner } = world.ours.people;
  for (const { method, url } of routesOf(world.test)) {
    if (method !== 'GET') continue;
    const path = url.replaceAll(/:\w+/g, 'x');
    for (const who of [owner.copy(), world.stranger()]) {
      for (const name of ['to', 'next', 'redirect', 'return', 'url', 'redirect_uri', 'iss']) {
        const answer = await who.get(`${path}?${name}=${encodeURIComponent('//evil.example')}`);
        const { location } = answer.headers;
        if (location !== undefined) requireOwnPath(t, location, `${path} ${name}`);
      }
    }
  }
});

test('another host in the request does not get into an answer', async t => {
  const { owner } = world.ours.people;
  const headers = {
    host: 'evil.example',
    'x-forwarded-host': 'evil.example',
    'x-forwarded-proto': 'javascript',
    forwarded: 'host=evil.example',
  };
  for (const { method, url } of routesOf(world.test)) {
    if (method !== 'GET') continue;
    const answer = await owner.get(url.replaceAll(/:\w+/g, 'x'), { headers });
    t.false(answer.body.includes('evil.example'), url);
    t.false(String(answer.headers.location).includes('evil.example'), url);
  }
});
