/** The exercises of `jobs`: every branch that asks the database. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { accountOf, apiKeyOf } from '../../../test/support/large-tables.ts';
import { backgroundBlob } from '../../src/domain/job.ts';
import { PLAYGROUND_ACCOUNT_OPEN_MAX } from '../../src/domain/playground.ts';
import type { Stores } from '../../src/store/stores.ts';
import {
  bounded,
  CALLBACK,
  DAY_MS,
  type Exercise,
  jobOfLargest,
  notified,
  OPEN_READS_MAX,
  OPEN_WHY,
  runningClaim,
} from './exercise.ts';
import {
  BACKGROUND_URL,
  claimed,
  fundedAccount,
  HOUR_MS,
  LIMITS,
  newJob,
  PLAYGROUND_LIMITS,
  resultOf,
  running,
  SERVICE_FAULT,
  sha256,
  storedBackground,
  submitted,
  WITH_PICTURE,
} from './fixtures.ts';
import { cappedJobs } from './key-exercises.ts';

/** By `store.method`. */
export const JOBS: Record<string, Exercise> = {
  'jobs.findByIdempotencyKey': ({ jobs }) => jobs.findByIdempotencyKey(apiKeyOf(0), sha256('none')),
  'jobs.findForKey': ({ jobs }) => jobs.findForKey(randomUUID(), apiKeyOf(0)),
  'jobs.find': async stores => assert.ok(await stores.jobs.find(await notified(stores))),
  'jobs.findFinal': async stores => {
    const id = await notified(stores);
    assert.equal((await stores.jobs.findFinal([id, randomUUID()])).length, 1);
    assert.equal((await stores.jobs.findFinal([id])).length, 1);
  },
  'jobs.findByResultToken': ({ jobs }) => jobs.findByResultToken('none'),
  'jobs.submit': async stores => {
    await cappedJobs(stores);
    const job = jobOfLargest();
    await submitted(stores, job);
    assert.equal((await stores.jobs.submit(job, LIMITS)).kind, 'created');
    const none = await fundedAccount(stores, 0);
    const refused = await stores.jobs.submit(newJob(none), LIMITS);
    assert.equal(refused.kind, 'insufficient-credits');
    await submitPictures(stores);
  },
  'jobs.freeKey': async stores => {
    const { claim, job } = await running(stores, jobOfLargest());
    assert.ok(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
    await stores.jobs.freeKey(job.id, job.idempotencyKeyHash ?? '', 0);
  },
  'jobs.listLanes': bounded(OPEN_READS_MAX, OPEN_WHY, async ({ jobs }) =>
    assert.ok((await jobs.listLanes()).length > 0),
  ),
  'jobs.listClaimable': bounded(OPEN_READS_MAX, OPEN_WHY, async ({ jobs }) => {
    assert.ok((await jobs.listClaimable(256)).length > 0);
    const lanes = await jobs.listLanes();
    await jobs.listClaimable(
      256,
      lanes.map(lane => ({ ...lane, exceptHosts: ['a', 'b'] })),
    );
  }),
  'jobs.claim': async stores => await claimed(stores, await submitted(stores, jobOfLargest())),
  'jobs.renew': async stores =>
    assert.ok(await stores.jobs.renew(await runningClaim(stores), HOUR_MS)),
  'jobs.release': async stores => assert.ok(await stores.jobs.release(await runningClaim(stores))),
  'jobs.inputStored': async stores => {
    const job = await submitted(stores, jobOfLargest({ sourceUrl: 'https://a.example/i' }));
    const claim = await claimed(stores, job);
    const input = { blob: `inputs/${job.id}-1`, bytes: 1, format: 'png', width: 1, height: 1 };
    assert.ok(await stores.jobs.inputStored(claim, input as never));
    assert.ok(await stores.jobs.inputStored(claim, input as never));
  },
  'jobs.backgroundStored': async stores => {
    const job = await submitted(stores, jobOfLargest({ ...WITH_PICTURE, ...BACKGROUND_URL }));
    const claim = await claimed(stores, job);
    assert.ok(await stores.jobs.backgroundStored(claim, storedBackground(job.id)));
    assert.ok(await stores.jobs.backgroundStored(claim, storedBackground(job.id)));
  },
  'jobs.admitted': stores => runningClaim(stores),
  'jobs.attemptLost': async stores =>
    assert.ok(await stores.jobs.attemptLost(await runningClaim(stores), true)),
  'jobs.succeed': async stores => {
    const { claim } = await running(stores, jobOfLargest({ callback: CALLBACK }));
    assert.ok(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
  },
  'jobs.fail': async stores =>
    assert.ok(await stores.jobs.fail(await runningClaim(stores), SERVICE_FAULT)),
  'jobs.openOf': bounded(OPEN_READS_MAX, OPEN_WHY, async ({ jobs }) =>
    assert.equal((await jobs.openOf(accountOf(0), 5)).length, 5),
  ),
  'jobs.list': bounded(
    2 * OPEN_READS_MAX,
    'reads the queue 500 rows at a time',
    async ({ jobs }) => {
      const all = { endedWithinMs: 60 * DAY_MS, limit: 50 };
      for (const filter of [
        { states: ['failed'] as const },
        { states: ['succeeded', 'failed'] as const, accountId: accountOf(3) },
        { states: ['failed'] as const, accountId: accountOf(0), apiKeyId: apiKeyOf(0) },
        { states: ['ready'] as const, accountId: accountOf(0), apiKeyId: apiKeyOf(0) },
        { states: ['ready', 'running'] as const, limit: 10 },
      ]) {
        const page = await jobs.list({ ...all, ...filter });
        assert.ok(page.length > 0);
        await jobs.list({ ...all, ...filter, after: page.at(-1)!.cursor });
      }
      await jobs.list({ ...all, states: ['fetching'], accountId: accountOf(3) });
    },
  ),
  'jobs.endLease': async stores => {
    const { jobId } = await runningClaim(stores);
    assert.equal((await stores.jobs.endLease(jobId)).kind, 'ended');
  },
  'jobs.queued': bounded(OPEN_READS_MAX, OPEN_WHY, async ({ jobs }) =>
    assert.ok((await jobs.queued()).jobs > 0),
  ),
  'jobs.doneWithin': bounded(500, 'reads what ended within that time', ({ jobs }) =>
    jobs.doneWithin(60_000),
  ),
  'jobs.takeExpiredResultBlobs': async (stores, { kysely }) => {
    const { claim } = await running(stores, jobOfLargest());
    const result = resultOf(claim);
    assert.ok(await stores.jobs.succeed(claim, result, 0, {}));
    assert.ok(kysely);
    const expired = await stores.jobs.takeExpiredResultBlobs(50);
    // Results of large tables expire while they are filled.
    assert.ok(expired.length === 50 || expired.includes(result.blob));
  },
  'jobs.removeFinalOlderThan': async ({ jobs }) =>
    assert.equal((await jobs.removeFinalOlderThan(30 * DAY_MS, 20)).rows, 20),
  'jobs.referencedBlobs': bounded(210, 'reads an entry a name', async ({ jobs }) => {
    const names = Array.from({ length: 200 }, (_, index) => `inputs/none-${index}`);
    names.push(...Array.from({ length: 200 }, () => backgroundBlob(randomUUID())));
    assert.equal((await jobs.referencedBlobs(names)).size, 0);
  }),
};

/** As many of the playground as an account may have open, and more. */
async function submitPictures({ jobs, playground }: Stores): Promise<void> {
  const apiKeyId = await playground.internalKey(accountOf(0));
  const submit = async (limits = PLAYGROUND_LIMITS) => {
    const picture = newJob(accountOf(0), { apiKeyId, class: 'playground' });
    return (await jobs.submit(picture, limits)).kind;
  };
  const kinds = [await submit(), await submit({ playgroundImagesMax: 1 })];
  for (let count = 2; count <= PLAYGROUND_ACCOUNT_OPEN_MAX; count++) kinds.push(await submit());
  assert.deepEqual([...new Set(kinds)], ['created', 'allowance-used']);
  assert.equal(await submit(), 'too-many-open');
}
