/** The methods that find results lost, and settle that. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { LiveResult } from '../../src/store/jobs/lost-results.ts';
import type { Stores } from '../../src/store/stores.ts';
import type { ChangingMethod } from './changing-methods.ts';
import { assertBalanced, HOUR_MS, resultOf, runningOf } from './fixtures.ts';
import { actionsOf, movements } from './orders.ts';

const LEASE_MS = 600_000;

/** A job that succeeded, with its result. */
export async function succeededResult(stores: Stores): Promise<LiveResult> {
  const { account: accountId, claim } = await runningOf(stores);
  const { jobId } = claim;
  const result = resultOf(claim);
  assert.ok(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
  const expiresAtMs = (await stores.jobs.find(jobId))?.expiresAtMs ?? 0;
  return { jobId, accountId, blob: result.blob, expiresAtMs };
}

/** The same, found to be lost. */
export async function lostResult(stores: Stores): Promise<LiveResult> {
  const result = await succeededResult(stores);
  assert.ok(await stores.lostResults.record(result, 'download', randomUUID()));
  return result;
}

export const CHANGING_LOST_RESULTS: readonly ChangingMethod[] = [
  {
    name: 'lostResults.record',
    arrange: async ({ stores }) => {
      const result = await succeededResult(stores);
      const findingId = randomUUID();
      return {
        act: by => by.lostResults.record(result, 'download', findingId),
        check: async outcome => {
          assert.equal(outcome, true, 'it is told of');
          assert.equal(await stores.lostResults.record(result, 'look', randomUUID()), false);
        },
      };
    },
    late: async ({ stores }) => {
      const result = await lostResult(stores);
      const findingId = randomUUID();
      return { act: by => by.lostResults.record(result, 'look', findingId), told: false };
    },
  },
  {
    name: 'lostResults.returned',
    arrange: async ({ stores }) => {
      const { jobId } = await lostResult(stores);
      return {
        act: by => by.lostResults.returned(jobId),
        check: async () => {
          assert.equal((await stores.lostResults.known([jobId])).size, 0);
          assert.equal(await stores.lostResults.repay(jobId, randomUUID()), 'settled');
        },
      };
    },
    late: async ({ stores }) => {
      const { jobId } = await lostResult(stores);
      assert.equal(await stores.lostResults.repay(jobId, randomUUID()), 'paid');
      return { act: by => by.lostResults.returned(jobId), told: false };
    },
  },
  {
    name: 'lostResults.repay',
    arrange: async ({ stores, database }) => {
      const { jobId, accountId } = await lostResult(stores);
      const auditId = randomUUID();
      return {
        act: by => by.lostResults.repay(jobId, auditId),
        check: async () => {
          const granted = ['grant first 1', `grant lost:${jobId} 1`];
          assert.deepEqual(await movements(database, accountId), granted);
          assert.deepEqual(await actionsOf(stores, accountId), ['credits.granted']);
          await assertBalanced(stores, accountId);
        },
      };
    },
    again: 'settled',
  },
  {
    name: 'lostResults.saveLook',
    alone: true,
    arrange: async ({ stores, database }) => {
      await database.kysely.deleteFrom('sweeps').execute();
      assert.ok(await stores.sweeps.claim('replica-1', LEASE_MS));
      const after = { atMs: 7, id: 'a' };
      return {
        act: by => by.lostResults.saveLook({ after }),
        check: async () => {
          assert.deepEqual(await stores.lostResults.dueLook(), after);
        },
      };
    },
  },
];
