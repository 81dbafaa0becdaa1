import { execFileSync } from 'node:child_process';
import path from 'node:path';
import test from 'ava';
import { openFilesFinding } from '../../doctor/program-findings.ts';
import { connectionsMaxOf, GUARD_BOUNDS, guardBoundsWithin } from '../guard-bounds.ts';
import { connectionsWithin } from '../listening.ts';

const MODULE = path.join(import.meta.dirname, '../listening.ts');

test.skipIf(process.platform !== 'linux')('the limit is that of the process', t => {
  const script = `import { openFilesMax } from ${JSON.stringify(MODULE)}; console.log(openFilesMax());`;
  const run = ['-c', 'ulimit -n 300; exec "$0" --input-type=module -e "$1"', process.execPath];
  t.is(execFileSync('sh', [...run, script], { encoding: 'utf8' }).trim(), '300');
});

test('connections take their share of it, and no more than are wanted', t => {
  t.is(connectionsWithin(10_000, 0.5, 1_048_576), 10_000);
  t.is(connectionsWithin(10_000, 0.5, 20_000), 10_000);
  t.is(connectionsWithin(10_000, 0.5, 256), 128);
  t.is(connectionsWithin(128, 1 / 64, 3), 1);
  t.is(connectionsWithin(128, 1 / 64, Number.POSITIVE_INFINITY), 128);
});

test('the places of a gRPC port become fewer together', t => {
  const fewer = guardBoundsWithin(GUARD_BOUNDS, 0.5, 256);
  t.is(guardBoundsWithin(GUARD_BOUNDS, 0.5, 1_048_576).strangersMax, GUARD_BOUNDS.strangersMax);
  t.true(connectionsMaxOf(fewer) <= 128);
  const { strangersMax, knownMax, directMax, directEachMax } = fewer;
  t.deepEqual([strangersMax, knownMax, directMax, directEachMax], [51, 25, 19, 6]);
  t.is(fewer.tokenWaitMaxMs, GUARD_BOUNDS.tokenWaitMaxMs);
});

test('too few files are a warning that says what is wanted', t => {
  t.is(openFilesFinding(8192, 8192).status, 'ok');
  t.is(openFilesFinding(8192, undefined).status, 'ok');
  const few = openFilesFinding(8192, 1024);
  t.is(few.status, 'warning');
  t.regex(few.found, /1024.* 8192$/);
  t.regex(few.advice ?? '', /LimitNOFILE/);
});
