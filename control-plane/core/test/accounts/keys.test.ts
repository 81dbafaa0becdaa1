import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import {
  apiKeyIdOf,
  createApiKeyToken,
  hashSecret,
  parseApiKeyToken,
  secretMatches,
} from '@matting/accounts/keys/api-key-token.ts';
import {
  type QuotaAsk,
  quotaWindowStartMs,
  RATE_WINDOW_MS,
} from '@matting/accounts/rates/rate-windows.ts';
import type { Schema } from '@matting/database/database.ts';
import { rowOf, setIn } from '@matting/database/test/rows.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { at } from '@matting/test-support/at.ts';
import { createTestDatabase } from '@matting/test-support/database.ts';
import ava from 'ava';
import sinon from 'sinon';
import {
  assertBalanced,
  fundedAccount,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  onStores,
  running,
  sha256,
  storesOn,
  successOf,
} from '../fixtures.ts';

const test = ava.serial;

test('any single changed character is noticed without a database', t => {
  const { text } = createApiKeyToken();
  for (let at = 0; at < text.length; at++) {
    const changed = text.slice(0, at) + (text[at] === 'a' ? 'b' : 'a') + text.slice(at + 1);
    t.is(parseApiKeyToken(changed), undefined, `at ${at}`);
  }
  const [one, two] = [text.slice(0, 20), text.slice(20)];
  for (const wrong of [one, two, two + one, ` ${text}`, `${text}\n`, text.replaceAll('_', '-')]) {
    t.is(parseApiKeyToken(wrong), undefined);
  }
});

test('keys have the documented form and are never the same', t => {
  const tokens = Array.from({ length: 500 }, () => createApiKeyToken());
  for (const token of tokens) {
    t.regex(token.text, /^mk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$/);
    t.deepEqual(parseApiKeyToken(token.text), { id: token.id, secret: token.secret });
  }
  t.is(new Set(tokens.map(({ id }) => id)).size, 500);
  t.is(new Set(tokens.map(({ secret }) => secret)).size, 500);
});

test('a secret matches its own hash alone', t => {
  const { secret } = createApiKeyToken();
  t.true(secretMatches(secret, hashSecret(secret)));
  t.false(secretMatches(secret, hashSecret(`${secret}0`)));
  t.false(secretMatches(secret, ''));
  t.false(secretMatches(secret, 'no hash'));
});

test('a key’s id, its prefix with the id and its whole text all name the key', t => {
  const { id, text } = createApiKeyToken();
  for (const typed of [id, `mk_${id}`, text]) t.is(apiKeyIdOf(typed), id);
  t.is(apiKeyIdOf('else'), 'else');
});

const NOTHING = { available: 0, reserved: 0 };

