/** What a replica does with its blobs when the database's answer was lost and the lease with it. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import type { Database } from '../../../src/store/database/connect.ts';
import type { Claim } from '../../../src/store/jobs/job-lease.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { cutOutOf } from '../../nodes/scripted-exchange.ts';
import {
  failingDisk,
  type Losing,
  openFaultySqlite,
} from '../../store/database/faulty-database.ts';
import { storesOn } from '../../store/fixtures.ts';
import { fetcherOf, until, useHarness } from './harness.ts';

const PICTURE = Buffer.from('a picture of the source');
const ANOTHER = 'another-replica';

const fetcher = fetcherOf();

/** Loses one answer, once it is armed, and lets something happen before anybody tries again. */
class LostAnswer implements Losing {
  #what: 'statement' | 'commit' | undefined;
  #meanwhile: () => Promise<unknown> = async () => undefined;
  lost = false;

  arm(what: 'statement' | 'commit', meanwhile: () => Promise<unknown> = async () => undefined) {
    if (this.lost) return;
    this.#what = what;
    this.#meanwhile = meanwhile;
  }

  async around<T>(run: () => Promise<T>, what: 'statement' | 'commit'): Promise<T> {
    const answer = await run();
    if (what !== this.#what) return answer;
    this.#what = undefined;
    this.lost = true;
    await this.#meanwhile();
    throw failingDisk();
  }
}

const harness = useHarness();
let losing: LostAnswer;
let database: Database;
/** Those of the replica: what they are answered may be lost. */
let own: Stores['jobs'];

beforeEach(() => {
  losing = new LostAnswer();
  database = openFaultySqlite(`sqlite:${path.join(harness.directory, 'test.sqlite')}`, losing);
  own = storesOn(database).jobs;
});
afterEach(() => database.close());

/** The database was away for longer than the lease, and another replica was back first. */
async function taken(jobId: string): Promise<Claim> {
  await harness.stores.jobs.endLease(jobId);
  const [open] = await harness.stores.jobs.listClaimable(1);
  assert.ok(open);
  const won = await harness.stores.jobs.claim(open, ANOTHER, 600_000);
  assert.ok(won);
  return won.claim;
}

describe('an answer of the database that was lost with the lease', () => {
  it('leaves the stored input to the replica that has the job now', async () => {
    let theirs: Claim | undefined;
    const jobs: Stores['jobs'] = {
      ...own,
      inputStored: (claim, ...stored) => {
        losing.arm('statement', async () => {
          theirs = await taken(claim.jobId);
        });
        return own.inputStored(claim, ...stored);
      },
    };
    const replica = await harness.startReplica({ jobs, fetcher });
    const url = 'https://pictures.example/1.png';
    const jobId = await harness.submit({ url });
    await until(() => replica.observed.includes('lease lost'), 'the loss of the lease');
    await until(() => replica.dispatcher.running === 0, 'the end of the work');
    const job = await harness.job(jobId);
    assert.deepEqual([job.state, job.lease?.holder], ['ready', ANOTHER]);
    assert.deepEqual(await harness.blobNames(), [job.input?.blob], 'what the row names is there');
    // They give it back, and it is done: nothing was lost.
    await harness.addNode();
    assert.ok(theirs);
    await harness.stores.jobs.release(theirs);
    const done = await harness.untilFinal(jobId);
    assert.deepEqual(await harness.resultOf(done), cutOutOf(Buffer.from(url)));
    await harness.assertMoneySettled({ charged: 1 });
  });

  it('leaves an input that no row names to the sweeper', async () => {
    const jobs: Stores['jobs'] = {
      ...harness.stores.jobs,
      inputStored: async (claim, ...stored) => {
        await taken(claim.jobId);
        return harness.stores.jobs.inputStored(claim, ...stored);
      },
    };
    const replica = await harness.startReplica({ jobs, fetcher });
    const jobId = await harness.submit({ url: 'https://pictures.example/2.png' });
    await until(() => replica.observed.includes('lease lost'), 'the loss of the lease');
    const blobs = await harness.blobNames();
    assert.equal(blobs.length, 1);
    assert.equal((await harness.job(jobId)).input, null);
    assert.deepEqual([...(await harness.stores.jobs.referencedBlobs(blobs))], []);
  });

  it('leaves the result that the row names', async () => {
    const jobs: Stores['jobs'] = {
      ...own,
      succeed: (...ending) => {
        losing.arm('commit');
        return own.succeed(...ending);
      },
    };
    await harness.addNode();
    await harness.startReplica({ jobs, fetcher });
    const jobId = await harness.submit({ bytes: PICTURE });
    const job = await harness.untilFinal(jobId);
    assert.ok(losing.lost);
    await until(async () => (await harness.blobNames()).length === 1, 'the erasure of the input');
    assert.deepEqual(await harness.resultOf(job), cutOutOf(PICTURE));
    await harness.assertMoneySettled({ charged: 1 });
  });
});
