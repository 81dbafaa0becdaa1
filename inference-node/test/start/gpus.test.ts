/**
 * What a start does on GPUs: which are left out, and which get the engines. What MATTING_BATCH_MAX
 * asks for is prepared and checked, or the node does not start.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import fs, { readFile, rm, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { type TestContext, test } from 'node:test';
import { encodeTinyModel } from '../../../test/support/tiny-model.ts';
import { type Config, loadConfig } from '../../src/config.ts';
import { answerOnce, createAnswering } from '../../src/engine/choice/answer-picture.ts';
import { GpuDevice } from '../../src/engine/devices/gpu-device.ts';
import { openEnginePool } from '../../src/engine/pool/open-engine-pool.ts';
import { runtimeVersion } from '../../src/engine/runtime-version.ts';
import type { ExecutionProvider, Plan, PreparedModel } from '../../src/models/prepared-model.ts';
import { answerRecordPath } from '../../src/models/preparing/answer-check.ts';
import { batchPath } from '../../src/models/preparing/prepared-cache.ts';
import {
  checkAnswers,
  type GpuStart,
  namingSettings,
  placeEngines,
  prepareAsked,
  type StartOn,
  tryAgain,
  wrongTogether,
} from '../../src/start/gpus.ts';
import { collectLog, gpuFacts, openGpuHost } from '../engine/devices/gpu-host.ts';
import { createModel } from '../engine/pool/pool-harness.ts';
import { sha256 } from '../models/weights/fake-registry.ts';

const BOOM = 'CUDA failure 700: an illegal memory access was encountered';
const GPU = new GpuDevice(gpuFacts('one'));

async function begin(context: TestContext, batchMax: number, kind: 'red' | 'paced') {
  const host = await openGpuHost(context, [GPU.facts]);
  const model = await createModel(context, kind === 'red' ? { kind } : { kind, tripsMax: 1 });
  const { log } = collectLog();
  const start = (provider: ExecutionProvider, devices: readonly GpuDevice[]) =>
    ({
      config: { ...loadConfig({}), batchMax },
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

test('one, which is the default: the plan as it is, and nothing runs', async context => {
  const { onCpu, onGpu, plan, model } = await begin(context, loadConfig({}).batchMax, 'red');
  assert.equal(await prepareAsked(onCpu, plan), plan);
  assert.equal(await prepareAsked(onGpu, plan), plan);
  assert.equal(existsSync(batchPath(model.path, 2)), false);
  assert.equal(existsSync(answerRecordPath(model.path)), false);
});

test('a number: graphs up to it, checked once on this machine', async context => {
  const { onCpu, plan, model } = await begin(context, 4, 'red');
  const prepared = await prepareAsked(onCpu, plan);
  assert.deepEqual(imagesOf(prepared), [2, 4]);
  const machines = await machinesOf(model);
  assert.equal(machines.length, 1);
  assert.match(machines[0] ?? '', /, 4 images at once$/);
  // Remembered: an engine that could not load would say so.
  const broken = { ...onCpu, engineEnv: { NODE_OPTIONS: '--import=/nowhere' } };
  assert.deepEqual(imagesOf(await prepareAsked(broken, plan)), [2, 4]);
});

test('a model that may mix images is refused by the variable’s name', async context => {
  const { onCpu, plan } = await begin(context, 2, 'paced');
  await assert.rejects(prepareAsked(onCpu, plan), {
    name: 'ModelError',
    message: /tiny-paced.*which cannot be prepared|MATTING_BATCH_MAX/,
  });
});

test('images that get another matte together than alone are found', async context => {
  const { onCpu, plan, model } = await begin(context, 2, 'red');
  const [{ model: prepared }] = (await prepareAsked(onCpu, plan)).models as [Plan['models'][0]];
  const [two] = prepared.batches ?? [];
  assert.ok(two !== undefined);
  const mean = encodeTinyModel({ kind: 'mean' }, 2);
  await writeFile(two.path, mean);
  const wrong = { ...prepared, batches: [{ ...two, sha256: sha256(mean) }] };
  await writeFile(answerRecordPath(model.path), 'damaged');
  const reason = await wrongTogether(onCpu, planOf(wrong), undefined);
  assert.match(
    reason ?? '',
    /tiny-red in fp32: image 1 of 2 has another matte than alone: it differs/,
  );
  // What was seen before says nothing about a GPU that was out.
  await rm(answerRecordPath(model.path));
  await prepareAsked(onCpu, plan);
  await writeFile(two.path, mean);
  assert.equal(await wrongTogether(onCpu, planOf(wrong), undefined), undefined);
  assert.equal(await wrongTogether(onCpu, planOf(wrong), undefined, 'afresh'), reason);
});

test('on a GPU a number is strict, and says what went wrong', async context => {
  const { onGpu, plan, host } = await begin(context, 2, 'red');
  await host.fault(`run GPU-one ${BOOM}`);
  await assert.rejects(prepareAsked(onGpu, plan), {
    name: 'ExecutionProviderError',
    reason: /not run with several images at once: CUDA failure 700.* \(MATTING_BATCH_MAX=2\)$/,
  });
});

test('GPUs of one kind are checked once, also where nothing can be remembered', async context => {
  const { onGpu, plan, model, host } = await begin(context, 2, 'red');
  await prepareAsked(onGpu, plan);
  await rm(answerRecordPath(model.path));
  const { rename } = fs;
  context.mock.method(fs, 'rename', async (from: string, to: string) => {
    if (to !== answerRecordPath(model.path)) return await rename(from, to);
    throw Object.assign(new Error('only read'), { code: 'EROFS' });
  });
  syncBuiltinESMExports();
  context.after(() => {
    context.mock.restoreAll();
    syncBuiltinESMExports();
  });
  // One of another kind is checked, and found wrong; the second of the first kind is not.
  await host.fault(`run GPU-two ${BOOM}`);
  const [same, other] = [{}, { name: 'another GPU' }].map(
    facts => new GpuDevice(gpuFacts('two', facts)),
  ) as [GpuDevice, GpuDevice];
  assert.deepEqual(imagesOf(await prepareAsked({ ...onGpu, devices: [GPU, same] }, plan)), [2]);
  await assert.rejects(prepareAsked({ ...onGpu, devices: [GPU, other] }, plan), /failure 700/);
  assert.equal(existsSync(answerRecordPath(model.path)), false);
});

test('one picture is answered by the graph for one alone, whatever others there are', async context => {
  const { model, host } = await begin(context, 1, 'red');
  const batches = [{ images: 2, path: '/nowhere', sha256: '' }];
  const rgb = new Uint8Array(3 * model.inputWidth * model.inputHeight).fill(100);
  const { answer } = createAnswering({ childEnv: {}, threads: 1 });
  for (const run of [answer, answerOnce({ childEnv: host.childEnv, threads: 1 })]) {
    const alpha = await run({ ...model, batches }, rgb);
    assert.ok(alpha.every(value => value === 100));
  }
});

test('where no engine with graphs for several images loads, the error names the variable', async context => {
  const { model } = await begin(context, 1, 'red');
  const graphs = [2, 4].map(images => ({ images, path: '/nowhere', sha256: '' }));
  const open = (batches: PreparedModel['batches']) => {
    const timing = { respawnDelaysMs: [0] as const };
    const engines = openEnginePool({
      model: { ...model, path: batches ? model.path : '/nowhere', ...(batches && { batches }) },
      ...{ engines: 1, threadsPerEngine: 1, childEnv: {}, log: collectLog().log, timing },
    });
    context.after(() => engines.close(0));
    return namingSettings(engines.ready(), { ...model, ...(batches && { batches }) }, 1);
  };
  await assert.rejects(
    open(graphs),
    /tiny-red.* \(with graphs for up to 4 images at once: MATTING_BATCH_MAX=1 does without\)$/,
  );
  await assert.rejects(open(undefined), /tiny-red(?!.*MATTING_BATCH_MAX)/);
});

test('where the memory holds no engine beside the others, the error names the variable', async context => {
  const { model } = await begin(context, 1, 'red');
  const failing = (why: string, engines: number) =>
    namingSettings(Promise.reject(new Error(why)), model, engines);
  const full = 'model red does not run on cuda: CUDA failure 2: out of memory';
  const advice = '(with 3 engines of each model on a GPU: MATTING_ENGINES takes fewer)';
  await assert.rejects(failing(full, 3), { message: `${full} ${advice}` });
  await assert.rejects(failing(full, 1), { message: full });
  await assert.rejects(failing(BOOM, 3), { message: BOOM });
});

/** GPUs of kinds that were seen before and answered rightly, but for those called `a new GPU`. */
async function beginOnGpus(
  context: TestContext,
  devices: readonly GpuDevice[],
  config: Partial<Config> = {},
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
    config: { ...own, childEnv: {}, ...config } as Config,
    engineEnv: host.childEnv,
    provider: 'cuda',
    ...{ devices, cpuThreads: 1, ending: ending.signal, log },
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

test('a kind of GPU on which a model fails goes out, with a line; the others serve', async context => {
  const [one, two] = [gpu('one'), newGpu('two')];
  const { start, plan, host, lines } = await beginOnGpus(context, [one, two]);
  await host.fault(`model GPU-two ${BOOM}`);
  assert.equal(await checkAnswers(start, plan), undefined);
  const reason = `tiny-red in fp32: it does not run: ${BOOM}`;
  assert.deepEqual([one.outReason, two.outReason], [undefined, reason]);
  const [line] = lines;
  assert.deepEqual([line?.msg, line?.gpu, line?.reason], ['GPU is left out', 'GPU-two', reason]);
});

test('without another GPU there is a reason; a GPU that was named is never left out', async context => {
  const two = newGpu('two');
  const { start, plan, host } = await beginOnGpus(context, [two]);
  await host.fault(`model GPU-two ${BOOM}`);
  assert.match((await checkAnswers(start, plan)) ?? '', /it does not run: CUDA failure 700/);
  const one = gpu('one');
  const named = await beginOnGpus(context, [one, newGpu('two')], {
    gpuDevices: ['GPU-one', 'GPU-two'],
  });
  await named.host.fault(`model GPU-two ${BOOM}`);
  await assert.rejects(checkAnswers(named.start, named.plan), {
    name: 'ExecutionProviderError',
    reason: /tiny-red in fp32: it does not run/,
  });
});

test('an answer that cannot be held against another leaves the GPU out, and ends nothing', async context => {
  // The model is of no manifest: what it should answer cannot be found out.
  const [one, two] = [gpu('one'), newGpu('two')];
  const { start, plan } = await beginOnGpus(context, [one, two]);
  assert.equal(await checkAnswers(start, plan), undefined);
  assert.match(
    two.outReason ?? '',
    /there is no answer to hold its own against: there is no model/,
  );
});

test('a GPU that was out runs the whole models before it is back, though its kind is known', async context => {
  const one = gpu('one');
  const { start, plan, host } = await beginOnGpus(context, [one]);
  assert.equal(await checkAnswers(start, plan), undefined);
  await host.fault(`model GPU-one ${BOOM}`);
  const reason = `tiny-red in fp32: it does not run: ${BOOM}`;
  assert.equal(await tryAgain(start, plan, one), reason);
});

test('a node that ends checks nothing more', async context => {
  const { start, plan, ending } = await beginOnGpus(context, [gpu('one')]);
  ending.abort(new Error('the node ends'));
  await assert.rejects(checkAnswers(start, plan), /the node ends/);
});

test('engines that are too few for every GPU go on those that are up', async context => {
  const [small, large] = [gpu('small', 16e9), gpu('large', 80e9)];
  const place = async (engines: number | undefined) => {
    const { start } = await beginOnGpus(context, [small, large], { engines });
    return idsOf(placeEngines(start));
  };
  assert.deepEqual(await place(1), ['GPU-large']);
  large.lose('it is gone');
  assert.deepEqual(await place(1), ['GPU-small']);
  // In proportion: both on the large one, which is out.
  assert.deepEqual(await place(2), ['GPU-small', 'GPU-small']);
  // Each has some: those of the one that is out wait for it.
  const six = (await place(6)) ?? [];
  assert.deepEqual([six.length, new Set(six).size], [6, 2]);
  assert.deepEqual(await place(undefined), ['GPU-small', 'GPU-large']);
});

test('where the driver lists no GPU nothing is placed, and every start checks again', async context => {
  const { start, plan } = await beginOnGpus(context, []);
  assert.equal(placeEngines(start), undefined);
  assert.match((await checkAnswers(start, plan)) ?? '', /there is no model/);
});
