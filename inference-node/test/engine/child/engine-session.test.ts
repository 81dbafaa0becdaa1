/** A graph of which CUDA has no kernel for a node, by a stand-in of what the runtime says of it. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { EngineSession } from '../../../src/engine/child/engine-session.ts';
import { InferenceSession } from '../../../src/engine/child/onnx-runtime.ts';
import {
  encodeProbeGraph,
  PROBE_SIZE_PX,
  PROBE_SPEC,
} from '../../../src/engine/choice/probe-graph.ts';
import type { SessionSpec } from '../../../src/engine/engine-protocol.ts';
import { drawCheckPicture } from '../../../src/models/preparing/check-picture.ts';

const ON_CPU =
  'This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU ' +
  'EP has been explicitly disabled by the user.';

/** The runtime refuses with `message` what may not run on the CPU, and runs all else there. */
function standIn(context: TestContext, message: string): { readonly said: string[] } {
  const said: string[] = [];
  const native = InferenceSession.create as (...all: unknown[]) => Promise<unknown>;
  context.mock.method(InferenceSession, 'create', async (source: unknown, options: object) => {
    const { extra } = options as { extra: { session: { disable_cpu_ep_fallback?: string } } };
    if (extra.session.disable_cpu_ep_fallback === '1') throw new Error(message);
    return await native(source, { ...options, executionProviders: ['cpu'] });
  });
  context.mock.method(process.stderr, 'write', (text: string) => said.push(text));
  return { said };
}

function load(more: Partial<SessionSpec>) {
  const spec: SessionSpec = { ...PROBE_SPEC, provider: 'cuda', ...more };
  return EngineSession.load(spec, encodeProbeGraph());
}

test('operators that CUDA has no kernel for run on the CPU, and that is said', async context => {
  const { said } = standIn(context, ON_CPU);
  const { session } = await load({ allowCpuNodes: true });
  const [alpha] = await session.run([drawCheckPicture(PROBE_SIZE_PX, PROBE_SIZE_PX)]);
  assert.equal(alpha?.length, PROBE_SIZE_PX ** 2);
  assert.deepEqual(said, [
    'the graph has operators without a kernel of CUDA: they run on the CPU\n',
  ]);
});

test('where none may they end the load, as all else does; on other providers they are meant', async context => {
  const strict = standIn(context, ON_CPU);
  await assert.rejects(load({ allowCpuNodes: false }), /assigned to the default CPU EP/);
  await load({ allowCpuNodes: true, provider: 'webgpu' });
  context.mock.restoreAll();
  const broken = standIn(context, 'CUDA failure 2: out of memory');
  await assert.rejects(load({ allowCpuNodes: true }), /CUDA failure 2: out of memory/);
  assert.deepEqual([...strict.said, ...broken.said], []);
});
