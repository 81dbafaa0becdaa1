/** What engines share, and what those on another GPU do not. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import { GpuDevice } from '../../../src/engine/devices/gpu-device.ts';
import { BLAMELESS_LOSSES_MAX } from '../../../src/engine/pool/batch-rule.ts';
import { createGroups, runTimeoutMs } from '../../../src/engine/pool/engine-group.ts';
import { PoolLog } from '../../../src/engine/pool/pool-log.ts';
import type { RunTask } from '../../../src/engine/pool/run-task.ts';
import { collectLog, gpuFacts } from '../devices/gpu-host.ts';
import { createModel } from './pool-harness.ts';

test('what one GPU cannot do at once, another still does', async context => {
  const model = await createModel(context, { batches: [2, 4] });
  const devices = ['a', 'b'].map(letter => new GpuDevice(gpuFacts(letter)));
  const log = pino({ level: 'silent' });
  const ignored = () => undefined;
  const { groups } = createGroups(
    { model, engines: 2, threadsPerEngine: 1, devices, childEnv: {}, log },
    {
      onReady: ignored,
      onDone: ignored,
      onLoss: ignored,
      onStuck: ignored,
      onLoading: ignored,
      onOutput: ignored,
    },
  );
  const [one, two] = groups;
  assert.ok(one !== undefined && two !== undefined);
  const lost: RunTask[] = Array(4);
  for (let loss = 1; loss <= BLAMELESS_LOSSES_MAX; loss++) {
    two.batches.recordSuccess(4);
    one.batches.recordLoss(lost, [], ignored);
  }
  assert.deepEqual([one.batches.imagesMax, two.batches.imagesMax], [2, 4]);
  const collected = collectLog();
  new PoolLog(collected.log, model).severalGivenUp(one, 2);
  const [line] = collected.lines;
  assert.deepEqual([line?.gpu, line?.images, line?.model], ['GPU-a', 2, model.model]);
});

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
