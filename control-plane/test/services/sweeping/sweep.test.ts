import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { WALK_PARTS } from '../../../src/services/sweeping/orphan-walk.ts';
import { Sweeper, type SweeperOptions } from '../../../src/services/sweeping/sweep.ts';
import type { BlobPart, BlobStore } from '../../../src/storage/blob-store.ts';
import { openDirectoryBlobStore } from '../../../src/storage/directory/directory-blob-store.ts';
import { emptyStore, Lease, Rows, settle } from './sweep-fakes.ts';

const HOUR_MS = 3_600_000;

let root: string;
let lease: Lease;
let nowMs: number;
let store: BlobStore;
let rows: Rows;
let errors: string[];

beforeEach(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'sweep-'));
  nowMs = Date.now();
  store = await openDirectoryBlobStore(root, () => nowMs);
  rows = new Rows();
  lease = new Lease();
  errors = [];
});

afterEach(async () => {
  await rm(root, { recursive: true });
});

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

async function exists(name: string): Promise<boolean> {
  return (await store.stat(name)) !== undefined;
}

describe('the steps of other rooms', () => {
  it('are taken page by page until they have no more, and fail alone', async () => {
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
    assert.equal((await sweeperOf({ others }).sweep()).secrets, 1);
    assert.deepEqual([pages.length, failures, errors], [0, 1, ['broken']]);
  });
});

describe('a pass that meets errors', () => {
  it('logs the step and runs the others', async () => {
    await put('results/gone-1', 'inputs/orphan');
    rows.expired = ['results/gone-1'];
    rows.secretsDue = 250;
    rows.removeFinalOlderThan = () => Promise.reject(new Error('database'));
    nowMs += 2 * HOUR_MS;
    assert.deepEqual(await sweeperOf().sweep(), { results: 1, secrets: 250, rows: 0, orphans: 1 });
    assert.deepEqual(errors, ['old rows']);
  });

  it('removes the rest of a batch, and the blob that resisted as an orphan later', async () => {
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
    assert.equal((await sweeper.sweep()).results, 1);
    assert.deepEqual(errors, ['remove results/a-1']);
    assert.equal(await exists('results/a-1'), true);
    broken = false;
    nowMs += 2 * HOUR_MS;
    lease.walk = { part: WALK_PARTS, ageMs: 2 * HOUR_MS };
    assert.equal((await sweeper.sweep()).orphans, 1);
    assert.equal(await exists('results/a-1'), false);
  });

  it('removes no orphan while it cannot ask what is referred to', async () => {
    await put('inputs/orphan', 'inputs/kept');
    rows.referenced.add('inputs/kept');
    nowMs += 2 * HOUR_MS;
    const ask = rows.referencedBlobs.bind(rows);
    rows.referencedBlobs = () => Promise.reject(new Error('database'));
    const sweeper = sweeperOf();
    assert.equal((await sweeper.sweep()).orphans, 0);
    assert.equal(await exists('inputs/orphan'), true);
    rows.referencedBlobs = ask;
    await sweeper.sweep();
    assert.equal(await exists('inputs/orphan'), false);
    assert.equal(await exists('inputs/kept'), true);
  });
});

describe('a walk over the blobs that breaks', () => {
  it('begins anew with the next pass', async () => {
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
    assert.deepEqual(errors, ['orphaned blobs']);
    assert.equal(walks, 1 + WALK_PARTS);
  });
});

