/** What keys with a policy are refused over HTTP, when, and with what. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KeyPolicy } from '../../../src/domain/account/key-policy.ts';
import { imageBody, openTestApp, useTestApp } from '../../support/test-app.ts';

const JOBS = '/v1/matting/jobs';

const app = useTestApp({ credits: 1000 });

async function keyed(policy: KeyPolicy) {
  return { authorization: `Bearer ${await app.createKey(policy)}` };
}

describe('scopes', () => {
  const asks = {
    submit: (headers: object) => app.post(JOBS, imageBody(), { ...headers }),
    read: (headers: object) =>
      app.get(`${JOBS}/00000000-0000-4000-8000-000000000000`, { ...headers }),
    account: (headers: object) => app.get('/v1/account', { ...headers }),
    packages: (headers: object) => app.get('/v1/account/packages', { ...headers }),
    keys: (headers: object) => app.get('/v1/account/keys', { ...headers }),
  };
  const answered = { submit: 202, read: 404, account: 200, packages: 200, keys: 200 };
  const scopeOf = {
    submit: 'submit',
    read: 'read',
    account: 'account',
    packages: 'account',
    keys: 'account',
  };

  for (const scope of ['submit', 'read', 'account'] as const) {
    it(`${scope} alone opens what it names and nothing else`, async () => {
      const headers = await keyed({ scopes: [scope] });
      for (const name of Object.keys(asks) as (keyof typeof asks)[]) {
        const answer = await asks[name](headers);
        if (scopeOf[name] === scope) {
          assert.equal(answer.statusCode, answered[name], name);
          continue;
        }
        assert.equal(answer.statusCode, 403, name);
        const { code, retryable, detail } = answer.json();
        assert.deepEqual([code, retryable], ['KEY_NOT_ALLOWED', false]);
        assert.match(detail, new RegExp(`scope ${scopeOf[name]}$`));
        assert.equal(answer.headers.ratelimit, undefined, 'before the rate is counted');
      }
    });
  }

  it('is checked before the Idempotency-Key and before the body', async () => {
    const headers = await keyed({ scopes: ['read'] });
    const none = { ...headers, 'idempotency-key': undefined, 'content-length': '99999999' };
    assert.equal((await app.post(JOBS, '{', none)).json().code, 'KEY_NOT_ALLOWED');
  });

  it('holds for the remove.bg interface, in its words', async () => {
    const reader = await app.createKey({ scopes: ['read'] });
    const headers = { 'x-api-key': reader, authorization: undefined };
    const answer = await app.get('/v1.0/account', headers);
    assert.equal(answer.statusCode, 403);
    assert.equal(answer.json().errors[0].code, 'auth_failed');
    const spender = await app.createKey({ cap: { credits: 1, period: 'day' } });
    const { image_base64 } = imageBody();
    const sent = { 'x-api-key': spender, authorization: undefined };
    await app.post(JOBS, imageBody(), { authorization: `Bearer ${spender}` });
    const body = { image_file_b64: image_base64, size: 'auto', type: 'car' };
    const refused = await app.post('/v1.0/removebg', body, sent);
    assert.equal(refused.statusCode, 402, refused.payload);
    assert.equal(refused.json().errors[0].code, 'insufficient_credits');
  });
});

describe('networks', () => {
  it('let in who is in one of them, by the address of the connection', async () => {
    assert.equal(
      (await app.get('/v1/account', await keyed({ networks: ['127.0.0.0/8'] }))).statusCode,
      200,
    );
    const answer = await app.get('/v1/account', await keyed({ networks: ['192.0.2.0/24'] }));
    assert.equal(answer.json().code, 'KEY_NOT_ALLOWED');
    assert.match(answer.json().detail, /127\.0\.0\.1/);
  });

  it('are not changed by what a caller says of itself', async () => {
    const headers = await keyed({ networks: ['192.0.2.0/24'] });
    const forged = { ...headers, 'x-forwarded-for': '192.0.2.1', forwarded: 'for=192.0.2.1' };
    assert.equal((await app.get('/v1/account', forged)).statusCode, 403);
  });
});

describe('networks behind a proxy', () => {
  it('are compared with whom a proxy that is named has seen, and with no other word', async t => {
    const behind = await openTestApp({ trustedProxies: ['127.0.0.0/8'] }, t);
    const networks = ['192.0.2.0/24'];
    const authorization = `Bearer ${await behind.createKey({ networks })}`;
    const statusFrom = async (chain: string) =>
      (await behind.get('/v1/account', { authorization, 'x-forwarded-for': chain })).statusCode;
    assert.equal(await statusFrom('192.0.2.7'), 200);
    assert.equal(await statusFrom('198.51.100.7'), 403);
    // Its own words are the first, what the proxy adds is the last.
    assert.equal(await statusFrom('192.0.2.7, 198.51.100.7'), 403);
    // Some proxies write the port, too; what is no address is in no network.
    assert.equal(await statusFrom('192.0.2.7:4711'), 200);
    assert.equal(await statusFrom('192.0.2.7:4711, 127.0.0.9:80'), 200);
    assert.equal(await statusFrom('192.0.2.7:4711, 198.51.100.7:4712'), 403);
    assert.equal(await statusFrom('unknown'), 403);
  });
});

describe('caps', () => {
  it('refuse what would be over them, not the account’s other keys, and no replay', async () => {
    const headers = await keyed({ cap: { credits: 2, period: 'day' } });
    const again = { ...headers, 'idempotency-key': 'the first' };
    const first = await app.post(JOBS, imageBody(), again);
    assert.equal(first.statusCode, 202);
    assert.equal((await app.post(JOBS, imageBody(), headers)).statusCode, 202);
    const refused = await app.post(JOBS, imageBody(), headers);
    assert.equal(refused.statusCode, 402);
    const { code, detail, retryable } = refused.json();
    assert.deepEqual([code, retryable], ['KEY_CAP_REACHED', false]);
    assert.match(detail, /2 credits a day; they begin again at \d{4}-\d\d-\d\dT00:00:00\.000Z$/);
    assert.equal((await app.post(JOBS, imageBody(), again)).json().job_id, first.json().job_id);
    assert.equal((await app.post(JOBS, imageBody())).statusCode, 202);
    // What fails gives its credit back.
    await app.failJob(first.json().job_id, {
      code: 'PROCESSING_FAILED',
      detail: 'x',
      retryable: false,
    });
    assert.equal((await app.post(JOBS, imageBody(), headers)).statusCode, 202);
    assert.equal((await app.post(JOBS, imageBody(), headers)).statusCode, 402);
    assert.deepEqual(await app.stores.ledger.check(), []);
  });

  it('are shown with what they have counted', async () => {
    const headers = await keyed({
      cap: { credits: 9, period: 'total' },
      scopes: ['submit', 'account'],
    });
    await app.post(JOBS, imageBody(), headers);
    const { keys } = (await app.get('/v1/account/keys', headers)).json();
    const [own] = keys.filter((key: { cap: { credits: number } | null }) => key.cap?.credits === 9);
    assert.deepEqual(own.cap, { credits: 9, period: 'total', used: 1, resets_at: null });
    assert.deepEqual(own.scopes, ['submit', 'account']);
  });
});

describe('a rate of its own', () => {
  it('refuses a key beyond it, and takes nothing of the account’s then', async () => {
    const headers = await keyed({ submissionsPerMinute: 2 });
    while ((await app.stores.rateQuotas.nowMs()) % 60_000 > 50_000) {
      await new Promise(resolve => setTimeout(resolve, 200));
    }
    const answers = [];
    for (let n = 0; n < 5; n += 1) answers.push(await app.post(JOBS, imageBody(), headers));
    assert.deepEqual(
      answers.map(({ statusCode }) => statusCode),
      [202, 202, 429, 429, 429],
    );
    const [first, , refused] = answers;
    assert.match(
      String(first?.headers['ratelimit-policy']),
      /^"submissions";q=\d+;w=60, "key-submissions";q=2;w=60$/,
    );
    assert.match(
      String(first?.headers.ratelimit),
      /^"submissions";r=\d+;t=\d+, "key-submissions";r=1;t=\d+$/,
    );
    assert.equal(refused?.headers['ratelimit-policy'], '"key-submissions";q=2;w=60');
    assert.match(String(refused?.headers.ratelimit), /^"key-submissions";r=0;t=\d+$/);
    assert.match(String(refused?.headers['retry-after']), /^\d+$/);
    assert.match(refused?.json().detail, /the API key is over its 2 submissions/);
    const left = async () => {
      const answer = await app.post(JOBS, imageBody());
      return Number(/^"submissions";r=(\d+)/.exec(String(answer.headers.ratelimit))?.[1]);
    };
    const before = await left();
    await app.post(JOBS, imageBody(), headers);
    assert.equal(await left(), before - 1);
    assert.equal(
      (await app.get('/v1/account', headers)).statusCode,
      200,
      'reads have no such rate',
    );
  });
});

describe('the end of a key', () => {
  it('is told to who has it', async () => {
    const { key, token } = await app.stores.apiKeys.create(app.accountId, 'ends', {
      expiresInMs: 1,
    });
    const answer = await app.get('/v1/account', { authorization: `Bearer ${token}` });
    assert.equal(answer.statusCode, 401);
    assert.equal(answer.headers['www-authenticate'], 'Bearer');
    const { code, detail } = answer.json();
    const at = new Date(key.expiresAtMs ?? 0).toISOString();
    assert.deepEqual([code, detail], ['INVALID_API_KEY', `the API key expired at ${at}`]);
  });
});

it('a use is noted where the key may do what it is used for', async () => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'used', {
    policy: { scopes: ['account'] },
  });
  const authorization = `Bearer ${token}`;
  const lastUse = async () => {
    await app.services.keyUses.write();
    return (await app.stores.apiKeys.find(key.id))?.lastUsedAtMs ?? null;
  };
  await app.post(JOBS, imageBody(), { authorization });
  assert.equal(await lastUse(), null);
  await app.get('/v1/account', { authorization });
  assert.ok(((await lastUse()) ?? 0) > 0);
});
