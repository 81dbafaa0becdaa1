import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import type { BlobPart, BlobStore } from '@matting/storage/blob-store.ts';
import { openDirectoryBlobStore } from '@matting/storage/directory-store.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { WALK_PARTS } from './orphan-walk.ts';
import { Sweeper } from './sweep.ts';
import type { SweepClaim, SweepWalk } from './sweep-store.ts';

type SweeperOptions = ConstructorParameters<typeof Sweeper>[0];

const test = ava.serial;

const HOUR_MS = 3_600_000;

class Rows {
  expired: string[] = [];
  kept: string[] = [];
  secretsDue = 0;
  old = 0;
  named: string[] = [];
  readonly referenced = new Set<string>();
  readonly lifetimes: number[] = [];
  asked = 0;

  async takeExpiredResultBlobs(limit: number): Promise<string[]> {
    return this.expired.splice(0, limit);
  }

  async takeExpiredKept(limit: number): Promise<string[]> {
    return this.kept.splice(0, limit);
  }

  async eraseDueSecrets(limit: number): Promise<number> {
    const erased = Math.min(limit, this.secretsDue);
    this.secretsDue -= erased;
    return erased;
  }

  async removeFinalOlderThan(afterMs: number, limit: number) {
    this.lifetimes.push(afterMs);
    const rows = Math.min(limit, this.old);
    this.old -= rows;
    return { rows, blobs: this.named.splice(0, limit) };
  }

  async referencedBlobs(names: readonly string[]): Promise<Set<string>> {
    this.asked += 1;
    return new Set(names.filter(name => this.referenced.has(name)));
  }
}

class Lease {
  holder: string | undefined;
  fence = 0;
  walk: SweepWalk = { part: 0, ageMs: null };

  async claim(holder: string) {
    if (this.holder !== undefined) return undefined;
    this.holder = holder;
    this.fence += 1;
    return { claim: { holder, fence: this.fence }, walk: this.walk };
  }

  async renew({ fence }: SweepClaim): Promise<boolean> {
    return fence === this.fence;
  }

  async release({ fence }: SweepClaim): Promise<boolean> {
    if (fence === this.fence) this.holder = undefined;
    return fence === this.fence;
  }

  async saveWalk({ fence }: SweepClaim, part: number): Promise<boolean> {
    if (fence === this.fence) this.walk = { part, ageMs: 0 };
    return fence === this.fence;
  }
}

const emptyStore = {
  remove: async () => undefined,
  async *listOlderThan(): AsyncGenerator<string> {
    yield* [];
  },
};

async function settle(): Promise<void> {
  for (let i = 0; i < 5; i += 1) await new Promise(resolve => setImmediate(resolve));
}

let root: string;
let lease: Lease;
let nowMs: number;
let store: BlobStore;
let rows: Rows;
let errors: string[];

test.beforeEach(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'sweep-'));
  nowMs = Date.now();
  store = await openDirectoryBlobStore(root, () => nowMs);
  rows = new Rows();
  lease = new Lease();
  errors = [];
});

test.afterEach.always(() => rm(root, { recursive: true }));

function sweeperOf(options: Partial<SweeperOptions> = {}): Sweeper {
  const logger = {
    info: () => undefined,
    error: (fields: { step: string }) => errors.push(fields.step),
  } as unknown as SweeperOptions['logger'];
  return new Sweeper({
    jobStore: rows,
    outbox: rows,
    blobStore: store,
    sweeps: lease,
    holder: 'replica-1',
    jobRetentionMs: 30 * 24 * HOUR_MS,
    logger,
    rest: async () => undefined,
    ...options,
  });
}

async function put(...names: string[]): Promise<void> {
  for (const name of names) {
    const writer = await store.createWriter(name);
    await writer.write(Buffer.from(name));
    await writer.commit();
  }
}