describe('a pass', () => {
  it('spares young blobs, referred ones and young writes', async () => {
    await put('inputs/young', 'inputs/kept');
    rows.referenced.add('inputs/kept');
    const writer = await store.createWriter('inputs/unfinished');
    assert.deepEqual(await sweeperOf().sweep(), { results: 0, secrets: 0, rows: 0, orphans: 0 });
    nowMs += 2 * HOUR_MS;
    assert.deepEqual(await sweeperOf().sweep(), { results: 0, secrets: 0, rows: 0, orphans: 0 });
    lease.walk = { part: WALK_PARTS, ageMs: HOUR_MS };
    assert.deepEqual(await sweeperOf().sweep(), { results: 0, secrets: 0, rows: 0, orphans: 2 });
    assert.equal(await exists('inputs/kept'), true);
    assert.equal(await exists('inputs/young'), false);
    await writer.abort();
  });

  it('removes rows for as long as there are any, and what they still name', async () => {
    rows.old = 12_000;
    rows.named = ['results/late-1'];
    await put('results/late-1');
    const counts = await sweeperOf({ jobRetentionMs: 40 * 24 * HOUR_MS }).sweep();
    assert.deepEqual(counts, { results: 1, secrets: 0, rows: 12_000, orphans: 0 });
    assert.deepEqual([...new Set(rows.lifetimes)], [40 * 24 * HOUR_MS]);
    assert.equal(await exists('results/late-1'), false);
  });

  it('rests between pages, and lets the steps take turns', async () => {
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
      assert.ok(ms >= 1 && ms <= 1000);
      rests += 1;
    };
    await sweeperOf({ rest, blobStore: emptyStore }).sweep();
    assert.deepEqual(turns.slice(0, 4), ['secrets', 'rows', 'secrets', 'rows']);
    assert.ok(rests >= 4);
  });

  it('ends at its bound, and leaves the rest and the lease to another', async () => {
    rows.old = 100;
    const sweeper = sweeperOf({ passMsMax: 0 });
    const first = (await sweeper.sweep()).rows;
    assert.ok(first > 0 && first < 100);
    assert.equal(lease.holder, undefined);
    assert.equal((await sweeperOf({ holder: 'replica-2' }).sweep()).rows, 100 - first);
  });

  it('leaves the lease where it cannot begin', async () => {
    const saveWalk = lease.saveWalk.bind(lease);
    lease.saveWalk = async () => {
      throw new Error('the database is not available');
    };
    await sweeperOf().sweep();
    assert.deepEqual(errors, ['the lease']);
    assert.equal(lease.holder, undefined);
    lease.saveWalk = saveWalk;
    rows.old = 10;
    assert.equal((await sweeperOf({ holder: 'replica-2' }).sweep()).rows, 10);
  });

  it('does nothing while another replica sweeps', async () => {
    rows.old = 10;
    lease.holder = 'replica-2';
    assert.equal((await sweeperOf().sweep()).rows, 0);
    assert.equal(lease.holder, 'replica-2');
  });

  it('stops where its lease is lost', async t => {
    rows.old = 1_000_000;
    let clockMs = performance.now();
    t.mock.method(performance, 'now', () => (clockMs += 10_000));
    const renews: number[] = [];
    lease.renew = async () => {
      renews.push(rows.old);
      return false;
    };
    await sweeperOf({ blobStore: emptyStore, passMsMax: Number.MAX_SAFE_INTEGER }).sweep();
    assert.equal(renews.length, 1);
    assert.ok(rows.old > 900_000);
  });

  it('removes several blobs at once, and no more than eight', async () => {
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
    assert.equal((await sweeperOf({ blobStore }).sweep()).results, 40);
    assert.equal(most, 8);
  });

  it('goes on where the last walk over the blobs stopped, on any replica', async () => {
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
    assert.equal(lease.walk.part, WALK_PARTS);
    assert.deepEqual(visited.sort(), names.sort());
    assert.equal(orphans, 800);
    assert.deepEqual(parts, [0, 1, 2, 3, 4, 5, 6, 7]);
    await Promise.all([one.stop(), other.stop()]);
  });

  it('meets another replica at work without harm', async () => {
    const names = Array.from({ length: 60 }, (_, i) => `results/job-${i}`);
    await put(...names);
    nowMs += 2 * HOUR_MS;
    rows.expired = names.slice(0, 30);
    const other = { sweeps: new Lease(), holder: 'replica-2' };
    const counts = await Promise.all([sweeperOf().sweep(), sweeperOf(other).sweep()]);
    assert.deepEqual(errors, []);
    assert.equal(counts[0].results + counts[1].results, 30);
    for (const name of names) assert.equal(await exists(name), false);
  });
});

describe('the timer', () => {
  it('runs pass after pass, with jitter around the interval', async t => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
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
      t.mock.timers.tick(waitMs - 1);
      assert.equal(passes, 0);
      t.mock.timers.tick(1);
      await settle();
      assert.equal(passes, 1);
      t.mock.timers.tick(waitMs + 1);
      await settle();
      assert.equal(passes, 2);
      await sweeper.stop();
      t.mock.timers.tick(10 * waitMs);
      await settle();
      assert.equal(passes, 2);
    }
  });

  it('stops after the batch it is at, and waits for it', async t => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    let batches = 0;
    rows.removeFinalOlderThan = async (_afterMs, limit) => {
      batches += 1;
      await gate;
      return { rows: limit, blobs: [] };
    };
    const sweeper = sweeperOf({ blobStore: emptyStore });
    sweeper.start();
    t.mock.timers.tick(100_000);
    await settle();
    assert.equal(batches, 1);
    let stopped = false;
    const stopping = sweeper.stop().then(() => {
      stopped = true;
    });
    await settle();
    assert.equal(stopped, false);
    open();
    await stopping;
    assert.equal(batches, 1);
    assert.equal(rows.asked, 0);
  });

  it('closes the directory it was reading', async () => {
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
    assert.equal(closed, false);
    await sweeper.stop();
    assert.equal(closed, true);
  });
});
