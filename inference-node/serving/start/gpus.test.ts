/** What a start does on GPUs: which are left out, which get engines, in which batches. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import { encodeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava, { type ExecutionContext } from 'ava';
import { answerOnce, createAnswering } from '../engine/choice/answer-picture.ts';
import { GpuDevice } from '../engine/devices/devices.ts';
import type { ExecutionProvider, Plan, PreparedModel } from '../models/prepared-model.ts';
import { answerRecordPath } from '../prepared/answer-check.ts';
import { batchPath } from '../prepared/prepared-cache.ts';
import { runtimeVersion } from '../providers/provider-files.ts';
import { collectLog, gpuFacts, nothingToMake, openGpuHost } from '../test/gpu-host.ts';
import { createModel } from '../test/pool-harness.ts';
import { poolSettings } from '../test/pool-settings.ts';
import { sha256 } from '../test/test-node.ts';
import {
  checkAnswers,
  chooseProvider,
  type GpuStart,
  placeEngines,
  prepareAsked,
  type StartOn,
  tryAgain,
  wrongTogether,
} from './gpus.ts';
import type { PoolSettings } from './pool-settings.ts';

const test = ava.serial;

const BOOM = 'CUDA failure 700: an illegal memory access was encountered';
const GPU = new GpuDevice(gpuFacts('one'));

async function begin(context: ExecutionContext, batchMax: number, kind: 'red' | 'paced') {
  const host = await openGpuHost(context, [GPU.facts]);
  const model = await createModel(context, kind === 'red' ? { kind } : { kind, tripsMax: 1 });
  const { log } = collectLog();
  const start = (provider: ExecutionProvider, devices: readonly GpuDevice[]) =>
    ({
      config: { ...poolSettings(), batchMax },
      make: nothingToMake,
      engineEnv: host.childEnv,
      ...{ provider, devices, cpuThreads: 1, log },
      ending: new AbortController().signal,
    }) satisfies StartOn<ExecutionProvider>;
  const plan = planOf(model);
  return { onCpu: start('cpu', []), onGpu: start('cuda', [GPU]), plan, model, host };
}

function planOf(model: PreparedModel): Plan {
  return { name: 'tiny', models: [{ model, role: 'subject' }] };
}

function imagesOf({ models }: Plan): number[] | undefined {
  return models[0]?.model.batches?.map(({ images }) => images);
}

async function machinesOf({ path }: PreparedModel): Promise<string[]> {
  return JSON.parse(await readFile(answerRecordPath(path), 'utf8')).machines;
}

test('one, which is the default: the plan as it is, and nothing runs', async t => {
  const { onCpu, onGpu, plan, model } = await begin(t, poolSettings().batchMax, 'red');
  t.is(await prepareAsked(onCpu, plan), plan);
  t.is(await prepareAsked(onGpu, plan), plan);
  t.false(existsSync(batchPath(model.path, 2)));
  t.false(existsSync(answerRecordPath(model.path)));
});

test('a number: graphs up to it, checked once on this machine', async t => {
  const { onCpu, plan, model } = await begin(t, 4, 'red');
  const prepared = await prepareAsked(onCpu, plan);
  t.deepEqual(imagesOf(prepared), [2, 4]);
  const machines = await machinesOf(model);
  t.is(machines.length, 1);
  t.regex(machines[0] ?? '', /, 4 images at once$/);
  // Remembered: an engine that could not load would say so.
  const broken = { ...onCpu, engineEnv: { NODE_OPTIONS: '--import=/nowhere' } };
  t.deepEqual(imagesOf(await prepareAsked(broken, plan)), [2, 4]);
});

test('a model that may mix images is refused by the variable’s name', async t => {
  const { onCpu, plan } = await begin(t, 2, 'paced');
  await t.throwsAsync(prepareAsked(onCpu, plan), {
    name: 'ModelError',
    message: /tiny-paced.*which cannot be prepared|MATTING_BATCH_MAX/,
  });
});

test('images that get another matte together than alone are found', async t => {
  const { onCpu, plan, model } = await begin(t, 2, 'red');
  const [{ model: prepared }] = (await prepareAsked(onCpu, plan)).models as [Plan['models'][0]];
  const [two] = prepared.batches ?? [];
  assert.ok(two !== undefined);
  const mean = encodeTinyModel({ kind: 'mean' }, 2);
  await writeFile(two.path, mean);
  const wrong = { ...prepared, batches: [{ ...two, sha256: sha256(mean).toString('hex') }] };
  await writeFile(answerRecordPath(model.path), 'damaged');
  const reason = await wrongTogether(onCpu, planOf(wrong), undefined);
  t.regex(reason ?? '', /tiny-red in fp32: image 1 of 2 has another matte than alone: it differs/);
  // What was seen before says nothing about a GPU that was out.
  await rm(answerRecordPath(model.path));
  await prepareAsked(onCpu, plan);
  await writeFile(two.path, mean);
  t.is(await wrongTogether(onCpu, planOf(wrong), undefined), undefined);
  t.is(await wrongTogether(onCpu, planOf(wrong), undefined, 'afresh'), reason);
});

test('on a GPU a number is strict, and says what went wrong', async t => {
  const { onGpu, plan, host } = await begin(t, 2, 'red');
  await host.fault(`run GPU-one ${BOOM}`);
  await rejectsWith(t, prepareAsked(onGpu, plan), {
    name: 'ExecutionProviderError',
    reason: /not run with several images at once: CUDA failure 700.* \(MATTING_BATCH_MAX=2\)$/,
  });
});

test('GPUs of one kind are checked once', async t => {
  const { onGpu, plan, host } = await begin(t, 2, 'red');
  await prepareAsked(onGpu, plan);
  // One of another kind is checked, and found wrong; the second of the first kind is not.
  await host.fault(`run GPU-two ${BOOM}`);
  const [same, other] = [{}, { name: 'another GPU' }].map(
    facts => new GpuDevice(gpuFacts('two', facts)),
  ) as [GpuDevice, GpuDevice];
  t.deepEqual(imagesOf(await prepareAsked({ ...onGpu, devices: [GPU, same] }, plan)), [2]);
  await t.throwsAsync(prepareAsked({ ...onGpu, devices: [GPU, other] }, plan), {
    message: /failure 700/,
  });
});

test('one picture is answered by the graph for one alone, whatever others there are', async t => {
  const { model, host } = await begin(t, 1, 'red');
  const batches = [{ images: 2, path: '/nowhere', sha256: '' }];
  const rgb = new Uint8Array(3 * model.inputWidth * model.inputHeight).fill(100);
  const { answer } = createAnswering({ childEnv: {}, threads: 1 });
  for (const run of [answer, answerOnce({ childEnv: host.childEnv, threads: 1 })]) {
    const { alpha } = await run({ ...model, batches }, rgb);
    t.true(alpha.every(value => value === 100));
  }
});

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
