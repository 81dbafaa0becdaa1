import assert from 'node:assert/strict';
import { descendantsOf } from '@matting/test-support/processes.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { killStopped } from '@matting/test-support/stopped-cannot-be-killed.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { drawCheckPicture } from '../../prepared/answer-check.ts';
import { compareAlphas, selectExecutionProvider } from './execution-provider.ts';
import { encodeProbeGraph, PROBE_SIZE_PX, PROBE_SPEC } from './gpu-probe-graph.ts';
import { runOnce } from './run-once.ts';

const test = ava.serial;

test('a provider that hangs is given up', async t => {
  const options = { childEnv: CACHE_ENV, timeoutMs: 1 };
  await rejectsWith(t, selectExecutionProvider('cuda', options), {
    name: 'ExecutionProviderError',
    message: /^execution provider cuda does not run here: no answer within 1 ms$/,
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
  const expected = new RegExp(
    `^no answer within 500 ms; process ${pid} was killed and does not die$`,
  );
  await rejectsWith(t, probed, error => expected.test((error as Error).message));
});

test('a difference is reported by its mean and its maximum', t => {
  const one = Uint8Array.of(0, 10, 255, 100);
  t.deepEqual(compareAlphas(one, one), { mean: 0, max: 0 });
  t.deepEqual(compareAlphas(one, Uint8Array.of(8, 10, 251, 100)), { mean: 3, max: 8 });
  t.throws(() => compareAlphas(one, new Uint8Array(3)));
});
