import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openFilesFinding } from '../open-files-finding.ts';

test('too few files are a warning that says what is wanted', () => {
  assert.equal(openFilesFinding(8192, 8192).status, 'ok');
  assert.equal(openFilesFinding(8192, undefined).status, 'ok');
  const few = openFilesFinding(8192, 1024);
  assert.equal(few.status, 'warning');
  assert.match(few.found, /^1024 may be open, of 8192 /);
  assert.match(few.advice ?? '', /LimitNOFILE/);
});
