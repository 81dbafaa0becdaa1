import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import ava, { type ExecutionContext } from 'ava';
import { C_INTERFACE_VARIABLE } from '../../providers/c-interface.ts';
import { collectLog, gpuFacts, openGpuHost } from '../../test/gpu-host.ts';
import { createModel, openPool, pidOf, QUICK, run, untilPool } from '../../test/pool-harness.ts';
import { GpuDevice } from '../devices/gpu-device.ts';
import type { EnginePoolOptions } from './engine-pool.ts';

const test = ava.serial;
const BY_C = { ...CACHE_ENV, [C_INTERFACE_VARIABLE]: 'nhwc,blocking-waits' };
const TURNED_OFF = /; it loads again without the C interface$/;

async function open(t: ExecutionContext, options: Partial<EnginePoolOptions>) {
  const { log, lines } = collectLog();
  const timing = { respawnDelaysMs: [0] } as const;
  const pool = await openPool(t, {}, { childEnv: BY_C, log, timing, ...options });
  const reasons = () =>
    lines.filter(({ msg }) => msg === 'engine lost').map(({ reason }) => reason);
  return { pool, reasons };
}

test('an engine that was lost loads again by the binding', async t => {
  const { pool, reasons } = await open(t, {});
  for (const expected of [TURNED_OFF, /^the process ended: signal SIGKILL, code null$/]) {
    t.is((await run(pool, QUICK)).alpha[0], QUICK);
    process.kill(pidOf(pool), 'SIGKILL');
    await untilPool(pool, () => pool.snapshot().enginesReady === 0);
    t.regex(String(reasons().at(-1)), expected);
  }
  t.is((await run(pool, QUICK)).alpha[0], QUICK);
  t.deepEqual([reasons().length, pool.snapshot().state], [2, 'ready']);
});

test('however many engines the C interface ends, the pool serves by the binding', async t => {
  const device = new GpuDevice(gpuFacts('one'));
  const { childEnv } = await openGpuHost(t, [device.facts]);
  const env = { ...childEnv, [C_INTERFACE_VARIABLE]: '' };
  const model = { ...(await createModel(t, {})), provider: 'cuda' } as const;
  const { pool, reasons } = await open(t, { model, engines: 4, device, childEnv: env });
  await untilPool(pool, () => pool.snapshot().enginesReady === 4);
  t.is((await run(pool, QUICK)).alpha[0], QUICK);
  t.is(pool.metrics().deaths.load, 4);
  for (const reason of reasons()) t.regex(String(reason), TURNED_OFF);
  t.is(device.outReason, undefined);
});
