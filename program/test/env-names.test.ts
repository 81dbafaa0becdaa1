import test from 'ava';
import { unknownVariables, warnOfUnknownVariables } from '../env-names.ts';
import { isLoopback } from '../loopback.ts';

test('a name that nothing reads is told, with the one that was meant', t => {
  const env = {
    MATTING_REFINMENT: 'false',
    MATTING_SYNC_WAIT: '5',
    MATTING_FLUX_CAPACITOR: 'on',
    MATTING_PORT: '8080',
    MATTING_TEST_SEED: '7',
    MATTINGS: 'not ours',
    PATH: '/bin',
  };
  t.deepEqual(unknownVariables(env), [
    { variable: 'MATTING_FLUX_CAPACITOR', meant: undefined },
    { variable: 'MATTING_REFINMENT', meant: 'MATTING_REFINEMENT' },
    { variable: 'MATTING_SYNC_WAIT', meant: 'MATTING_SYNC_WAIT_MS' },
  ]);
});

test('the line has names and never a value', t => {
  const line = warnOfUnknownVariables({ MATTING_NODE_TOKN: 'a-secret-of-sixteen' });
  t.is(line, 'variables that nothing reads: MATTING_NODE_TOKN (MATTING_NODE_TOKEN?)');
  t.is(warnOfUnknownVariables({ MATTING_NODE_TOKEN: 'a-secret-of-sixteen' }), undefined);
});

test('what only this machine reaches', t => {
  for (const host of ['127.0.0.1', '127.8.9.1', '::1', 'localhost']) t.true(isLoopback(host));
  for (const host of ['0.0.0.0', '::', '10.0.0.1', 'db.internal', '']) t.false(isLoopback(host));
});
