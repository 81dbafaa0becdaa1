import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import ava from 'ava';
import { rejectsWith } from '../../../test/support/throws.ts';
import {
  openStorage,
  StorageConfigError,
  storageDirectory,
} from '../../src/storage/open-storage.ts';

const test = ava.serial;

let root: string;

test.before(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), 'open-storage-'));
});

test.after.always(async () => {
  await rm(root, { recursive: true });
});

test('says what is wrong with the URL of a bucket, without showing it', async t => {
  for (const url of ['s3://bucket/prefix?secret=1', 'S3://secret@bucket', 's3://SECRET']) {
    await rejectsWith(t, openStorage(url), error => {
      assert.ok(error instanceof StorageConfigError);
      t.regex(error.message, /^MATTING_STORAGE_URL must be (an )?s3:\/\//);
      t.notRegex(error.message, /secret/i);
      return true;
    });
  }
});

test('refuses other schemes, without showing the value', async t => {
  for (const url of ['http://example.com/secret', 'gs://secret', 'file://elsewhere/secret']) {
    await rejectsWith(t, openStorage(url), error => {
      assert.ok(error instanceof StorageConfigError);
      t.notRegex(error.message, /secret/);
      return true;
    });
  }
});

test('says in one line why a directory cannot be written', async t => {
  const file = path.join(root, 'file');
  await writeFile(file, '');
  await t.throwsAsync(openStorage(path.join(file, 'inside')), {
    name: 'StorageConfigError',
    message: `MATTING_STORAGE_URL: the directory ${file}/inside cannot be written (ENOTDIR)`,
  });
});

test('opens a path and a file URL as the same directory', async t => {
  const directory = path.join(root, 'blobs with space');
  t.is(storageDirectory(pathToFileURL(directory).href), directory);
  const writer = await (await openStorage(directory)).createWriter('results/one-1');
  await writer.write(Buffer.from('x'));
  await writer.commit();
  const other = await openStorage(pathToFileURL(directory).href);
  t.deepEqual(await other.stat('results/one-1'), { bytes: 1 });
});
