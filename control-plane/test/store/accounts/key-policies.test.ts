/** Caps that replicas count together, ends of keys and secrets, last uses, and the service's own keys. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { createApiKeyToken, hashSecret } from '../../../src/store/accounts/api-key-token.ts';
import type { Schema } from '../../../src/store/database/schema.ts';
import {
  assertBalanced,
  fundedAccount,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  onStores,
  resultOf,
  running,
} from '../fixtures.ts';

const test = ava.serial;

const DAY_MS = 86_400_000;

onStores(test, 'policies of keys', (test, { database, stores, replica }) => {
  /** Another replica. */
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
      Array.from({ length: 30 }, (_, n) => [stores, others][n % 2]!.jobs.submit(job(), LIMITS)),
    );
    const kinds = outcomes.map(({ kind }) => kind);
    t.is(kinds.filter(kind => kind === 'created').length, 7);
    t.is(kinds.filter(kind => kind === 'key-cap-reached').length, 23);
    t.is(await used(), 7);
    const balances = await stores.ledger.balances(account);
    t.deepEqual(balances, { available: 93, reserved: 7 }, 'a refusal reserves nothing');
    await assertBalanced(stores, account);
  });

  test('what is released goes back to the cap, what is charged does not', async t => {
    const { job, used } = await capped(2);
    const [failing, succeeding] = [await running(stores, job()), await running(stores, job())];
    t.is((await stores.jobs.submit(job(), LIMITS)).kind, 'key-cap-reached');
    await others.jobs.fail(failing.claim, IMAGE_FAULT);
    await stores.jobs.succeed(succeeding.claim, resultOf(succeeding.claim), DAY_MS, {});
    t.is(await used(), 1);
    t.is((await stores.jobs.submit(job(), LIMITS)).kind, 'created');
    t.is((await stores.jobs.submit(job(), LIMITS)).kind, 'key-cap-reached');
  });

  test('what a job of another period counted for is not given back to this one', async t => {
    const { key, job, used } = await capped(2);
    const { claim } = await running(stores, job());
    const row = await database.kysely
      .selectFrom('api_keys')
      .select('cap_window_start')
      .where('id', '=', key.id)
      .executeTakeFirstOrThrow();
    const yesterday = (row.cap_window_start ?? 0) - DAY_MS;
    await database.kysely
      .updateTable('jobs')
      .set({ cap_window_start: yesterday })
      .where('api_key_id', '=', key.id)
      .execute();
    await stores.jobs.fail(claim, IMAGE_FAULT);
    t.is(await used(), 1);
    // Of yesterday itself nothing is left today.
    await set(key.id, { cap_window_start: yesterday, cap_used: 2 });
    t.is(await used(), 0);
    t.is((await stores.jobs.submit(job(), LIMITS)).kind, 'created');
    t.is(await used(), 1);
  });

  test('a twin of the request that took the last credit of a cap joins its job', async t => {
    const { job } = await capped(1);
    const first = job();
    t.is((await stores.jobs.submit(first, LIMITS)).kind, 'created');
    const twin = { ...job(), idempotencyKeyHash: first.idempotencyKeyHash };
    const outcome = await others.jobs.submit(twin, LIMITS);
    t.is(outcome.kind, 'exists');
  });

  test('a cap that was removed counts nothing', async t => {
    const { key, job } = await capped(1);
    await set(key.id, { cap_credits: null, cap_period: null });
    for (let n = 0; n < 3; n += 1) {
      t.is((await stores.jobs.submit(job(), LIMITS)).kind, 'created');
    }
    t.is((await stores.apiKeys.find(key.id))?.capUse, null);
  });

  test('a key is refused from its expiry on, and told when that was', async t => {
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
    // The first replica remembers the old secret alone, and asks about the new one.
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
    } as const;
    const { key, token } = await stores.apiKeys.create(account, 'all', { policy });
    t.deepEqual(key.policy, policy);
    const owner = await others.apiKeys.authenticate(token);
    t.deepEqual(owner, { apiKeyId: key.id, accountId: account, policy });
    // Of a version that knows more.
    await set(key.id, { scopes: 'read,manage' });
    t.deepEqual((await others.apiKeys.find(key.id))?.policy.scopes, ['read']);
  });

  test('last uses are written for both secrets, and only go forward', async t => {
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
    await others.apiKeys.noteUses([{ apiKeyId: a, byPreviousSecret: false, ageMs: 600_000 }]);
    t.deepEqual(await ages(a), [1, null]);
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
