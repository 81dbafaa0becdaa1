import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { claimed, fundedAccount, newJob, submitted } from '@matting/core/test/fixtures.ts';
import { ask, KEY, register } from '@matting/core/test/operator-port.ts';
import { hold, listening } from '@matting/http/test/held-form.ts';
import ava from 'ava';
import type { FastifyInstance, LightMyRequestResponse } from 'fastify';
import sinon from 'sinon';
import { openBrand } from '../page/brand.ts';
import { csrfTokenOf } from '../session/form-token.ts';
import { useStores } from '../test/fixtures.ts';
import { operatorAppOn } from '../test/operator-app.ts';
import { placed } from '../test/orders.ts';
import { openTestApp } from '../test/portal-app.ts';
import { signIn as signInPerson } from '../test/signed-in-browser.ts';
import { OperatorSessions, SESSION_MS } from './operator-sessions.ts';

const test = ava.serial;

const HOST = 'localhost:9464';
const ORIGIN = `http://${HOST}`;
const FORM = 'application/x-www-form-urlencoded';

type Fields = Readonly<Record<string, string>>;

const { stores } = useStores(test);
const NONE_ENDED = { add: async () => true, has: async () => false };
const sessions = new OperatorSessions(KEY, NONE_ENDED);
let app: FastifyInstance;
let cookie: string;

test.before(async () => {
  app = operatorAppOn(stores);
  await app.ready();
  cookie = cookieOf(await signIn(KEY));
});
test.after.always(() => app.close());

function signIn(key: string, headers: Fields = {}, remoteAddress = '127.0.0.1') {
  return app.inject({
    method: 'POST',
    url: '/operator/sign-in',
    headers: { host: HOST, origin: ORIGIN, 'content-type': FORM, ...headers },
    payload: new URLSearchParams({ key }).toString(),
    remoteAddress,
  });
}

const read = (url: string, headers: Fields = {}) =>
  app.inject({ url, headers: { host: HOST, cookie, ...headers } });

async function send(page: string, url: string, fields: Fields = {}, more: Fields = {}) {
  const own = more.cookie ? { cookie: more.cookie } : {};
  const csrf = /name="csrf" value="([^"]+)"/.exec((await read(page, own)).body)?.[1] ?? '';
  return app.inject({
    method: 'POST',
    url,
    headers: { host: HOST, cookie, origin: ORIGIN, 'content-type': FORM, ...more },
    payload: new URLSearchParams({ csrf, ...fields }).toString(),
  });
}

const account = (credits = 100) => fundedAccount(stores, credits);

test('pages of the operator › opens no page without the session, and no page by the key itself', async t => {
  const paths = ['', '/pages/accounts', '/pages/jobs', '/pages/nodes', '/pages/notifications'];
  for (const path of paths) {
    for (const headers of [{}, { authorization: `Bearer ${KEY}` }]) {
      const answer = await app.inject({ url: `/operator${path}`, headers });
      t.is(answer.statusCode, 303, path);
      t.is(answer.headers.location, '/operator/sign-in');
    }
    t.is((await read(`/operator${path}`)).statusCode, 200, path);
  }
});

test('pages of the operator › have the name and colour of the operator', async t => {
  const brand = openBrand({ name: 'Studio', colour: '#ffdd00', logoFile: undefined });
  const own = operatorAppOn(stores, {}, brand);
  t.teardown(() => own.close());
  const { body } = await own.inject('/operator/sign-in');
  t.regex(body, /<span>Studio<\/span>/);
  const [style = ''] = /\/operator\/assets\/\w+\/brand\.css/.exec(body) ?? [];
  t.is((await own.inject(style)).statusCode, 200);
});

