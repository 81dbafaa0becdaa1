import assert from 'node:assert/strict';
import { test } from 'node:test';
import { unknownVariables, warnOfUnknownVariables } from '../env-names.ts';
import { isLoopback } from '../loopback.ts';

test('a name that nothing reads is told, with the one that was meant', () => {
  const env = {
    MATTING_REFINMENT: 'false',
    MATTING_SYNC_WAIT: '5',
    MATTING_FLUX_CAPACITOR: 'on',
    MATTING_PORT: '8080',
    MATTING_TEST_SEED: '7',
    MATTINGS: 'not ours',
    PATH: '/bin',
  };
  assert.deepEqual(unknownVariables(env), [
    { variable: 'MATTING_FLUX_CAPACITOR', meant: undefined },
    { variable: 'MATTING_REFINMENT', meant: 'MATTING_REFINEMENT' },
    { variable: 'MATTING_SYNC_WAIT', meant: 'MATTING_SYNC_WAIT_MS' },
  ]);
});

test('the line has names and never a value', () => {
  const line = warnOfUnknownVariables({ MATTING_NODE_TOKN: 'a-secret-of-sixteen' });
  assert.equal(line, 'variables that nothing reads: MATTING_NODE_TOKN (MATTING_NODE_TOKEN?)');
  assert.equal(warnOfUnknownVariables({ MATTING_NODE_TOKEN: 'a-secret-of-sixteen' }), undefined);
});

test('what only this machine reaches', () => {
  for (const host of ['127.0.0.1', '127.8.9.1', '::1', 'localhost']) assert.ok(isLoopback(host));
  for (const host of ['0.0.0.0', '::', '10.0.0.1', 'db.internal', '']) assert.ok(!isLoopback(host));
});
