/** Which replica and node get a job, and when: claims, leases, turns, and replicas or nodes that go. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { describe, it } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import type { ClaimableJob } from '../../../src/store/jobs/job-queue.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { cutOutOf, type Script } from '../../nodes/scripted-exchange.ts';
import {
  failingDisk,
  type Losing,
  openFaultySqlite,
} from '../../store/database/faulty-database.ts';
import { storesOn } from '../../store/fixtures.ts';
import { aborted, fetcherOf, until, useHarness } from './harness.ts';

const harness = useHarness();

const hang: Script = async exchange => {
  exchange.admit();
  await exchange.receive();
  await exchange.cancelled;
};

/** The store with some methods of its own. */
function storeWith(changes: Partial<Stores['jobs']>): Stores['jobs'] {
  return { ...harness.stores.jobs, ...changes };
}

const away = () => Promise.reject(new ContractError('SERVICE_UNAVAILABLE', 'told to be away'));

async function claimBy(holder: string, jobId: string, leaseMs: number) {
  const listed = await harness.stores.jobs.listClaimable(100);
  const job = listed.find(({ id }) => id === jobId) as ClaimableJob;
  const claimed = await harness.stores.jobs.claim(job, holder, leaseMs);
  assert.ok(claimed);
  return claimed;
}

describe('a job whose holder died', () => {
  it('is taken over when the lease has run out, and the old fence ends nothing', async () => {
    const jobId = await harness.submit();
    const { claim: old } = await claimBy('dead', jobId, 50);
    await harness.stores.jobs.admitted(old);
    await harness.addNode();
    const { observed } = await harness.startReplica();
    const job = await harness.untilFinal(jobId);
    assert.equal(job.state, 'succeeded');
    assert.equal(job.takeovers, 1);
    assert.ok(observed.includes('taken over'));
    assert.ok(job.result);
    const stolen = { ...job.result, token: 'x'.repeat(43), blob: 'results/of-the-dead' };
    assert.equal(await harness.stores.jobs.succeed(old, stolen, 1000, {}), false);
    const failure = { code: 'PROCESSING_FAILED', detail: 'x', retryable: false } as const;
    assert.equal(await harness.stores.jobs.fail(old, failure), false);
    await harness.assertMoneySettled({ charged: 1 });
  });

  it('ten times is failed, and its credit is back', async () => {
    const jobId = await harness.submit();
    for (let death = 0; death < 10; death += 1) {
      await claimBy(`dead ${death}`, jobId, 1);
      await until(async () => (await harness.stores.jobs.listClaimable(1)).length === 1);
    }
    const node = await harness.addNode();
    await harness.startReplica();
    const job = await harness.untilFinal(jobId);
    assert.equal(job.failure?.code, 'PROCESSING_FAILED');
    assert.equal(node.headers.length, 0);
    await harness.assertMoneySettled({ charged: 0 });
  });
});

describe('a lease that is lost', () => {
  it('ends the attempt at once', async () => {
    let cancelled = false;
    await harness.addNode({
      script: async exchange => {
        exchange.admit();
        await exchange.cancelled;
        cancelled = true;
      },
    });
    const jobs = storeWith({ admitted: async () => false });
    const { observed } = await harness.startReplica({ jobs });
    await harness.submit();
    await until(() => cancelled, 'the cancellation');
    await until(() => observed.includes('lease lost'));
    assert.ok(observed.includes('attempt aborted'));
  });

  it('when the result is there leaves neither result nor blob', async () => {
    await harness.addNode();
    const jobs = storeWith({ succeed: async () => false });
    const { observed } = await harness.startReplica({ jobs });
    const jobId = await harness.submit();
    await until(() => observed.includes('lease lost'));
    assert.deepEqual(await harness.blobNames(), [`inputs/${jobId}`]);
  });
});

describe('a database that is away', () => {
  it('for a moment delays claims and endings, and loses nothing', async () => {
    let failures = 0;
    /** Its first two calls fail, the third is answered, and so on. */
    const flaky = <A extends unknown[], R>(method: (...args: A) => Promise<R>) => {
      let calls = 0;
      return (...args: A): Promise<R> => {
        calls += 1;
        if (calls % 3 === 0) return method(...args);
        failures += 1;
        return away();
      };
    };
    let failuresDue = 0;
    const losing: Losing = {
      around: async run => {
        if (failuresDue === 0) return run();
        failuresDue -= 1;
        failures += 1;
        throw failingDisk();
      },
    };
    const file = path.join(harness.directory, 'test.sqlite');
    const database = openFaultySqlite(`sqlite:${file}`, losing);
    /** Two of its statements fail. */
    const failing = <A extends unknown[], R>(method: (...args: A) => Promise<R>) => {
      return (...args: A): Promise<R> => {
        failuresDue += 2;
        return method(...args);
      };
    };
    const { listClaimable, claim } = harness.stores.jobs;
    const { admitted, succeed } = storesOn(database).jobs;
    const jobs = storeWith({
      listClaimable: flaky(listClaimable),
      claim: flaky(claim),
      admitted: failing(admitted),
      succeed: failing(succeed),
    });
    await harness.addNode();
    await harness.startReplica({ jobs });
    const job = await harness.untilFinal(await harness.submit());
    await database.close();
    assert.equal(job.state, 'succeeded');
    assert.ok(failures >= 8);
    await harness.assertMoneySettled({ charged: 1 });
  });
});

