/** Which GPUs a node takes, and engines on several of which one falls out; by stand-ins. */
import { chmod, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import { collectLog, gpuFacts, openGpuHost } from '../../test/gpu-host.ts';
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
import { FAILURE_DEATHS_MAX } from '../pool/engine-group.ts';
import { chooseDevices, DeviceWatch, GpuDevice, listGpus, spreadEngines } from './devices.ts';

const test = ava.serial;

const gpu = (index: number, id: string, gigabytes = 80) => ({
  ...{ index, id, name: 'a GPU', driver: '580.65.06' },
  memoryBytes: gigabytes * 1e9,
});
const LISTED = [gpu(0, 'GPU-aaaa-1'), gpu(1, 'GPU-bbbb-2'), gpu(2, 'MIG-cccc-3')];

/** A command of that name before everything else in the PATH. */
async function smi(context: ExecutionContext, script: string): Promise<Record<string, string>> {
  const folder = await temporaryFolder(context);
  const file = path.join(folder, 'nvidia-smi');
  await writeFile(file, `#!/bin/sh\n${script}\n`);
  await chmod(file, 0o755);
  return { PATH: `${folder}:/bin:/usr/bin` };
}

test('what is named and not there is missing, by its name', t => {
  t.deepEqual(chooseDevices(['7', '0', 'GPU-zzzz'], LISTED, undefined), {
    missing: ['7', 'GPU-zzzz'],
  });
  // So short a name could be any.
  t.deepEqual(chooseDevices(['GPU-'], LISTED, undefined), { missing: ['GPU-'] });
});

test('all, some by number or identifier, and what CUDA_VISIBLE_DEVICES leaves', t => {
  const ids = (...args: Parameters<typeof chooseDevices>) => {
    const choice = chooseDevices(...args);
    return 'gpus' in choice ? choice.gpus.map(({ id }) => id) : choice.missing;
  };
  const all = LISTED.map(({ id }) => id);
  t.deepEqual(ids('all', LISTED, undefined), all);
  t.deepEqual(ids(['1', 'GPU-bbbb-2', 'MIG-cccc'], LISTED, undefined), all.slice(1));
  t.deepEqual(ids('all', LISTED, '2,0'), ['MIG-cccc-3', 'GPU-aaaa-1']);
  t.deepEqual(ids('all', LISTED, '1,9,0'), ['GPU-bbbb-2']);
  // Empty hides them all, as from CUDA.
  for (const none of ['-1', '']) t.deepEqual(ids('all', LISTED, none), []);
  t.deepEqual(ids(['0'], LISTED, '2'), ['GPU-aaaa-1']);
});

test('engines go in proportion to memory, and evenly where GPUs are alike', t => {
  const names = (engines: number, memory: Record<string, number>) =>
    spreadEngines(
      engines,
      Object.entries(memory).map(([name, gigabytes]) => ({ name, facts: gpu(0, name, gigabytes) })),
    )
      .map(({ name }) => name)
      .join('');
  t.is(names(4, { a: 80, b: 80 }), 'abab');
  t.is(names(1, { a: 40, b: 80 }), 'b');
  t.is(names(6, { a: 40, b: 80 }).split('a').length - 1, 2);
  t.is(names(3, { a: 0, b: 0 }), 'aba');
  t.is(names(0, { a: 1 }), '');
  t.is(names(3, { a: 0.2, b: 0.1 }), 'aab');
});

test('no command, one that fails, and one that talks nonsense', async t => {
  const none = await listGpus({ PATH: '/nowhere' });
  if (none.state === 'failed') t.regex(none.reason, /nvidia-smi/);
  const lost = 'Unable to determine the device handle for GPU0: GPU is lost.';
  const failed = await listGpus(await smi(t, `echo "${lost}"; exit 15`));
  t.deepEqual(failed, { state: 'failed', reason: lost });
  const nonsense = await listGpus(await smi(t, 'echo "No devices were found"'));
  t.deepEqual(nonsense, { state: 'listed', gpus: [] });
});

test('GPUs, and the instances of one that is partitioned', async t => {
  const rows = [
    '0, GPU-aaaa-1, NVIDIA H100 80GB HBM3, 81559, 580.65.06, Disabled',
    '1, GPU-bbbb-2, NVIDIA H100 80GB HBM3, 81559, 580.65.06, Enabled',
  ];
  const tree = [
    'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa-1)',
    'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbbb-2)',
    '  MIG 1g.10gb     Device  0: (UUID: MIG-cccc-3)',
    '  MIG 3g.40gb     Device  1: (UUID: MIG-dddd-4)',
  ];
  const said = (lines: string[]) => lines.map(line => `echo '${line}'`).join('\n');
  const script = `if [ "$1" = -L ]; then\n${said(tree)}\nelse\n${said(rows)}\nfi`;
  const listing = await listGpus(await smi(t, script));
  t.is(listing.state, 'listed');
  const found = listing.state === 'listed' ? listing.gpus : [];
  t.deepEqual(
    found.map(({ id, name, memoryBytes }) => [id, name, Math.round(memoryBytes / 2 ** 30)]),
    [
      ['GPU-aaaa-1', 'NVIDIA H100 80GB HBM3', 80],
      ['MIG-cccc-3', 'NVIDIA H100 80GB HBM3 MIG 1g.10gb', 10],
      ['MIG-dddd-4', 'NVIDIA H100 80GB HBM3 MIG 3g.40gb', 40],
    ],
  );
});

test('a listing that is not whole counts as far as it came, and says so; one that was killed does not', async t => {
  const row = (start: string) => `echo '${start}, an H100, 81559, 580, Disabled'`;
  const lost = 'Unable to determine the device handle for GPU1: 0000:44:00.0: Unknown Error';
  const [first, third] = [row('0, GPU-aaaa-1'), row('2, GPU-cccc-3')];
  for (const [script, indices] of [
    [`${first}; echo '${lost}'; exit 15`, [0]],
    [`${first}; echo '${lost}' >&2; exit 15`, [0]],
    // A GPU that fell off the bus: the answer is whole without it.
    [`echo '${lost}'; ${first}; ${third}`, [0, 2]],
    [`echo '${lost}' >&2; ${first}; ${third}`, [0, 2]],
  ] as const) {
    const listing = await listGpus(await smi(t, script));
    const found = listing.state === 'listed' ? listing.gpus.map(({ index }) => index) : [];
    t.deepEqual(found, [...indices], script);
    t.like(listing, { state: 'listed', incomplete: lost });
  }
  t.is((await listGpus(await smi(t, `${first}; kill -9 $$`))).state, 'failed');
});

test('the driver’s libraries are found where engines find them', async t => {
  const env = await smi(t, 'echo "0, GPU-aaaa-1, $LD_LIBRARY_PATH, 1, 580, Disabled"');
  const listing = await listGpus({ ...env, LD_LIBRARY_PATH: '/opt/driver', SECRET: 'none' });
  t.is(listing.state === 'listed' && listing.gpus[0]?.name, '/opt/driver');
});

const WARN = 40;
const AN_HOUR_MS = 3_600_000;
const NO_DEVICE = 'CUDA failure 100: no CUDA-capable device is detected ; GPU=0 ; line=352';
const MEMORY_IS_SHORT = 'CUDA failure 2: out of memory';
const LAUNCH = 'CUDA failure 719: unspecified launch failure ; GPU=0 ; line=1';

async function openHost(context: ExecutionContext) {
  const [one, two] = [new GpuDevice(gpuFacts('one')), new GpuDevice(gpuFacts('two'))];
  return { one, two, ...(await openGpuHost(context, [one.facts, two.facts])) };
}

type Host = Awaited<ReturnType<typeof openHost>>;

async function openOn(context: ExecutionContext, { childEnv }: Host, ...devices: GpuDevice[]) {
  const timing = { respawnDelaysMs: [0] } as const;
  return await openPool(context, {}, { engines: devices.length, devices, childEnv, timing });
}

test('a GPU that is gone takes its engines down and not the others', async t => {
  const host = await openHost(t);
  const pool = await openOn(t, host, host.one, host.two, host.one);
  await untilPool(pool, () => pool.snapshot().enginesReady === 3);
  await host.fault(`run GPU-one ${LAUNCH}`, `load GPU-one ${NO_DEVICE}`);
  // Each run goes to an engine of either; those that come to the broken one are told so.
  const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => run(pool, QUICK)));
  t.true(outcomes.some(({ status }) => status === 'rejected'));
  await untilPool(pool, () => host.one.outReason !== undefined);
  t.is(host.one.outReason, 'CUDA failure 100: no CUDA-capable device is detected');
  t.is(host.two.outReason, undefined);
  const { state, engines, enginesReady } = pool.snapshot();
  t.deepEqual([state, engines, enginesReady], ['ready', 3, 1]);
  for (let i = 0; i < 3; i++) t.is((await run(pool, QUICK)).alpha[0], QUICK);
  // Nothing is opened there until it is back.
  await host.fault();
  host.one.restore();
  await untilPool(pool, () => pool.snapshot().enginesReady === 3);
  // Without another GPU the pool fails, and says why.
  const before = pool.metrics().deaths.device;
  host.one.lose('CUDA failure 100');
  t.is(pool.snapshot().state, 'ready');
  host.two.lose('it fell off the bus');
  const last = pool.snapshot();
  t.deepEqual([last.state, last.failure], ['failed', 'it fell off the bus']);
  t.is(pool.metrics().deaths.device - before, 3);
});

