import assert from 'node:assert/strict';
import {
  failingDisk,
  type Losing,
  openFaultySqlite,
} from '@matting/database/test/faulty-database.ts';
import { cutOutAfter, cutOutOf, type Script } from '@matting/nodes/test/scripted-exchange.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import ava, { type ExecutionContext } from 'ava';
import type { Queue } from '../queue/queue.ts';
import { claimed, fundedCaller, IMAGE_FAULT, storesOn, successOf } from '../test/fixtures.ts';
import { aborted, failureOf, fetcherOf, until, useHarness } from '../test/harness.ts';

const test = ava.serial;

const harness = useHarness(test);

const hang: Script = async exchange => {
  exchange.admit();
  await exchange.receive();
  await exchange.cancelled;
};

function queueWith(changes: Partial<Queue>): Queue {
  return { ...harness.stores.queue, ...changes };
}

const away = () => Promise.reject(new ContractError('SERVICE_UNAVAILABLE', 'told to be away'));

test('a job whose holder died › is taken over when the lease has run out, and the old fence ends nothing', async t => {
  const jobId = await harness.submit();
  const old = await claimed(harness.stores, { id: jobId }, { holder: 'dead', leaseMs: 50 });
  await harness.stores.queue.admitted(old);
  await harness.addNode();
  const { observed } = await harness.startReplica();
  const job = await harness.untilFinal(jobId);
  t.is(job.state, 'succeeded');
  t.is(job.takeovers, 1);
  t.true(observed.includes('taken over'));
  assert.ok(job.result);
  const stolen = { ...job.result, token: 'x'.repeat(43), blob: 'results/of-the-dead' };
  t.false(await harness.stores.queue.succeed(old, successOf(old, { result: stolen })));
  t.false(await harness.stores.queue.fail(old, IMAGE_FAULT));
  await harness.assertMoneySettled({ charged: 1 });
});

test('a job whose holder died › ten times is failed, and its credit is back', async t => {
  const jobId = await harness.submit();
  for (let death = 0; death < 10; death += 1) {
    await claimed(harness.stores, { id: jobId }, { holder: `dead ${death}`, leaseMs: 1 });
    await until(async () => (await harness.stores.queue.listClaimable(1)).length === 1);
  }
  const node = await harness.addNode();
  await harness.startReplica();
  const job = await harness.untilFinal(jobId);
  t.is(job.failure?.code, 'PROCESSING_FAILED');
  t.is(node.headers.length, 0);
  await harness.assertMoneySettled({ charged: 0 });
});

test('a lease that is lost › ends the attempt at once', async t => {
  let cancelled = false;
  await harness.addNode({
    script: async exchange => {
      exchange.admit();
      await exchange.cancelled;
      cancelled = true;
    },
  });
  const queue = queueWith({ admitted: async () => false });
  const { observed } = await harness.startReplica({ queue });
  await harness.submit();
  await until(() => cancelled, 'the cancellation');
  await until(() => observed.includes('lease lost'));
  t.true(observed.includes('attempt aborted'));
});

test('a lease that is lost › when the result is there leaves neither result nor blob', async t => {
  await harness.addNode();
  const queue = queueWith({ succeed: async () => false });
  const { observed } = await harness.startReplica({ queue });
  const jobId = await harness.submit();
  await until(() => observed.includes('lease lost'));
  t.deepEqual(await harness.blobNames(), [`inputs/${jobId}`]);
});

test('a database that is away › for a moment delays claims and endings, and loses nothing', async t => {
  let failures = 0;
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
  const database = openFaultySqlite(harness.database.url, losing);
  const failing = <A extends unknown[], R>(method: (...args: A) => Promise<R>) => {
    return (...args: A): Promise<R> => {
      failuresDue += 2;
      return method(...args);
    };
  };
  const { listClaimable, claim } = harness.stores.queue;
  const { admitted, succeed } = storesOn(database).queue;
  const queue = queueWith({
    listClaimable: flaky(listClaimable),
    claim: flaky(claim),
    admitted: failing(admitted),
    succeed: failing(succeed),
  });
  await harness.addNode();
  await harness.startReplica({ queue });
  const job = await harness.done();
  await database.close();
  t.is(job.state, 'succeeded');
  t.true(failures >= 8);
  await harness.assertMoneySettled({ charged: 1 });
});

