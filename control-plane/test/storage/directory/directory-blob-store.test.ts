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
import { BlobNotFoundError, type BlobStore } from '../../../src/storage/blob-store.ts';
import { openDirectoryBlobStore } from '../../../src/storage/directory/directory-blob-store.ts';

const HOUR_MS = 3_600_000;
const NAME = 'inputs/0b8f6f1e-31d3-4b0a-9d0e-2f6f4a1f0c11';

let root: string;
let store: BlobStore;
let nowMs: number;

beforeEach(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'blobs-'));
  nowMs = Date.now();
  store = await openDirectoryBlobStore(root, { nowMs: () => nowMs });
});

afterEach(async () => {
  await rm(root, { recursive: true });
});

async function put(name: string, content: string | Buffer): Promise<void> {
  const writer = await store.createWriter(name);
  await writer.write(Buffer.from(content));
  await writer.commit();
}

async function get(name: string, range?: { start: number; end: number }): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of await store.openRead(name, range)) parts.push(part);
  return Buffer.concat(parts).toString();
}

async function list(olderThanMs: number): Promise<string[]> {
  const names: string[] = [];
  for await (const name of store.listOlderThan(olderThanMs)) names.push(name);
  return names.sort();
}

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

describe('names', () => {
  it('cannot leave the directory', async () => {
    await writeFile(path.join(root, 'secret'), 'secret');
    const names = ['../x', 'inputs/../secret', 'inputs/..', 'secret', '/etc/passwd', 'inputs/', ''];
    names.push('other/x', 'inputs/a/b', 'inputs/a.b', 'inputs/a\0', `inputs/${'a'.repeat(129)}`);
    for (const name of names) {
      await assert.rejects(store.openRead(name), TypeError, name);
      await assert.rejects(store.stat(name), TypeError, name);
      await assert.rejects(store.remove(name), TypeError, name);
      await assert.rejects(store.createWriter(name), TypeError, name);
    }
    await assert.rejects(store.createWriter('tmp/x'), TypeError);
    const kinds = ['backgrounds', 'inputs', 'results', 'secret', 'tmp'];
    assert.deepEqual((await readdir(root)).sort(), kinds);
  });
});

describe('what is not there', () => {
  it('is not found, has no size, and is removed without complaint', async () => {
    await assert.rejects(store.openRead(NAME), BlobNotFoundError);
    assert.equal(await store.stat(NAME), undefined);
    await store.remove(NAME);
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

  it('shows nothing under the name until it is committed, then all of it', async () => {
    const writer = await store.createWriter(NAME);
    await writer.write(Buffer.from('hello '));
    await writer.write(Buffer.from('world'));
    assert.equal(await store.stat(NAME), undefined);
    await writer.commit();
    assert.deepEqual(await store.stat(NAME), { bytes: 11 });
    assert.equal(await get(NAME), 'hello world');
    assert.deepEqual(await readdir(path.join(root, 'tmp')), []);
  });

  it('reads back what was written so far, and no further', async () => {
    const writer = await store.createWriter(NAME);
    await writer.write(Buffer.from('0123456789'));
    assert.equal(writer.bytesWritten, 10);
    assert.equal(Buffer.from(await writer.readAt(2, 3)).toString(), '234');
    assert.equal(Buffer.from(await writer.readAt(8, 100)).toString(), '89');
    assert.equal((await writer.readAt(10, 1)).length, 0);
    assert.equal((await writer.readAt(500, 1)).length, 0);
    await writer.write(Buffer.from('ab'));
    assert.equal(Buffer.from(await writer.readAt(9, 10)).toString(), '9ab');
    await writer.abort();
  });

  it('leaves nothing when it is aborted, as often as one likes', async () => {
    const writer = await store.createWriter(NAME);
    await writer.write(Buffer.from('x'));
    await writer.abort();
    await writer.abort();
    assert.deepEqual(await list(-HOUR_MS), []);
  });

  it('keeps the blob when an abort follows the commit', async () => {
    const writer = await store.createWriter(NAME);
    await writer.write(Buffer.from('x'));
    await writer.commit();
    await writer.abort();
    assert.equal(await get(NAME), 'x');
  });

  it('takes an empty blob and a large one', async () => {
    await put('results/empty-1', '');
    assert.equal(await get('results/empty-1'), '');
    const large = Buffer.alloc(3_000_000, 'abcdefg');
    await put('results/large-1', large);
    assert.equal(await get('results/large-1'), large.toString());
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

describe('reading', () => {
  it('gives the bytes of a range, both ends included', async () => {
    await put(NAME, '0123456789');
    assert.equal(await get(NAME, { start: 0, end: 0 }), '0');
    assert.equal(await get(NAME, { start: 3, end: 5 }), '345');
    assert.equal(await get(NAME, { start: 8, end: 99 }), '89');
  });

  it('goes on after the blob was removed, once it has begun', async () => {
    await put(NAME, 'still here');
    const stream = await store.openRead(NAME);
    await store.remove(NAME);
    const parts: Buffer[] = [];
    for await (const part of stream) parts.push(part);
    assert.equal(Buffer.concat(parts).toString(), 'still here');
    await assert.rejects(store.openRead(NAME), BlobNotFoundError);
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

  it('outlives removals while it is read', async () => {
    for (let i = 0; i < 20; i += 1) await put(`inputs/job-${i}`, 'x');
    const seen: string[] = [];
    for await (const name of store.listOlderThan(-HOUR_MS)) {
      seen.push(name);
      for (let i = 0; i < 20; i += 1) await store.remove(`inputs/job-${i}`);
    }
    assert.equal(seen.length, 1);
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