test('an image is not blamed for the GPU under it, nor an engine there counted as free', async t => {
  const { one, two, childEnv } = await openHost(t);
  const pool = await openPool(
    t,
    { kind: 'paced', tripsMax: ENDLESS_TRIPS },
    { engines: 2, devices: [one, two], childEnv, timing: { runTimeoutMinMs: 600_000 } },
  );
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  const outcomes = Promise.allSettled([run(pool, SLOW), run(pool, SLOW)]);
  await untilPool(pool, () => pool.snapshot().running === 2);
  for (const { pid } of pool.processes()) await untilBusy(pid);
  one.lose('it fell off the bus');
  t.true(pool.snapshot().estimatedWaitMs < AN_HOUR_MS);
  two.lose('it fell off the bus');
  t.true(pool.snapshot().estimatedWaitMs >= AN_HOUR_MS);
  for (const outcome of await outcomes) {
    t.is(outcome.status, 'rejected');
    const { reason } = outcome as PromiseRejectedResult;
    t.is(reason.code, 'NODE_UNAVAILABLE');
    t.regex(reason.message, /GPU failed while/);
  }
});

test('a pool whose GPUs are all out before it opens fails at once', async t => {
  const { one, two, childEnv } = await openHost(t);
  one.lose('it is gone');
  two.lose('it is gone too');
  const pool = await openPool(t, {}, { engines: 2, devices: [one, two], childEnv });
  t.is(pool.snapshot().state, 'failed');
  await t.throwsAsync(pool.ready(), { message: /does not run on cpu: it is gone/ });
});