describe('a node that goes', () => {
  it('leaves its jobs waiting until it is back under a new boot id', async () => {
    const node = await harness.addNode();
    const { fleet } = await harness.startReplica();
    await node.down();
    await until(() => fleet.snapshots().length === 0);
    const jobIds = [await harness.submit(), await harness.submit({ mode: 'async' })];
    await node.restart();
    await harness.join(node);
    for (const jobId of jobIds) {
      assert.equal((await harness.untilFinal(jobId)).state, 'succeeded');
    }
  });

  it('drained by its operator gets nothing more', async () => {
    const node = await harness.addNode();
    const { fleet } = await harness.startReplica();
    await harness.stores.nodes.setDraining(node.nodeId, true);
    await fleet.refresh();
    assert.deepEqual(fleet.snapshots(), []);
    const jobId = await harness.submit();
    const other = await harness.addNode();
    await harness.untilFinal(jobId);
    assert.deepEqual([node.headers.length, other.headers.length], [0, 1]);
  });
});

describe('stopping', () => {
  it('lets what runs finish and claims nothing more', async () => {
    const { promise: finish, resolve: letFinish } = Promise.withResolvers<void>();
    const node = await harness.addNode({
      imagesMax: 1,
      script: async exchange => {
        await finish;
        await exchange.cutOut();
      },
    });
    const { dispatcher } = await harness.startReplica();
    const first = await harness.submit();
    await until(() => node.headers.length === 1);
    const second = await harness.submit();
    const stopped = dispatcher.stop(10_000);
    letFinish();
    await stopped;
    assert.equal((await harness.job(first)).state, 'succeeded');
    assert.equal((await harness.job(second)).state, 'ready');
    assert.equal((await harness.job(second)).lease, null);
  });

  it('gives back at the limit what does not finish, and counts nothing for it', async () => {
    const node = await harness.addNode({ script: hang });
    const { dispatcher } = await harness.startReplica({ holder: 'first' });
    const jobId = await harness.submit();
    await until(async () => (await harness.job(jobId)).state === 'running');
    await dispatcher.stop(50);
    const job = await harness.job(jobId);
    assert.deepEqual(
      [job.state, job.lease, job.lostAttempts, job.takeovers],
      ['running', null, 0, 0],
    );
    node.script = exchange => exchange.cutOut();
    await harness.startReplica({ holder: 'second' });
    assert.equal((await harness.untilFinal(jobId)).state, 'succeeded');
  });

  it('in a hurry gives back at once', async () => {
    await harness.addNode({ script: hang });
    const { dispatcher } = await harness.startReplica();
    const jobId = await harness.submit();
    await until(async () => (await harness.job(jobId)).state === 'running');
    const stopped = dispatcher.stop(60_000);
    dispatcher.hurry();
    await stopped;
    assert.equal((await harness.job(jobId)).lease, null);
  });
});

describe('turns', () => {
  /** The order in which jobs reach a node that takes one at a time. */
  async function orderOf(submitAll: () => Promise<string[]>): Promise<string[]> {
    const node = await harness.addNode({ imagesMax: 1 });
    const jobIds = await submitAll();
    await harness.startReplica();
    for (const jobId of jobIds) await harness.untilFinal(jobId);
    return node.headers.map(header => header.jobId);
  }

  it("come to one account's job among another's many", async () => {
    const other = await harness.createAccount('other');
    let last = '';
    const order = await orderOf(async () => {
      const many: string[] = [];
      for (let count = 0; count < 20; count += 1) {
        many.push(await harness.submit({ mode: 'async' }));
      }
      last = await harness.submit({ mode: 'async', caller: other });
      return [...many, last];
    });
    assert.ok(order.indexOf(last) <= 2, `it came as number ${order.indexOf(last)}`);
  });

  it('come to synchronous jobs before asynchronous ones', async () => {
    let sync = '';
    const order = await orderOf(async () => {
      const queued = [
        await harness.submit({ mode: 'async' }),
        await harness.submit({ mode: 'async' }),
      ];
      sync = await harness.submit({ mode: 'sync' });
      return [...queued, sync];
    });
    assert.equal(order[0], sync);
  });
});

describe('two replicas on one table', () => {
  it('do every job once, each with its own result', async () => {
    const nodes = [await harness.addNode(), await harness.addNode()];
    await harness.startReplica({ holder: 'one' });
    await harness.startReplica({ holder: 'two' });
    const jobIds: string[] = [];
    for (let count = 0; count < 30; count += 1) {
      jobIds.push(await harness.submit({ bytes: Buffer.from(`picture ${count}`) }));
    }
    for (const [count, jobId] of jobIds.entries()) {
      const job = await harness.untilFinal(jobId);
      assert.deepEqual(await harness.resultOf(job), cutOutOf(Buffer.from(`picture ${count}`)));
    }
    const admissions = nodes.flatMap(node => node.headers.map(header => header.jobId));
    assert.equal(new Set(admissions).size, 30);
    await harness.assertMoneySettled({ charged: 30 });
  });
});

