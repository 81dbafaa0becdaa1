/** MATTING_ENGINES=auto on a GPU: what is measured is remembered, and what cannot be is one engine. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { GpuDevice } from '../../src/engine/devices/gpu-device.ts';
import type { PreparedModel } from '../../src/models/prepared-model.ts';
import { measuredEnginesPath } from '../../src/models/preparing/prepared-cache.ts';
import {
  enginesInGpu,
  type MeasureEnginesOptions,
  measureEngines,
} from '../../src/start/measured-engines.ts';
import { createModel } from '../engine/pool/pool-harness.ts';

const KIND = 'a GPU, driver 580.65.06, cuda, ONNX Runtime 1.30.0, 16 cores';
const HOOK = path.resolve(import.meta.dirname, '../engine/devices/faulty-gpu.ts');
/** Memory for one engine of a tiny model and no second. */
const ONE_ENGINE_BYTES = 0.8e9;

function gpu(memoryBytes: number): GpuDevice {
  return new GpuDevice({
    ...{ index: 0, id: 'GPU-aaaa-1', name: 'a GPU', driver: '580.65.06' },
    memoryBytes,
  });
}

function options(model: PreparedModel, ending = new AbortController()): MeasureEnginesOptions {
  const device = gpu(ONE_ENGINE_BYTES);
  const { signal } = ending;
  const [models, childEnv] = [[model], {}];
  return { model, models, device, kind: KIND, enginesMax: 4, childEnv, ending: signal };
}

test('as many engines as a GPU’s memory holds of every model, one at least, four at most', async context => {
  const tiny = await createModel(context, { kind: 'red' });
  const isnet = { ...tiny, inputWidth: 1024, inputHeight: 1024, precision: 'fp16' } as const;
  const held = (gigabytes: number, ...models: PreparedModel[]) =>
    enginesInGpu({ models, device: gpu(gigabytes * 1e9) });
  assert.equal(held(80, isnet), 4);
  assert.equal(held(4, isnet), 2);
  assert.equal(held(4, { ...isnet, precision: 'fp32' }), 1);
  assert.equal(held(4, isnet, isnet), 1);
  assert.equal(held(1, isnet), 1);
  // A GPU that does not say how much it has.
  assert.equal(held(0, isnet), 4);
});

test('a measurement is remembered for its kind of GPU and its file, and no other', async context => {
  const model = await createModel(context, { kind: 'red' });
  const first = await measureEngines(options(model));
  assert.equal(first.best, 1);
  assert.ok(first.imagesPerS > 0);
  // Two measurements never come to the same rate.
  assert.deepEqual(await measureEngines(options(model)), first);
  const record = JSON.parse(await readFile(measuredEnginesPath(model.path), 'utf8'));
  const kind = `${KIND}, at most 1 engines`;
  assert.deepEqual(record, { sha256: model.sha256, kinds: { [kind]: first } });
  // Of another file, damaged, or impossible: it is measured again.
  const nonsense = { sha256: model.sha256, kinds: { [kind]: { best: 99, imagesPerS: 1 } } };
  await writeFile(measuredEnginesPath(model.path), JSON.stringify(nonsense));
  const again = await measureEngines(options(model));
  assert.equal(again.best, 1);
  assert.notEqual(again.imagesPerS, 1);
});

test('a GPU on which nothing runs gets one engine, and nothing is remembered of it', async context => {
  const model = await createModel(context, { kind: 'red' });
  const missing = { ...model, path: `${model.path}.missing` };
  assert.deepEqual(await measureEngines(options(missing)), { best: 1, imagesPerS: 0 });
  assert.equal(existsSync(measuredEnginesPath(missing.path)), false);
});

test('a node that ends does not measure', async context => {
  const model = await createModel(context, { kind: 'red' });
  const ending = new AbortController();
  ending.abort(new Error('the node ends'));
  await assert.rejects(measureEngines(options(model, ending)), /the node ends/);
});

test('what the end of the node cuts off is not remembered', async context => {
  const model = await createModel(context, { kind: 'red' });
  const loads = path.join(path.dirname(model.path), 'loads');
  await writeFile(loads, '');
  const ending = new AbortController();
  const measuring = measureEngines({
    ...options(model, ending),
    device: gpu(80e9),
    childEnv: { NODE_OPTIONS: `--import=${HOOK}`, TEST_GPU_LOADS: loads },
  });
  const rejected = assert.rejects(measuring, /the node ends/);
  // One engine loads for the first number, two for the second.
  const loading = async () => (await readFile(loads, 'utf8')).split('loading').length - 1;
  while ((await loading()) < 2) await setTimeout(20);
  ending.abort(new Error('the node ends'));
  await rejected;
  assert.equal(existsSync(measuredEnginesPath(model.path)), false);
});

test('the memory of the host bounds the engines too, and is part of what is remembered', async context => {
  const model = await createModel(context, { kind: 'red' });
  const device = gpu(80e9);
  const measured = await measureEngines({ ...options(model), device, enginesMax: 1 });
  assert.equal(measured.best, 1);
  const { kinds } = JSON.parse(await readFile(measuredEnginesPath(model.path), 'utf8'));
  assert.deepEqual(Object.keys(kinds), [`${KIND}, at most 1 engines`]);
});
