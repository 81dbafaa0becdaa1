/** The exercises of API keys: every statement of store/accounts that has to do with them. */
import assert from 'node:assert/strict';
import { accountOf } from '../../../test/support/large-tables.ts';
import type { KeyPolicy } from '../../src/domain/account/key-policy.ts';
import { createApiKeyToken } from '../../src/store/accounts/api-key-token.ts';
import type { Stores } from '../../src/store/stores.ts';
import type { Exercise } from './exercise.ts';
import { IMAGE_FAULT, LIMITS, newJob, running } from './fixtures.ts';

const BY = { accountId: accountOf(0), actor: { kind: 'operator' } } as const;

/** A new key of the largest account. */
async function keyOf({ apiKeys }: Stores, policy: KeyPolicy = {}) {
  return apiKeys.create(accountOf(0), 'statements', { policy });
}

export const KEYS: Record<string, Exercise> = {
  'apiKeys.create': stores => keyOf(stores),
  'apiKeys.createBy': async stores => {
    const asked = { actor: BY.actor, aliveMax: 1000, everMax: 1000 };
    const made = await stores.apiKeys.createBy(accountOf(0), 'statements', asked);
    assert.notEqual(made, 'too-many');
  },
  'apiKeys.authenticate': async stores => {
    const { token, key } = await keyOf(stores);
    assert.deepEqual(await stores.apiKeys.authenticate(token), {
      apiKeyId: key.id,
      accountId: accountOf(0),
    });
  },
  'apiKeys.recall': async stores => {
    const { token, key } = await keyOf(stores);
    assert.equal(stores.apiKeys.recall(token), undefined);
    await stores.apiKeys.authenticate(token);
    const recalled = stores.apiKeys.recall(token);
    assert.ok(typeof recalled === 'object');
    assert.deepEqual(recalled.owner, { accountId: accountOf(0), apiKeyId: key.id });
  },
  'apiKeys.revoke': async stores => {
    const { key } = await keyOf(stores);
    assert.ok(await stores.apiKeys.revoke(key.id, BY));
    assert.ok(await stores.apiKeys.revoke(key.id));
  },
  'apiKeys.rotate': async stores => {
    const { key } = await keyOf(stores);
    assert.ok(await stores.apiKeys.rotate(key.id, { ...BY, overlapMs: 1000 }));
  },
  'apiKeys.change': async stores => {
    const { key } = await keyOf(stores);
    const month = { credits: 5, period: 'month' } as const;
    const day = { credits: 5, period: 'day' } as const;
    await stores.apiKeys.change(key.id, BY, { name: 'b', policy: { cap: month } });
    await stores.apiKeys.change(key.id, BY, { policy: { cap: day } });
    await stores.apiKeys.change(key.id, BY, { expires: 'never', policy: {} });
  },
  'apiKeys.list': async ({ apiKeys }) => {
    await apiKeys.list();
    await apiKeys.list(accountOf(0));
  },
  'apiKeys.listNewest': async stores => {
    await keyOf(stores);
    const { apiKeys } = stores;
    const [newest] = await apiKeys.listNewest(accountOf(0), 1);
    assert.ok(newest);
    await apiKeys.listNewest(accountOf(0), 50, newest);
  },
  'apiKeys.find': async stores => {
    const { key } = await keyOf(stores);
    assert.ok(await stores.apiKeys.find(key.id, accountOf(0)));
    assert.equal(await stores.apiKeys.find(key.id, accountOf(1)), undefined);
  },
  'apiKeys.noteUses': async stores => {
    const { key } = await keyOf(stores);
    const use = { apiKeyId: key.id, ageMs: 5 };
    await stores.apiKeys.noteUses([
      { ...use, byPreviousSecret: false },
      { ...use, byPreviousSecret: true },
    ]);
  },
};

/** Of a job whose key has a cap: counted, refused, given back. */
export async function cappedJobs(stores: Stores): Promise<void> {
  const { key } = await keyOf(stores, { cap: { credits: 1, period: 'month' } });
  const job = () => newJob(accountOf(0), { apiKeyId: key.id, keyHasCap: true });
  const { claim } = await running(stores, job());
  assert.equal((await stores.jobs.submit(job(), LIMITS)).kind, 'key-cap-reached');
  assert.ok(await stores.jobs.fail(claim, IMAGE_FAULT));
  const none = newJob(accountOf(0), { apiKeyId: createApiKeyToken().id, keyHasCap: true });
  assert.equal((await stores.jobs.submit(none, LIMITS)).kind, 'created');
}
