import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chooseEngineLayout, THREADS_PER_ENGINE_MAX } from '../../src/engine/engine-layout.ts';

test('a share below one CPU, or of a fraction over, is no further thread', () => {
  assert.deepEqual(chooseEngineLayout('cpu', 0.25), { engines: 1, threadsPerEngine: 1 });
  assert.deepEqual(chooseEngineLayout('cpu', 2.9), { engines: 1, threadsPerEngine: 2 });
});

test('one engine with all the threads, as long as they fill one', () => {
  assert.deepEqual(chooseEngineLayout('cpu', 2), { engines: 1, threadsPerEngine: 2 });
  assert.deepEqual(chooseEngineLayout('cpu', 16), { engines: 1, threadsPerEngine: 16 });
  assert.deepEqual(chooseEngineLayout('cpu', 24), { engines: 2, threadsPerEngine: 12 });
});

test('never more threads than CPUs, never an engine over its bound', () => {
  for (let share = 1; share <= 256; share++) {
    const { engines, threadsPerEngine } = chooseEngineLayout('cpu', share);
    assert.ok(engines * threadsPerEngine <= share);
    assert.ok(threadsPerEngine >= 1 && threadsPerEngine <= THREADS_PER_ENGINE_MAX);
  }
});

test('a GPU has one engine of one thread', () => {
  for (const provider of ['cuda', 'tensorrt', 'webgpu'] as const) {
    assert.deepEqual(chooseEngineLayout(provider, 64), { engines: 1, threadsPerEngine: 1 });
  }
});
