/** The methods that change the playground: its key, its allowance, its jobs. */
import assert from 'node:assert/strict';
import type { NewJob, SubmitOutcome } from '../../src/store/jobs/job-submission.ts';
import type { Stores } from '../../src/store/stores.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import {
  claimed,
  fundedAccount,
  newJob,
  PLAYGROUND_LIMITS,
  reread,
  SERVICE_FAULT,
} from './fixtures.ts';
import { rowsOf } from './rows.ts';

/** A job of the playground of a new account without credits. */
async function playgroundJob({ stores }: Fixture): Promise<NewJob> {
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

export const CHANGING_PLAYGROUND: readonly ChangingMethod[] = [
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
      // The same form, sent again by way of another replica.
      const twin = pictureOf(job.accountId, job.apiKeyId);
      const again = { ...twin, idempotencyKeyHash: job.idempotencyKeyHash };
      const act = async (stores: Stores) => {
        const outcome = await stores.jobs.submit(again, PLAYGROUND_LIMITS);
        return [outcome.kind, 'job' in outcome && outcome.job.id];
      };
      return { act, told: ['exists', job.id] };
    },
  },
  /** A failure that is not the picture's, which gives the picture back. */
  {
    name: 'jobs.fail',
    which: 'of the playground',
    arrange: async fixture => {
      const { stores } = fixture;
      const job = await playgroundJob(fixture);
      const other = pictureOf(job.accountId, job.apiKeyId);
      await stores.jobs.submit(other, PLAYGROUND_LIMITS);
      await stores.jobs.submit(job, PLAYGROUND_LIMITS);
      const claim = await claimed(stores, { id: job.id, fence: 0 });
      return {
        act: faulty => faulty.jobs.fail(claim, SERVICE_FAULT),
        check: async outcome => {
          assert.equal(outcome, true);
          assert.equal((await reread(stores, job.id)).state, 'failed');
          await assertUsed(stores, job.accountId, 1);
        },
      };
    },
  },
];