test('stopping › lets running jobs finish and claims no more', async t => {
  const { promise: finish, resolve: letFinish } = Promise.withResolvers<void>();
  const node = await harness.addNode({
    imagesMax: 1,
    script: cutOutAfter(finish),
  });
  const { dispatcher } = await harness.startReplica();
  const first = await harness.submit();
  await until(() => node.headers.length === 1);
  const second = await harness.submit();
  const stopped = dispatcher.stop(10_000);
  letFinish();
  await stopped;
  t.is((await harness.job(first)).state, 'succeeded');
  t.is((await harness.job(second)).state, 'ready');
  t.is((await harness.job(second)).lease, null);
});

test('stopping › gives unfinished jobs back at the limit, and counts no attempt', async t => {
  const node = await harness.addNode({ script: hang });
  const { dispatcher } = await harness.startReplica({ holder: 'first' });
  const jobId = await harness.submit();
  await until(async () => (await harness.job(jobId)).state === 'running');
  await dispatcher.stop(50);
  const job = await harness.job(jobId);
  t.deepEqual([job.state, job.lease, job.lostAttempts, job.takeovers], ['running', null, 0, 0]);
  node.script = exchange => exchange.cutOut();
  await harness.startReplica({ holder: 'second' });
  t.is((await harness.untilFinal(jobId)).state, 'succeeded');
});

test('stopping › in a hurry gives back at once', async t => {
  await harness.addNode({ script: hang });
  const { dispatcher } = await harness.startReplica();
  const jobId = await harness.submit();
  await until(async () => (await harness.job(jobId)).state === 'running');
  const stopped = dispatcher.stop(60_000);
  dispatcher.hurry();
  await stopped;
  t.is((await harness.job(jobId)).lease, null);
});

test('two replicas on one table › do every job once, each with its own result', async t => {
  const nodes = [await harness.addNode(), await harness.addNode()];
  await harness.startReplica({ holder: 'one' });
  await harness.startReplica({ holder: 'two' });
  const jobIds: string[] = [];
  for (let count = 0; count < 30; count += 1) {
    jobIds.push(await harness.submit({ bytes: Buffer.from(`picture ${count}`) }));
  }
  for (const [count, jobId] of jobIds.entries()) {
    const job = await harness.untilFinal(jobId);
    t.deepEqual(await harness.resultOf(job), cutOutOf(Buffer.from(`picture ${count}`)));
  }
  const admissions = nodes.flatMap(node => node.headers.map(header => header.jobId));
  t.is(new Set(admissions).size, 30);
  await harness.assertMoneySettled({ charged: 30 });
});

test('a job with a URL › is fetched while no node is there, and waits ready without a lease', async t => {
  await harness.startReplica({ fetcher: fetcherOf() });
  const url = 'https://example.com/a.png';
  const jobId = await harness.submit({ url });
  await until(async () => (await harness.job(jobId)).state === 'ready');
  await until(async () => (await harness.job(jobId)).lease === null);
  await harness.addNode();
  const job = await harness.untilFinal(jobId);
  t.deepEqual(await harness.resultOf(job), cutOutOf(Buffer.from(url)));
  t.deepEqual(await harness.blobNames(), [job.result?.blob]);
});

test('a job with a URL › whose file cannot be stored fails by the storage', async t => {
  await harness.startReplica({ fetcher: fetcherOf(away) });
  const job = await harness.done({ url: 'https://example.com/a' });
  t.deepEqual(failureOf(job), ['PROCESSING_FAILED', true]);
});

