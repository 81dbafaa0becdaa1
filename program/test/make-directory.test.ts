import assert from 'node:assert/strict';
import { existsSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, test } from 'node:test';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { makeDirectory } from '../make-directory.ts';

const root = await temporaryFolder({ after });

test('a file in the way is ENOTDIR', () => {
  const file = path.join(root, 'file');
  writeFileSync(file, '');
  assert.throws(() => makeDirectory(file), { code: 'ENOTDIR' });
  assert.throws(() => makeDirectory(path.join(file, 'a', 'b')), { code: 'ENOTDIR' });
});

test('a parent that can have no children ends, where recursive mkdir loops', {
  skip: existsSync('/proc/self') ? false : 'no /proc on this platform',
}, () => {
  assert.throws(() => makeDirectory('/proc/matting/data'), { code: 'ENOENT' });
});

test('makes all that is missing with the rights asked for, and is content with what is there', () => {
  const deep = path.join(root, 'a', 'b', 'c');
  makeDirectory(deep, 0o700);
  makeDirectory(deep, 0o755);
  assert.equal(statSync(path.join(root, 'a')).mode & 0o777, 0o700);
  assert.equal(statSync(deep).mode & 0o777, 0o700);
});
