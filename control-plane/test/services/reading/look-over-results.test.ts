/** The daily look over all live results, on real rows and a real directory. */
import assert from 'node:assert/strict';
import { mkdtemp, rename, rm, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, it } from 'node:test';
import { LostResults, resultLookStep } from '../../../src/services/reading/lost-results.ts';
import type { BlobStore } from '../../../src/storage/blob-store.ts';
import { openDirectoryBlobStore } from '../../../src/storage/directory/directory-blob-store.ts';
import {
  describeStores,
  fundedAccount,
  HOUR_MS,
  newJob,
  resultOf,
  running,
} from '../../store/fixtures.ts';

const MINUTE_MS = 60_000;
const FIRST = { atMs: 0, id: '' };

describeStores('the look over results', ({ database, stores }) => {
  let root: string;
  let blobs: BlobStore;
  let account: string;
  let told: string[];
  /** By their place in the order in which links end. */
  let results: { jobId: string; file: string }[];

  beforeEach(async () => {
    root = await mkdtemp(path.join(tmpdir(), 'look-'));
    blobs = await openDirectoryBlobStore(root);
    account = await fundedAccount(stores, 100);
    told = [];
    results = [];
    const { kysely } = database;
    await kysely.deleteFrom('lost_results').execute();
    await kysely.deleteFrom('sweeps').execute();
    await kysely
      .updateTable('jobs')
      .set({ result_blob: null, result_blob_expires_at: null })
      .where('result_blob', 'is not', null)
      .execute();
    // The sweeper's row is there since its claim.
    const won = await stores.sweeps.claim('replica', MINUTE_MS);
    assert.ok(won);
  });
  afterEach(() => rm(root, { recursive: true }));

  async function succeeded(ttlMs: number): Promise<void> {
    const { claim } = await running(stores, newJob(account));
    const result = resultOf(claim);
    assert.ok(await stores.jobs.succeed(claim, result, ttlMs, {}));
    const file = path.join(root, result.blob);
    await writeFile(file, 'cut-out');
    results.push({ jobId: claim.jobId, file });
  }

  function step(nowMs = 0) {
    const { jobs, lostResults } = stores;
    const asked: string[] = [];
    const rests: number[] = [];
    const losses = new LostResults({
      ...{ jobs, lostResults, blobs },
      observer: {
        resultLost: by => told.push(by),
        resultsMissing: () => told.push('missing'),
      },
      log: { error: (_: unknown, message: string) => told.push(message) } as never,
      now: () => nowMs,
    });
    const look = resultLookStep({
      ...{ lostResults, losses },
      blobs: {
        stat: name => {
          asked.push(name);
          return blobs.stat(name);
        },
      },
      rest: async ms => rests.push(ms),
    });
    return { look, asked, rests };
  }

  async function wholeLook(pages = 100) {
    const { look, asked, rests } = step();
    let lost = 0;
    for (let page = 0; page < pages; page += 1) {
      const { done, more } = await look.page(200);
      lost += done;
      if (!more) break;
    }
    return { lost, asked, rests };
  }

  const found = async () =>
    (await stores.lostResults.open(FIRST, 100)).map(({ jobId }) => jobId).sort();

  it('asks for each file once a day, page by page, at a bounded rate', async () => {
    // Some end at one instant, as those of one second do.
    for (let count = 0; count < 25; count += 1) {
      await succeeded(HOUR_MS + Math.floor(count / 4) * MINUTE_MS);
    }
    const { lost, asked, rests } = await wholeLook();
    assert.deepEqual([lost, asked.length, new Set(asked).size], [0, 25, 25]);
    // Ten of them are a fifth of a second.
    assert.deepEqual(rests, [200, 200]);
    assert.equal((await wholeLook()).asked.length, 0, 'none is due for a day');
    await due();
    assert.equal((await wholeLook()).asked.length, 25);
  });

  it('goes on where another replica stopped', async () => {
    for (let count = 0; count < 12; count += 1) await succeeded(HOUR_MS + count * MINUTE_MS);
    const first = await wholeLook(1);
    const second = await wholeLook();
    assert.deepEqual([first.asked.length, second.asked.length], [10, 2]);
    assert.equal(new Set([...first.asked, ...second.asked]).size, 12);
  });

  it('writes one row for what is gone, and tells of it once', async () => {
    for (let count = 0; count < 9; count += 1) await succeeded(HOUR_MS + count * MINUTE_MS);
    const gone = [results[2], results[6]];
    for (const result of gone) await unlink(result?.file ?? '');
    assert.equal((await wholeLook()).lost, 2);
    assert.deepEqual(await found(), gone.map(result => result?.jobId).sort());
    const once = ['look', 'a result is lost'];
    assert.deepEqual(told, [...once, ...once]);
    await due();
    await wholeLook();
    assert.deepEqual(told, [...once, ...once]);
  });

  it('ends, and writes nothing, where most files beside one that is gone are gone', async () => {
    for (let count = 0; count < 9; count += 1) await succeeded(HOUR_MS + count * MINUTE_MS);
    await rename(path.join(root, 'results'), path.join(root, 'aside'));
    await openDirectoryBlobStore(root);
    const { lost, asked } = await wholeLook();
    assert.deepEqual([lost, asked.length], [0, 1]);
    assert.deepEqual(await found(), []);
    assert.deepEqual(told, ['missing', 'results are missing from the storage']);
    assert.equal((await wholeLook()).asked.length, 0, 'it comes again in an hour');
    const { look_due_at: dueAt } = await database.kysely
      .selectFrom('sweeps')
      .select('look_due_at')
      .executeTakeFirstOrThrow();
    assert.ok((dueAt ?? 0) - Date.now() < 2 * HOUR_MS);
  });

  it('fails, and keeps its place, where the storage does not answer', async () => {
    await succeeded(HOUR_MS);
    await rename(path.join(root, 'results'), path.join(root, 'aside'));
    await assert.rejects(step().look.page(10), { code: 'SERVICE_UNAVAILABLE' });
    await rename(path.join(root, 'aside'), path.join(root, 'results'));
    assert.equal((await wholeLook()).asked.length, 1);
    assert.deepEqual([await found(), told], [[], []]);
  });

  it('leaves alone what ends in this minute', async () => {
    await succeeded(MINUTE_MS / 2);
    assert.equal((await wholeLook()).asked.length, 0);
  });

  /** As if a day had passed. */
  async function due(): Promise<void> {
    await database.kysely.updateTable('sweeps').set({ look_due_at: 1 }).execute();
  }
});
