/** The exercises of `lostResults`: every branch that asks the database. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { LiveResult } from '../../src/store/jobs/lost-results.ts';
import type { Stores } from '../../src/store/stores.ts';
import type { Exercise } from './exercise.ts';
import { fundedAccount, HOUR_MS, newJob, resultOf, running } from './fixtures.ts';

const FIRST = { atMs: 0, id: '' };

/** A job that succeeded, with its result. */
export async function succeededResult(stores: Stores, accountId?: string): Promise<LiveResult> {
  const account = accountId ?? (await fundedAccount(stores, 1));
  const { claim } = await running(stores, newJob(account));
  const { jobId } = claim;
  const result = resultOf(claim);
  assert.ok(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
  const expiresAtMs = (await stores.jobs.find(jobId))?.expiresAtMs ?? 0;
  return { jobId, accountId: account, blob: result.blob, expiresAtMs };
}

/** The same, found to be lost. */
export async function lostResult(stores: Stores): Promise<LiveResult> {
  const result = await succeededResult(stores);
  assert.ok(await stores.lostResults.record(result, 'download', randomUUID()));
  return result;
}

export const LOST_RESULTS: Readonly<Record<string, Exercise>> = {
  'lostResults.record': async stores => {
    const lost = await lostResult(stores);
    assert.equal(await stores.lostResults.record(lost, 'look', randomUUID()), false);
    assert.ok(await stores.lostResults.returned(lost.jobId));
    assert.ok(await stores.lostResults.record(lost, 'look', randomUUID()));
  },
  'lostResults.known': async stores => {
    const { jobId } = await lostResult(stores);
    assert.deepEqual([...(await stores.lostResults.known([jobId, randomUUID()]))], [jobId]);
    assert.equal((await stores.lostResults.known([])).size, 0);
  },
  'lostResults.neighbours': async stores => {
    const result = await succeededResult(stores);
    const beside = await stores.lostResults.neighbours(result, 4);
    assert.ok(beside.length >= 4 && beside.every(({ jobId }) => jobId !== result.jobId));
  },
  'lostResults.live': async stores => {
    const [first] = await stores.lostResults.live(FIRST, 60_000, 10);
    assert.ok(first);
    const after = { atMs: first.expiresAtMs, id: first.jobId };
    assert.ok((await stores.lostResults.live(after, 0, 10)).length > 0);
  },
  'lostResults.open': async stores => {
    const { jobId } = await lostResult(stores);
    const open = await stores.lostResults.open(FIRST, 1000);
    assert.ok(open.some(one => one.jobId === jobId));
  },
  'lostResults.returned': async stores => {
    const { jobId } = await lostResult(stores);
    assert.ok(await stores.lostResults.returned(jobId));
  },
  'lostResults.repay': async stores => {
    const { jobId } = await lostResult(stores);
    assert.equal(await stores.lostResults.repay(jobId, randomUUID()), 'paid');
    assert.equal(await stores.lostResults.repay(jobId, randomUUID()), 'settled');
    assert.equal(await stores.lostResults.repay(randomUUID(), randomUUID()), 'settled');
  },
  'lostResults.dueLook': ({ lostResults }) => lostResults.dueLook(),
  'lostResults.saveLook': async ({ lostResults }) => {
    await lostResults.saveLook({ after: FIRST });
    await lostResults.saveLook({ inMs: HOUR_MS });
  },
};
