/** What a start does on GPUs: which are left out, which get engines. */
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import { GpuDevice } from '../engine/devices/devices.ts';
import type { Plan, PreparedModel } from '../models/prepared-model.ts';
import { answerRecordPath } from '../prepared/answer-check.ts';
import { runtimeVersion } from '../providers/provider-files.ts';
import { collectLog, gpuFacts, nothingToMake, openGpuHost } from '../test/gpu-host.ts';
import { createModel } from '../test/pool-harness.ts';
import { checkAnswers, chooseProvider, type GpuStart, placeEngines, tryAgain } from './gpus.ts';
import type { PoolSettings } from './pool-settings.ts';

const test = ava.serial;

const BOOM = 'CUDA failure 700: an illegal memory access was encountered';
function planOf(model: PreparedModel): Plan {
  return { name: 'tiny', models: [{ model, role: 'subject' }] };
}

/** GPUs of kinds that were seen before and answered rightly, but for those called `a new GPU`. */
async function beginOnGpus(
  context: ExecutionContext,
  devices: readonly GpuDevice[],
  config: Partial<PoolSettings> = {},
) {
  const host = await openGpuHost(
    context,
    devices.map(({ facts }) => facts),
  );
  const model: PreparedModel = {
    ...(await createModel(context, { kind: 'red' })),
    provider: 'cuda',
  };
  const machines = [`a GPU, driver 580, cuda, ONNX Runtime ${runtimeVersion()}`];
  const record = JSON.stringify({ sha256: model.sha256, machines });
  await writeFile(answerRecordPath(model.path), record);
  const { log, lines } = collectLog();
  const ending = new AbortController();
  const own = { gpuDevices: 'all', engines: undefined, modelSettings: { modelDir: host.folder } };
  const start: GpuStart = {
    config: { ...own, childEnv: {}, ...config } as PoolSettings,
    engineEnv: host.childEnv,
    provider: 'cuda',
    ...{ make: nothingToMake, devices, cpuThreads: 1, ending: ending.signal, log },
  };
  return { start, plan: planOf(model), host, lines, ending };
}

function gpu(letter: string, memoryBytes?: number): GpuDevice {
  return new GpuDevice(gpuFacts(letter, memoryBytes === undefined ? {} : { memoryBytes }));
}

function newGpu(letter: string): GpuDevice {
  return new GpuDevice(gpuFacts(letter, { name: 'a new GPU' }));
}

const idsOf = (placed: readonly GpuDevice[] | undefined) => placed?.map(({ facts }) => facts.id);

test('a kind of GPU on which a model fails goes out, with a line; the others serve', async t => {
  const [one, two] = [gpu('one'), newGpu('two')];
  const { start, plan, host, lines } = await beginOnGpus(t, [one, two]);
  await host.fault(`model GPU-two ${BOOM}`);
  t.is(await checkAnswers(start, plan), undefined);
  const reason = `tiny-red in fp32: it does not run: ${BOOM}`;
  t.deepEqual([one.outReason, two.outReason], [undefined, reason]);
  const [line] = lines;
  t.deepEqual([line?.msg, line?.gpu, line?.reason], ['GPU is left out', 'GPU-two', reason]);
});

test('without another GPU there is a reason; a GPU that was named is never left out', async t => {
  const two = newGpu('two');
  const { start, plan, host } = await beginOnGpus(t, [two]);
  await host.fault(`model GPU-two ${BOOM}`);
  t.regex((await checkAnswers(start, plan)) ?? '', /it does not run: CUDA failure 700/);
  const one = gpu('one');
  const named = await beginOnGpus(t, [one, newGpu('two')], {
    gpuDevices: ['GPU-one', 'GPU-two'],
  });
  await named.host.fault(`model GPU-two ${BOOM}`);
  await rejectsWith(t, checkAnswers(named.start, named.plan), {
    name: 'ExecutionProviderError',
    reason: /tiny-red in fp32: it does not run/,
  });
});

test('an answer that cannot be held against another leaves the GPU out, and ends nothing', async t => {
  // The model is of no manifest: what it should answer cannot be found out.
  const [one, two] = [gpu('one'), newGpu('two')];
  const { start, plan } = await beginOnGpus(t, [one, two]);
  t.is(await checkAnswers(start, plan), undefined);
  t.regex(two.outReason ?? '', /there is no answer to hold its own against: there is no model/);
});

test('a GPU that was out runs the whole models before it is back, though its kind is known', async t => {
  const one = gpu('one');
  const { start, plan, host } = await beginOnGpus(t, [one]);
  t.is(await checkAnswers(start, plan), undefined);
  await host.fault(`model GPU-one ${BOOM}`);
  const reason = `tiny-red in fp32: it does not run: ${BOOM}`;
  t.is(await tryAgain(start, plan, one), reason);
});

test('a node that ends checks nothing more', async t => {
  const { start, plan, ending } = await beginOnGpus(t, [gpu('one')]);
  ending.abort(new Error('the node ends'));
  await t.throwsAsync(checkAnswers(start, plan), { message: /the node ends/ });
});

test('engines that are too few for every GPU go on those that are up', async t => {
  const [small, large] = [gpu('small', 16e9), gpu('large', 80e9)];
  const place = async (engines: number | undefined) => {
    const { start } = await beginOnGpus(t, [small, large], { engines });
    return idsOf(placeEngines(start));
  };
  t.deepEqual(await place(1), ['GPU-large']);
  large.lose('it is gone');
  t.deepEqual(await place(1), ['GPU-small']);
  // In proportion: both on the large one, which is out.
  t.deepEqual(await place(2), ['GPU-small', 'GPU-small']);
  // Each has some: those of the one that is out wait for it.
  const six = (await place(6)) ?? [];
  t.deepEqual([six.length, new Set(six).size], [6, 2]);
  t.deepEqual(await place(undefined), ['GPU-small', 'GPU-large']);
});

test('where the driver lists no GPU nothing is placed, and every start checks again', async t => {
  const { start, plan } = await beginOnGpus(t, []);
  t.is(placeEngines(start), undefined);
  t.regex((await checkAnswers(start, plan)) ?? '', /there is no model/);
});

test.skipIf(existsSync('/dev/nvidiactl'))(
  'auto without a driver takes the CPU, which is no fallback; with a broken driver it is one',
  async t => {
    const auto = { executionProvider: 'auto', gpuDevices: 'all' } as const;
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
