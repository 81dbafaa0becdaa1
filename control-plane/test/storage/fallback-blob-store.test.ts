import assert from 'node:assert/strict';
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { BlobNotFoundError, type BlobStore } from '../../src/storage/blob-store.ts';
import { joinBlobStores } from '../../src/storage/fallback-blob-store.ts';
import { moveBlobs } from '../../src/storage/move-blobs.ts';
import { openStorage } from '../../src/storage/open-storage.ts';
import { describeBlobStore, get, list, put } from './blob-store.contract.ts';

const HOUR_MS = 3_600_000;

describe('two stores as one', () => {
  let directory: string;
  let first: BlobStore;
  let second: BlobStore;
  let joined: BlobStore;

  beforeEach(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'matting-joined-'));
    first = await openStorage(path.join(directory, 'first'));
    second = await openStorage(path.join(directory, 'second'));
    joined = joinBlobStores(first, second);
  });
  afterEach(() => rm(directory, { recursive: true }));

  describeBlobStore(() => joined);

  it('write to the first and read from wherever it lies', async () => {
    await put(joined, 'results/new', 'new');
    await put(second, 'results/old', 'old');
    assert.equal(await second.stat('results/new'), undefined);
    assert.equal((await get(joined, 'results/new')).toString(), 'new');
    assert.equal((await get(joined, 'results/old', { start: 1 })).toString(), 'ld');
    assert.deepEqual(await joined.stat('results/old'), { bytes: 3 });
  });

  it('find what moves between a look at the one and at the other', async () => {
    await put(second, 'results/moving', 'bytes');
    const late: BlobStore = {
      ...second,
      createWriter: name => second.createWriter(name),
      openRead: async name => {
        await moveBlobs(second, first, { remove: true });
        return await second.openRead(name);
      },
      stat: async name => {
        await moveBlobs(second, first, { remove: true });
        return await second.stat(name);
      },
    };
    assert.equal((await get(joinBlobStores(first, late), 'results/moving')).toString(), 'bytes');
    await put(second, 'results/moved', 'bytes');
    assert.deepEqual(await joinBlobStores(first, late).stat('results/moved'), { bytes: 5 });
  });

  it('remove from both, unfinished writes too', async () => {
    await put(first, 'results/both', 'x');
    await put(second, 'results/both', 'x');
    const writers = [await first.createWriter('inputs/a'), await second.createWriter('inputs/b')];
    const names = await list(joined, -HOUR_MS);
    assert.equal(names.length, 4);
    for (const name of names) await joined.remove(name);
    assert.deepEqual(await list(first, -HOUR_MS), []);
    assert.deepEqual(await list(second, -HOUR_MS), []);
    for (const writer of writers) await writer.abort();
  });

  it('are ready where the second cannot be written', {
    skip: process.getuid?.() === 0,
  }, async () => {
    await chmod(path.join(directory, 'second', 'tmp'), 0o500);
    await joined.check();
    await chmod(path.join(directory, 'second', 'tmp'), 0o700);
  });

  it('sign for what lies in the first alone', async () => {
    const signed = {
      origin: 'https://storage.example',
      signRead: async (name: string) => `https://storage.example/${name}`,
      signWrite: async () => ({ url: 'https://storage.example', headers: {} }),
      stored: async () => undefined,
    };
    const signing = {
      signed,
      stat: (name: string) => first.stat(name),
    } as unknown as BlobStore;
    const access = joinBlobStores(signing, second).signed;
    await put(second, 'results/old', 'old');
    await assert.rejects(access!.signRead('results/old', { forMs: 1000 }), BlobNotFoundError);
    await moveBlobs(second, first);
    assert.match(await access!.signRead('results/old', { forMs: 1000 }), /results\/old$/);
    assert.equal(joinBlobStores(second, first).signed, undefined);
  });

  it('move: what a service writes and removes meanwhile does not disturb', async () => {
    for (let n = 0; n < 40; n += 1) await put(second, `results/job-${n}`, `bytes of ${n}`);
    let done = 0;
    const summary = await moveBlobs(second, first, {
      onProgress: () => {
        done += 1;
        // As a service that removes what expired, and one that still writes here.
        if (done % 5 === 0) void joined.remove(`results/job-${39 - done / 5}`);
        if (done === 10) void put(second, 'results/late', 'late');
      },
    });
    assert.ok(summary.complete);
    assert.equal(summary.failures.length, 0);
    assert.equal((await get(first, 'results/late')).toString(), 'late');
    assert.deepEqual(await readdir(path.join(directory, 'first', 'tmp')), []);
  });

  it('move: ends when it is told, and goes on later', async () => {
    for (let n = 0; n < 40; n += 1) await put(second, `results/job-${n}`, `bytes of ${n}`);
    const ending = new AbortController();
    const cut = await moveBlobs(second, first, {
      remove: true,
      signal: ending.signal,
      onProgress: ({ copied }) => {
        if (copied >= 10) ending.abort();
      },
    });
    assert.equal(cut.complete, false);
    const rest = await moveBlobs(second, first, { remove: true });
    assert.ok(rest.complete);
    assert.equal(cut.removed + rest.removed, 40);
    assert.equal((await list(first, -HOUR_MS)).length, 40);
  });
});
