/** Accounts, API keys, nodes, the secrets canary and the first start. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import sinon from 'sinon';
import { at } from '../../../../test/support/at.ts';
import { createTestDatabase } from '../../../../test/support/database.ts';
import { API_KEY_MEMORY_MS } from '../../../src/store/accounts/api-key-store.ts';
import { assertBalanced, fundedAccount, onStores, sha256, storesOn } from '../fixtures.ts';

const test = ava.serial;

const NOTHING = { available: 0, reserved: 0 };

onStores(test, 'identities', (test, { dialect, database, stores, replica }) => {
  /** Another replica. */
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
        // Many of one millisecond.
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

  test('accounts › are not found by what is no name or id', async t => {
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
    const accountId = await fundedAccount(stores, 0);
    const { key, token } = await stores.apiKeys.create(accountId, 'shop');
    await database.kysely
      .updateTable('api_keys')
      .set({ secret_hash: '0'.repeat(64) })
      .where('id', '=', key.id)
      .execute();
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
    const accountId = await fundedAccount(stores, 0);
    const { key, token } = await stores.apiKeys.create(accountId, 'shop');
    t.not(await others.apiKeys.authenticate(token), 'unknown');
    t.not(await stores.apiKeys.authenticate(token), 'unknown');
    const revoked = await stores.apiKeys.revoke(key.id);
    assert.ok(revoked?.revokedAtMs);
    t.is(await stores.apiKeys.authenticate(token), 'unknown');
    await delay(API_KEY_MEMORY_MS);
    t.is(await others.apiKeys.authenticate(token), 'unknown');
    t.deepEqual(await stores.apiKeys.revoke(key.id), revoked, 'the first time stays');
    for (const id of ['nobody000000', '', '日本']) {
      t.is(await stores.apiKeys.revoke(id), undefined);
    }
  });

  {
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
      t.false((await stores.nodes.heartbeat('node-2', old.bootId, 1)).known);
      t.false(await stores.nodes.deregister('node-2', old.bootId));
      t.true(await live('node-2'));
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
  }

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
