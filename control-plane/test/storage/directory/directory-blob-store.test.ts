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
import ava from 'ava';
import { ContractError } from '#contract/errors.ts';
import { rejectsWith } from '../../../../test/support/throws.ts';
import type { BlobStore } from '../../../src/storage/blob-store.ts';
import { openDirectoryBlobStore } from '../../../src/storage/directory/directory-blob-store.ts';
import {
  get as getBlob,
  list as listBlobs,
  put as putBlob,
  testBlobStore,
} from '../blob-store.contract.ts';

const test = ava.serial;

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

test.afterEach.always(async () => {
  await rm(root, { recursive: true });
});

const put = (name: string, content: string) => putBlob(store, name, content);
const get = async (name: string) => String(await getBlob(store, name));
const list = (olderThanMs: number) => listBlobs(store, olderThanMs);

function isUnavailable(code: string): (error: unknown) => boolean {
  return error => {
    assert.ok(error instanceof ContractError);
    assert.equal(error.code, 'SERVICE_UNAVAILABLE');
    assert.equal((error.cause as NodeJS.ErrnoException).code, code);
    // The detail goes to callers: no path of the machine.
    assert.doesNotMatch(error.message, /\//);
    return true;
  };
}

testBlobStore(test, () => store);

test('a directory that is gone, as that of a disk that is not mounted › says nothing of its files', async t => {
  await put(NAME, 'a picture');
  await rm(path.join(root, 'inputs'), { recursive: true });
  await rejectsWith(t, store.openRead(NAME), isUnavailable('ENOENT'));
  await rejectsWith(t, store.stat(NAME), isUnavailable('ENOENT'));
  await mkdir(path.join(root, 'inputs'));
  t.is(await store.stat(NAME), undefined);
});

test('names › cannot leave the directory', async t => {
  await writeFile(path.join(root, 'secret'), 'secret');
  await t.throwsAsync(store.openRead('inputs/../secret'), { instanceOf: TypeError });
  const kinds = ['backgrounds', 'inputs', 'results', 'secret', 'tmp'];
  t.deepEqual((await readdir(root)).sort(), kinds);
});

test('writing › is SERVICE_UNAVAILABLE where it is there and cannot be read or removed', async t => {
  await symlink(path.basename(NAME), path.join(root, NAME));
  await rejectsWith(t, store.openRead(NAME), isUnavailable('ELOOP'));
  await rm(path.join(root, NAME));
  await mkdir(path.join(root, NAME));
  await rejectsWith(t, store.remove(NAME), isUnavailable('EISDIR'));
});

test('writing › commits many at once, each whole, and refuses them all where the directory is gone', async t => {
  const writeAll = (kind: string) =>
    Promise.allSettled(
      Array.from({ length: 30 }, async (_, index) => {
        const writer = await store.createWriter(`${kind}/many-${index}`);
        await writer.write(Buffer.from(`blob ${index}`));
        await writer.commit().finally(() => writer.abort());
        t.is(await get(`${kind}/many-${index}`), `blob ${index}`);
      }),
    );
  const stored = await writeAll('inputs');
  t.true(stored.every(({ status }) => status === 'fulfilled'));
  await rm(path.join(root, 'results'), { recursive: true });
  const refused = await writeAll('results');
  t.true(refused.every(({ status }) => status === 'rejected'));
  await mkdir(path.join(root, 'results'));
  t.true((await writeAll('results')).every(({ status }) => status === 'fulfilled'));
  t.deepEqual(await readdir(path.join(root, 'tmp')), []);
});

test("writing › is the owner's alone", async t => {
  await put(NAME, 'x');
  for (const directory of ['inputs', 'results', 'tmp']) {
    t.is((await stat(path.join(root, directory))).mode & 0o777, 0o700);
  }
  t.is((await stat(path.join(root, NAME))).mode & 0o777, 0o600);
});

test('writing › is SERVICE_UNAVAILABLE where the directory is gone', async t => {
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

test('writing › fails where results cannot be put, though a file can be begun', async t => {
  await rm(path.join(root, 'results'), { recursive: true });
  await rejectsWith(t, store.check(), isUnavailable('ENOENT'));
});

test('the list of old blobs › holds what was last touched before then, unfinished writes too', async t => {
  await put(NAME, 'x');
  await put('results/abc-1', 'y');
  const unfinished = await store.createWriter(NAME);
  t.deepEqual(await list(HOUR_MS), []);
  nowMs += HOUR_MS + 60_000;
  const [first, second, third = ''] = await list(HOUR_MS);
  t.deepEqual([first, second], [NAME, 'results/abc-1']);
  t.regex(third, /^tmp\//);
  await store.remove(third);
  t.deepEqual(await list(HOUR_MS), [NAME, 'results/abc-1']);
  await unfinished.abort();
});

test('the list of old blobs › leaves out what is not ours', async t => {
  await writeFile(path.join(root, 'inputs', 'notes.txt'), 'x');
  t.deepEqual(await list(-HOUR_MS), []);
});

test('opening › keeps what is there', async t => {
  await put(NAME, 'kept');
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

test.skipIf(process.getuid?.() === 0)('opening › refuses a directory without rights', async t => {
  await chmod(path.join(root, 'tmp'), 0o500);
  await rejectsWith(t, openDirectoryBlobStore(root), isUnavailable('EACCES'));
  await chmod(path.join(root, 'tmp'), 0o700);
});
