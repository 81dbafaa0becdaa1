/** Downloads beside other downloads and beside jobs that have their image: who waits for whom. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { aborted, fetcherOf, until, useHarness } from './harness.ts';

/** More than a round lists of one lane. */
const MANY = 290;

const harness = useHarness();

/** Hosts that begin with "slow" hang until they are let go; all others answer at once. */
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

describe('downloads that hang', () => {
  it('of one host leave another account, and another host, their places', async () => {
    const sources = new Sources();
    const other = await harness.createAccount('other');
    await submitMany(100, index => `https://slow.example/${index}`);
    await harness.addNode();
    await harness.startReplica({ fetcher: sources.fetcher });
    await until(() => sources.open.length === 16, 'half of the places of a host');
    const theirs = await harness.submit({ url: 'https://fast.example/1', caller: other });
    const sameHost = await harness.submit({ url: 'https://slow.example/theirs', caller: other });
    const own = await harness.submit({ mode: 'async', url: 'https://fast.example/own' });
    assert.equal((await harness.untilFinal(theirs)).state, 'succeeded');
    assert.equal((await harness.untilFinal(own)).state, 'succeeded');
    await until(() => sources.open.includes('https://slow.example/theirs'), 'a place of the host');
    assert.equal(sources.open.length, 17);
    sources.letGo();
    assert.equal((await harness.untilFinal(sameHost)).state, 'succeeded');
  });

  it('of as many hosts leave another account half of the places', async () => {
    const sources = new Sources();
    const other = await harness.createAccount('other');
    await submitMany(100, index => `https://slow-${index}.example/`);
    await harness.addNode();
    await harness.startReplica({ fetcher: sources.fetcher });
    await until(() => sources.open.length === 32, 'half of all places');
    const theirs = await harness.submit({ url: 'https://slow.example/1', caller: other });
    await until(() => sources.open.includes('https://slow.example/1'), 'a place');
    assert.equal(sources.open.length, 33);
    sources.letGo();
    assert.equal((await harness.untilFinal(theirs)).state, 'succeeded');
  });

  for (const mode of ['sync', 'async'] as const) {
    it(`hide no ${mode} job of their key that has its image, nor one of another host`, async () => {
      const sources = new Sources();
      for (let index = 0; index < MANY; index += 1) {
        await harness.submit({ mode, url: `https://slow.example/${index}` });
      }
      const ready = await harness.submit({ mode });
      const fast = await harness.submit({ mode, url: 'https://fast.example/' });
      await harness.addNode();
      await harness.startReplica({ fetcher: sources.fetcher });
      assert.equal((await harness.untilFinal(ready)).state, 'succeeded');
      assert.equal((await harness.untilFinal(fast)).state, 'succeeded');
      assert.equal(sources.open.length, 16);
    });
  }
});

describe('a download that has ended', () => {
  it('gives its job no turn before those that waited for the node', async () => {
    const other = await harness.createAccount('other');
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
    // Rounds stand still until this resolves, as behind a slow database.
    let listing = Promise.resolve();
    const { listClaimable } = harness.stores.jobs;
    const slowList: typeof listClaimable = async (limit, lanes) => {
      await listing;
      return listClaimable(limit, lanes);
    };
    const jobs = { ...harness.stores.jobs, listClaimable: slowList };
    await harness.startReplica({ jobs, fetcher: sources.fetcher });
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
    shut.resolve();
    for (const jobId of [waiting, url]) await harness.untilFinal(jobId);
    assert.deepEqual(order, [running, waiting, url]);
  });
});
