import { existsSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { makeDirectory } from '../make-directory.ts';

const root = await temporaryFolder({ teardown: test.after.always });

test('a file in the way is ENOTDIR', t => {
  const file = path.join(root, 'file');
  writeFileSync(file, '');
  t.throws(() => makeDirectory(file), { code: 'ENOTDIR' });
  t.throws(() => makeDirectory(path.join(file, 'a', 'b')), { code: 'ENOTDIR' });
});

test.runIf(existsSync('/proc/self'))(
  'a parent that can have no children ends, where recursive mkdir loops',
  t => {
    t.throws(() => makeDirectory('/proc/matting/data'), { code: 'ENOENT' });
  },
);

test('makes all that is missing with the rights asked for, and is content with what is there', t => {
  const deep = path.join(root, 'a', 'b', 'c');
  makeDirectory(deep, 0o700);
  makeDirectory(deep, 0o755);
  t.is(statSync(path.join(root, 'a')).mode & 0o777, 0o700);
  t.is(statSync(deep).mode & 0o777, 0o700);
});
