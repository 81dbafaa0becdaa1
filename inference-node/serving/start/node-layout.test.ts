import test from 'ava';
import { pino } from 'pino';
import { GpuDevice } from '../engine/devices/gpu-device.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import { gpuFacts } from '../test/gpu-host.ts';
import { poolSettings } from '../test/pool-settings.ts';
import { chooseLayout, chooseWorkers } from './node-layout.ts';

test('with a GPU workers keep the cores busy while other images are at engines', t => {
  for (const [provider, cpuShare, engines, enginesInAll, workers] of [
    ['cuda', 16, 1, 3, 17],
    ['cuda', 16, 4, 12, 21],
    ['cuda', 256, 4, 12, 128],
    ['cpu', 64, 4, 10, 5],
  ] as const) {
    t.is(chooseWorkers({ provider, cpuShare }, engines, enginesInAll), workers);
  }
});

test('a GPU has two engines if half of its memory holds them, and one if the driver does not list it', t => {
  const model = { inputWidth: 1024, inputHeight: 1024, precision: 'fp16', provider: 'cuda' };
  const plan = { models: [{ role: 'subject', model: model as PreparedModel }] } as const;
  const parts = { config: poolSettings(), cpuShare: 16, log: pino({ level: 'silent' }) };
  const on = (memoryBytes: number) => new GpuDevice(gpuFacts('one', { memoryBytes }));
  t.is(chooseLayout(parts, 'cuda', plan, undefined).engines, 1);
  t.is(chooseLayout(parts, 'cuda', plan, on(0)).engines, 1);
  t.is(chooseLayout(parts, 'cuda', plan, on(5e9)).engines, 1);
  t.is(chooseLayout(parts, 'cuda', plan, on(6e9)).engines, 2);
  const config = poolSettings({ MATTING_NODE_MEMORY_PERCENT: '50' });
  t.is(chooseLayout({ ...parts, config }, 'cuda', plan, on(11e9)).engines, 1);
  t.is(chooseLayout({ ...parts, config }, 'cuda', plan, on(12e9)).engines, 2);
});

test('an engine a core, as MATTING_ENGINES asks, has a thread each', t => {
  const model = { inputWidth: 32, inputHeight: 32, precision: 'int8', provider: 'cpu' };
  const plan = { models: [{ role: 'subject', model: model as PreparedModel }] } as const;
  const config = poolSettings({ MATTING_ENGINES: '2' });
  const parts = { config, cpuShare: 2.5, log: pino({ level: 'silent' }) };
  const expected = { engines: 2, threadsPerEngine: 1 };
  t.deepEqual(chooseLayout(parts, 'cpu', plan, undefined), expected);
});
