/** The watchdog's limit of a run of several. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runTimeoutMs } from '../../../src/engine/pool/engine-group.ts';

test('the watchdog of a run of several: four times what they take, not twenty', () => {
  const timing = {
    loadTimeoutMs: 0,
    respawnDelaysMs: [0],
    killWaitMaxMs: 0,
    runTimeoutMinMs: 10_000,
    runTimeoutMeans: 20,
  } as const;
  const limits = (meanMs: number) => [1, 2, 4, 8].map(n => runTimeoutMs(timing, n, meanMs));
  assert.deepEqual(limits(10), [10_000, 10_000, 10_000, 10_000]);
  assert.deepEqual(limits(1000), [20_000, 20_000, 20_000, 32_000]);
});
