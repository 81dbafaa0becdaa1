import assert from 'node:assert/strict';
import { descendantsOf } from '@matting/test-support/processes.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { killStopped } from '@matting/test-support/stopped-cannot-be-killed.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { drawCheckPicture } from '../../prepared/answer-check.ts';
import { runOnce } from './answer-picture.ts';
import {
  compareAlphas,
  encodeProbeGraph,
  PROBE_SIZE_PX,
  PROBE_SPEC,
  selectExecutionProvider,
} from './execution-provider.ts';

const test = ava.serial;

const NO_GPU = { childEnv: { ...CACHE_ENV, CUDA_VISIBLE_DEVICES: '' } };

test('cuda by name where there is none is an error of one line', async t => {
  const message = /^execution provider cuda does not run here: .+$/;
  const error = { name: 'ExecutionProviderError', provider: 'cuda', message };
  await rejectsWith(t, selectExecutionProvider('cuda', NO_GPU), error);
});

test('auto where there is no GPU takes the CPU and says why', async t => {
  const { requested, selected, fallbacks } = await selectExecutionProvider('auto', NO_GPU);
  t.deepEqual([requested, selected, fallbacks.length], ['auto', 'cpu', 1]);
  t.is(fallbacks[0]?.provider, 'cuda');
  t.not(fallbacks[0]?.reason ?? '', '');
});

test('a provider that hangs is given up', async t => {
  // No process answers within a millisecond.
  await rejectsWith(t, selectExecutionProvider('cuda', { ...NO_GPU, timeoutMs: 1 }), {
    name: 'ExecutionProviderError',
    message: /no answer within 1 ms/,
  });
});

test('a process that does not die holds up no probe, and is named', async t => {
  const probed = runOnce({
    spec: { ...PROBE_SPEC, provider: 'cpu', allowCpuNodes: true },
    graph: encodeProbeGraph(),
    rgb: drawCheckPicture(PROBE_SIZE_PX, PROBE_SIZE_PX),
    childEnv: CACHE_ENV,
    timeoutMs: 500,
    killWaitMaxMs: 100,
  });
  const pid = descendantsOf(process.pid)[0]?.pid;
  assert.ok(pid !== undefined, 'the probe has a process');
  t.teardown(() => killStopped(pid));
  process.kill(pid, 'SIGSTOP');
  const said = new RegExp(`^no answer within 500 ms; process ${pid} was killed and does not die$`);
  await rejectsWith(t, probed, error => said.test((error as Error).message));
});

test('a difference is told in its mean and its largest', t => {
  const one = Uint8Array.of(0, 10, 255, 100);
  t.deepEqual(compareAlphas(one, one), { mean: 0, max: 0 });
  t.deepEqual(compareAlphas(one, Uint8Array.of(8, 10, 251, 100)), { mean: 3, max: 8 });
  t.throws(() => compareAlphas(one, new Uint8Array(3)));
});
