/** Engines on several GPUs, of which one falls out: stand-ins of CUDA's errors, real engines. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { type TestContext, test } from 'node:test';
import { DeviceWatch } from '../../../src/engine/devices/device-watch.ts';
import { GpuDevice } from '../../../src/engine/devices/gpu-device.ts';
import { FAILURE_DEATHS_MAX } from '../../../src/engine/pool/loss-rules.ts';
import { untilBusy } from '../../support/processes.ts';
import {
  createModel,
  ENDLESS_TRIPS,
  openPool,
  QUICK,
  run,
  SLOW,
  untilPool,
} from '../pool/pool-harness.ts';
import { collectLog, gpuFacts, openGpuHost } from './gpu-host.ts';

const WARN = 40;
/** As good as never. */
const AN_HOUR_MS = 3_600_000;
const NO_DEVICE = 'CUDA failure 100: no CUDA-capable device is detected ; GPU=0 ; line=352';
const MEMORY_IS_SHORT = 'CUDA failure 2: out of memory';
const LAUNCH = 'CUDA failure 719: unspecified launch failure ; GPU=0 ; line=1';

async function openHost(context: TestContext) {
  const [one, two] = [new GpuDevice(gpuFacts('one')), new GpuDevice(gpuFacts('two'))];
  return { one, two, ...(await openGpuHost(context, [one.facts, two.facts])) };
}

type Host = Awaited<ReturnType<typeof openHost>>;

async function openOn(context: TestContext, { one, two, childEnv }: Host) {
  const devices = [one, two, one];
  const timing = { respawnDelaysMs: [0] } as const;
  return await openPool(context, {}, { engines: 3, devices, childEnv, timing });
}

test('a GPU that is gone takes its engines down and not the others', async context => {
  const host = await openHost(context);
  const pool = await openOn(context, host);
  await untilPool(pool, () => pool.snapshot().enginesReady === 3);
  await host.fault(`run GPU-one ${LAUNCH}`, `load GPU-one ${NO_DEVICE}`);
  // Each run goes to an engine of either; those that come to the broken one are told so.
  const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => run(pool, QUICK)));
  assert.ok(outcomes.some(({ status }) => status === 'rejected'));
  await untilPool(pool, () => host.one.outReason !== undefined);
  assert.equal(host.one.outReason, 'CUDA failure 100: no CUDA-capable device is detected');
  assert.equal(host.two.outReason, undefined);
  const { state, engines, enginesReady } = pool.snapshot();
  assert.deepEqual([state, engines, enginesReady], ['ready', 3, 1]);
  for (let i = 0; i < 3; i++) assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
  // Nothing is opened there until it is back.
  await host.fault();
  host.one.restore();
  await untilPool(pool, () => pool.snapshot().enginesReady === 3);
});

test('an image is not blamed for the GPU under it, nor an engine there counted as free', async context => {
  const { one, two, childEnv } = await openHost(context);
  const pool = await openPool(
    context,
    { kind: 'paced', tripsMax: ENDLESS_TRIPS },
    { engines: 2, devices: [one, two], childEnv, timing: { runTimeoutMinMs: 600_000 } },
  );
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  const outcomes = Promise.allSettled([run(pool, SLOW), run(pool, SLOW)]);
  await untilPool(pool, () => pool.snapshot().running === 2);
  for (const { pid } of pool.processes()) await untilBusy(pid);
  one.lose('it fell off the bus');
  assert.ok(pool.snapshot().estimatedWaitMs < AN_HOUR_MS);
  two.lose('it fell off the bus');
  assert.ok(pool.snapshot().estimatedWaitMs >= AN_HOUR_MS);
  for (const outcome of await outcomes) {
    assert.equal(outcome.status, 'rejected');
    assert.equal(outcome.reason.code, 'NODE_UNAVAILABLE');
    assert.match(outcome.reason.message, /GPU under this image is out/);
  }
});

test('a pool whose GPUs are all out before it opens fails at once', async context => {
  const { one, two, childEnv } = await openHost(context);
  one.lose('it is gone');
  two.lose('it is gone too');
  const pool = await openPool(context, {}, { engines: 2, devices: [one, two], childEnv });
  assert.equal(pool.snapshot().state, 'failed');
  await assert.rejects(pool.ready(), /does not run on cpu: it is gone/);
});