/** For the passes; the tests' own waits use real timers. */
function fakeTimers(t: ExecutionContext): sinon.SinonFakeTimers {
  const timers = sinon.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  t.teardown(() => timers.restore());
  return timers;
}

async function exists(name: string): Promise<boolean> {
  return (await store.stat(name)) !== undefined;
}

test('the steps of other rooms › are taken page by page until they have no more, and fail alone', async t => {
  const pages = [3, 2, 0];
  let failures = 0;
  const others = [
    {
      name: 'broken',
      page: async () => {
        failures += 1;
        throw new Error('database');
      },
    },
    {
      name: 'other',
      page: async () => {
        const done = pages.shift() ?? 0;
        return { done, more: pages.length > 0 };
      },
    },
  ];
  rows.secretsDue = 1;
  t.is((await sweeperOf({ others }).sweep()).secrets, 1);
  t.deepEqual([pages.length, failures, errors], [0, 1, ['broken']]);
});

test('a pass that meets errors › logs the step and runs the others', async t => {
  await put('results/gone-1', 'inputs/orphan');
  rows.expired = ['results/gone-1'];
  rows.secretsDue = 250;
  rows.removeFinalOlderThan = () => Promise.reject(new Error('database'));
  nowMs += 2 * HOUR_MS;
  t.deepEqual(await sweeperOf().sweep(), {
    results: 1,
    kept: 0,
    secrets: 250,
    rows: 0,
    orphans: 1,
  });
  t.deepEqual(errors, ['old rows']);
});

test('a pass that meets errors › removes the rest of a batch, and the blob that resisted as an orphan later', async t => {
  await put('results/a-1', 'results/b-1');
  rows.expired = ['results/a-1', 'results/b-1'];
  let broken = true;
  const blobStore = {
    listOlderThan: (ms: number, part?: BlobPart) => store.listOlderThan(ms, part),
    remove: async (name: string) => {
      if (broken && name === 'results/a-1') throw new Error('busy');
      await store.remove(name);
    },
  };
  const sweeper = sweeperOf({ blobStore });
  t.is((await sweeper.sweep()).results, 1);
  t.deepEqual(errors, ['remove results/a-1']);
  t.true(await exists('results/a-1'));
  broken = false;
  nowMs += 2 * HOUR_MS;
  lease.walk = { part: WALK_PARTS, ageMs: 2 * HOUR_MS };
  t.is((await sweeper.sweep()).orphans, 1);
  t.false(await exists('results/a-1'));
});

test('a pass that meets errors › removes no orphan while it cannot ask what is referred to', async t => {
  await put('inputs/orphan', 'inputs/kept');
  rows.referenced.add('inputs/kept');
  nowMs += 2 * HOUR_MS;
  const ask = rows.referencedBlobs.bind(rows);
  rows.referencedBlobs = () => Promise.reject(new Error('database'));
  const sweeper = sweeperOf();
  t.is((await sweeper.sweep()).orphans, 0);
  t.true(await exists('inputs/orphan'));
  rows.referencedBlobs = ask;
  await sweeper.sweep();
  t.false(await exists('inputs/orphan'));
  t.true(await exists('inputs/kept'));
});

test('a walk over the blobs that breaks › begins anew with the next pass', async t => {
  let walks = 0;
  const blobStore = {
    remove: async () => undefined,
    listOlderThan: (): AsyncIterable<string> => {
      walks += 1;
      if (walks > 1) return emptyStore.listOlderThan();
      const broken = { next: () => Promise.reject(new Error('disk')) };
      return { [Symbol.asyncIterator]: () => broken };
    },
  };
  const sweeper = sweeperOf({ blobStore });
  await sweeper.sweep();
  await sweeper.sweep();
  t.deepEqual(errors, ['orphaned blobs']);
  t.is(walks, 1 + WALK_PARTS);
});