const SUBMISSIONS = 50;
/** The poll and the node's reports, since its room may have changed. */
const ROUNDS_A_SECOND_MAX = 4;

test('a flood costs no round for each, and no job is forgotten', async t => {
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
  const { listClaimable } = harness.stores.queue;
  const counted: typeof listClaimable = (limit, lanes) => {
    rounds += 1;
    return listClaimable(limit, lanes);
  };
  const queue = { ...harness.stores.queue, listClaimable: counted };
  await harness.startReplica({ queue, pollMs: 1000 });
  const ids = [await harness.submit()];
  await until(() => node.headers.length === 1, 'the first attempt');
  const before = rounds;
  const startedAtMs = performance.now();
  for (let count = 0; count < SUBMISSIONS; count++) ids.push(await harness.submit());
  const seconds = (performance.now() - startedAtMs) / 1000;
  const during = rounds - before;
  t.true(during <= 2 + ROUNDS_A_SECOND_MAX * seconds, `${during} rounds in ${seconds} s`);
  opened.resolve();
  for (const id of ids) t.is((await harness.untilFinal(id)).state, 'failed');
});

class Sources {
  readonly open: string[] = [];
  readonly #letGo = Promise.withResolvers<void>();

  letGo(): void {
    this.#letGo.resolve();
  }