onStores(test, 'identities', (test, { dialect, database, stores, replica }) => {
  const others = replica();

  test('accounts › have names that are theirs alone, to the byte', async t => {
    const names = ['acme', 'ACME', 'äcme', 'acmé'];
    for (const name of names) t.truthy(await stores.accounts.create(name));
    t.is(await stores.accounts.create('acme'), undefined);
    const listed = (await stores.accounts.list()).map(({ name }) => name);
    t.deepEqual(listed.filter(name => names.includes(name)).length, 4);
    for (const name of names) {
      t.is((await stores.accounts.findByNameOrId(name))?.name, name);
    }
  });

  test('accounts › are listed by name, and their keys by age, over any number of pages', async t => {
    const elsewhere = await createTestDatabase(dialect);
    try {
      const many = await elsewhere.open();
      const count = 1203;
      const name = (index: number) => `many ${String(index * 7919).padStart(9, '0')}`;
      const accounts = Array.from({ length: count }, (_, index) => {
        return { id: randomUUID(), name: name(index), ...NOTHING, created_at: index };
      });
      const [owner, other] = [at(accounts, 0).id, at(accounts, 1).id];
      const keys = Array.from({ length: count }, (_, index) => {
        const id = `k${String((index * 7919) % 10_007).padStart(11, '0')}`;
        const account = index % 100 === 0 ? other : owner;
        // Many share a millisecond.
        const created = Math.floor(index / 400);
        const key = { id, account_id: account, name: 'n', secret_hash: sha256(id) };
        return { ...key, created_at: created, revoked_at: null };
      });
      for (let from = 0; from < count; from += 100) {
        const rows = accounts.slice(from, from + 100);
        await many.kysely.insertInto('accounts').values(rows).execute();
        const some = keys.slice(from, from + 100);
        await many.kysely.insertInto('api_keys').values(some).execute();
      }
      const own = storesOn(many);
      t.deepEqual(
        (await own.accounts.list()).map(account => account.name),
        accounts.map(account => account.name),
      );
      const byAge = keys
        .toSorted((a, b) => a.created_at - b.created_at || (a.id < b.id ? -1 : 1))
        .map(({ id, account_id }) => ({ id, account_id }));
      t.deepEqual(
        (await own.apiKeys.list()).map(({ id }) => id),
        byAge.map(({ id }) => id),
      );
      t.deepEqual(
        (await own.apiKeys.list(owner)).map(({ id }) => id),
        byAge.filter(({ account_id: account }) => account === owner).map(({ id }) => id),
      );
    } finally {
      await elsewhere.close();
    }
  });

  test('accounts › are not found by a malformed name or id', async t => {
    for (const text of ['', 'acme ', ' acme', 'nobody', '日本', 'a\u0000', randomUUID()]) {
      t.is(await stores.accounts.findByNameOrId(text), undefined);
      t.is(await stores.accounts.find(text), undefined);
    }
  });

  test('accounts › refuse names that look like others', async t => {
    const wrong = ['', ' a', 'a ', 'a\nb', '-a', randomUUID(), 'e\u0301', 'a\u200bb', '\ud800'];
    for (const name of [...wrong, 'x'.repeat(65)]) {
      await t.throwsAsync(stores.accounts.create(name), { message: /cannot be a name/ }, name);
    }
    t.truthy(await stores.accounts.create('😀'.repeat(64)));
  });

  test('accounts › of two replicas at once: one is created', async t => {
    const made = await Promise.all([
      stores.accounts.create('twin'),
      others.accounts.create('twin'),
    ]);
    t.is(made.filter(account => account !== undefined).length, 1);
  });

  test('API keys › are known whole, and nothing like them is', async t => {
    const accountId = await fundedAccount(stores, 0);
    const { key, token } = await stores.apiKeys.create(accountId, 'shop');
    t.deepEqual(await stores.apiKeys.authenticate(token), {
      apiKeyId: key.id,
      accountId,
    });
    const other = (await stores.apiKeys.create(accountId, 'shop')).token;
    const [, secret] = other.slice(3).split('_');
    const malformed = ['', 'x', token.slice(0, -1), `${token} `, `${token}a`, `mk_${key.id}`];
    malformed.push(token.toLowerCase(), `mk_${key.id}_${secret}`, `日本${token}`);
    for (const text of malformed) {
      t.is(await stores.apiKeys.authenticate(text), 'malformed', text);
    }
  });

  test('API keys › with another secret, or of another database, are unknown', async t => {
    const { key, token } = await stores.apiKeys.create(await fundedAccount(stores, 0), 'shop');
    await setIn(database.kysely, 'api_keys', { id: key.id }, { secret_hash: '0'.repeat(64) });
    t.is(await stores.apiKeys.authenticate(token), 'unknown');
    const elsewhere = await createTestDatabase(dialect);
    try {
      const foreign = storesOn(await elsewhere.open());
      t.is(await foreign.apiKeys.authenticate(token), 'unknown');
    } finally {
      await elsewhere.close();
    }
  });

  test('API keys › are stored without their secret, and listed without anything of it', async t => {
    const accountId = await fundedAccount(stores, 0);
    const { key, token } = await stores.apiKeys.create(accountId, 'shop');
    const secret = token.slice(`mk_${key.id}_`.length, -6);
    const rows = await database.kysely.selectFrom('api_keys').selectAll().execute();
    t.false(JSON.stringify(rows).includes(secret));
    const listed = await stores.apiKeys.list(accountId);
    t.deepEqual(listed, [key]);
    t.deepEqual(Object.keys(key).sort(), [
      ...['accountId', 'capUse', 'createdAtMs', 'expiresAtMs', 'id', 'lastUsedAtMs', 'madeBy'],
      ...['name', 'policy', 'prefix', 'previousSecret', 'revokedAtMs', 'state'],
    ]);
    t.true(token.startsWith(key.prefix));
  });

  test('API keys › once revoked stop at once here, and soon in every other replica', async t => {
    const { key, token } = await stores.apiKeys.create(await fundedAccount(stores, 0), 'shop');
    t.not(await others.apiKeys.authenticate(token), 'unknown');
    t.not(await stores.apiKeys.authenticate(token), 'unknown');
    const revoked = await stores.apiKeys.revoke(key.id);
    assert.ok(revoked?.revokedAtMs);
    t.is(await stores.apiKeys.authenticate(token), 'unknown');
    await delay(500);
    t.is(await others.apiKeys.authenticate(token), 'unknown');
    t.deepEqual(await stores.apiKeys.revoke(key.id), revoked, 'the first time stays');
    for (const id of ['nobody000000', '', '日本']) {
      t.is(await stores.apiKeys.revoke(id), undefined);
    }
  });

  const registration = (nodeId: string) => ({
    nodeId,
    bootId: randomUUID(),
    address: '10.0.0.1:50051',
    httpAddress: '',
    version: '0.1.0',
  });
  const live = async (nodeId: string) =>
    (await others.nodes.listLive()).some(member => member.nodeId === nodeId);

  test('nodes › are members for as long as their lease', async t => {
    const node = registration('node-1');
    t.deepEqual(await stores.nodes.register(node, 60_000), { draining: false });
    const member = (await others.nodes.listLive()).find(({ nodeId }) => nodeId === 'node-1');
    assert.ok(member?.live);
    t.is(member.leaseExpiresAtMs - member.registeredAtMs, 60_000);
    t.is(member.address, node.address);
    t.deepEqual(await stores.nodes.heartbeat('node-1', node.bootId, 0), {
      known: true,
      draining: false,
    });
    t.false(await live('node-1'));
    t.true((await stores.nodes.listAll()).some(({ nodeId }) => nodeId === 'node-1'));
    await stores.nodes.heartbeat('node-1', node.bootId, 60_000);
    t.is(await live('node-1'), true, 'silent, not replaced: it is back');
  });

  test('nodes › are members by the clock of the database, whatever a replica believes', async t => {
    const node = registration('node-8');
    await stores.nodes.register(node, 60_000);
    const now = sinon.stub(Date, 'now');
    t.teardown(() => now.restore());
    for (const believed of [0, 4_000_000_000_000]) {
      now.returns(believed);
      t.is(await live('node-8'), true, `with its clock at ${believed}`);
      await others.nodes.heartbeat('node-8', node.bootId, 60_000);
    }
    await others.nodes.heartbeat('node-8', node.bootId, 0);
    t.false(await live('node-8'));
  });

  test('nodes › answer to their last boot alone', async t => {
    const old = registration('node-2');
    const young = { ...registration('node-2'), address: '10.0.0.2:50051' };
    await stores.nodes.register(old, 60_000);
    await others.nodes.register(young, 60_000);
    t.true(await stores.nodes.deregister('node-2', young.bootId));
    t.false(await live('node-2'));
    const late = await stores.nodes.heartbeat('node-2', young.bootId, 60_000);
    t.is(late.known, false, 'a heartbeat after the end brings nobody back');
    t.false((await stores.nodes.heartbeat('nobody', young.bootId, 1)).known);
  });

  test('nodes › are drained by the operator, over restarts, until undrained', async t => {
    t.false(await stores.nodes.setDraining('node-3', true));
    const node = registration('node-3');
    await stores.nodes.register(node, 60_000);
    t.true(await others.nodes.setDraining('node-3', true));
    t.true((await stores.nodes.heartbeat('node-3', node.bootId, 60_000)).draining);
    await stores.nodes.deregister('node-3', node.bootId);
    await stores.nodes.register(registration('node-4'), 60_000);
    const again = registration('node-3');
    t.deepEqual(await stores.nodes.register(again, 60_000), { draining: true });
    await others.nodes.setDraining('node-3', false);
    t.false((await stores.nodes.heartbeat('node-3', again.bootId, 1)).draining);
  });

  test('nodes › registered by two replicas at once are one', async t => {
    const boots = [registration('node-5'), registration('node-5')];
    await Promise.all([
      stores.nodes.register(at(boots, 0), 60_000),
      others.nodes.register(at(boots, 1), 60_000),
    ]);
    const rows = (await stores.nodes.listAll()).filter(({ nodeId }) => nodeId === 'node-5');
    t.is(rows.length, 1);
    t.true(boots.some(({ bootId }) => bootId === at(rows, 0).bootId));
  });

  test('nodes › that ended are forgotten when another registers', async t => {
    const node = registration('node-6');
    await stores.nodes.register(node, 60_000);
    await stores.nodes.deregister('node-6', node.bootId);
    await stores.nodes.register(registration('node-7'), 60_000);
    t.false((await stores.nodes.listAll()).some(({ nodeId }) => nodeId === 'node-6'));
  });

  test('the secrets canary is the first one, for every replica', async t => {
    const canaries = [1, 2].map(byte => ({ keyId: `k${byte}`, ciphertext: Uint8Array.of(byte) }));
    const [one, two] = await Promise.all([
      stores.secretsCanary.establish(at(canaries, 0)),
      others.secretsCanary.establish(at(canaries, 1)),
    ]);
    t.deepEqual(one, two);
    t.true(canaries.some(({ keyId }) => keyId === one.keyId));
    t.deepEqual(await stores.secretsCanary.establish(at(canaries, 1)), one);
  });

  test('the first start makes one account with credits and a key, and never another', async t => {
    const empty = await createTestDatabase(dialect);
    try {
      const [one, other] = [storesOn(await empty.open()), storesOn(await empty.open())] as const;
      const outcomes = await Promise.all(
        [one, other].map(replica => replica.bootstrap('default', 100)),
      );
      const made = outcomes.find(outcome => outcome.created);
      t.is(outcomes.filter(outcome => outcome.created).length, 1);
      assert.ok(made?.created);
      t.deepEqual(await other.bootstrap('another', 100), { created: false });
      const owner = await other.apiKeys.authenticate(made.token);
      assert.ok(typeof owner === 'object' && 'accountId' in owner);
      t.is(owner.accountId, made.accountId);
      const [account, ...more] = await one.accounts.list();
      t.deepEqual([account?.name, account?.available, more.length], ['default', 100, 0]);
      await assertBalanced(one);
    } finally {
      await empty.close();
    }
  });
});

