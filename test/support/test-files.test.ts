import path from 'node:path';
import test from 'ava';
import { NoTestsError, testFilesOf } from './test-files.ts';

const HERE = 'test/support/test-files.test.ts';
const namesOf = (files: readonly string[]) => files.map(file => path.relative('.', file));

test('a file is meant itself, and a folder means what is below it', t => {
  t.deepEqual(namesOf(testFilesOf([HERE], 'test')), [HERE]);
  t.true(namesOf(testFilesOf(['test/support'], 'test')).includes(HERE));
  t.true(namesOf(testFilesOf(['test'], 'test')).includes(HERE));
  const storms = namesOf(testFilesOf(['test'], 'storm'));
  t.true(storms.length > 0 && storms.every(file => file.endsWith('.storm.ts')));
});

test('a missing path, and a folder or file without tests, are refused with an example', t => {
  for (const [target, said] of [
    ['control-plane/core/leger', /^control-plane\/core\/leger is not a file or folder/],
    ['test/support/nothing.test.ts', /^test\/support\/nothing\.test\.ts is not a file or folder/],
    ['docs', /^docs has no tests\./],
    ['test/run-tests.ts', /^test\/run-tests\.ts has no tests\./],
    ['README.md', /^README\.md has no tests\./],
  ] as const) {
    const error = t.throws(() => testFilesOf([HERE, target], 'test'), { instanceOf: NoTestsError });
    t.regex(error?.message ?? '', said);
    t.regex(
      error?.message ?? '',
      /Name a folder with tests, such as \S+, or a file .*\.test\.ts\./,
    );
  }
});
