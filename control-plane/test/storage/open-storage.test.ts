import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import {
  openStorage,
  StorageConfigError,
  storageDirectory,
} from '../../src/storage/open-storage.ts';

let root: string;

before(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'open-storage-'));
});

after(async () => {
  await rm(root, { recursive: true });
});

it('says what is wrong with the URL of a bucket, without showing it', async () => {
  for (const url of ['s3://bucket/prefix?secret=1', 'S3://secret@bucket', 's3://SECRET']) {
    await assert.rejects(openStorage(url), error => {
      assert.ok(error instanceof StorageConfigError);
      assert.match(error.message, /^MATTING_STORAGE_URL must be (an )?s3:\/\//);
      assert.doesNotMatch(error.message, /secret/i);
      return true;
    });
  }
});

it('refuses other schemes, without showing the value', async () => {
  for (const url of ['http://example.com/secret', 'gs://secret', 'file://elsewhere/secret']) {
    await assert.rejects(openStorage(url), error => {
      assert.ok(error instanceof StorageConfigError);
      assert.doesNotMatch(error.message, /secret/);
      return true;
    });
  }
});

it('says in one line why a directory cannot be written', async () => {
  const file = path.join(root, 'file');
  await writeFile(file, '');
  await assert.rejects(openStorage(path.join(file, 'inside')), {
    name: 'StorageConfigError',
    message: `MATTING_STORAGE_URL: the directory ${file}/inside cannot be written (ENOTDIR)`,
  });
});

it('opens a path and a file URL as the same directory', async () => {
  const directory = path.join(root, 'blobs with space');
  assert.equal(storageDirectory(pathToFileURL(directory).href), directory);
  const writer = await (await openStorage(directory)).createWriter('results/one-1');
  await writer.write(Buffer.from('x'));
  await writer.commit();
  const other = await openStorage(pathToFileURL(directory).href);
  assert.deepEqual(await other.stat('results/one-1'), { bytes: 1 });
});