  readonly fetcher = fetcherOf(async (url, { signal }) => {
    if (!new URL(url).hostname.startsWith('slow')) return;
    this.open.push(url);
    await Promise.race([this.#letGo.promise, aborted(signal)]);
    this.open.splice(this.open.indexOf(url), 1);
  });
}

async function submitMany(count: number, urlOf: (index: number) => string): Promise<void> {
  for (let index = 0; index < count; index += 1) {
    await harness.submit({ mode: 'async', url: urlOf(index) });
  }
}

test('downloads that hang › of one host leave another account, and another host, their places', async t => {
  const sources = new Sources();
  const other = await fundedCaller(harness.stores, 1000);
  await submitMany(100, index => `https://slow.example/${index}`);
  await harness.addNode();
  await harness.startReplica({ fetcher: sources.fetcher });
  await until(() => sources.open.length === 16, 'half of the places of a host');
  const theirs = await harness.submit({ url: 'https://fast.example/1', caller: other });
  const sameHost = await harness.submit({ url: 'https://slow.example/theirs', caller: other });
  const own = await harness.submit({ mode: 'async', url: 'https://fast.example/own' });
  t.is((await harness.untilFinal(theirs)).state, 'succeeded');
  t.is((await harness.untilFinal(own)).state, 'succeeded');
  await until(() => sources.open.includes('https://slow.example/theirs'), 'a place of the host');
  t.is(sources.open.length, 17);
  sources.letGo();
  t.is((await harness.untilFinal(sameHost)).state, 'succeeded');
});

test('a download that has ended › gives its job no turn before those that waited for the node', async t => {
  const other = await fundedCaller(harness.stores, 1000);
  const order: string[] = [];
  const first = Promise.withResolvers<void>();
  await harness.addNode({
    imagesMax: 1,
    script: async exchange => {
      order.push(exchange.header.jobId);
      if (order.length === 1) await first.promise;
      await exchange.cutOut();
    },
  });
  const sources = new Sources();
  let listing = Promise.resolve();
  const { listClaimable } = harness.stores.queue;
  const slowList: typeof listClaimable = async (limit, lanes) => {
    await listing;
    return listClaimable(limit, lanes);
  };
  const queue = { ...harness.stores.queue, listClaimable: slowList };
  const { dispatcher } = await harness.startReplica({ queue, fetcher: sources.fetcher });
  const running = await harness.submit({ caller: other });
  await until(() => order.length === 1, 'the first on the node');
  const waiting = await harness.submit({ caller: other });
  const url = await harness.submit({ url: 'https://slow.example/' });
  await until(() => sources.open.length === 1, 'the download');
  const shut = Promise.withResolvers<void>();
  listing = shut.promise;
  first.resolve();
  await harness.untilFinal(running);
  sources.letGo();
  await until(async () => (await harness.job(url)).state === 'ready', 'the stored image');
  await until(async () => (await harness.job(url)).lease === null, 'the job given back');
  // A run that ended only now would count against its account.
  await until(() => dispatcher.running === 0, 'the end of both runs');
  shut.resolve();
  for (const jobId of [waiting, url]) await harness.untilFinal(jobId);
  t.deepEqual(order, [running, waiting, url]);
});

const PICTURE = Buffer.from('a picture of the source');
const ANOTHER = 'another-replica';

const fetcher = fetcherOf();

/** Once armed, loses one answer and runs `act` before the retry. */
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

function losingStore(t: ExecutionContext) {
  const losing = new LostAnswer();
  const database = openFaultySqlite(harness.database.url, losing);
  t.teardown(() => database.close());
  return { losing, own: storesOn(database).queue };
}

/** The database was away for longer than the lease, and another replica came back first. */
async function taken(jobId: string): Promise<Claim> {
  await harness.stores.queue.endLease(jobId);
  return claimed(harness.stores, { id: jobId }, { holder: ANOTHER, leaseMs: 600_000 });
}

test('a lost answer › leaves the stored input to the replica that has the job now', async t => {
  const { losing, own } = losingStore(t);
  let theirs: Claim | undefined;
  const queue: Queue = {
    ...own,
    inputStored: (claim, ...stored) => {
      losing.arm('statement', async () => {
        theirs = await taken(claim.jobId);
      });
      return own.inputStored(claim, ...stored);
    },
  };
  const replica = await harness.startReplica({ queue, fetcher });
  const url = 'https://pictures.example/1.png';
  const jobId = await harness.submit({ url });
  await until(() => replica.observed.includes('lease lost'), 'the loss of the lease');
  await until(() => replica.dispatcher.running === 0, 'the end of the work');
  const job = await harness.job(jobId);
  t.deepEqual([job.state, job.lease?.holder], ['ready', ANOTHER]);
  t.deepEqual(await harness.blobNames(), [job.input?.blob], 'what the row names is there');
  await harness.addNode();
  assert.ok(theirs);
  await harness.stores.queue.release(theirs);
  const done = await harness.untilFinal(jobId);
  t.deepEqual(await harness.resultOf(done), cutOutOf(Buffer.from(url)));
  await harness.assertMoneySettled({ charged: 1 });
});

test('a lost answer › leaves an input that no row names to the sweeper', async t => {
  const queue: Queue = {
    ...harness.stores.queue,
    inputStored: async (claim, ...stored) => {
      await taken(claim.jobId);
      return harness.stores.queue.inputStored(claim, ...stored);
    },
  };
  const replica = await harness.startReplica({ queue, fetcher });
  const jobId = await harness.submit({ url: 'https://pictures.example/2.png' });
  await until(() => replica.observed.includes('lease lost'), 'the loss of the lease');
  const blobs = await harness.blobNames();
  t.is(blobs.length, 1);
  t.is((await harness.job(jobId)).input, null);
  t.deepEqual([...(await harness.stores.jobs.referencedBlobs(blobs))], []);
});

test('a lost answer › leaves the result that the row names', async t => {
  const { losing, own } = losingStore(t);
  const queue: Queue = {
    ...own,
    succeed: (...ending) => {
      losing.arm('commit');
      return own.succeed(...ending);
    },
  };
  await harness.addNode();
  await harness.startReplica({ queue, fetcher });
  const jobId = await harness.submit({ bytes: PICTURE });
  const job = await harness.untilFinal(jobId);
  t.truthy(losing.lost);
  await until(async () => (await harness.blobNames()).length === 1, 'the erasure of the input');
  t.deepEqual(await harness.resultOf(job), cutOutOf(PICTURE));
  await harness.assertMoneySettled({ charged: 1 });
});