onStores(test, 'policies of keys', (test, { database, stores, replica }) => {
  const others = replica();

  async function capped(credits: number, funds = 100) {
    const account = await fundedAccount(stores, funds);
    const policy = { cap: { credits, period: 'day' } } as const;
    const { key } = await stores.apiKeys.create(account, 'capped', { policy });
    const job = () => newJob(account, { apiKeyId: key.id, keyHasCap: true });
    const used = async () => (await stores.apiKeys.find(key.id))?.capUse?.used;
    return { account, key, job, used };
  }

  async function set(id: string, columns: Partial<Schema['api_keys']>): Promise<void> {
    const update = database.kysely.updateTable('api_keys').set(columns);
    await update.where('id', '=', id).execute();
  }

  test('a cap is kept to the credit by submissions that race at two replicas', async t => {
    const { account, job, used } = await capped(7);
    const outcomes = await Promise.all(
      Array.from({ length: 30 }, (_, n) => [stores, others][n % 2]!.queue.submit(job(), LIMITS)),
    );
    const kinds = outcomes.map(({ kind }) => kind);
    t.is(kinds.filter(kind => kind === 'created').length, 7);
    t.is(kinds.filter(kind => kind === 'key-cap-reached').length, 23);
    t.is(await used(), 7);
    const balances = await stores.ledger.balances(account);
    t.deepEqual(balances, { available: 93, reserved: 7 }, 'a refusal reserves nothing');
    await assertBalanced(stores, account);
  });

  test('a released credit returns to the cap, a charged one does not', async t => {
    const { job, used } = await capped(2);
    const [failing, succeeding] = [await running(stores, job()), await running(stores, job())];
    t.is((await stores.queue.submit(job(), LIMITS)).kind, 'key-cap-reached');
    await others.queue.fail(failing.claim, IMAGE_FAULT);
    const success = successOf(succeeding.claim, { resultTtlMs: DAY_MS });
    await stores.queue.succeed(succeeding.claim, success);
    t.is(await used(), 1);
    t.is((await stores.queue.submit(job(), LIMITS)).kind, 'created');
    t.is((await stores.queue.submit(job(), LIMITS)).kind, 'key-cap-reached');
  });

  test('a job of an earlier period gives nothing back to the cap of this one', async t => {
    const { key, job, used } = await capped(2);
    const { claim } = await running(stores, job());
    const row = await rowOf(database.kysely, 'api_keys', { id: key.id });
    const yesterday = (row.cap_window_start ?? 0) - DAY_MS;
    await setIn(database.kysely, 'jobs', { api_key_id: key.id }, { cap_window_start: yesterday });
    await stores.queue.fail(claim, IMAGE_FAULT);
    t.is(await used(), 1);
    await set(key.id, { cap_window_start: yesterday, cap_used: 2 });
    t.is(await used(), 0);
    t.is((await stores.queue.submit(job(), LIMITS)).kind, 'created');
    t.is(await used(), 1);
  });

  test('a twin of the request that took the last credit of a cap joins its job', async t => {
    const { job } = await capped(1);
    const first = job();
    t.is((await stores.queue.submit(first, LIMITS)).kind, 'created');
    const twin = { ...job(), idempotencyKeyHash: first.idempotencyKeyHash };
    const outcome = await others.queue.submit(twin, LIMITS);
    t.is(outcome.kind, 'exists');
  });

  test('a cap that was removed counts nothing', async t => {
    const { key, job } = await capped(1);
    await set(key.id, { cap_credits: null, cap_period: null });
    for (let n = 0; n < 3; n += 1) {
      t.is((await stores.queue.submit(job(), LIMITS)).kind, 'created');
    }
    t.is((await stores.apiKeys.find(key.id))?.capUse, null);
  });

  test('a key is refused from its expiry on, with the time', async t => {
    const account = await fundedAccount(stores, 0);
    const { key, token } = await stores.apiKeys.create(account, 'short', { expiresInMs: DAY_MS });
    t.is(key.expiresAtMs, key.createdAtMs + DAY_MS);
    t.is(key.state, 'active');
    t.deepEqual(await stores.apiKeys.authenticate(token), {
      apiKeyId: key.id,
      accountId: account,
    });
    const past = { expires_at: key.createdAtMs };
    await set(key.id, past);
    const expired = { kind: 'expired', atMs: key.createdAtMs };
    t.deepEqual(await others.apiKeys.authenticate(token), expired);
    t.is((await others.apiKeys.find(key.id))?.state, 'expired');
    const wrong = createApiKeyToken(key.id).text;
    t.is(await others.apiKeys.authenticate(wrong), 'unknown', 'only to who has it');
  });

  test('two secrets go on while a key is rotated, each to its end, and no memory outlives one', async t => {
    const account = await fundedAccount(stores, 0);
    const { key, token } = await stores.apiKeys.create(account, 'rotated');
    assert.ok(typeof (await stores.apiKeys.authenticate(token)) === 'object');
    const next = createApiKeyToken(key.id);
    const now = await stores.rateQuotas.nowMs();
    await set(key.id, {
      previous_secret_hash: hashSecret(token.slice(`mk_${key.id}_`.length, -6)),
      previous_expires_at: now + 300,
      secret_hash: hashSecret(next.secret),
    });
    const owner = { apiKeyId: key.id, accountId: account };
    // The first replica knows only the old secret and asks about the new one.
    t.deepEqual(await stores.apiKeys.authenticate(next.text), owner);
    t.deepEqual(await others.apiKeys.authenticate(next.text), owner);
    const byPrevious = { ...owner, byPreviousSecret: true };
    t.deepEqual(await others.apiKeys.authenticate(token), byPrevious);
    const ended = { kind: 'replaced', atMs: now + 300 };
    while ((await stores.rateQuotas.nowMs()) <= now + 300) {
      await new Promise(resolve => setTimeout(resolve, 20));
    }
    t.deepEqual(await others.apiKeys.authenticate(token), ended);
    t.deepEqual(await others.apiKeys.authenticate(next.text), owner);
    await stores.apiKeys.revoke(key.id);
    t.is(await stores.apiKeys.authenticate(token), 'unknown');
    t.is(await stores.apiKeys.authenticate(next.text), 'unknown');
  });

  test('a policy comes with the owner, as it is stored', async t => {
    const account = await fundedAccount(stores, 0);
    const policy = {
      cap: { credits: 5, period: 'month' },
      submissionsPerMinute: 7,
      scopes: ['submit', 'read'],
      networks: ['10.0.0.0/8', '2001:db8::/32'],
      models: ['isnet', 'best'],
    } as const;
    const { key, token } = await stores.apiKeys.create(account, 'all', { policy });
    t.deepEqual(key.policy, policy);
    const owner = await others.apiKeys.authenticate(token);
    t.deepEqual(owner, { apiKeyId: key.id, accountId: account, policy });
    // Written by a version with more scopes.
    await set(key.id, { scopes: 'read,manage' });
    t.deepEqual((await others.apiKeys.find(key.id))?.policy.scopes, ['read']);
  });

  test('last uses are written for both secrets', async t => {
    const account = await fundedAccount(stores, 0);
    const made = [];
    for (const name of ['a', 'b']) made.push((await stores.apiKeys.create(account, name)).key.id);
    const [a = '', b = ''] = made;
    const now = await stores.rateQuotas.nowMs();
    await set(b, { previous_expires_at: now + DAY_MS, previous_secret_hash: hashSecret('x') });
    await stores.apiKeys.noteUses([
      { apiKeyId: a, byPreviousSecret: false, ageMs: 60_000 },
      { apiKeyId: b, byPreviousSecret: true, ageMs: 3_600_000 },
      { apiKeyId: b, byPreviousSecret: false, ageMs: 1000 },
    ]);
    const ages = async (id: string) => {
      const key = await stores.apiKeys.find(id);
      const age = (ms: number | null = null) => ms && Math.round((now - ms) / 60_000);
      return [age(key?.lastUsedAtMs), age(key?.previousSecret?.lastUsedAtMs)];
    };
    t.deepEqual(
      [await ages(a), await ages(b)],
      [
        [1, null],
        [0, 60],
      ],
    );
  });

  test('a key of the service itself is in no list, and opens nothing', async t => {
    const account = await fundedAccount(stores, 0);
    const { key, token } = await stores.apiKeys.create(account, 'internal');
    await set(key.id, { purpose: 'playground' });
    t.is(await others.apiKeys.authenticate(token), 'unknown');
    t.deepEqual(await stores.apiKeys.list(account), []);
    t.false((await stores.apiKeys.list()).some(({ id }) => id === key.id));
    t.deepEqual(await stores.apiKeys.listNewest(account, 50), []);
    t.is(await stores.apiKeys.find(key.id), undefined);
    t.is(await stores.apiKeys.revoke(key.id), undefined);
  });

  test('are listed newest first, page by page, and only of their account', async t => {
    const account = await fundedAccount(stores, 0);
    const other = await fundedAccount(stores, 0);
    for (let n = 0; n < 7; n += 1) await stores.apiKeys.create(account, `key ${n}`);
    await stores.apiKeys.create(other, 'theirs');
    const all = (await stores.apiKeys.list(account)).map(({ id }) => id);
    const paged = [];
    let page = await stores.apiKeys.listNewest(account, 3);
    while (page.length > 0) {
      paged.push(...page.map(({ id }) => id));
      page = await stores.apiKeys.listNewest(account, 3, page.at(-1));
    }
    t.deepEqual(paged, all.toReversed());
    t.is(await stores.apiKeys.find(all[0] ?? '', other), undefined);
    for (const odd of ['', 'ö', "x' or 1"]) {
      t.deepEqual(await stores.apiKeys.listNewest(odd, 3), []);
      t.is(await stores.apiKeys.find(odd), undefined);
    }
  });
});