test('a pass › spares young blobs, referred ones and young writes', async t => {
  await put('inputs/young', 'inputs/kept');
  rows.referenced.add('inputs/kept');
  const writer = await store.createWriter('inputs/unfinished');
  t.deepEqual(await sweeperOf().sweep(), { results: 0, kept: 0, secrets: 0, rows: 0, orphans: 0 });
  nowMs += 2 * HOUR_MS;
  t.deepEqual(await sweeperOf().sweep(), { results: 0, kept: 0, secrets: 0, rows: 0, orphans: 0 });
  lease.walk = { part: WALK_PARTS, ageMs: HOUR_MS };
  t.deepEqual(await sweeperOf().sweep(), { results: 0, kept: 0, secrets: 0, rows: 0, orphans: 2 });
  t.true(await exists('inputs/kept'));
  t.false(await exists('inputs/young'));
  await writer.abort();
});

test('a pass › removes rows for as long as there are any, and what they still name', async t => {
  rows.old = 12_000;
  rows.named = ['results/late-1'];
  await put('results/late-1');
  const counts = await sweeperOf({ jobRetentionMs: 40 * 24 * HOUR_MS }).sweep();
  t.deepEqual(counts, { results: 1, kept: 0, secrets: 0, rows: 12_000, orphans: 0 });
  t.deepEqual([...new Set(rows.lifetimes)], [40 * 24 * HOUR_MS]);
  t.false(await exists('results/late-1'));
});

test('a pass › rests between pages, and lets the steps take turns', async t => {
  rows.old = 100;
  rows.secretsDue = 100;
  const turns: string[] = [];
  const removeRows = rows.removeFinalOlderThan.bind(rows);
  rows.removeFinalOlderThan = async (afterMs, limit) => {
    turns.push('rows');
    return removeRows(afterMs, limit);
  };
  const eraseSecrets = rows.eraseDueSecrets.bind(rows);
  rows.eraseDueSecrets = async limit => {
    turns.push('secrets');
    return eraseSecrets(limit);
  };
  let rests = 0;
  const rest = async (ms: number) => {
    t.true(ms >= 1 && ms <= 1000);
    rests += 1;
  };
  await sweeperOf({ rest, blobStore: emptyStore }).sweep();
  t.deepEqual(turns.slice(0, 4), ['secrets', 'rows', 'secrets', 'rows']);
  t.true(rests >= 4);
});

test('a pass › ends at its bound, and leaves the rest and the lease to another', async t => {
  rows.old = 100;
  const sweeper = sweeperOf({ passMsMax: 0 });
  const first = (await sweeper.sweep()).rows;
  t.true(first > 0 && first < 100);
  t.is(lease.holder, undefined);
  t.is((await sweeperOf({ holder: 'replica-2' }).sweep()).rows, 100 - first);
});

test('a pass › leaves the lease where it cannot begin', async t => {
  const saveWalk = lease.saveWalk.bind(lease);
  lease.saveWalk = async () => {
    throw new Error('the database is not available');
  };
  await sweeperOf().sweep();
  t.deepEqual(errors, ['the lease']);
  t.is(lease.holder, undefined);
  lease.saveWalk = saveWalk;
  rows.old = 10;
  t.is((await sweeperOf({ holder: 'replica-2' }).sweep()).rows, 10);
});

test('a pass › does nothing while another replica sweeps', async t => {
  rows.old = 10;
  lease.holder = 'replica-2';
  t.is((await sweeperOf().sweep()).rows, 0);
  t.is(lease.holder, 'replica-2');
});

test('a pass › stops where its lease is lost', async t => {
  rows.old = 1_000_000;
  let clockMs = performance.now();
  const now = sinon.stub(performance, 'now').callsFake(() => (clockMs += 10_000));
  t.teardown(() => now.restore());
  const renews: number[] = [];
  lease.renew = async () => {
    renews.push(rows.old);
    return false;
  };
  await sweeperOf({ blobStore: emptyStore, passMsMax: Number.MAX_SAFE_INTEGER }).sweep();
  t.is(renews.length, 1);
  t.true(rows.old > 900_000);
});