describe('a job with a URL', () => {
  it('is fetched while no node is there, and waits ready without a lease', async () => {
    await harness.startReplica({ fetcher: fetcherOf() });
    const url = 'https://example.com/a.png';
    const jobId = await harness.submit({ url });
    await until(async () => (await harness.job(jobId)).state === 'ready');
    await until(async () => (await harness.job(jobId)).lease === null);
    await harness.addNode();
    const job = await harness.untilFinal(jobId);
    assert.deepEqual(await harness.resultOf(job), cutOutOf(Buffer.from(url)));
    assert.deepEqual(await harness.blobNames(), [job.result?.blob]);
  });

  it('that cannot be fetched ends with the cause and its retryable flag', async () => {
    const failing = fetcherOf(() =>
      Promise.reject(new ContractError('IMAGE_DOWNLOAD_FAILED', 'status 503', { retryable: true })),
    );
    await harness.startReplica({ fetcher: failing });
    const job = await harness.untilFinal(await harness.submit({ url: 'https://example.com/a' }));
    assert.deepEqual(job.failure, {
      code: 'IMAGE_DOWNLOAD_FAILED',
      detail: 'status 503',
      retryable: true,
    });
    assert.equal(job.startedAtMs, null);
    await harness.assertMoneySettled({ charged: 0 });
    assert.deepEqual(await harness.blobNames(), []);
  });

  it('whose file cannot be stored is a fault of the storage', async () => {
    await harness.startReplica({ fetcher: fetcherOf(away) });
    const job = await harness.untilFinal(await harness.submit({ url: 'https://example.com/a' }));
    assert.equal(job.failure?.code, 'PROCESSING_FAILED');
    assert.equal(job.failure?.retryable, true);
  });

  it('is one of at most 16 downloads at once, and the rest follow', async () => {
    const { promise: held, resolve: letGo } = Promise.withResolvers<void>();
    let open = 0;
    let most = 0;
    const fetcher = fetcherOf(async () => {
      open += 1;
      most = Math.max(most, open);
      await held;
      open -= 1;
    });
    await harness.startReplica({ fetcher });
    const jobIds: string[] = [];
    for (let count = 0; count < 40; count += 1) {
      jobIds.push(await harness.submit({ url: `https://example.com/${count}` }));
    }
    await until(() => open === 16, 'as many downloads as may be');
    letGo();
    await until(async () => {
      const jobs = await Promise.all(jobIds.map(jobId => harness.job(jobId)));
      return jobs.every(job => job.state === 'ready');
    });
    assert.equal(most, 16);
  });

  it('is fetched anew when its fetcher was stopped', async () => {
    const stalled = fetcherOf((_url, { signal }) => aborted(signal));
    const { dispatcher } = await harness.startReplica({ fetcher: stalled, holder: 'first' });
    const jobId = await harness.submit({ url: 'https://example.com/a.png' });
    await until(async () => (await harness.job(jobId)).state === 'fetching');
    await dispatcher.stop(20);
    await harness.addNode();
    await harness.startReplica({ fetcher: fetcherOf(), holder: 'second' });
    assert.equal((await harness.untilFinal(jobId)).state, 'succeeded');
  });
});

const SUBMISSIONS = 50;
/** The poll, and the reports of the node, whose room may have changed. */
const ROUNDS_A_SECOND_MAX = 4;

it('a flood costs no round for each, and no job is forgotten', async () => {
  const opened = Promise.withResolvers<void>();
  const node = await harness.addNode({
    imagesMax: 1,
    script: async exchange => {
      exchange.admit();
      await exchange.receive();
      await opened.promise;
      exchange.fail('PROCESSING_FAILED');
    },
  });
  let rounds = 0;
  const { listClaimable } = harness.stores.jobs;
  const counted: typeof listClaimable = (limit, lanes) => {
    rounds += 1;
    return listClaimable(limit, lanes);
  };
  await harness.startReplica({ jobs: { ...harness.stores.jobs, listClaimable: counted } });
  const ids = [await harness.submit()];
  await until(() => node.headers.length === 1, 'the first attempt');
  const before = rounds;
  const startedAtMs = performance.now();
  for (let count = 0; count < SUBMISSIONS; count++) ids.push(await harness.submit());
  const seconds = (performance.now() - startedAtMs) / 1000;
  const during = rounds - before;
  assert.ok(during <= 2 + ROUNDS_A_SECOND_MAX * seconds, `${during} rounds in ${seconds} s`);
  opened.resolve();
  for (const id of ids) assert.equal((await harness.untilFinal(id)).state, 'failed');
});
