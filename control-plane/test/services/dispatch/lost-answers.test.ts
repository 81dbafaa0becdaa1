/** What a replica does with its blobs when the database's answer was lost and the lease with it. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import type { SourceFetcher } from '../../../src/services/dispatch/source-fetch.ts';
import type { Claim, JobStore } from '../../../src/store/jobs/job-store.ts';
import { cutOutOf, ScriptedNode } from '../../nodes/scripted-node.ts';
import { Harness, until } from './harness.ts';

const PICTURE = Buffer.from('a picture of the source');
const ANOTHER = 'another-replica';

const fetcher: SourceFetcher = {
  async fetchImage(_url, { writer }) {
    await writer.write(PICTURE);
    const header = { format: 'png', width: 10, height: 10, animated: false } as const;
    return { bytes: PICTURE.length, header };
  },
};

let harness: Harness;

beforeEach(async () => {
  harness = await Harness.open();
});
afterEach(() => harness.close());

/** The database was away for longer than the lease, and another replica was back first. */
async function taken(jobId: string): Promise<Claim> {
  await harness.stores.jobs.endLease(jobId);
  const [open] = await harness.stores.jobs.listClaimable(1);
  const won = await harness.stores.jobs.claim(open, ANOTHER, 600_000);
  assert.ok(won);
  return won.claim;
}

const away = () => new ContractError('SERVICE_UNAVAILABLE', 'the database is not available');

describe('an answer of the database that was lost with the lease', () => {
  it('leaves the stored input to the replica that has the job now', async () => {
    let lost = 0;
    let theirs: Claim | undefined;
    const jobs: JobStore = {
      ...harness.stores.jobs,
      inputStored: async (claim, input) => {
        const stored = await harness.stores.jobs.inputStored(claim, input);
        if (++lost > 1) return stored;
        theirs = await taken(claim.jobId);
        throw away();
      },
    };
    const replica = await harness.startReplica({ jobs, fetcher });
    const jobId = await harness.submit({ url: 'https://pictures.example/1.png' });
    await until(() => replica.observed.includes('lease lost'), 'the loss of the lease');
    await until(() => replica.dispatcher.running === 0, 'the end of the work');
    const job = await harness.job(jobId);
    assert.deepEqual([job.state, job.lease?.holder], ['ready', ANOTHER]);
    assert.deepEqual(await harness.blobNames(), [job.input?.blob], 'what the row names is there');
    // They give it back, and it is done: nothing was lost.
    await harness.join(await ScriptedNode.start());
    assert.ok(theirs);
    await harness.stores.jobs.release(theirs);
    const done = await harness.untilFinal(jobId);
    assert.deepEqual(await harness.resultOf(done), cutOutOf(PICTURE));
    await harness.assertMoneySettled({ charged: 1 });
  });

  it('leaves an input that no row names to the sweeper', async () => {
    const jobs: JobStore = {
      ...harness.stores.jobs,
      inputStored: async (claim, input) => {
        if ((await harness.job(claim.jobId)).lease?.holder !== ANOTHER) await taken(claim.jobId);
        return harness.stores.jobs.inputStored(claim, input);
      },
    };
    const replica = await harness.startReplica({ jobs, fetcher });
    const jobId = await harness.submit({ url: 'https://pictures.example/2.png' });
    await until(() => replica.observed.includes('lease lost'), 'the loss of the lease');
    const [blob] = await harness.blobNames();
    assert.equal((await harness.job(jobId)).input, null);
    assert.deepEqual([...(await harness.stores.jobs.referencedBlobs([blob]))], []);
  });

  it('leaves the result that the row names', async () => {
    let calls = 0;
    const jobs: JobStore = {
      ...harness.stores.jobs,
      succeed: async (claim, ...ending) => {
        const written = await harness.stores.jobs.succeed(claim, ...ending);
        if (++calls > 1) return written;
        throw away();
      },
    };
    await harness.join(await ScriptedNode.start());
    await harness.startReplica({ jobs, fetcher });
    const jobId = await harness.submit({ bytes: PICTURE });
    const job = await harness.untilFinal(jobId);
    await until(() => calls === 2, 'the second try');
    await until(async () => (await harness.blobNames()).length === 1, 'the erasure of the input');
    assert.deepEqual(await harness.resultOf(job), cutOutOf(PICTURE));
    await harness.assertMoneySettled({ charged: 1 });
  });
});
