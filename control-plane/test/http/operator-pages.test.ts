/** The operator's pages: their sign-in, their forms, and what these change. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { FastifyInstance, InjectOptions, LightMyRequestResponse } from 'fastify';
import { csrfTokenOf } from '../../src/http/account/session/cookies.ts';
import { OperatorSessions } from '../../src/http/operator-pages/operator-session.ts';
import { KEY_GUESSES } from '../../src/http/operator-pages/sign-in-pages.ts';
import type { SeenAlert } from '../../src/store/alerts/alert-store.ts';
import { seenOf, tellingOf, watchedAccount } from '../store/alerts-fixtures.ts';
import { claimed, fundedAccount, newJob, submitted, useStores } from '../store/fixtures.ts';
import { placed } from '../store/orders.ts';
import { appOn, ask, KEY, register } from './routes/operator-port.ts';

const HOST = 'localhost:9464';
const ORIGIN = `http://${HOST}`;
const FORM = 'application/x-www-form-urlencoded';

type Fields = Readonly<Record<string, string>>;

describe("the operator's pages on sqlite", () => {
  const { stores } = useStores();
  let app: FastifyInstance;
  let cookie: string;

  before(async () => {
    app = appOn(stores);
    await app.ready();
    cookie = cookieOf(await signIn(KEY));
  });
  after(() => app.close());

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

  /** The form of a page, as the page would send it. */
  async function send(page: string, url: string, fields: Fields = {}, more: Fields = {}) {
    const csrf = /name="csrf" value="([^"]+)"/.exec((await read(page)).body)?.[1] ?? '';
    const options: InjectOptions = {
      method: 'POST',
      url,
      headers: { host: HOST, cookie, origin: ORIGIN, 'content-type': FORM, ...more },
      payload: new URLSearchParams({ csrf, ...fields }).toString(),
    };
    return app.inject(options);
  }

  async function account(credits = 100): Promise<string> {
    return fundedAccount(stores, credits);
  }

  it('opens no page without the session, and no page by the key itself', async () => {
    const paths = ['', '/pages/accounts', '/pages/jobs', '/pages/nodes', '/pages/notifications'];
    for (const path of paths) {
      for (const headers of [{}, { authorization: `Bearer ${KEY}` }]) {
        const answer = await app.inject({ url: `/operator${path}`, headers });
        assert.equal(answer.statusCode, 303, path);
        assert.equal(answer.headers.location, '/operator/sign-in');
      }
      assert.equal((await read(`/operator${path}`)).statusCode, 200, path);
    }
  });

  it('opens nothing of the JSON interface by the session', async () => {
    for (const url of ['/operator/nodes', '/operator/jobs']) {
      assert.equal((await read(url)).statusCode, 401);
      assert.equal((await ask(app, url)).statusCode, 200);
    }
  });

  it('takes the right key alone, and keeps its cookie from scripts and other sites', async () => {
    for (const wrong of ['', 'x', `${KEY}x`, KEY.slice(1)]) {
      const answer = await signIn(wrong, {}, '10.0.0.1');
      assert.equal(answer.statusCode, 422);
      assert.equal(answer.headers['set-cookie'], undefined);
      if (wrong.length > 9) assert.ok(!answer.body.includes(wrong), 'what was typed is not shown');
    }
    const plain = String((await signIn(KEY)).headers['set-cookie']);
    assert.match(plain, /^matting-operator=/);
    assert.match(plain, /HttpOnly/);
    assert.match(plain, /SameSite=Strict/);
    assert.match(plain, /Path=\/operator/);
    const headers = { host: 'ops.example', origin: 'https://ops.example' };
    const secure = String((await signIn(KEY, headers)).headers['set-cookie']);
    assert.match(secure, /^__Host-matting-operator=/);
    assert.match(secure, /Secure/);
    assert.match(secure, /Path=\/(;|$)/);
  });

  it('signs nobody in where the key could be read on its way, or from another site', async () => {
    const insecure = await signIn(KEY, { host: 'ops.example', origin: 'http://ops.example' });
    assert.equal(insecure.statusCode, 403);
    assert.equal(insecure.headers['set-cookie'], undefined);
    for (const origin of ['https://evil.example', 'null', '']) {
      assert.equal((await signIn(KEY, { origin })).statusCode, 403, origin);
    }
  });

  it('bounds how often a key is guessed from one network, and lets others in', async () => {
    for (let count = 0; count < KEY_GUESSES.max; count += 1) {
      const wrong = await signIn('wrong', {}, `2001:db8:0:1::${count}`);
      assert.equal(wrong.statusCode, 422);
    }
    const late = await signIn(KEY, {}, '2001:db8:0:1::ffff');
    assert.equal(late.statusCode, 429);
    assert.ok(Number(late.headers['retry-after']) > 0);
    assert.equal((await signIn(KEY, {}, '2001:db8:0:2::1')).statusCode, 303);
  });

  it('changes nothing by a form of another site or another session', async () => {
    const id = await account();
    const url = `/operator/pages/accounts/${id}/grant`;
    const page = `/operator/pages/accounts/${id}`;
    const fields = { amount: '5', reference: 'forged' };
    const refusals = [
      await send(page, url, fields, { origin: 'https://evil.example' }),
      await send(page, url, fields, { origin: 'http://localhost:1' }),
      await send(page, url, { ...fields, csrf: '' }),
      await send(page, url, { ...fields, csrf: csrfTokenOf(new OperatorSessions(KEY).create()) }),
    ];
    for (const { statusCode } of refusals) assert.equal(statusCode, 403);
    const anonymous = await send(page, url, fields, { cookie: '' });
    assert.equal(anonymous.headers.location, '/operator/sign-in');
    assert.equal((await stores.ledger.balances(id))?.available, 100);
  });

  it('grants and revokes as the command line does, once a reference, and logs it', async () => {
    const id = await account();
    const page = `/operator/pages/accounts/${id}`;
    const move = (kind: string, fields: Fields) => send(page, `${page}/${kind}`, fields);
    const granted = await move('grant', { amount: '50', reference: 'invoice 7' });
    assert.equal(granted.headers.location, `${page}?said=granted`);
    const again = await move('grant', { amount: '50', reference: 'invoice 7' });
    assert.equal(again.headers.location, `${page}?said=alreadyEntered`);
    const conflict = await move('grant', { amount: '51', reference: 'invoice 7' });
    assert.equal(conflict.statusCode, 422);
    assert.match(conflict.body, /value="51"/);
    assert.match(conflict.body, /id="grant-reference-error"/);
    const fallback = 'page 1';
    const once = [1, 2].map(() => move('revoke', { amount: '30', reference: '', fallback }));
    for (const answer of await Promise.all(once)) assert.equal(answer.statusCode, 303);
    const tooMuch = await move('revoke', { amount: '121', reference: 'x' });
    assert.equal(tooMuch.statusCode, 422);
    for (const amount of ['', '0', '-1', '1.5', '1e3', '99999999999']) {
      assert.equal((await move('grant', { amount, reference: 'y' })).statusCode, 422, amount);
    }
    assert.equal((await move('grant', { amount: '1', reference: 'ö' })).statusCode, 422);
    assert.equal((await stores.ledger.balances(id))?.available, 120);
    const log = await stores.audit.list(id, { limit: 10 });
    assert.deepEqual(log.map(({ action, actorKind }) => `${actorKind} ${action}`).sort(), [
      'operator credits.granted',
      'operator credits.revoked',
    ]);
    assert.match((await read(page)).body, /120/);
  });

  it('makes accounts, finds them, and pages through them', async () => {
    const name = `<i>${randomUUID().slice(0, 8)}</i>`;
    const made = await send('/operator/pages/accounts', '/operator/pages/accounts', { name });
    const page = String(made.headers.location);
    assert.match(page, /^\/operator\/pages\/accounts\/[0-9a-f-]{36}\?said=created$/);
    const { body } = await read(page);
    assert.match(body, /role="status"/);
    assert.ok(!body.includes('<i>') && body.includes('&lt;i>'));
    const found = await read(`/operator/pages/accounts?find=${encodeURIComponent(name)}`);
    assert.equal(found.headers.location, page.replace('?said=created', ''));
    for (const bad of [name, '', ' x', '-x', 'x'.repeat(65)]) {
      const again = await send('/operator/pages/accounts', '/operator/pages/accounts', {
        name: bad,
      });
      assert.equal(again.statusCode, 422, bad);
    }
    assert.equal((await read('/operator/pages/accounts?find=nobody')).statusCode, 404);
    for (let count = 0; count < 51; count += 1) await stores.accounts.create(`page ${count}`);
    const first = (await read('/operator/pages/accounts')).body;
    const next = /href="([^"]+)" rel="next"/.exec(first)?.[1]?.replaceAll('&amp;', '&');
    assert.ok(next !== undefined);
    const rows = (text: string) => [...text.matchAll(/<tr><th scope="row"/g)].length;
    assert.equal(rows(first), 50);
    assert.ok(rows((await read(next)).body) > 0);
  });

  it('drains a node and lets it work again', async () => {
    const nodeId = `node-${randomUUID()}`;
    await register(stores, nodeId, '10.0.0.7:50052');
    const page = '/operator/pages/nodes';
    const state = async () => (await ask(app, `/operator/nodes/${nodeId}`)).json().state;
    assert.equal((await send(page, `${page}/${nodeId}/drain`)).statusCode, 303);
    assert.equal(await state(), 'draining');
    assert.match((await read(page)).body, new RegExp(`${nodeId}/undrain"`));
    await send(page, `${page}/${nodeId}/undrain`);
    assert.equal(await state(), 'live');
    assert.equal((await send(page, `${page}/nobody/drain`)).statusCode, 404);
  });

  it('lists jobs, shows one, and has it claimed again', async () => {
    const id = await account();
    const job = await submitted(stores, newJob(id));
    const list = await read(`/operator/pages/jobs?account=${id}`);
    assert.ok(list.body.includes(job.id));
    assert.ok((await read('/operator')).body.includes(id));
    await claimed(stores, job);
    const page = `/operator/pages/jobs/${job.id}`;
    const retried = await send(page, `${page}/retry`);
    assert.equal(retried.headers.location, `${page}?said=leaseEnded`);
    assert.match((await read(page)).body, /id="main"/);
    for (const bad of ['state=nonsense', 'within=x', 'state=open&state=failed']) {
      assert.equal((await read(`/operator/pages/jobs?${bad}`)).statusCode, 200, bad);
    }
    assert.equal((await read('/operator/pages/jobs?after=x')).statusCode, 400);
    assert.equal((await read(`/operator/pages/jobs/${randomUUID()}`)).statusCode, 404);
    assert.equal((await read('/operator/pages/jobs?account=nobody')).statusCode, 404);
  });

  it('confirms an order once, and enters a refund once', async () => {
    const id = await account(0);
    const { id: order } = await placed(stores, id);
    const page = `/operator/pages/orders/${order}`;
    assert.ok(
      (await read(`/operator/pages/orders?state=pending&account=${id}`)).body.includes(order),
    );
    const early = await send(page, `${page}/refund`, { fallback: 'r-1' });
    assert.equal(early.statusCode, 422);
    const confirmed = await send(page, `${page}/confirm`, { reference: 'transfer-9' });
    assert.equal(confirmed.headers.location, `${page}?said=confirmed`);
    const again = await send(page, `${page}/confirm`, { reference: 'transfer-9' });
    assert.equal(again.headers.location, `${page}?said=alreadyConfirmed`);
    const other = await send(page, `${page}/confirm`, { reference: 'transfer-10' });
    assert.equal(other.statusCode, 422);
    assert.equal((await stores.ledger.balances(id))?.available, 2500);
    for (const amount of ['x', '-1', '12.505', '50.01']) {
      const refused = await send(page, `${page}/refund`, { amount, fallback: 'r-2' });
      assert.equal(refused.statusCode, 422, amount);
    }
    const fields = { amount: '25', fallback: 'r-3' };
    assert.match(
      String((await send(page, `${page}/refund`, fields)).headers.location),
      /=refunded$/,
    );
    const twice = await send(page, `${page}/refund`, fields);
    assert.match(String(twice.headers.location), /=alreadyRefunded$/);
    assert.equal((await stores.ledger.balances(id))?.available, 1250);
    assert.equal((await read(`/operator/pages/orders/${randomUUID()}`)).statusCode, 404);
    const { body } = await read(page);
    assert.ok(body.includes('transfer-9') && body.includes('¥25'));
  });

  it('says why a notification is not sent again', async () => {
    const job = await submitted(stores, newJob(await account()));
    const page = '/operator/pages/notifications';
    const none = await send(page, `${page}/${job.id}/retry`);
    assert.equal(none.statusCode, 409);
    assert.match(none.body, /role="alert"/);
    assert.equal((await send(page, `${page}/${randomUUID()}/retry`)).statusCode, 409);
    assert.equal((await read(`${page}?after=x`)).statusCode, 400);
  });

  it('leads from a notification to its job, and nowhere from an event of an account', async () => {
    const accountId = await watchedAccount(stores, 3, [5]);
    const alert = (await seenOf(stores, accountId))[0] as SeenAlert;
    const telling = tellingOf(alert);
    assert.ok(await stores.alerts.tell(telling));
    const { body } = await read(`/operator/pages/notifications?job=${telling.eventId}`);
    assert.match(body, /<code>account\.balance_low<\/code>/);
    assert.ok(body.includes(telling.eventId));
    assert.ok(!body.includes(`/operator/pages/jobs/${telling.eventId}`));
  });

  it('keeps the language that was chosen, and leads back to no other host', async () => {
    for (const [back, location] of [
      ['/operator/pages/jobs?state=failed', '/operator/pages/jobs?state=failed'],
      ['//evil.example', '/operator'],
      ['https://evil.example/operator', '/operator'],
      ['/operator\\evil', '/operator'],
    ] as const) {
      const answer = await send('/operator', '/operator/language', { language: 'zh-CN', back });
      assert.equal(answer.headers.location, location);
      assert.match(String(answer.headers['set-cookie']), /matting-operator-language=zh-CN/);
    }
    const chinese = await read('/operator', {
      cookie: `${cookie}; matting-operator-language=zh-CN`,
    });
    assert.match(chinese.body, /<html lang="zh-CN">/);
    const nonsense = await send('/operator', '/operator/language', { language: 'x' });
    assert.equal(nonsense.statusCode, 400);
  });

  it('ends the session in the browser', async () => {
    const answer = await send('/operator', '/operator/sign-out');
    const cookies = [answer.headers['set-cookie']].flat().map(String);
    assert.ok(cookies.some(text => /^matting-operator=;/.test(text)));
    assert.ok(cookies.every(text => /Expires=Thu, 01 Jan 1970|Max-Age=0/.test(text)));
  });

  it('has no inline script or style on any page, and is small', async () => {
    for (const url of ['', '/sign-in', '/pages/accounts', '/pages/jobs', '/pages/nodes']) {
      const { body, headers } = await read(`/operator${url}`);
      assert.doesNotMatch(body, / style=| on\w+="|<style|<script(?! type="module" src="\/oper)/);
      assert.ok(Buffer.byteLength(body) < 100_000, url);
      if (body === '') continue;
      assert.match(String(headers['content-security-policy']), /default-src 'none'/);
      assert.equal(headers['cache-control'], 'no-store');
    }
  });

  it('has no pages where there is no key', async () => {
    const without = appOn(stores, { operatorKey: undefined });
    assert.equal((await without.inject('/operator')).statusCode, 404);
    assert.equal((await without.inject('/operator/sign-in')).statusCode, 404);
    await without.close();
  });
});

function cookieOf(answer: LightMyRequestResponse): string {
  assert.equal(answer.statusCode, 303);
  return String(answer.headers['set-cookie']).split(';')[0] ?? '';
}
