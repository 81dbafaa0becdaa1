import assert from 'node:assert/strict';
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { BlobNotFoundError, type BlobStore } from '../../src/storage/blob-store.ts';
import { joinBlobStores } from '../../src/storage/fallback-blob-store.ts';
import { moveBlobs } from '../../src/storage/move-blobs.ts';
import { openStorage } from '../../src/storage/open-storage.ts';
import { get, list, put, testBlobStore } from './blob-store.contract.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;

let directory: string;
let first: BlobStore;
let second: BlobStore;
let joined: BlobStore;

test.beforeEach(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-joined-'));
  first = await openStorage(path.join(directory, 'first'));
  second = await openStorage(path.join(directory, 'second'));
  joined = joinBlobStores(first, second);
});
test.afterEach.always(() => rm(directory, { recursive: true }));

testBlobStore(test, () => joined);

test('write to the first and read from wherever it lies', async t => {
  await put(joined, 'results/new', 'new');
  await put(second, 'results/old', 'old');
  t.is(await second.stat('results/new'), undefined);
  t.is((await get(joined, 'results/new')).toString(), 'new');
  t.is((await get(joined, 'results/old', { start: 1 })).toString(), 'ld');
  t.deepEqual(await joined.stat('results/old'), { bytes: 3 });
});

test('find what moves between a look at the one and at the other', async t => {
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
  t.is((await get(joinBlobStores(first, late), 'results/moving')).toString(), 'bytes');
  await put(second, 'results/moved', 'bytes');
  t.deepEqual(await joinBlobStores(first, late).stat('results/moved'), { bytes: 5 });
});

test('remove from both, unfinished writes too', async t => {
  await put(first, 'results/both', 'x');
  await put(second, 'results/both', 'x');
  const writers = [await first.createWriter('inputs/a'), await second.createWriter('inputs/b')];
  const names = await list(joined, -HOUR_MS);
  t.is(names.length, 4);
  for (const name of names) await joined.remove(name);
  t.deepEqual(await list(first, -HOUR_MS), []);
  t.deepEqual(await list(second, -HOUR_MS), []);
  for (const writer of writers) await writer.abort();
});

test.skipIf(process.getuid?.() === 0)('are ready where the second cannot be written', async t => {
  await chmod(path.join(directory, 'second', 'tmp'), 0o500);
  t.teardown(() => chmod(path.join(directory, 'second', 'tmp'), 0o700));
  await t.notThrowsAsync(joined.check());
});

test('sign for what lies in the first alone', async t => {
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
  await t.throwsAsync(access!.signRead('results/old', { forMs: 1000 }), {
    instanceOf: BlobNotFoundError,
  });
  await moveBlobs(second, first);
  t.regex(await access!.signRead('results/old', { forMs: 1000 }), /results\/old$/);
  t.is(joinBlobStores(second, first).signed, undefined);
});

test('move: what a service writes and removes meanwhile does not disturb', async t => {
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
  t.is(summary.failures.length, 0);
  t.is((await get(first, 'results/late')).toString(), 'late');
  t.deepEqual(await readdir(path.join(directory, 'first', 'tmp')), []);
});

test('move: ends when it is told, and goes on later', async t => {
  for (let n = 0; n < 40; n += 1) await put(second, `results/job-${n}`, `bytes of ${n}`);
  const ending = new AbortController();
  const cut = await moveBlobs(second, first, {
    remove: true,
    signal: ending.signal,
    onProgress: ({ copied }) => {
      if (copied >= 10) ending.abort();
    },
  });
  t.false(cut.complete);
  const rest = await moveBlobs(second, first, { remove: true });
  assert.ok(rest.complete);
  t.is(cut.removed + rest.removed, 40);
  t.is((await list(first, -HOUR_MS)).length, 40);
});
