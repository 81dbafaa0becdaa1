/** What a start does on GPUs: which are left out, and which get the engines. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { type TestContext, test } from 'node:test';
import type { Config } from '../../src/config.ts';
import { ExecutionProviderError } from '../../src/engine/choice/execution-provider.ts';
import { GpuDevice } from '../../src/engine/devices/gpu-device.ts';
import { runtimeVersion } from '../../src/engine/runtime-version.ts';
import type { Plan, PreparedModel } from '../../src/models/prepared-model.ts';
import { answerRecordPath } from '../../src/models/preparing/answer-check.ts';
import { checkAnswers, type GpuStart, placeEngines, tryAgain } from '../../src/start/gpus.ts';
import { collectLog, gpuFacts, openGpuHost } from '../engine/devices/gpu-host.ts';
import { createModel } from '../engine/pool/pool-harness.ts';

const BOOM = 'CUDA failure 700: an illegal memory access was encountered';

interface Started {
  readonly start: GpuStart;
  readonly plan: Plan;
  readonly [more: string]: unknown;
}

/** GPUs of kinds that were seen before and answered rightly, but for those called `a new GPU`. */
async function begin(
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
  const plan: Plan = { name: 'tiny', models: [{ model, role: 'subject' }] };
  return { start, plan, host, lines, ending } satisfies Started;
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
  const { start, plan, host, lines } = await begin(context, [one, two]);
  await host.fault(`model GPU-two ${BOOM}`);
  assert.equal(await checkAnswers(start, plan), undefined);
  const reason = `tiny-red in fp32: it does not run: ${BOOM}`;
  assert.deepEqual([one.outReason, two.outReason], [undefined, reason]);
  const [line] = lines;
  assert.deepEqual([line?.msg, line?.gpu, line?.reason], ['GPU is left out', 'GPU-two', reason]);
});

test('without another GPU there is a reason; a GPU that was named is never left out', async context => {
  const two = newGpu('two');
  const { start, plan, host } = await begin(context, [two]);
  await host.fault(`model GPU-two ${BOOM}`);
  assert.match((await checkAnswers(start, plan)) ?? '', /it does not run: CUDA failure 700/);
  const one = gpu('one');
  const named = await begin(context, [one, newGpu('two')], { gpuDevices: ['GPU-one', 'GPU-two'] });
  await named.host.fault(`model GPU-two ${BOOM}`);
  await assert.rejects(checkAnswers(named.start, named.plan), error => {
    assert.ok(error instanceof ExecutionProviderError);
    assert.match(error.reason, /tiny-red in fp32: it does not run/);
    return true;
  });
});

test('an answer that cannot be held against another leaves the GPU out, and ends nothing', async context => {
  // The model is of no manifest: what it should answer cannot be found out.
  const [one, two] = [gpu('one'), newGpu('two')];
  const { start, plan } = await begin(context, [one, two]);
  assert.equal(await checkAnswers(start, plan), undefined);
  assert.match(
    two.outReason ?? '',
    /there is no answer to hold its own against: there is no model/,
  );
});

test('a GPU that was out runs the whole models before it is back, though its kind is known', async context => {
  const one = gpu('one');
  const { start, plan, host } = await begin(context, [one]);
  assert.equal(await checkAnswers(start, plan), undefined);
  await host.fault(`model GPU-one ${BOOM}`);
  const reason = `tiny-red in fp32: it does not run: ${BOOM}`;
  assert.equal(await tryAgain(start, plan, one), reason);
});

test('a node that ends checks nothing more', async context => {
  const { start, plan, ending } = await begin(context, [gpu('one')]);
  ending.abort(new Error('the node ends'));
  await assert.rejects(checkAnswers(start, plan), /the node ends/);
});

test('engines that are too few for every GPU go on those that are up', async context => {
  const [small, large] = [gpu('small', 16e9), gpu('large', 80e9)];
  const place = async (engines: number | undefined) => {
    const { start } = await begin(context, [small, large], { engines });
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
  const { start, plan } = await begin(context, []);
  assert.equal(placeEngines(start), undefined);
  assert.match((await checkAnswers(start, plan)) ?? '', /there is no model/);
});
