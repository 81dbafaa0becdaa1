import test from 'ava';
import { ConfigError, startExitCode } from '../config-error.ts';

const failed = (code: string) => Object.assign(new Error(code), { code });

test('a start that every other start would repeat ends with 78, any other with 1', t => {
  t.is(startExitCode(new ConfigError([])), 78);
  for (const code of ['EACCES', 'EPERM', 'EROFS', 'ENOTDIR']) {
    t.is(startExitCode(failed(code)), 78, code);
    t.is(startExitCode(new Error('the directory', { cause: failed(code) })), 78, code);
  }
  for (const code of ['EADDRINUSE', 'ECONNREFUSED', 'ENOSPC', 'ENOENT']) {
    t.is(startExitCode(new Error('away', { cause: failed(code) })), 1, code);
  }
  t.is(startExitCode('a text'), 1);
});
