import { readFile } from 'node:fs/promises';
import ava, { type ExecutionContext } from 'ava';
import { gpuFacts, openGpuHost } from '../../test/gpu-host.ts';
import {
  createModel,
  ENDLESS_TRIPS,
  openPool,
  QUICK,
  run,
  SLOW,
  untilPool,
} from '../../test/pool-harness.ts';
import { untilBusy } from '../../test/processes.ts';
import { GpuDevice } from './gpu-device.ts';

const test = ava.serial;

const NO_DEVICE = 'CUDA failure 100: no CUDA-capable device is detected ; GPU=0 ; line=352';
const MEMORY_IS_SHORT = 'CUDA failure 2: out of memory';
const LAUNCH = 'CUDA failure 719: unspecified launch failure ; GPU=0 ; line=1';

async function openHost(context: ExecutionContext) {
  const device = new GpuDevice(gpuFacts('one'));
  return { device, ...(await openGpuHost(context, [device.facts])) };
}

type Host = Awaited<ReturnType<typeof openHost>>;

async function openOn(context: ExecutionContext, host: Host, engines: number, windowMs = 60_000) {
  const { childEnv, device } = host;
  const given = { engines, device, childEnv, failureWindowMs: windowMs };
  return await openPool(context, {}, { ...given, timing: { respawnDelaysMs: [0] } });
}

test('a GPU that is gone takes the engines of every pool down, and each says why', async t => {
  const host = await openHost(t);
  const pools = await Promise.all([openOn(t, host, 2), openOn(t, host, 1)]);
  const [pool, other] = pools;
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  await untilPool(other, () => other.snapshot().enginesReady === 1);
  await host.fault(`run GPU-one ${LAUNCH}`, `load GPU-one ${NO_DEVICE}`);
  await t.throwsAsync(run(pool, QUICK), { code: 'NODE_FAULT' });
  await untilPool(pool, () => pool.snapshot().state === 'failed');
  const reason = 'CUDA failure 100: no CUDA-capable device is detected';
  t.is(host.device.outReason, reason);
  for (const each of pools) {
    const { state, failure } = each.snapshot();
    t.deepEqual([state, failure], ['failed', reason]);
    await t.throwsAsync(run(each, QUICK), { code: 'NODE_UNAVAILABLE' });
  }
  t.is(other.metrics().deaths.device, 1);
});

test('an image is not blamed for the GPU under it', async t => {
  const { device, childEnv } = await openHost(t);
  const pool = await openPool(
    t,
    { kind: 'paced', tripsMax: ENDLESS_TRIPS },
    { engines: 2, device, childEnv, timing: { runTimeoutMinMs: 600_000 } },
  );
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  const outcomes = Promise.allSettled([run(pool, SLOW), run(pool, SLOW), run(pool, SLOW)]);
  await untilPool(pool, () => pool.snapshot().running === 2);
  for (const { pid } of pool.processes()) await untilBusy(pid);
  device.lose('it fell off the bus');
  const reasons = (await outcomes).map(outcome => (outcome as PromiseRejectedResult).reason);
  t.deepEqual(
    reasons.map(({ code }) => code),
    Array(3).fill('NODE_UNAVAILABLE'),
  );
  // The third had not begun.
  for (const reason of reasons.slice(0, 2)) t.regex(reason.message, /GPU failed while/);
  t.is(pool.metrics().deaths.device, 2);
});

test('a pool whose GPU is lost before it opens fails at once', async t => {
  const { device, childEnv } = await openHost(t);
  device.lose('it is gone');
  const pool = await openPool(t, {}, { engines: 2, device, childEnv });
  t.is(pool.snapshot().state, 'failed');
  t.deepEqual(pool.processes(), []);
  await t.throwsAsync(pool.ready(), { message: /does not run on cpu: it is gone/ });
});

test('an engine for which memory is short does not disturb the others, and is back when there is some', async t => {
  const host = await openHost(t);
  const { device, fault } = host;
  const pool = await openOn(t, host, 2, 1);
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  await fault(`load GPU-one ${MEMORY_IS_SHORT}`);
  process.kill(pool.processes()[1]?.pid as number, 'SIGKILL');
  const tried = () => pool.metrics().deaths.load > 3;
  await untilPool(pool, () => tried() || device.outReason !== undefined);
  t.is(device.outReason, undefined);
  t.is((await run(pool, QUICK)).alpha[0], QUICK);
  await fault();
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  // The last engine ends the pool's wait.
  await fault(`load GPU-one ${MEMORY_IS_SHORT}`);
  for (const { pid } of pool.processes()) process.kill(pid, 'SIGKILL');
  await untilPool(pool, () => device.outReason !== undefined);
  t.is(device.outReason, 'the engines keep dying: CUDA failure 2: out of memory');
});

/** Deaths in a row that give a GPU up. */
const DEATHS_MAX = 3;

test('runs that find too little memory fail as overloaded, and the GPU stays in use', async t => {
  const host = await openHost(t);
  const pool = await openOn(t, host, 2);
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  await host.fault(`picture GPU-one ${MEMORY_IS_SHORT}`);
  // More different images than engines may die of.
  for (let brightness = 1; brightness <= DEATHS_MAX; brightness++) {
    await t.throwsAsync(run(pool, brightness), { code: 'NODE_OVERLOADED', message: /memory/ });
  }
  t.is(pool.metrics().deaths.shortage, 4 * DEATHS_MAX);
  t.is(host.device.outReason, undefined);
  // The run waits until engines have memory to load again.
  await host.fault(`run GPU-one ${MEMORY_IS_SHORT}`, `load GPU-one ${MEMORY_IS_SHORT}`);
  const waits = run(pool, QUICK);
  await untilPool(pool, () => pool.metrics().deaths.load > 2 * DEATHS_MAX);
  t.is(host.device.outReason, undefined);
  await host.fault();
  t.is((await waits).alpha[0], QUICK);
});

test('engines of one GPU open one after the other, in every pool', async t => {
  const host = await openHost(t);
  const { device, childEnv } = host;
  // A pool that closes while its engines wait to load leaves none, and passes the mutex on.
  const closed = await openOn(t, host, 2);
  await closed.close(0);
  t.deepEqual(closed.processes(), []);
  const before = (await readFile(host.loads, 'utf8').catch(() => '')).length;
  const model = await createModel(t, {});
  const pools = [1, 2].map(() => openPool(t, {}, { model, engines: 2, device, childEnv }));
  for (const pool of await Promise.all(pools)) {
    await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  }
  const lines = (await readFile(host.loads, 'utf8')).slice(before).trim().split('\n');
  const own = lines.map(line => line.split(' ')[0]);
  t.deepEqual(own, Array(4).fill(['loading', 'ended']).flat());
});
