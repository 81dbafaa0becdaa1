/** What `matting up` says where a GPU is left unused: by a stand-in of the driver's command. */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import test from 'ava';
import { loadSupervisorConfig } from '../../bin/config.ts';
import { gpuHint } from '../../bin/gpu-hint.ts';
import { nodeReadyMaxMs } from '../../bin/stack.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

test('a host with a GPU is told what to do, once, and only where it is of use', async t => {
  const folder = await temporaryFolder(t);
  const command = path.join(folder, 'nvidia-smi');
  const modelDir = path.join(folder, 'models');
  const hint = (env: Record<string, string> = {}) =>
    gpuHint(loadSupervisorConfig({ PATH: folder, MATTING_MODEL_DIR: modelDir, ...env }));
  t.is(await hint(), undefined, 'no such command');
  await writeFile(command, '#!/bin/sh\necho "a driver that fails" >&2\nexit 9\n');
  await chmod(command, 0o755);
  t.is(await hint(), undefined, 'no driver');
  await writeFile(command, '#!/bin/sh\necho "NVIDIA L4"\necho "NVIDIA L4"\n');
  t.regex((await hint()) ?? '', /a GPU \(NVIDIA L4\) .* providers install cuda, then start/);
  t.is(await hint({ MATTING_EXECUTION_PROVIDER: 'cpu' }), undefined);
  await mkdir(path.join(modelDir, 'providers/onnxruntime-1'), { recursive: true });
  t.is(await hint(), undefined, 'it is installed');
});

test('a start waits for what a node does on a GPU, and no longer than needed on a CPU', async t => {
  const folder = await temporaryFolder(t);
  const modelDir = path.join(folder, 'models');
  const maxMs = (env: Record<string, string> = {}) =>
    nodeReadyMaxMs(loadSupervisorConfig({ MATTING_MODEL_DIR: modelDir, ...env }));
  const onCpu = await maxMs();
  t.is(await maxMs({ MATTING_EXECUTION_PROVIDER: 'cpu' }), onCpu);
  // TensorRT's kernels: 15 min for an engine.
  const onGpu = await maxMs({ MATTING_EXECUTION_PROVIDER: 'tensorrt' });
  t.true(onGpu > 900_000);
  await mkdir(path.join(modelDir, 'providers/onnxruntime-1'), { recursive: true });
  t.is(await maxMs(), onGpu);
  t.is(await maxMs({ MATTING_EXECUTION_PROVIDER: 'cpu' }), onCpu);
});
