/** The methods that change API keys, and what they have counted. */
import assert from 'node:assert/strict';
import type { SubmitOutcome } from '../../src/store/jobs/job-store.ts';
import type { Stores } from '../../src/store/stores.ts';
import type { ChangingMethod } from './changing-methods.ts';
import { fundedAccount, IMAGE_FAULT, LIMITS, newJob, running } from './fixtures.ts';

const CAP = { credits: 5, period: 'month' } as const;

async function cappedKey(stores: Stores) {
  const account = await fundedAccount(stores, 5);
  const { key } = await stores.apiKeys.create(account, 'key', { policy: { cap: CAP } });
  const used = async () => (await stores.apiKeys.find(key.id))?.capUse?.used;
  return { account, key, used };
}

const submitCapped: ChangingMethod = {
  name: 'jobs.submit',
  arrange: async ({ stores }) => {
    const { account, key, used } = await cappedKey(stores);
    const job = newJob(account, { apiKeyId: key.id, keyHasCap: true });
    return {
      act: by => by.jobs.submit(job, LIMITS),
      check: async outcome => {
        assert.equal((outcome as SubmitOutcome).kind, 'created');
        assert.equal(await used(), 1, 'counted once');
      },
    };
  },
};

const failCapped: ChangingMethod = {
  name: 'jobs.fail',
  arrange: async ({ stores }) => {
    const { account, key, used } = await cappedKey(stores);
    const job = () => newJob(account, { apiKeyId: key.id, keyHasCap: true });
    await running(stores, job());
    const { claim } = await running(stores, job());
    assert.equal(await used(), 2);
    return {
      act: by => by.jobs.fail(claim, IMAGE_FAULT),
      check: async outcome => {
        assert.equal(outcome, true);
        assert.equal(await used(), 1, 'given back once');
      },
    };
  },
};

const noteUses: ChangingMethod = {
  name: 'apiKeys.noteUses',
  arrange: async ({ stores }) => {
    const account = await fundedAccount(stores, 0);
    const { key } = await stores.apiKeys.create(account, 'key');
    const use = { apiKeyId: key.id, byPreviousSecret: false };
    return {
      act: by => by.apiKeys.noteUses([{ ...use, ageMs: 1000 }]),
      check: async () => {
        const noted = (await stores.apiKeys.find(key.id))?.lastUsedAtMs ?? 0;
        assert.ok(noted > 0);
        await stores.apiKeys.noteUses([{ ...use, ageMs: 3_600_000 }]);
        assert.equal((await stores.apiKeys.find(key.id))?.lastUsedAtMs, noted, 'never earlier');
      },
    };
  },
};

export const CHANGING_API_KEYS: readonly ChangingMethod[] = [submitCapped, failCapped, noteUses];