test('pages of the operator › say of a node that no control plane reaches why, and do not count it as live', async t => {
  const bootId = await register(stores, 'expired-1', '');
  const live = async () => {
    const { body } = await read('/operator');
    return /Live nodes[\s\S]*?(\d+)[\s\S]*?of (\d+) registered/.exec(body)?.slice(1);
  };
  const seen = { nodeId: 'expired-1', bootId, state: 'serving', cause: null, forMs: 0 } as const;
  await stores.sightings.note('replica-1', [seen], 60_000);
  t.deepEqual(await live(), ['1', '1']);
  const cause = 'its certificate has expired <b>';
  await stores.sightings.note('replica-1', [{ ...seen, state: 'unreachable', cause }], 60_000);
  t.deepEqual(await live(), ['0', '1']);
  for (const page of ['/pages/nodes', '/pages/nodes/expired-1', '']) {
    const { body } = await read(`/operator${page}`);
    t.regex(body, /Unreachable[\s\S]*its certificate has expired &lt;b/);
    t.false(body.includes('expired <b>'));
  }
  t.is((await read('/operator/pages/nodes/another')).statusCode, 404);
  await stores.nodes.deregister('expired-1', bootId);
});

test('pages of the operator › say that they are, and begin with what needs somebody', async t => {
  const bootId = await register(stores, 'works-1', '');
  const seen = { nodeId: 'works-1', bootId, state: 'serving', cause: null, forMs: 0 } as const;
  await stores.sightings.note('replica-1', [seen], 60_000);
  const { body } = await read('/operator');
  t.regex(body, /<title>Overview · Matting · Operator<\/title>/);
  t.regex(body, /class="area">Operator</);
  t.regex(body, /notice good"[\s\S]*All is well/);
  await stores.sightings.note('replica-1', [{ ...seen, state: 'failed' }], 60_000);
  const { body: ill } = await read('/operator');
  t.regex(ill, /notice bad"[\s\S]*No node takes images/);
  t.regex(ill, /notice warning"[\s\S]*href="\/operator\/pages\/nodes\/works-1"/);
  t.regex(ill, /panel bad"><dt>Live nodes/);
  t.false(ill.includes('All is well'));
  await stores.nodes.deregister('works-1', bootId);
});

test('pages of the operator › opens nothing of the JSON interface by the session', async t => {
  for (const url of ['/operator/nodes', '/operator/jobs']) {
    t.is((await read(url)).statusCode, 401);
    t.is((await ask(app, url)).statusCode, 200);
  }
});

test('pages of the operator › takes the right key alone, and keeps its cookie from scripts and other sites', async t => {
  for (const wrong of ['', 'x', `${KEY}x`, KEY.slice(1)]) {
    const answer = await signIn(wrong, {}, '10.0.0.1');
    t.is(answer.statusCode, 422);
    t.is(answer.headers['set-cookie'], undefined);
    if (wrong.length > 9) t.false(answer.body.includes(wrong), 'what was typed is not shown');
  }
  const plain = String((await signIn(KEY)).headers['set-cookie']);
  t.regex(plain, /^matting-operator=/);
  t.regex(plain, /HttpOnly/);
  t.regex(plain, /SameSite=Strict/);
  t.regex(plain, /Path=\/operator/);
  const headers = { host: 'ops.example', origin: 'https://ops.example' };
  const secure = String((await signIn(KEY, headers)).headers['set-cookie']);
  t.regex(secure, /^__Host-matting-operator=/);
  t.regex(secure, /Secure/);
  t.regex(secure, /Path=\/(;|$)/);
});

test('pages of the operator › signs nobody in where the key could be read on its way, or from another site', async t => {
  const insecure = await signIn(KEY, { host: 'ops.example', origin: 'http://ops.example' });
  t.is(insecure.statusCode, 403);
  t.is(insecure.headers['set-cookie'], undefined);
  for (const origin of ['https://evil.example', 'null', '']) {
    t.is((await signIn(KEY, { origin })).statusCode, 403, origin);
  }
});

test('pages of the operator › bounds how often a key is guessed from one network, and lets others in', async t => {
  for (let count = 0; count < 10; count += 1) {
    const wrong = await signIn('wrong', {}, `2001:db8:0:1::${count}`);
    t.is(wrong.statusCode, 422);
  }
  const late = await signIn(KEY, {}, '2001:db8:0:1::ffff');
  t.is(late.statusCode, 429);
  t.true(Number(late.headers['retry-after']) > 0);
  t.is((await signIn(KEY, {}, '2001:db8:0:2::1')).statusCode, 303);
});

test('pages of the operator › changes nothing by a form of another site or another session', async t => {
  const id = await account();
  const url = `/operator/pages/accounts/${id}/grant`;
  const page = `/operator/pages/accounts/${id}`;
  const fields = { amount: '5', reference: 'forged' };
  const refusals = [
    await send(page, url, fields, { origin: 'https://evil.example' }),
    await send(page, url, fields, { origin: 'http://localhost:1' }),
    await send(page, url, { ...fields, csrf: '' }),
    await send(page, url, { ...fields, csrf: csrfTokenOf(sessions.create()) }),
  ];
  for (const { statusCode } of refusals) t.is(statusCode, 403);
  const anonymous = await send(page, url, fields, { cookie: '' });
  t.is(anonymous.headers.location, '/operator/sign-in');
  t.is((await stores.ledger.balances(id))?.available, 100);
});

test('pages of the operator › grants and revokes as the command line does, once a reference, and logs it', async t => {
  const id = await account();
  const page = `/operator/pages/accounts/${id}`;
  const move = (kind: string, fields: Fields) => send(page, `${page}/${kind}`, fields);
  const granted = await move('grant', { amount: '50', reference: 'invoice 7' });
  t.is(granted.headers.location, `${page}?said=granted`);
  const again = await move('grant', { amount: '50', reference: 'invoice 7' });
  t.is(again.headers.location, `${page}?said=alreadyEntered`);
  const conflict = await move('grant', { amount: '51', reference: 'invoice 7' });
  t.is(conflict.statusCode, 422);
  t.regex(conflict.body, /value="51"/);
  t.regex(conflict.body, /id="grant-reference-error"/);
  const fallback = 'page 1';
  const once = [1, 2].map(() => move('revoke', { amount: '30', reference: '', fallback }));
  for (const answer of await Promise.all(once)) t.is(answer.statusCode, 303);
  const tooMuch = await move('revoke', { amount: '121', reference: 'x' });
  t.is(tooMuch.statusCode, 422);
  for (const amount of ['', '0', '-1', '1.5', '1e3', '99999999999']) {
    t.is((await move('grant', { amount, reference: 'y' })).statusCode, 422, amount);
  }
  t.is((await move('grant', { amount: '1', reference: 'ö' })).statusCode, 422);
  t.is((await stores.ledger.balances(id))?.available, 120);
  const log = await stores.audit.list(id, { limit: 10 });
  t.deepEqual(log.map(({ action, actorKind }) => `${actorKind} ${action}`).sort(), [
    'operator credits.granted',
    'operator credits.revoked',
  ]);
  t.regex((await read(page)).body, /120/);
});

test('pages of the operator › makes accounts, finds them, and pages through them', async t => {
  const name = `<i>${randomUUID().slice(0, 8)}</i>`;
  const made = await send('/operator/pages/accounts', '/operator/pages/accounts', { name });
  const page = String(made.headers.location);
  t.regex(page, /^\/operator\/pages\/accounts\/[0-9a-f-]{36}\?said=created$/);
  const { body } = await read(page);
  t.regex(body, /role="status"/);
  t.true(!body.includes('<i>') && body.includes('&lt;i>'));
  const found = await read(`/operator/pages/accounts?find=${encodeURIComponent(name)}`);
  t.is(found.headers.location, page.replace('?said=created', ''));
  for (const bad of [name, '', ' x', '-x', 'x'.repeat(65)]) {
    const again = await send('/operator/pages/accounts', '/operator/pages/accounts', {
      name: bad,
    });
    t.is(again.statusCode, 422, bad);
  }
  t.is((await read('/operator/pages/accounts?find=nobody')).statusCode, 404);
  for (let count = 0; count < 51; count += 1) await stores.accounts.create(`page ${count}`);
  const first = (await read('/operator/pages/accounts')).body;
  const next = /href="([^"]+)" rel="next"/.exec(first)?.[1]?.replaceAll('&amp;', '&');
  assert.ok(next !== undefined);
  const rows = (text: string) => [...text.matchAll(/<tr><th scope="row"/g)].length;
  t.is(rows(first), 50);
  t.true(rows((await read(next)).body) > 0);
});

test('pages of the operator › lists jobs, shows one, and has it claimed again', async t => {
  const id = await account();
  const job = await submitted(stores, newJob(id));
  const list = await read(`/operator/pages/jobs?account=${id}`);
  t.true(list.body.includes(job.id));
  t.true((await read('/operator')).body.includes(id));
  await claimed(stores, job);
  const page = `/operator/pages/jobs/${job.id}`;
  const retried = await send(page, `${page}/retry`);
  t.is(retried.headers.location, `${page}?said=leaseEnded`);
  t.regex((await read(page)).body, /id="main"/);
  for (const bad of ['state=nonsense', 'within=x', 'state=open&state=failed']) {
    t.is((await read(`/operator/pages/jobs?${bad}`)).statusCode, 200, bad);
  }
  t.is((await read('/operator/pages/jobs?after=x')).statusCode, 400);
  t.is((await read(`/operator/pages/jobs/${randomUUID()}`)).statusCode, 404);
  t.is((await read('/operator/pages/jobs?account=nobody')).statusCode, 404);
});

test('pages of the operator › confirms an order once, and enters a refund once', async t => {
  const id = await account(0);
  const { id: order } = await placed(stores, id);
  const page = `/operator/pages/orders/${order}`;
  t.true((await read(`/operator/pages/orders?state=pending&account=${id}`)).body.includes(order));
  const early = await send(page, `${page}/refund`, { fallback: 'r-1' });
  t.is(early.statusCode, 422);
  const confirmed = await send(page, `${page}/confirm`, { reference: 'transfer-9' });
  t.is(confirmed.headers.location, `${page}?said=confirmed`);
  const again = await send(page, `${page}/confirm`, { reference: 'transfer-9' });
  t.is(again.headers.location, `${page}?said=alreadyConfirmed`);
  const other = await send(page, `${page}/confirm`, { reference: 'transfer-10' });
  t.is(other.statusCode, 422);
  t.is((await stores.ledger.balances(id))?.available, 2500);
  for (const amount of ['x', '-1', '12.505', '50.01']) {
    const refused = await send(page, `${page}/refund`, { amount, fallback: 'r-2' });
    t.is(refused.statusCode, 422, amount);
  }
  const fields = { amount: '25', fallback: 'r-3' };
  t.regex(String((await send(page, `${page}/refund`, fields)).headers.location), /=refunded$/);
  const twice = await send(page, `${page}/refund`, fields);
  t.regex(String(twice.headers.location), /=alreadyRefunded$/);
  t.is((await stores.ledger.balances(id))?.available, 1250);
  t.is((await read(`/operator/pages/orders/${randomUUID()}`)).statusCode, 404);
  const { body } = await read(page);
  t.true(body.includes('transfer-9') && body.includes('CNY\u00a025.00'));
});

test('pages of the operator › keeps the language that was chosen, and leads back to no other host', async t => {
  for (const [back, location] of [
    ['/operator/pages/jobs?state=failed', '/operator/pages/jobs?state=failed'],
    ['//evil.example', '/operator'],
    ['https://evil.example/operator', '/operator'],
    ['/operator\\evil', '/operator'],
  ] as const) {
    const answer = await send('/operator', '/operator/language', { language: 'zh-CN', back });
    t.is(answer.headers.location, location);
    t.regex(String(answer.headers['set-cookie']), /matting-operator-language=zh-CN/);
  }
  const chinese = await read('/operator', {
    cookie: `${cookie}; matting-operator-language=zh-CN`,
  });
  t.regex(chinese.body, /<html lang="zh-CN">/);
  const nonsense = await send('/operator', '/operator/language', { language: 'x' });
  t.is(nonsense.statusCode, 400);
});

test('pages of the operator › has no inline script or style on any page, and is small', async t => {
  for (const url of ['', '/sign-in', '/pages/accounts', '/pages/jobs', '/pages/nodes']) {
    const { body, headers } = await read(`/operator${url}`);
    t.notRegex(body, / style=| on\w+="|<style|<script(?!(?: type="module")? src="\/oper)/);
    t.true(Buffer.byteLength(body) < 100_000, url);
    if (body === '') continue;
    t.regex(String(headers['content-security-policy']), /default-src 'none'/);
    t.is(headers['cache-control'], 'no-store');
  }
});

test('pages of the operator › has no pages where there is no key', async t => {
  const without = operatorAppOn(stores, { operatorKey: undefined });
  t.is((await without.inject('/operator')).statusCode, 404);
  t.is((await without.inject('/operator/sign-in')).statusCode, 404);
  await without.close();
});

function cookieOf(answer: LightMyRequestResponse): string {
  assert.equal(answer.statusCode, 303);
  return String(answer.headers['set-cookie']).split(';')[0] ?? '';
}

test('a session of the operator › ends after its hours, with another key, and where a character differs', async t => {
  const token = sessions.create(1000);
  t.truthy(await sessions.isValid(token, 1000));
  t.truthy(await sessions.isValid(token, 999 + SESSION_MS));
  t.true(!(await sessions.isValid(token, 1000 + SESSION_MS)));
  t.true(!(await new OperatorSessions(`${KEY}x`, NONE_ENDED).isValid(token, 1000)));
  for (let at = 0; at < token.length; at += 1) {
    const other = token[at] === 'A' ? 'B' : 'A';
    const forged = token.slice(0, at) + other + token.slice(at + 1);
    // Some bits of the last character of Base64 are unused, so tokens are compared as text.
    t.true(!(await sessions.isValid(forged, 1000)), `character ${at}`);
  }
  for (const nonsense of [undefined, '', '..', '9.a.b', `${token}.`, ` ${token}`]) {
    t.true(!(await sessions.isValid(nonsense, 1000)));
  }
});

test('a session of the operator › that was signed out ends at every control plane, also after a restart', async t => {
  const other = operatorAppOn(stores);
  t.teardown(() => other.close());
  const ended = cookieOf(await signIn(KEY));
  const at = (target: FastifyInstance) =>
    target.inject({ url: '/operator', headers: { host: HOST, cookie: ended } });
  t.is((await at(other)).statusCode, 200);
  await send('/operator', '/operator/sign-out', {}, { cookie: ended });
  const restarted = operatorAppOn(stores);
  t.teardown(() => restarted.close());
  for (const target of [app, other, restarted]) {
    t.is((await at(target)).headers.location, '/operator/sign-in');
  }
  t.is((await read('/operator')).statusCode, 200, 'others go on');
});

test('the two doors › are opened by no session of the other', async t => {
  const fixture = await openTestApp({}, t);
  const operator = operatorAppOn(fixture.stores);
  await operator.ready();
  const owner = await signInPerson(fixture);
  t.is((await owner.get('/account/profile')).statusCode, 200);
  const names = ['__Host-matting-session', '__Host-matting-operator', 'matting-operator'];
  const token = sessions.create();
  for (const name of names) {
    const asOperator = { url: '/operator', headers: { cookie: `${name}=${owner.secret}` } };
    t.is((await operator.inject(asOperator)).headers.location, '/operator/sign-in', name);
    const asOwner = { url: '/account/profile', headers: { cookie: `${name}=${token}` } };
    const answer = await fixture.app.inject(asOwner);
    t.regex(String(answer.headers.location), /^\/account\/sign-in/, name);
  }
  await operator.close();
});

test('a form of the operator that is held › makes nothing once its session was signed out, or is over', async t => {
  const id = await fundedAccount(stores, 100);
  const page = `/operator/pages/accounts/${id}`;
  const ends = {
    'signed out': (cookie: string) => send('/operator', '/operator/sign-out', {}, { cookie }),
    over: async () => {
      const clock = sinon.useFakeTimers({ toFake: ['Date'], now: Date.now() + SESSION_MS });
      t.teardown(() => clock.restore());
    },
  };
  for (const [name, end] of Object.entries(ends)) {
    const cookie = cookieOf(await signIn(KEY));
    const csrf = /name="csrf" value="([^"]+)"/.exec((await read(page, { cookie })).body)?.[1] ?? '';
    const held = await hold(await listening(app), {
      path: `${page}/grant`,
      headers: { host: HOST, origin: ORIGIN, cookie, 'content-type': FORM },
      payload: new URLSearchParams({ csrf, amount: '5', reference: 'held' }).toString(),
    });
    await end(cookie);
    const { status, location } = await held.release();
    t.deepEqual([status, location], [303, '/operator/sign-in'], name);
    t.is((await read(page, { cookie })).statusCode, 303);
  }
  t.is((await stores.ledger.balances(id))?.available, 100);
});
