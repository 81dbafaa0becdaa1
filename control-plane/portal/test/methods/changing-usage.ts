/** The playground: its key, its allowance, its jobs; and the figures of usage. */
import assert from 'node:assert/strict';
import type { ChangingMethod, Fixture } from '@matting/core/test/changing-methods.ts';
import {
  claimed,
  fundedAccount,
  newJob,
  reread,
  SERVICE_FAULT,
} from '@matting/core/test/fixtures.ts';
import type { NewJob, SubmitOutcome } from '@matting/core/test/internals.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import { dayOf, USAGE_KEPT_DAYS } from '../../usage/usage-store.ts';
import { PLAYGROUND_LIMITS, type Stores } from '../fixtures.ts';
import { assertUsageAgrees } from '../usage-agrees.ts';

async function playgroundJob({ stores }: Fixture<Stores>): Promise<NewJob> {
  const account = await fundedAccount(stores, 0);
  return pictureOf(account, await stores.playground.internalKey(account));
}

function pictureOf(accountId: string, apiKeyId: string): NewJob {
  return newJob(accountId, { apiKeyId, class: 'playground' });
}

async function assertUsed(stores: Stores, account: string, used: number): Promise<void> {
  assert.equal((await stores.playground.usage(account)).used, used);
  assert.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
}

export const CHANGING_USAGE: readonly ChangingMethod<Stores>[] = [
  {
    name: 'playground.internalKey',
    arrange: async ({ stores, database, ...fixture }) => {
      const account = await fixture.account(0);
      return {
        act: faulty => faulty.playground.internalKey(account),
        check: async outcome => {
          assert.equal(await stores.playground.internalKey(account), outcome);
          const keys = await rowsOf(database.kysely, 'api_keys', { account_id: account });
          assert.deepEqual(
            keys.map(({ id, purpose }) => [id, purpose]),
            [[outcome, 'playground']],
          );
        },
      };
    },
  },
  {
    name: 'jobs.submit',
    which: 'of the playground',
    arrange: async fixture => {
      const job = await playgroundJob(fixture);
      return {
        act: stores => stores.jobs.submit(job, PLAYGROUND_LIMITS),
        check: async outcome => {
          const { kind } = outcome as SubmitOutcome;
          assert.equal(kind, 'created');
          await reread(fixture.stores, job.id);
          await assertUsed(fixture.stores, job.accountId, 1);
        },
      };
    },
    late: async fixture => {
      const job = await playgroundJob(fixture);
      await fixture.stores.jobs.submit(job, PLAYGROUND_LIMITS);
      // The same form comes again by way of another replica.
      const twin = pictureOf(job.accountId, job.apiKeyId);
      const again = { ...twin, idempotencyKeyHash: job.idempotencyKeyHash };
      const act = async (stores: Stores) => {
        const outcome = await stores.jobs.submit(again, PLAYGROUND_LIMITS);
        return [outcome.kind, 'job' in outcome && outcome.job.id];
      };
      return { act, told: ['exists', job.id] };
    },
  },
  /** The failure is not the picture's fault, so it gives the picture back. */
  {
    name: 'queue.fail',
    which: 'of the playground',
    arrange: async fixture => {
      const { stores } = fixture;
      const job = await playgroundJob(fixture);
      const other = pictureOf(job.accountId, job.apiKeyId);
      await stores.jobs.submit(other, PLAYGROUND_LIMITS);
      await stores.jobs.submit(job, PLAYGROUND_LIMITS);
      const claim = await claimed(stores, { id: job.id });
      return {
        act: faulty => faulty.queue.fail(claim, SERVICE_FAULT),
        check: async outcome => {
          assert.equal(outcome, true);
          assert.equal((await reread(stores, job.id)).state, 'failed');
          await assertUsed(stores, job.accountId, 1);
        },
      };
    },
  },
  {
    name: 'usage.removeOld',
    alone: true,
    arrange: async ({ database }) => {
      const old = {
        account_id: 'account',
        day: dayOf(Date.now()) - USAGE_KEPT_DAYS - 2,
        api_key_id: 'key',
        outcome: 'succeeded',
        format: 'png',
        images: 1,
        credits: 1,
      } as const;
      await database.kysely.insertInto('usage_days').values(old).execute();
      return {
        act: stores => stores.usage.removeOld(10),
        check: async () => assertUsageAgrees(database),
      };
    },
  },
];