test('a model that is not the own plan’s fails alone on a GPU, unless CUDA has lost that', async t => {
  const { one, two, childEnv, fault } = await openHost(t);
  const options = { engines: 2, devices: [one, two], childEnv, sparesDevices: true };
  for (const [fails, out] of [
    ['out of memory', undefined],
    [NO_DEVICE, 'CUDA failure 100: no CUDA-capable device is detected'],
  ] as const) {
    await fault(`load GPU-one ${fails}`, `load GPU-two ${fails}`);
    const pool = await openPool(t, {}, options);
    await untilPool(pool, () => pool.snapshot().state === 'failed');
    t.deepEqual([one.outReason, two.outReason], [out, out]);
    await pool.close(0);
  }
  t.deepEqual(
    [one, two].map(({ listenerCount }) => listenerCount),
    [0, 0],
  );
});

test('a GPU on which a model never loads does not fail the node that has another', async t => {
  const host = await openHost(t);
  await host.fault('load GPU-two out of memory');
  const pool = await openOn(t, host, host.one, host.two);
  await pool.ready();
  await untilPool(pool, () => host.two.outReason !== undefined);
  t.is(host.two.outReason, 'out of memory');
  t.deepEqual([pool.snapshot().state, pool.snapshot().enginesReady], ['ready', 1]);
});

