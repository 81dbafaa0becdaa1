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
import { afterEach, beforeEach, describe, it } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import type { BlobStore } from '../../../src/storage/blob-store.ts';
import { openDirectoryBlobStore } from '../../../src/storage/directory/directory-blob-store.ts';
import {
  describeBlobStore,
  get as getBlob,
  list as listBlobs,
  put as putBlob,
} from '../blob-store.contract.ts';

const HOUR_MS = 3_600_000;
const NAME = 'inputs/0b8f6f1e-31d3-4b0a-9d0e-2f6f4a1f0c11';

let root: string;
let store: BlobStore;
let nowMs: number;

beforeEach(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'blobs-'));
  nowMs = Date.now();
  store = await openDirectoryBlobStore(root, () => nowMs);
});

afterEach(async () => {
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

describeBlobStore(() => store);

describe('a directory that is gone, as that of a disk that is not mounted', () => {
  it('says nothing of its files', async () => {
    await put(NAME, 'a picture');
    await rm(path.join(root, 'inputs'), { recursive: true });
    await assert.rejects(store.openRead(NAME), isUnavailable('ENOENT'));
    await assert.rejects(store.stat(NAME), isUnavailable('ENOENT'));
    await mkdir(path.join(root, 'inputs'));
    assert.equal(await store.stat(NAME), undefined);
  });
});

describe('names', () => {
  it('cannot leave the directory', async () => {
    await writeFile(path.join(root, 'secret'), 'secret');
    await assert.rejects(store.openRead('inputs/../secret'), TypeError);
    const kinds = ['backgrounds', 'inputs', 'results', 'secret', 'tmp'];
    assert.deepEqual((await readdir(root)).sort(), kinds);
  });
});

describe('writing', () => {
  it('is SERVICE_UNAVAILABLE where it is there and cannot be read or removed', async () => {
    await symlink(path.basename(NAME), path.join(root, NAME));
    await assert.rejects(store.openRead(NAME), isUnavailable('ELOOP'));
    await rm(path.join(root, NAME));
    await mkdir(path.join(root, NAME));
    await assert.rejects(store.remove(NAME), isUnavailable('EISDIR'));
  });

  it('commits many at once, each whole, and refuses them all where the directory is gone', async () => {
    const writeAll = (kind: string) =>
      Promise.allSettled(
        Array.from({ length: 30 }, async (_, index) => {
          const writer = await store.createWriter(`${kind}/many-${index}`);
          await writer.write(Buffer.from(`blob ${index}`));
          await writer.commit().finally(() => writer.abort());
          assert.equal(await get(`${kind}/many-${index}`), `blob ${index}`);
        }),
      );
    const stored = await writeAll('inputs');
    assert.ok(stored.every(({ status }) => status === 'fulfilled'));
    await rm(path.join(root, 'results'), { recursive: true });
    const refused = await writeAll('results');
    assert.ok(refused.every(({ status }) => status === 'rejected'));
    await mkdir(path.join(root, 'results'));
    assert.ok((await writeAll('results')).every(({ status }) => status === 'fulfilled'));
    assert.deepEqual(await readdir(path.join(root, 'tmp')), []);
  });

  it("is the owner's alone", async () => {
    await put(NAME, 'x');
    for (const directory of ['inputs', 'results', 'tmp']) {
      assert.equal((await stat(path.join(root, directory))).mode & 0o777, 0o700);
    }
    assert.equal((await stat(path.join(root, NAME))).mode & 0o777, 0o600);
  });

  it('is SERVICE_UNAVAILABLE where the directory is gone', async () => {
    const writer = await store.createWriter(NAME);
    await writer.write(Buffer.from('x'));
    await rm(path.join(root, 'inputs'), { recursive: true });
    await assert.rejects(writer.commit(), isUnavailable('ENOENT'));
    await writer.abort();
    assert.deepEqual(await readdir(path.join(root, 'tmp')), []);
    await rm(path.join(root, 'tmp'), { recursive: true });
    await assert.rejects(store.createWriter(NAME), isUnavailable('ENOENT'));
    await assert.rejects(store.check(), isUnavailable('ENOENT'));
  });

  it('fails where results cannot be put, though a file can be begun', async () => {
    await rm(path.join(root, 'results'), { recursive: true });
    await assert.rejects(store.check(), isUnavailable('ENOENT'));
  });
});

describe('the list of old blobs', () => {
  it('holds what was last touched before then, unfinished writes too', async () => {
    await put(NAME, 'x');
    await put('results/abc-1', 'y');
    const unfinished = await store.createWriter(NAME);
    assert.deepEqual(await list(HOUR_MS), []);
    nowMs += HOUR_MS + 60_000;
    const [first, second, third = ''] = await list(HOUR_MS);
    assert.deepEqual([first, second], [NAME, 'results/abc-1']);
    assert.match(third, /^tmp\//);
    await store.remove(third);
    assert.deepEqual(await list(HOUR_MS), [NAME, 'results/abc-1']);
    await unfinished.abort();
  });

  it('leaves out what is not ours', async () => {
    await writeFile(path.join(root, 'inputs', 'notes.txt'), 'x');
    assert.deepEqual(await list(-HOUR_MS), []);
  });
});

describe('opening', () => {
  it('keeps what is there', async () => {
    await put(NAME, 'kept');
    const again = await openDirectoryBlobStore(root);
    assert.deepEqual(await again.stat(NAME), { bytes: 4 });
    await again.check();
  });

  it('makes the directory where it is missing', async () => {
    const made = await openDirectoryBlobStore(path.join(root, 'a', 'b'));
    await made.check();
    assert.equal((await stat(path.join(root, 'a', 'b'))).mode & 0o777, 0o700);
  });

  it('refuses a file in its place', async () => {
    const file = path.join(root, 'file');
    await writeFile(file, 'not a directory');
    await assert.rejects(openDirectoryBlobStore(file), isUnavailable('ENOTDIR'));
    assert.equal(await readFile(file, 'utf8'), 'not a directory');
  });

  it('refuses a directory without rights', { skip: process.getuid?.() === 0 }, async () => {
    await chmod(path.join(root, 'tmp'), 0o500);
    await assert.rejects(openDirectoryBlobStore(root), isUnavailable('EACCES'));
    await chmod(path.join(root, 'tmp'), 0o700);
  });
});
