import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  chooseEngineLayout,
  type LayoutInputs,
  THREADS_PER_ENGINE_MAX,
} from '../../../src/engine/choice/engine-layout.ts';

function layout(cpuShare: number, more: Partial<LayoutInputs> = {}) {
  const inputs = {
    provider: 'cpu',
    precisions: ['fp32'],
    goal: 'latency',
    enginesMax: 64,
  } as const;
  return chooseEngineLayout({ ...inputs, cpuShare, ...more });
}

const MANY = { precisions: ['int8'], goal: 'throughput' } as const;

test('a share below one CPU, or of a fraction over, is no further thread', () => {
  assert.deepEqual(layout(0.25), { engines: 1, threadsPerEngine: 1 });
  assert.deepEqual(layout(0.25, MANY), { engines: 1, threadsPerEngine: 1 });
  assert.deepEqual(layout(2.9), { engines: 1, threadsPerEngine: 2 });
});

test('no more engines than the memory holds, and never none', () => {
  assert.deepEqual(layout(8, { ...MANY, enginesMax: 3 }), { engines: 3, threadsPerEngine: 2 });
  assert.deepEqual(layout(8, { ...MANY, enginesMax: 0 }), { engines: 1, threadsPerEngine: 8 });
  assert.deepEqual(layout(64, { enginesMax: 2 }), { engines: 2, threadsPerEngine: 16 });
});

test('one engine with all the threads, as long as they fill one', () => {
  for (const precision of ['fp32', 'int8'] as const) {
    const precisions = [precision];
    assert.deepEqual(layout(2, { precisions }), { engines: 1, threadsPerEngine: 2 });
    assert.deepEqual(layout(16, { precisions }), { engines: 1, threadsPerEngine: 16 });
    assert.deepEqual(layout(24, { precisions }), { engines: 2, threadsPerEngine: 12 });
  }
});

test('for throughput int8 has an engine a core; fp32 is as fast with one', () => {
  assert.deepEqual(layout(2, MANY), { engines: 2, threadsPerEngine: 1 });
  assert.deepEqual(layout(2, { goal: 'throughput' }), { engines: 1, threadsPerEngine: 2 });
  // One of a plan's models is enough: their engines share the cores.
  const mixed = { ...MANY, precisions: ['int8', 'fp32'] } as const;
  assert.deepEqual(layout(2, mixed), { engines: 2, threadsPerEngine: 1 });
});

test('never more threads than CPUs, never an engine over its bound', () => {
  for (let share = 1; share <= 256; share++) {
    for (const goal of ['latency', 'throughput'] as const) {
      const { engines, threadsPerEngine } = layout(share, { precisions: ['int8'], goal });
      assert.ok(engines * threadsPerEngine <= share);
      assert.ok(threadsPerEngine >= 1 && threadsPerEngine <= THREADS_PER_ENGINE_MAX);
    }
  }
});

test('a GPU has one engine of one thread', () => {
  for (const provider of ['cuda', 'tensorrt', 'webgpu'] as const) {
    assert.deepEqual(layout(64, { provider, ...MANY }), { engines: 1, threadsPerEngine: 1 });
  }
});