onStores(test, 'rate quotas', (test, { database, stores, replica }) => {
  const others = replica();

  /** Repeats `work` if the window ended meanwhile. */
  async function withinOneWindow<T>(work: (windowStartMs: number) => Promise<T>): Promise<T> {
    for (;;) {
      const windowStartMs = quotaWindowStartMs(await stores.rateQuotas.nowMs());
      const found = await work(windowStartMs);
      if (quotaWindowStartMs(await stores.rateQuotas.nowMs()) === windowStartMs) return found;
    }
  }

  const asked = (windowStartMs: number, more: Partial<QuotaAsk> = {}): QuotaAsk => ({
    limit: 100,
    block: 30,
    advance: 0,
    windowStartMs,
    ...more,
  });

  test('are leased in blocks up to the limit, each account and kind on its own', async t => {
    const { reads, submissions, start, advance } = await withinOneWindow(async start => {
      const [one, two] = [randomUUID(), randomUUID()];
      const reads: number[] = [];
      for (const from of [stores, others, stores, others, stores]) {
        reads.push((await from.rateQuotas.lease(one, 'reads', asked(start))).granted);
      }
      const submissions = await stores.rateQuotas.lease(one, 'submissions', asked(start));
      const advance = await stores.rateQuotas.lease(two, 'reads', asked(start, { advance: 80 }));
      return { reads, submissions, start, advance };
    });
    t.deepEqual(reads, [30, 30, 30, 10, 0]);
    t.is(submissions.granted, 30);
    t.deepEqual(advance, { windowStartMs: start, leased: 100, granted: 20 });
  });

  test('are never leased twice, however many ask at once', async t => {
    const leases = await withinOneWindow(start => {
      const account = randomUUID();
      const asks = Array.from({ length: 40 }, (_, index) =>
        (index % 2 === 0 ? stores : others).rateQuotas.lease(account, 'submissions', asked(start)),
      );
      return Promise.all(asks);
    });
    t.is(
      leases.reduce((sum, lease) => sum + lease.granted, 0),
      100,
    );
  });

  test('do not count after their window', async t => {
    const account = randomUUID();
    await stores.rateQuotas.lease(account, 'reads', asked(0, { block: 100 }));
    await setIn(
      database.kysely,
      'rate_quotas',
      { account_id: account },
      { window_start: quotaWindowStartMs(Date.now()) - 5 * RATE_WINDOW_MS },
    );
    const { granted, leased } = await stores.rateQuotas.lease(
      account,
      'reads',
      asked(0, { advance: 50 }),
    );
    t.deepEqual({ granted, leased }, { granted: 30, leased: 30 });
    const rows = database.kysely.selectFrom('rate_quotas').select('kind');
    t.is((await rows.where('account_id', '=', account).execute()).length, 1);
  });
});
