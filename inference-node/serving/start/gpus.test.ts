import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { GpuDevice } from '../engine/devices/gpu-device.ts';
import type { GpuFacts } from '../engine/devices/list-gpus.ts';
import type { Plan, PreparedModel } from '../models/prepared-model.ts';
import { runtimeVersion } from '../providers/provider-files.ts';
import { collectLog, gpuFacts, nothingToMake, openGpuHost } from '../test/gpu-host.ts';
import { createModel } from '../test/pool-harness.ts';
import { chooseProvider, type GpuStart, wrongAnswer } from './gpus.ts';
import type { PoolSettings } from './pool-settings.ts';

const test = ava.serial;

const BOOM = 'CUDA failure 700: an illegal memory access was encountered';

/** A kind of GPU with recorded answers, but for `a new GPU`. */
async function beginOn(context: ExecutionContext, facts: GpuFacts | undefined) {
  const host = await openGpuHost(context, facts === undefined ? [] : [facts]);
  const model: PreparedModel = {
    ...(await createModel(context, { kind: 'red' })),
    provider: 'cuda',
  };
  const machines = [`a GPU, driver 580, cuda, ONNX Runtime ${runtimeVersion()}`];
  const record = JSON.stringify({ sha256: model.sha256, machines });
  await writeFile(`${model.path}.answers.json`, record);
  const ending = new AbortController();
  const start: GpuStart = {
    config: { childEnv: {}, modelSettings: { modelDir: host.folder } } as PoolSettings,
    engineEnv: host.childEnv,
    device: facts && new GpuDevice(facts),
    ...{ make: nothingToMake, cpuThreads: 1, ending: ending.signal },
  };
  const plan: Plan = { name: 'tiny', models: [{ model, role: 'subject' }] };
  return { start, plan, host, ending };
}

const NEW = gpuFacts('two', { name: 'a new GPU' });

test('a model is checked once on each kind of GPU', async t => {
  const known = await beginOn(t, gpuFacts('one'));
  await known.host.fault(`model GPU-one ${BOOM}`);
  t.is(await wrongAnswer(known.start, known.plan), undefined);
  const { start, plan, host } = await beginOn(t, NEW);
  await host.fault(`model GPU-two ${BOOM}`);
  t.is(await wrongAnswer(start, plan), `tiny-red in fp32: it does not run: ${BOOM}`);
});

test('an answer that cannot be held against another is wrong', async t => {
  // No manifest shows what the model should answer.
  const { start, plan } = await beginOn(t, NEW);
  const reason = await wrongAnswer(start, plan);
  t.regex(reason ?? '', /there is no answer to hold its own against: there is no model/);
});

test('a node that ends checks nothing more', async t => {
  const { start, plan, ending } = await beginOn(t, gpuFacts('one'));
  ending.abort(new Error('the node ends'));
  await t.throwsAsync(wrongAnswer(start, plan), { message: /the node ends/ });
});

test('every start checks again if the driver lists no GPU', async t => {
  const { start, plan } = await beginOn(t, undefined);
  t.regex((await wrongAnswer(start, plan)) ?? '', /there is no model/);
});

test('a node uses the first of several GPUs and logs that, or the named one without a line', async t => {
  const host = await openGpuHost(t, [gpuFacts('one'), gpuFacts('two', { index: 1 })]);
  const { log, lines } = collectLog();
  const choose = (
    executionProvider: PoolSettings['executionProvider'],
    gpuDevice?: string,
    env: Record<string, string> = {},
  ) => chooseProvider({ executionProvider, gpuDevice }, { ...host.childEnv, ...env }, log);
  const first = await choose('auto');
  t.deepEqual([first.provider.selected, first.device?.facts.id], ['cuda', 'GPU-one']);
  const [line] = lines;
  t.deepEqual([lines.length, line?.level, line?.gpu, line?.gpus], [1, 40, 'GPU-one', 2]);
  t.regex(line?.msg ?? '', /MATTING_GPU_DEVICES/);
  t.is((await choose('cuda', '1')).device?.facts.id, 'GPU-two');
  const visible = await choose('cuda', undefined, { CUDA_VISIBLE_DEVICES: '1' });
  t.is(visible.device?.facts.id, 'GPU-two');
  t.is(lines.length, 1);
  // A GPU that does not run is no reason to take another one.
  await host.fault(`load GPU-one ${BOOM}`);
  const fallen = await choose('auto');
  t.deepEqual([fallen.provider.selected, fallen.device], ['cpu', undefined]);
  t.is(fallen.provider.fallbacks[0]?.reason, BOOM);
  const isRefused = (reason: RegExp) => ({ name: 'ExecutionProviderError', reason });
  await rejectsWith(t, choose('cuda'), isRefused(/failure 700/));
  await rejectsWith(t, choose('auto', '0'), isRefused(/failure 700/));
  await rejectsWith(t, choose('auto', '7'), isRefused(/names a GPU, and .* does not list 7/));
});

test.skipIf(existsSync('/dev/nvidiactl'))(
  'auto without a driver takes the CPU, which is no fallback; with a broken driver it is one',
  async t => {
    const auto = { executionProvider: 'auto', gpuDevice: undefined } as const;
    const { log, lines } = collectLog();
    const bare = await chooseProvider(auto, { PATH: '/nowhere' }, log);
    t.deepEqual(bare.provider, { requested: 'auto', selected: 'cpu', fallbacks: [] });
    t.deepEqual(
      lines.map(({ level }) => level),
      [30],
    );
    const folder = await temporaryFolder(t);
    await writeFile(path.join(folder, 'nvidia-smi'), '#!/bin/sh\nexit 9\n', { mode: 0o755 });
    const broken = await chooseProvider(auto, { PATH: folder }, log);
    t.is(broken.provider.fallbacks[0]?.provider, 'cuda');
  },
);
