import test from 'ava';
import { openFilesFinding } from '../open-files-finding.ts';

test('too few files are a warning that says what is wanted', t => {
  t.is(openFilesFinding(8192, 8192).status, 'ok');
  t.is(openFilesFinding(8192, undefined).status, 'ok');
  const few = openFilesFinding(8192, 1024);
  t.is(few.status, 'warning');
  t.regex(few.found, /^1024 may be open, of 8192 /);
  t.regex(few.advice ?? '', /LimitNOFILE/);
});
