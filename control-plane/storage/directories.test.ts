import assert from 'node:assert/strict';
import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { SmallDisk, skipWithoutMounts } from '@matting/test-support/small-disk.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { BlobNotFoundError, type BlobStore, isStorageFull, unwritable } from './blob-store.ts';
import { openDirectoryBlobStore } from './directory-store.ts';
import {
  absoluteStorage,
  joinBlobStores,
  missingOfStorage,
  openStorage,
  StorageConfigError,
  storageDirectory,
} from './open-storage.ts';
import type { StorageKind } from './storage-kind.ts';
import { get, list, put, testBlobStore } from './test/blob-store.contract.ts';

const test = ava.serial;

const isRoot = process.getuid?.() === 0;
const HOUR_MS = 3_600_000;
const NAME = 'inputs/0b8f6f1e-31d3-4b0a-9d0e-2f6f4a1f0c11';

let root: string;
let store: BlobStore;
let nowMs: number;

test.beforeEach(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'blobs-'));
  nowMs = Date.now();
  store = await openDirectoryBlobStore(root, () => nowMs);
});

test.afterEach.always(() => rm(root, { recursive: true }));

function isUnavailable(code: string): (error: unknown) => boolean {
  return error => {
    assert.ok(error instanceof ContractError);
    assert.equal(error.code, 'SERVICE_UNAVAILABLE');
    assert.equal((error.cause as NodeJS.ErrnoException).code, code);
    // Callers see the detail, so it must not have a path.
    assert.doesNotMatch(error.message, /\//);
    return true;
  };
}

testBlobStore(test, () => store);

test.runIf(skipWithoutMounts() === false)('a full disk › is named, opened and read', async t => {
  const disk = SmallDisk.mount('1m');
  t.teardown(() => disk.remove());
  const small = await openDirectoryBlobStore(disk.directory);
  await put(small, NAME, 'a picture');
  await t.notThrowsAsync(small.check());
  const writer = await small.createWriter('results/a');
  await rejectsWith(t, writer.write(Buffer.alloc(2_000_000)), isUnavailable('ENOSPC'));
  await writer.abort();
  await t.notThrowsAsync(small.check(), 'it had no room for that file alone');
  const filler = path.join(disk.directory, 'filler');
  const { freeBytes = 0 } = (await small.room()) ?? {};
  await writeFile(filler, Buffer.alloc(freeBytes - 40_000));
  await rejectsWith(t, small.createWriter('results/b'), isUnavailable('ENOSPC'));
  await t.throwsAsync(writeFile(`${filler}-2`, Buffer.alloc(freeBytes)), { code: 'ENOSPC' });
  const again = await openDirectoryBlobStore(disk.directory);
  const full = await t.throwsAsync(again.check(), { message: /is full/ });
  t.true(isStorageFull(full));
  t.is(String(await get(again, NAME)), 'a picture');
  await again.remove(NAME);
  for (const file of [filler, `${filler}-2`]) await rm(file);
  await t.notThrowsAsync(again.check(), 'there is room again');
});

test('a full disk › by its codes, behind other errors', t => {
  for (const code of ['ENOSPC', 'EDQUOT', 'QuotaExceeded', 'HTTP 507']) {
    const cause = Object.assign(new Error('no room'), { code });
    t.true(isStorageFull(unwritable(new Error('a file', { cause }))), code);
    t.regex(unwritable(cause).message, /is full/);
  }
  for (const other of [new Error('ENOSPC'), Object.assign(new Error(''), { code: 'EIO' }), 7]) {
    t.false(isStorageFull(unwritable(other)));
  }
  const endless = new Error('a circle');
  endless.cause = endless;
  t.false(isStorageFull(endless));
});

test('a directory that is gone, as that of a disk that is not mounted › says nothing of its files', async t => {
  await put(store, NAME, 'a picture');
  await rm(path.join(root, 'inputs'), { recursive: true });
  await rejectsWith(t, store.openRead(NAME), isUnavailable('ENOENT'));
  await rejectsWith(t, store.stat(NAME), isUnavailable('ENOENT'));
  await mkdir(path.join(root, 'inputs'));
  t.is(await store.stat(NAME), undefined);
});

test('writing › is SERVICE_UNAVAILABLE where it is there and cannot be read or removed', async t => {
  await symlink(path.basename(NAME), path.join(root, NAME));
  await rejectsWith(t, store.openRead(NAME), isUnavailable('ELOOP'));
  await rm(path.join(root, NAME));
  await mkdir(path.join(root, NAME));
  await rejectsWith(t, store.remove(NAME), isUnavailable('EISDIR'));
});

test('writing › refuses many at once where the directory is gone, and takes them once it is back', async t => {
  const outcomes = async () => {
    const names = Array.from({ length: 30 }, (_, index) => `results/many-${index}`);
    const ended = await Promise.allSettled(names.map(name => put(store, name, name)));
    return new Set(ended.map(({ status }) => status));
  };
  await rm(path.join(root, 'results'), { recursive: true });
  t.deepEqual(await outcomes(), new Set(['rejected']));
  await mkdir(path.join(root, 'results'));
  t.deepEqual(await outcomes(), new Set(['fulfilled']));
  t.deepEqual(await readdir(path.join(root, 'tmp')), []);
});

test("writing › is the owner's alone", async t => {
  await put(store, NAME, 'x');
  for (const directory of ['inputs', 'results', 'tmp']) {
    t.is((await stat(path.join(root, directory))).mode & 0o777, 0o700);
  }
  t.is((await stat(path.join(root, NAME))).mode & 0o777, 0o600);
});

test('writing › is SERVICE_UNAVAILABLE where a directory is gone', async t => {
  // A file can be created, but not moved to its place.
  await rm(path.join(root, 'results'), { recursive: true });
  await rejectsWith(t, store.check(), isUnavailable('ENOENT'));
  const writer = await store.createWriter(NAME);
  await writer.write(Buffer.from('x'));
  await rm(path.join(root, 'inputs'), { recursive: true });
  await rejectsWith(t, writer.commit(), isUnavailable('ENOENT'));
  await writer.abort();
  t.deepEqual(await readdir(path.join(root, 'tmp')), []);
  await rm(path.join(root, 'tmp'), { recursive: true });
  await rejectsWith(t, store.createWriter(NAME), isUnavailable('ENOENT'));
  await rejectsWith(t, store.check(), isUnavailable('ENOENT'));
});

test('the list of old blobs › holds what was last touched before then, unfinished writes too', async t => {
  await put(store, NAME, 'x');
  await put(store, 'results/abc-1', 'y');
  const unfinished = await store.createWriter(NAME);
  t.deepEqual(await list(store, HOUR_MS), []);
  nowMs += HOUR_MS + 60_000;
  const [first, second, third = ''] = await list(store, HOUR_MS);
  t.deepEqual([first, second], [NAME, 'results/abc-1']);
  t.regex(third, /^tmp\//);
  await store.remove(third);
  t.deepEqual(await list(store, HOUR_MS), [NAME, 'results/abc-1']);
  await unfinished.abort();
});

test('the list of old blobs › leaves out what is not ours', async t => {
  await writeFile(path.join(root, 'inputs', 'notes.txt'), 'x');
  t.deepEqual(await list(store, -HOUR_MS), []);
});

test('opening › keeps what is there', async t => {
  await put(store, NAME, 'kept');
  const again = await openDirectoryBlobStore(root);
  t.deepEqual(await again.stat(NAME), { bytes: 4 });
  await again.check();
});

test('opening › makes the directory where it is missing', async t => {
  const made = await openDirectoryBlobStore(path.join(root, 'a', 'b'));
  await made.check();
  t.is((await stat(path.join(root, 'a', 'b'))).mode & 0o777, 0o700);
});

test('opening › refuses a file in its place', async t => {
  const file = path.join(root, 'file');
  await writeFile(file, 'not a directory');
  await rejectsWith(t, openDirectoryBlobStore(file), isUnavailable('ENOTDIR'));
  t.is(await readFile(file, 'utf8'), 'not a directory');
});

test.skipIf(isRoot)('opening › refuses a directory without rights', async t => {
  await chmod(path.join(root, 'tmp'), 0o500);
  await rejectsWith(t, openDirectoryBlobStore(root), isUnavailable('EACCES'));
  await chmod(path.join(root, 'tmp'), 0o700);
});

test('the storage of a URL › that is wrong is refused without being shown', async t => {
  for (const url of ['http://example.com/secret', 'gs://secret', 'file://elsewhere/secret']) {
    const error = await t.throwsAsync(openStorage(url), { instanceOf: StorageConfigError });
    t.regex(error.message, /^MATTING_STORAGE_URL/);
    t.notRegex(error.message, /secret/i);
  }
});

test('the storage of a URL › names the directory that cannot be written', async t => {
  const file = path.join(root, 'file');
  await writeFile(file, '');
  await t.throwsAsync(openStorage(path.join(file, 'inside')), {
    name: 'StorageConfigError',
    message: `MATTING_STORAGE_URL: the directory ${file}/inside cannot be written (ENOTDIR)`,
  });
});

test('the storage of a URL › is opened by the kind whose URL it is, by what the operator called it', async t => {
  const shelf: StorageKind = {
    noun: 'shelf',
    form: 'shelf:name',
    isFor: url => url.startsWith('shelf:'),
    problemOf: url => (url === 'shelf:' ? 'a shelf with a name' : undefined),
    open: async url => (url === 'shelf:full' ? Promise.reject(new Error('full')) : store),
    describeError: error => `it is ${(error as Error).message}`,
    check: async () => [],
    lifecycle: () => undefined,
  };
  const storageKinds = [shelf];
  const setting = '--blobs-to';
  const open = (url: string) => openStorage(url, { storageKinds, setting });
  t.is(await open('shelf:one'), store);
  t.deepEqual(await missingOfStorage('shelf:one', storageKinds), []);
  t.is(absoluteStorage('shelf:one', storageKinds), 'shelf:one');
  await t.throwsAsync(open('shelf:'), { message: '--blobs-to must be a shelf with a name' });
  const message = '--blobs-to: the shelf cannot be written: it is full';
  await t.throwsAsync(open('shelf:full'), { message });
  const forms = /must be a directory, a file:\/\/ URL of one, or shelf:name$/;
  await t.throwsAsync(open('disk://secret'), { message: forms });
});

test('the storage of a URL › opens a path and a file URL as the same directory', async t => {
  const directory = path.join(root, 'blobs with space');
  t.is(storageDirectory(pathToFileURL(directory).href), directory);
  await put(await openStorage(directory), 'results/one-1', 'x');
  const other = await openStorage(pathToFileURL(directory).href);
  t.deepEqual(await other.stat('results/one-1'), { bytes: 1 });
});

let first: BlobStore;
let second: BlobStore;
let joined: BlobStore;

async function openJoined(): Promise<void> {
  first = await openStorage(path.join(root, 'first'));
  second = await openStorage(path.join(root, 'second'));
  joined = joinBlobStores(first, second);
}

async function move(name: string): Promise<void> {
  if ((await second.stat(name)) === undefined) return;
  await put(first, name, (await get(second, name)).toString());
  await second.remove(name);
}

function joinedTest(title: string, body: (t: ExecutionContext) => unknown): void {
  test(`joined stores › ${title}`, async t => {
    await openJoined();
    await body(t);
  });
}

testBlobStore(joinedTest, () => joined);

joinedTest('write to the first and read from wherever it lies', async t => {
  await put(joined, 'results/new', 'new');
  await put(second, 'results/old', 'old');
  t.is(await second.stat('results/new'), undefined);
  t.is((await get(joined, 'results/new')).toString(), 'new');
  t.is((await get(joined, 'results/old', { start: 1 })).toString(), 'ld');
  t.deepEqual(await joined.stat('results/old'), { bytes: 3 });
});

joinedTest('find what moves between a look at the one and at the other', async t => {
  await put(second, 'results/moving', 'bytes');
  const late: BlobStore = {
    ...second,
    createWriter: name => second.createWriter(name),
    openRead: async name => {
      await move(name);
      return await second.openRead(name);
    },
    stat: async name => {
      await move(name);
      return await second.stat(name);
    },
  };
  t.is((await get(joinBlobStores(first, late), 'results/moving')).toString(), 'bytes');
  await put(second, 'results/moved', 'bytes');
  t.deepEqual(await joinBlobStores(first, late).stat('results/moved'), { bytes: 5 });
});

joinedTest('remove from both, unfinished writes too', async t => {
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

test.skipIf(isRoot)('joined stores › are ready where the second cannot be written', async t => {
  await openJoined();
  await chmod(path.join(root, 'second', 'tmp'), 0o500);
  t.teardown(() => chmod(path.join(root, 'second', 'tmp'), 0o700));
  await t.notThrowsAsync(joined.check());
});

joinedTest('sign for what lies in the first alone', async t => {
  const signing = {
    signRead: async (name: string) => `https://storage.example/${name}`,
    stat: (name: string) => first.stat(name),
  } as unknown as BlobStore;
  const { signRead } = joinBlobStores(signing, second);
  await put(second, 'results/old', 'old');
  await t.throwsAsync(signRead!('results/old', { forMs: 1000 }), {
    instanceOf: BlobNotFoundError,
  });
  await move('results/old');
  t.regex(await signRead!('results/old', { forMs: 1000 }), /results\/old$/);
  t.is(joinBlobStores(second, first).signRead, undefined);
});
