/** What keys with a policy are refused over HTTP, when, and with what. */
import ava from 'ava';
import type { KeyPolicy } from '../../../src/domain/account/key-policy.ts';
import { imageBody, openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';

const app = useTestApp(test, { credits: 1000 });

async function keyed(policy: KeyPolicy) {
  return { authorization: `Bearer ${await app.createKey(policy)}` };
}

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
  test(`scopes › ${scope} alone opens what it names and nothing else`, async t => {
    const headers = await keyed({ scopes: [scope] });
    for (const name of Object.keys(asks) as (keyof typeof asks)[]) {
      const answer = await asks[name](headers);
      if (scopeOf[name] === scope) {
        t.is(answer.statusCode, answered[name], name);
        continue;
      }
      t.is(answer.statusCode, 403, name);
      const { code, retryable, detail } = answer.json();
      t.deepEqual([code, retryable], ['KEY_NOT_ALLOWED', false]);
      t.regex(detail, new RegExp(`scope ${scopeOf[name]}$`));
      t.is(answer.headers.ratelimit, undefined, 'before the rate is counted');
    }
  });
}

test('scopes › is checked before the Idempotency-Key and before the body', async t => {
  const headers = await keyed({ scopes: ['read'] });
  const none = { ...headers, 'idempotency-key': undefined, 'content-length': '99999999' };
  t.is((await app.post(JOBS, '{', none)).json().code, 'KEY_NOT_ALLOWED');
});

test('scopes › holds for the remove.bg interface, in its words', async t => {
  const reader = await app.createKey({ scopes: ['read'] });
  const headers = { 'x-api-key': reader, authorization: undefined };
  const answer = await app.get('/v1.0/account', headers);
  t.is(answer.statusCode, 403);
  t.is(answer.json().errors[0].code, 'auth_failed');
  const spender = await app.createKey({ cap: { credits: 1, period: 'day' } });
  const { image_base64 } = imageBody();
  const sent = { 'x-api-key': spender, authorization: undefined };
  await app.post(JOBS, imageBody(), { authorization: `Bearer ${spender}` });
  const body = { image_file_b64: image_base64, size: 'auto', type: 'car' };
  const refused = await app.post('/v1.0/removebg', body, sent);
  t.is(refused.statusCode, 402, refused.payload);
  t.is(refused.json().errors[0].code, 'insufficient_credits');
});

test('networks › let in who is in one of them, by the address of the connection', async t => {
  t.is((await app.get('/v1/account', await keyed({ networks: ['127.0.0.0/8'] }))).statusCode, 200);
  const answer = await app.get('/v1/account', await keyed({ networks: ['192.0.2.0/24'] }));
  t.is(answer.json().code, 'KEY_NOT_ALLOWED');
  t.regex(answer.json().detail, /127\.0\.0\.1/);
});

test('networks › are not changed by what a caller says of itself', async t => {
  const headers = await keyed({ networks: ['192.0.2.0/24'] });
  const forged = { ...headers, 'x-forwarded-for': '192.0.2.1', forwarded: 'for=192.0.2.1' };
  t.is((await app.get('/v1/account', forged)).statusCode, 403);
});

test('networks behind a proxy › are compared with whom a proxy that is named has seen, and with no other word', async t => {
  const behind = await openTestApp({ trustedProxies: ['127.0.0.0/8'] }, t);
  const networks = ['192.0.2.0/24'];
  const authorization = `Bearer ${await behind.createKey({ networks })}`;
  const statusFrom = async (chain: string) =>
    (await behind.get('/v1/account', { authorization, 'x-forwarded-for': chain })).statusCode;
  t.is(await statusFrom('192.0.2.7'), 200);
  t.is(await statusFrom('198.51.100.7'), 403);
  // Its own words are the first, what the proxy adds is the last.
  t.is(await statusFrom('192.0.2.7, 198.51.100.7'), 403);
  // Some proxies write the port, too; what is no address is in no network.
  t.is(await statusFrom('192.0.2.7:4711'), 200);
  t.is(await statusFrom('192.0.2.7:4711, 127.0.0.9:80'), 200);
  t.is(await statusFrom('192.0.2.7:4711, 198.51.100.7:4712'), 403);
  t.is(await statusFrom('unknown'), 403);
});

