import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { Sweeper, type SweeperOptions } from '../../src/services/sweep.ts';
import type { BlobStore } from '../../src/storage/blob-store.ts';
import { openDirectoryBlobStore } from '../../src/storage/directory-blob-store.ts';
import type { RemovedJobs } from '../../src/store/job-store.ts';

const HOUR_MS = 3_600_000;

/** Rows as the sweeper sees them: what expired, what is old, what is referred to. */
class Rows {
  expired: string[] = [];
  secretsDue = 0;
  old = 0;
  /** Results that old rows still name. */
  named: string[] = [];
  readonly referenced = new Set<string>();
  readonly lifetimes: number[] = [];
  asked = 0;

  async takeExpiredResultBlobs(limit: number): Promise<string[]> {
    return this.expired.splice(0, limit);
  }

  async eraseDueSecrets(limit: number): Promise<number> {
    const erased = Math.min(limit, this.secretsDue);
    this.secretsDue -= erased;
    return erased;
  }

  async removeFinalOlderThan(afterMs: number, limit: number): Promise<RemovedJobs> {
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

let root: string;
let nowMs: number;
let store: BlobStore;
let rows: Rows;
let errors: string[];

beforeEach(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'sweep-'));
  nowMs = Date.now();
  store = await openDirectoryBlobStore(root, { nowMs: () => nowMs });
  rows = new Rows();
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
  return new Sweeper({ jobStore: rows, outbox: rows, blobStore: store, logger, ...options });
}

async function put(...names: string[]): Promise<void> {
  for (const name of names) {
    const writer = await store.createWriter();
    await writer.write(Buffer.from(name));
    await writer.commit(name);
  }
}

async function exists(name: string): Promise<boolean> {
  return (await store.stat(name)) !== undefined;
}

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
      listOlderThan: (ms: number) => store.listOlderThan(ms),
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
    assert.equal(walks, 2);
  });
});

describe('a pass', () => {
  it('spares young blobs, referred ones and young writes', async () => {
    await put('inputs/young', 'inputs/kept');
    rows.referenced.add('inputs/kept');
    const writer = await store.createWriter();
    assert.deepEqual(await sweeperOf().sweep(), { results: 0, secrets: 0, rows: 0, orphans: 0 });
    nowMs += 2 * HOUR_MS;
    assert.deepEqual(await sweeperOf().sweep(), { results: 0, secrets: 0, rows: 0, orphans: 2 });
    assert.equal(await exists('inputs/kept'), true);
    assert.equal(await exists('inputs/young'), false);
    await writer.abort();
  });

  it('removes rows that are final for 30 days', async () => {
    rows.old = 450;
    assert.equal((await sweeperOf().sweep()).rows, 450);
    assert.deepEqual(rows.lifetimes, Array(3).fill(30 * 24 * HOUR_MS));
  });

  it('does a bounded amount and leaves the rest to the next', async () => {
    rows.old = 12_000;
    const sweeper = sweeperOf();
    assert.equal((await sweeper.sweep()).rows, 5_000);
    assert.equal((await sweeper.sweep()).rows, 5_000);
    assert.equal((await sweeper.sweep()).rows, 2_000);
  });

  it('goes on where the last walk over the blobs stopped', async () => {
    const names = Array.from({ length: 12_000 }, (_, i) => `inputs/job-${i}`);
    const visited: string[] = [];
    let walks = 0;
    const blobStore = {
      async *listOlderThan() {
        walks += 1;
        yield* names;
      },
      remove: async (name: string) => {
        visited.push(name);
      },
    };
    const sweeper = sweeperOf({ blobStore });
    assert.equal((await sweeper.sweep()).orphans, 5_000);
    assert.equal((await sweeper.sweep()).orphans, 5_000);
    assert.equal((await sweeper.sweep()).orphans, 2_000);
    assert.deepEqual(visited, names);
    assert.equal(walks, 1);
    assert.equal((await sweeper.sweep()).orphans, 5_000);
    assert.equal(walks, 2);
    await sweeper.stop();
  });

  it('meets another replica at work without harm', async () => {
    const names = Array.from({ length: 60 }, (_, i) => `results/job-${i}`);
    await put(...names);
    nowMs += 2 * HOUR_MS;
    rows.expired = names.slice(0, 30);
    const counts = await Promise.all([sweeperOf().sweep(), sweeperOf().sweep()]);
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
    const sweeper = sweeperOf({ blobStore });
    await sweeper.sweep();
    assert.equal(closed, false);
    await sweeper.stop();
    assert.equal(closed, true);
  });
});

const emptyStore = {
  remove: async () => undefined,
  async *listOlderThan(): AsyncGenerator<string> {
    yield* [];
  },
};

/** Lets everything that is ready run. */
async function settle(): Promise<void> {
  for (let i = 0; i < 5; i += 1) await new Promise(resolve => setImmediate(resolve));
}
