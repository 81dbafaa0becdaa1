import assert from 'node:assert/strict';
import ava from 'ava';
import { useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const app = useTestApp(test, { credits: 12 });

test('packages: both price lists, as sold', async t => {
  const answer = await app.get('/v1/account/packages');
  t.is(answer.statusCode, 200);
  t.regex(String(answer.headers['content-type']), /^application\/json/);
  const packages = (sold: readonly string[]) =>
    sold.map(text => {
      const [credits, price, unit_price] = text.split(':');
      return { credits: Number(credits), price: Number(price), unit_price };
    });
  t.deepEqual(answer.json(), {
    lists: [
      {
        unit: 'credit',
        currency: 'CNY',
        packages: packages([
          '2500:50:0.02',
          '80000:1200:0.015',
          '107200:1500:0.014',
          '640000:8000:0.0125',
          '1000000:11500:0.0115',
          '1300000:13000:0.01',
        ]),
      },
      {
        unit: 'image',
        currency: 'CNY',
        packages: packages([
          '100:10:0.1',
          '500:45:0.09',
          '1000:80:0.08',
          '5000:350:0.07',
          '10000:650:0.065',
          '20000:1200:0.06',
        ]),
      },
    ],
  });
});

test('keys: of this account, oldest first, with nothing in them that opens anything', async t => {
  const { key, token } = await app.stores.apiKeys.create(app.accountId, 'web shop');
  await app.stores.apiKeys.revoke(key.id);
  const other = await app.stores.accounts.create('somebody else');
  assert.ok(other);
  await app.stores.apiKeys.create(other.id, 'theirs');

  const answer = await app.get('/v1/account/keys');
  t.is(answer.statusCode, 200);
  t.is(answer.headers['cache-control'], 'no-store');
  const { keys } = answer.json();
  t.is(keys.length, 2);
  for (const one of keys) {
    t.deepEqual(Object.keys(one), [
      ...['prefix', 'name', 'created_at', 'revoked_at', 'expires_at', 'last_used_at'],
      ...['previous_secret_ends_at', 'cap', 'submissions_per_minute', 'scopes', 'networks'],
    ]);
    t.is(new Date(one.created_at).toISOString(), one.created_at);
  }
  const named = (name: string) => keys.find((one: { name: string }) => one.name === name);
  t.is(named('first key').revoked_at, null);
  t.is(named('web shop').prefix, key.prefix);
  t.is(new Date(named('web shop').revoked_at).toISOString(), named('web shop').revoked_at);
  for (const secret of [token, app.token]) {
    t.true(secret.startsWith('mk_'));
    t.notRegex(answer.payload, new RegExp(secret.split('_').at(-1) as string));
    const prefix = keys.find((one: { prefix: string }) => secret.startsWith(one.prefix));
    assert.ok(prefix);
    const opened = await app.get('/v1/account', { authorization: `Bearer ${prefix.prefix}` });
    t.is(opened.json().code, 'INVALID_API_KEY');
  }
});

test('a key cannot be made or removed here', async t => {
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'] as const) {
    const answer = await app.app.inject({ method, url: '/v1/account/keys' });
    t.is(answer.json().code, 'METHOD_NOT_ALLOWED');
    t.is(answer.headers.allow, 'GET, HEAD');
  }
});

test('neither is shown without a key', async t => {
  for (const url of ['/v1/account/packages', '/v1/account/keys']) {
    const answer = await app.get(url, { authorization: undefined });
    t.is(answer.json().code, 'MISSING_API_KEY');
  }
});