test('caps › refuse what would be over them, not the account’s other keys, and no replay', async t => {
  const headers = await keyed({ cap: { credits: 2, period: 'day' } });
  const again = { ...headers, 'idempotency-key': 'the first' };
  const first = await app.post(JOBS, imageBody(), again);
  t.is(first.statusCode, 202);
  t.is((await app.post(JOBS, imageBody(), headers)).statusCode, 202);
  const refused = await app.post(JOBS, imageBody(), headers);
  t.is(refused.statusCode, 402);
  const { code, detail, retryable } = refused.json();
  t.deepEqual([code, retryable], ['KEY_CAP_REACHED', false]);
  t.regex(detail, /2 credits a day; they begin again at \d{4}-\d\d-\d\dT00:00:00\.000Z$/);
  t.is((await app.post(JOBS, imageBody(), again)).json().job_id, first.json().job_id);
  t.is((await app.post(JOBS, imageBody())).statusCode, 202);
  // What fails gives its credit back.
  await app.failJob(first.json().job_id, {
    code: 'PROCESSING_FAILED',
    detail: 'x',
    retryable: false,
  });
  t.is((await app.post(JOBS, imageBody(), headers)).statusCode, 202);
  t.is((await app.post(JOBS, imageBody(), headers)).statusCode, 402);
  t.deepEqual(await app.stores.ledger.check(), []);
});

test('caps › are shown with what they have counted', async t => {
  const headers = await keyed({
    cap: { credits: 9, period: 'total' },
    scopes: ['submit', 'account'],
  });
  await app.post(JOBS, imageBody(), headers);
  const { keys } = (await app.get('/v1/account/keys', headers)).json();
  const [own] = keys.filter((key: { cap: { credits: number } | null }) => key.cap?.credits === 9);
  t.deepEqual(own.cap, { credits: 9, period: 'total', used: 1, resets_at: null });
  t.deepEqual(own.scopes, ['submit', 'account']);
});

test('a rate of its own › refuses a key beyond it, and takes nothing of the account’s then', async t => {
  const headers = await keyed({ submissionsPerMinute: 2 });
  while ((await app.stores.rateQuotas.nowMs()) % 60_000 > 50_000) {
    await new Promise(resolve => setTimeout(resolve, 200));
  }
  const answers = [];
  for (let n = 0; n < 5; n += 1) answers.push(await app.post(JOBS, imageBody(), headers));
  t.deepEqual(
    answers.map(({ statusCode }) => statusCode),
    [202, 202, 429, 429, 429],
  );
  const [first, , refused] = answers;
  t.regex(
    String(first?.headers['ratelimit-policy']),
    /^"submissions";q=\d+;w=60, "key-submissions";q=2;w=60$/,
  );
  t.regex(
    String(first?.headers.ratelimit),
    /^"submissions";r=\d+;t=\d+, "key-submissions";r=1;t=\d+$/,
  );
  t.is(refused?.headers['ratelimit-policy'], '"key-submissions";q=2;w=60');
  t.regex(String(refused?.headers.ratelimit), /^"key-submissions";r=0;t=\d+$/);
  t.regex(String(refused?.headers['retry-after']), /^\d+$/);
  t.regex(refused?.json().detail, /the API key is over its 2 submissions/);
  const left = async () => {
    const answer = await app.post(JOBS, imageBody());
    return Number(/^"submissions";r=(\d+)/.exec(String(answer.headers.ratelimit))?.[1]);
  };
  const before = await left();
  await app.post(JOBS, imageBody(), headers);
  t.is(await left(), before - 1);
  t.is((await app.get('/v1/account', headers)).statusCode, 200, 'reads have no such rate');
});

test('the end of a key › is told to who has it', async t => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'ends', {
    expiresInMs: 1,
  });
  const endMs = key.expiresAtMs ?? 0;
  // A fast call comes within the same millisecond.
  while ((await app.stores.rateQuotas.nowMs()) <= endMs) await new Promise(setImmediate);
  const answer = await app.get('/v1/account', { authorization: `Bearer ${token}` });
  t.is(answer.statusCode, 401);
  t.is(answer.headers['www-authenticate'], 'Bearer');
  const { code, detail } = answer.json();
  const at = new Date(endMs).toISOString();
  t.deepEqual([code, detail], ['INVALID_API_KEY', `the API key expired at ${at}`]);
});

test('a use is noted where the key may do what it is used for', async t => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'used', {
    policy: { scopes: ['account'] },
  });
  const authorization = `Bearer ${token}`;
  const lastUse = async () => {
    await app.services.keyUses.write();
    return (await app.stores.apiKeys.find(key.id))?.lastUsedAtMs ?? null;
  };
  await app.post(JOBS, imageBody(), { authorization });
  t.is(await lastUse(), null);
  await app.get('/v1/account', { authorization });
  t.true(((await lastUse()) ?? 0) > 0);
});
