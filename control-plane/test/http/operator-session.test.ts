/** The session of the operator's pages: how it ends, and what it ends with it. */
import ava from 'ava';
import type { FastifyInstance } from 'fastify';
import sinon from 'sinon';
import { OperatorSessions, SESSION_MS } from '../../src/http/operator-pages/operator-session.ts';
import { fundedAccount, useStores } from '../store/fixtures.ts';
import { hold, listening } from '../support/area/held-form.ts';
import { signIn } from '../support/signed-in-browser.ts';
import { openTestApp } from '../support/test-app.ts';
import { appOn, KEY } from './routes/operator-port.ts';

const test = ava.serial;

const HOST = 'localhost:9464';
const ORIGIN = `http://${HOST}`;
const FORM = 'application/x-www-form-urlencoded';

const sessions = new OperatorSessions(KEY);

test('a session of the operator › ends after its hours, with another key, and where a character differs', t => {
  const token = sessions.create(1000);
  t.truthy(sessions.isValid(token, 1000));
  t.truthy(sessions.isValid(token, 999 + SESSION_MS));
  t.true(!sessions.isValid(token, 1000 + SESSION_MS));
  t.true(!new OperatorSessions(`${KEY}x`).isValid(token, 1000));
  for (let at = 0; at < token.length; at += 1) {
    const other = token[at] === 'A' ? 'B' : 'A';
    const forged = token.slice(0, at) + other + token.slice(at + 1);
    // The last character of Base64 has bits that say nothing; they are compared as text.
    t.true(!sessions.isValid(forged, 1000), `character ${at}`);
  }
  for (const nonsense of [undefined, '', '..', '9.a.b', `${token}.`, ` ${token}`]) {
    t.true(!sessions.isValid(nonsense, 1000));
  }
});

test('the two doors › are opened by no session of the other', async t => {
  const fixture = await openTestApp({}, t);
  const operator = appOn(fixture.stores);
  await operator.ready();
  const owner = await signIn(fixture);
  t.is((await owner.get('/account/profile')).statusCode, 200);
  const names = ['__Host-matting-session', '__Host-matting-operator', 'matting-operator'];
  const token = new OperatorSessions(KEY).create();
  for (const name of names) {
    const asOperator = { url: '/operator', headers: { cookie: `${name}=${owner.secret}` } };
    t.is((await operator.inject(asOperator)).headers.location, '/operator/sign-in', name);
    const asOwner = { url: '/account/profile', headers: { cookie: `${name}=${token}` } };
    const answer = await fixture.app.inject(asOwner);
    t.regex(String(answer.headers.location), /^\/account\/sign-in/, name);
  }
  await operator.close();
});

const { stores } = useStores(test);
let app: FastifyInstance;
test.before(async () => {
  app = appOn(stores);
  await app.ready();
});
test.after.always(() => app.close());

const read = (url: string, cookie: string) => app.inject({ url, headers: { host: HOST, cookie } });
const post = (url: string, cookie: string, fields: Readonly<Record<string, string>>) =>
  app.inject({
    method: 'POST',
    url,
    headers: { host: HOST, origin: ORIGIN, cookie, 'content-type': FORM },
    payload: new URLSearchParams(fields).toString(),
  });

test('a form of the operator that is held › makes nothing once its session was signed out, or is over', async t => {
  const id = await fundedAccount(stores, 100);
  const page = `/operator/pages/accounts/${id}`;
  const ends = {
    'signed out': (cookie: string, csrf: string) => post('/operator/sign-out', cookie, { csrf }),
    over: async () => {
      const clock = sinon.useFakeTimers({ toFake: ['Date'], now: Date.now() + SESSION_MS });
      t.teardown(() => clock.restore());
    },
  };
  for (const [name, end] of Object.entries(ends)) {
    const entered = await post('/operator/sign-in', '', { key: KEY });
    const cookie = String(entered.headers['set-cookie']).split(';')[0] ?? '';
    const csrf = /name="csrf" value="([^"]+)"/.exec((await read(page, cookie)).body)?.[1] ?? '';
    const held = await hold(await listening(app), {
      path: `${page}/grant`,
      headers: { host: HOST, origin: ORIGIN, cookie, 'content-type': FORM },
      payload: new URLSearchParams({ csrf, amount: '5', reference: 'held' }).toString(),
    });
    await end(cookie, csrf);
    const { status, location } = await held.release();
    t.deepEqual([status, location], [303, '/operator/sign-in'], name);
    t.is((await read(page, cookie)).statusCode, 303);
  }
  t.is((await stores.ledger.balances(id))?.available, 100);
});
