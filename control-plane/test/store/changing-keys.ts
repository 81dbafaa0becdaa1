/** The method that ends a key before its job's row. */
import assert from 'node:assert/strict';
import type { NewJob } from '../../src/store/jobs/job-submission.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import {
  fundedAccount,
  HOUR_MS,
  newJob,
  reread,
  resultOf,
  running,
  submitted,
} from './fixtures.ts';

/** A job that succeeded, of an account that has a credit left. */
async function endedJob({ stores }: Fixture): Promise<NewJob> {
  const job = newJob(await fundedAccount(stores, 2));
  const { claim } = await running(stores, job);
  await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {});
  return job;
}

const freeKey: ChangingMethod = {
  name: 'jobs.freeKey',
  arrange: async fixture => {
    const { stores } = fixture;
    const { id, accountId, idempotencyKeyHash } = await endedJob(fixture);
    return {
      act: by => by.jobs.freeKey(id, idempotencyKeyHash, 0),
      check: async () => {
        assert.equal((await reread(stores, id)).idempotencyKeyHash, null);
        const next = newJob(accountId, { idempotencyKeyHash });
        assert.equal((await submitted(stores, next)).id, next.id);
      },
    };
  },
  late: async fixture => {
    // Freed by another replica, and taken by the job of the next request.
    const { stores } = fixture;
    const { id, accountId, idempotencyKeyHash } = await endedJob(fixture);
    await stores.jobs.freeKey(id, idempotencyKeyHash, 0);
    await submitted(stores, newJob(accountId, { idempotencyKeyHash }));
    return { act: by => by.jobs.freeKey(id, idempotencyKeyHash, 0), told: undefined };
  },
};

export const CHANGING_KEYS: readonly ChangingMethod[] = [freeKey];