test('without another GPU the pool fails, and says why', async context => {
  const host = await openHost(context);
  const pool = await openOn(context, host);
  await untilPool(pool, () => pool.snapshot().enginesReady === 3);
  host.one.lose('CUDA failure 100');
  assert.equal(pool.snapshot().state, 'ready');
  host.two.lose('it fell off the bus');
  const { state, failure } = pool.snapshot();
  assert.deepEqual([state, failure], ['failed', 'it fell off the bus']);
  assert.equal(pool.metrics().deaths.device, 3);
});

test('a GPU on which a model never loads does not fail the node that has another', async context => {
  const host = await openHost(context);
  await host.fault('load GPU-two out of memory');
  const pool = await openOn(context, host);
  await pool.ready();
  await untilPool(pool, () => host.two.outReason !== undefined);
  assert.equal(host.two.outReason, 'out of memory');
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
});

test('an engine for which memory is short leaves those beside it, and is back when there is some', async context => {
  const { one, childEnv, fault } = await openHost(context);
  const timing = { respawnDelaysMs: [0] } as const;
  const pool = await openPool(context, {}, { engines: 2, devices: [one, one], childEnv, timing });
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  await fault(`load GPU-one ${MEMORY_IS_SHORT}`);
  process.kill(pool.processes()[1]?.pid as number, 'SIGKILL');
  const tried = () => pool.metrics().deaths.load > FAILURE_DEATHS_MAX;
  await untilPool(pool, () => tried() || one.outReason !== undefined);
  assert.equal(one.outReason, undefined);
  assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
  await fault();
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  // With none beside it there is nothing to wait for.
  await fault(`load GPU-one ${MEMORY_IS_SHORT}`);
  for (const { pid } of pool.processes()) process.kill(pid, 'SIGKILL');
  await untilPool(pool, () => one.outReason !== undefined);
  assert.equal(one.outReason, 'the engines keep dying: CUDA failure 2: out of memory');
});

test('engines of one GPU open one after the other, in every pool', async context => {
  const host = await openHost(context);
  const { one, two, childEnv } = host;
  const model = await createModel(context, {});
  const devices = [one, two, one];
  const pools = [1, 2].map(() => openPool(context, {}, { model, engines: 3, devices, childEnv }));
  for (const pool of await Promise.all(pools)) {
    await untilPool(pool, () => pool.snapshot().enginesReady === 3);
  }
  const lines = (await readFile(host.loads, 'utf8')).trim().split('\n');
  for (const { facts } of [one, two]) {
    const own = lines.filter(line => line.endsWith(facts.id)).map(line => line.split(' ')[0]);
    assert.ok(own.length >= 4);
    assert.deepEqual(
      own,
      own.map((_, i) => (i % 2 === 0 ? 'loading' : 'ended')),
    );
  }
});

test('a pool that closes while its engines wait for their turn leaves none', async context => {
  const host = await openHost(context);
  const pool = await openOn(context, host);
  await pool.close(0);
  assert.deepEqual(pool.processes(), []);
  const next = await openOn(context, host);
  await untilPool(next, () => next.snapshot().enginesReady === 3);
});

/** A GPU that is out, once it is back; what the log warned of meanwhile. */
async function watchUntilBack(context: TestContext, attempt: () => Promise<string | undefined>) {
  const one = new GpuDevice(gpuFacts('one'));
  const back = Promise.withResolvers<void>();
  const { log, lines } = collectLog();
  const watch = new DeviceWatch({ devices: [one], log, attempt, retryDelaysMs: [1] });
  context.after(() => watch.close());
  one.lose('an error');
  one.onChange(() => back.resolve());
  await back.promise;
  assert.equal(one.outReason, undefined);
  return lines.filter(({ level }) => level === WARN);
}

test('a GPU that is out is tried again, and is back once it runs', async context => {
  const attempts: (string | undefined)[] = ['still broken', undefined];
  await watchUntilBack(context, async () => attempts.shift());
  assert.deepEqual(attempts, []);
});

test('a try that throws leaves the GPU out, and the node goes on', async context => {
  const attempts = [new Error('no space left on the device'), undefined];
  const warned = await watchUntilBack(context, async () => {
    const error = attempts.shift();
    if (error !== undefined) throw error;
    return undefined;
  });
  const reason = 'it cannot be tried: no space left on the device';
  assert.deepEqual(
    warned.map(({ gpu, reason: why }) => [gpu, why]),
    [['GPU-one', reason]],
  );
});