test('a pass › removes several blobs at once, and no more than eight', async t => {
  rows.expired = Array.from({ length: 40 }, (_, i) => `results/job-${i}`);
  let now = 0;
  let most = 0;
  const blobStore = {
    ...emptyStore,
    remove: async () => {
      now += 1;
      most = Math.max(most, now);
      await new Promise(resolve => setImmediate(resolve));
      now -= 1;
    },
  };
  t.is((await sweeperOf({ blobStore }).sweep()).results, 40);
  t.is(most, 8);
});

test('a pass › goes on where the last walk over the blobs stopped, on any replica', async t => {
  const names = Array.from({ length: 800 }, (_, i) => `inputs/job-${i}`);
  const visited: string[] = [];
  const parts: number[] = [];
  const blobStore = {
    async *listOlderThan(_ms: number, part?: BlobPart) {
      parts.push(part!.part);
      yield* names.filter((_, index) => index % part!.of === part!.part);
    },
    remove: async (name: string) => {
      visited.push(name);
    },
  };
  const one = sweeperOf({ blobStore, passMsMax: 0 });
  let orphans = 0;
  while (lease.walk.part < 2) orphans += (await one.sweep()).orphans;
  const other = sweeperOf({ blobStore, holder: 'replica-2' });
  orphans += (await other.sweep()).orphans;
  t.is(lease.walk.part, WALK_PARTS);
  t.deepEqual(visited.sort(), names.sort());
  t.is(orphans, 800);
  t.deepEqual(parts, [0, 1, 2, 3, 4, 5, 6, 7]);
  await Promise.all([one.stop(), other.stop()]);
});

test('the timer › runs pass after pass, with jitter around the interval', async t => {
  const timers = fakeTimers(t);
  for (const [random, waitMs] of [
    [0, 48_000],
    [0.5, 60_000],
    [0.999_999, 72_000],
  ] as const) {
    let passes = 0;
    rows.removeFinalOlderThan = async () => {
      passes += 1;
      return { rows: 0, blobs: [] };
    };
    const sweeper = sweeperOf({ random: () => random, blobStore: emptyStore });
    sweeper.start();
    sweeper.start();
    timers.tick(waitMs - 1);
    t.is(passes, 0);
    timers.tick(1);
    await settle();
    t.is(passes, 1);
    timers.tick(waitMs + 1);
    await settle();
    t.is(passes, 2);
    await sweeper.stop();
    timers.tick(10 * waitMs);
    await settle();
    t.is(passes, 2);
  }
});

test('the timer › stops after the batch it is at, and waits for it', async t => {
  const timers = fakeTimers(t);
  const { promise: gate, resolve: open } = Promise.withResolvers<void>();
  let batches = 0;
  rows.removeFinalOlderThan = async (_afterMs, limit) => {
    batches += 1;
    await gate;
    return { rows: limit, blobs: [] };
  };
  const sweeper = sweeperOf({ blobStore: emptyStore });
  sweeper.start();
  timers.tick(100_000);
  await settle();
  t.is(batches, 1);
  let stopped = false;
  const stopping = sweeper.stop().then(() => {
    stopped = true;
  });
  await settle();
  t.false(stopped);
  open();
  await stopping;
  t.is(batches, 1);
  t.is(rows.asked, 0);
});

test('the timer › closes the directory it was reading', async t => {
  let closed = false;
  const blobStore = {
    remove: async () => undefined,
    async *listOlderThan() {
      try {
        for (let i = 0; ; i += 1) yield `inputs/job-${i}`;
      } finally {
        closed = true;
      }
    },
  };
  const sweeper = sweeperOf({ blobStore, passMsMax: 0 });
  await sweeper.sweep();
  t.false(closed);
  await sweeper.stop();
  t.true(closed);
});
