import assert from 'node:assert/strict';
import type { ApiKey } from '@matting/accounts/keys/read-api-keys.ts';
import type { SubmitOutcome } from '@matting/queue/submit-job.ts';
import type { Stores } from '../stores.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import { IMAGE_FAULT, LIMITS, newJob, OPERATOR, running } from './fixtures.ts';

const CAP = { credits: 5, period: 'month' } as const;

async function cappedKey({ stores, account: accountOf }: Fixture) {
  const account = await accountOf(5);
  const { key } = await stores.apiKeys.create(account, 'key', { policy: { cap: CAP } });
  const used = async () => (await stores.apiKeys.find(key.id))?.capUse?.used;
  return { account, key, used };
}

async function logOf(stores: Stores, accountId: string): Promise<string[]> {
  return (await stores.audit.list(accountId, { limit: 50 })).map(({ action }) => action);
}

export const CHANGING_KEYS: readonly ChangingMethod[] = [
  {
    name: 'queue.submit',
    which: 'of a key with a cap',
    arrange: async fixture => {
      const { account, key, used } = await cappedKey(fixture);
      const job = newJob(account, { apiKeyId: key.id, keyHasCap: true });
      return {
        act: by => by.queue.submit(job, LIMITS),
        check: async outcome => {
          assert.equal((outcome as SubmitOutcome<unknown>).kind, 'created');
          assert.equal(await used(), 1, 'counted once');
        },
      };
    },
  },
  {
    name: 'queue.fail',
    which: 'of a key with a cap',
    arrange: async fixture => {
      const { account, key, used } = await cappedKey(fixture);
      const job = () => newJob(account, { apiKeyId: key.id, keyHasCap: true });
      await running(fixture.stores, job());
      const { claim } = await running(fixture.stores, job());
      assert.equal(await used(), 2);
      return {
        act: by => by.queue.fail(claim, IMAGE_FAULT),
        check: async outcome => {
          assert.equal(outcome, true);
          assert.equal(await used(), 1, 'given back once');
        },
      };
    },
  },
  {
    name: 'apiKeys.noteUses',
    arrange: async ({ stores, account }) => {
      const { key } = await stores.apiKeys.create(await account(0), 'key');
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
  },
  {
    name: 'apiKeys.createBy',
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const asked = { actor: OPERATOR, aliveMax: 1000, everMax: 1000 };
      return {
        act: by => by.apiKeys.createBy(account, 'key', asked),
        check: async outcome => {
          assert.notEqual(outcome, 'too-many');
          const keys = await stores.apiKeys.list(account);
          assert.equal((await logOf(stores, account)).length, keys.length, 'one entry a key');
        },
      };
    },
  },
  {
    name: 'apiKeys.rotate',
    arrange: async ({ stores, account }) => {
      const accountId = await account(0);
      const { key, token } = await stores.apiKeys.create(accountId, 'key');
      const by = { accountId, actor: OPERATOR, overlapMs: 3_600_000 };
      return {
        act: faulty => faulty.apiKeys.rotate(key.id, by),
        check: async (outcome, repeated) => {
          const { token: next } = outcome as { token: string };
          assert.ok('apiKeyId' in Object(await stores.apiKeys.authenticate(next)));
          // A repeated call has rotated at most twice: the oldest secret may have ended.
          const old = await stores.apiKeys.authenticate(token);
          assert.ok(repeated || 'byPreviousSecret' in Object(old), 'the old secret goes on');
          const entries = await logOf(stores, accountId);
          assert.ok(entries.length <= (repeated ? 2 : 1) && entries[0] === 'key.rotated');
        },
      };
    },
  },
  {
    name: 'apiKeys.change',
    arrange: async fixture => {
      const { stores } = fixture;
      const { account: accountId, key } = await cappedKey(fixture);
      const job = newJob(accountId, { apiKeyId: key.id, keyHasCap: true });
      await running(stores, job);
      const policy = { cap: { credits: 9, period: 'day' }, scopes: ['read'] } as const;
      return {
        act: faulty =>
          faulty.apiKeys.change(key.id, { accountId, actor: OPERATOR }, { name: 'b', policy }),
        check: async outcome => {
          const { name, policy: made, capUse } = outcome as ApiKey;
          assert.deepEqual([name, made, capUse?.used], ['b', policy, 0]);
          assert.deepEqual(await logOf(stores, accountId), ['key.changed']);
        },
      };
    },
  },
  {
    name: 'apiKeys.revoke',
    which: 'that is logged',
    arrange: async ({ stores, account }) => {
      const accountId = await account(0);
      const { key } = await stores.apiKeys.create(accountId, 'key');
      return {
        act: faulty => faulty.apiKeys.revoke(key.id, { accountId, actor: OPERATOR }),
        check: async outcome => {
          assert.equal((outcome as ApiKey).state, 'revoked');
          assert.deepEqual(await logOf(stores, accountId), ['key.revoked']);
        },
      };
    },
  },
];