test('an engine for which memory is short leaves those beside it, and is back when there is some', async t => {
  const { one, childEnv, fault } = await openHost(t);
  const timing = { respawnDelaysMs: [0] } as const;
  const pool = await openPool(t, {}, { engines: 2, devices: [one, one], childEnv, timing });
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  await fault(`load GPU-one ${MEMORY_IS_SHORT}`);
  process.kill(pool.processes()[1]?.pid as number, 'SIGKILL');
  const tried = () => pool.metrics().deaths.load > FAILURE_DEATHS_MAX;
  await untilPool(pool, () => tried() || one.outReason !== undefined);
  t.is(one.outReason, undefined);
  t.is((await run(pool, QUICK)).alpha[0], QUICK);
  await fault();
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  // With none beside it there is nothing to wait for.
  await fault(`load GPU-one ${MEMORY_IS_SHORT}`);
  for (const { pid } of pool.processes()) process.kill(pid, 'SIGKILL');
  await untilPool(pool, () => one.outReason !== undefined);
  t.is(one.outReason, 'the engines keep dying: CUDA failure 2: out of memory');
});

test('engines of one GPU open one after the other, in every pool', async t => {
  const host = await openHost(t);
  const { one, two, childEnv } = host;
  // One that closes while its engines wait for their turn leaves none, and the turn to others.
  const closed = await openOn(t, host, one, one);
  await closed.close(0);
  t.deepEqual(closed.processes(), []);
  const before = (await readFile(host.loads, 'utf8').catch(() => '')).length;
  const model = await createModel(t, {});
  const devices = [one, two];
  const pools = [1, 2].map(() => openPool(t, {}, { model, engines: 2, devices, childEnv }));
  for (const pool of await Promise.all(pools)) {
    await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  }
  const lines = (await readFile(host.loads, 'utf8')).slice(before).trim().split('\n');
  for (const { facts } of [one, two]) {
    const own = lines.filter(line => line.endsWith(facts.id)).map(line => line.split(' ')[0]);
    t.deepEqual(own, ['loading', 'ended', 'loading', 'ended']);
  }
});

test('a GPU that is out is tried again, also where a try throws, and is back once it runs', async t => {
  const one = new GpuDevice(gpuFacts('one'));
  const back = Promise.withResolvers<void>();
  const { log, lines } = collectLog();
  const attempts = [async () => 'still broken', () => Promise.reject(new Error('no space left'))];
  const attempt = async () => await attempts.shift()?.();
  const watch = new DeviceWatch({ devices: [one], log, attempt, retryDelaysMs: [1] });
  t.teardown(() => watch.close());
  // The watch's own timers keep no process alive.
  const alive = setInterval(() => undefined, 60_000);
  t.teardown(() => clearInterval(alive));
  one.lose('an error');
  one.onChange(() => back.resolve());
  await back.promise;
  t.is(one.outReason, undefined);
  t.deepEqual(attempts, []);
  const warned = lines.filter(
    ({ level, reason }) => level === WARN && /tried/.test(String(reason)),
  );
  t.deepEqual(
    warned.map(({ gpu, reason }) => [gpu, reason]),
    [['GPU-one', 'it cannot be tried: no space left']],
  );
});
