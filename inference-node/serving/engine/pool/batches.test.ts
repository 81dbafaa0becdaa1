/** Runs of several pictures, with the real ONNX Runtime: who gets which matte, and who fails. */
import { killStopped } from '@matting/test-support/stopped-cannot-be-killed.ts';
import ava, { type ExecutionContext } from 'ava';
import { collectLog } from '../../test/gpu-host.ts';
import {
  createModel,
  ENDLESS_TRIPS,
  openPool,
  openReady,
  pidOf,
  QUICK,
  run,
  SIDE_PX,
  SLOW,
  untilPool,
  untilStarted,
} from '../../test/pool-harness.ts';
import { stop, untilBusy } from '../../test/processes.ts';
import { FAILURE_DEATHS_MAX, LOSSES_MAX } from './engine-group.ts';
import type { EnginePool, EnginePoolOptions } from './engine-pool.ts';

const test = ava.serial;

const SIZES = [2, 4, 8];
/** Seconds: what waits behind it waits. */
const ENDLESS = { kind: 'paced', tripsMax: ENDLESS_TRIPS } as const;
const MEAN = { kind: 'mean', batches: SIZES } as const;
const AT_ONCE = { respawnDelaysMs: [0] } as const;

/** Of the tests after which it is as before. */
let mean: EnginePool;
const endings: (() => unknown)[] = [];

test.before(async () => {
  mean = (await openReady({ teardown: end => endings.push(end) }, MEAN)).pool;
});

test.after.always(async () => {
  for (const end of endings.reverse()) await end();
});

/** The engine has a run that does not go on until it is let go: what comes then waits. */
async function holdEngine(pool: EnginePool) {
  await pool.ready();
  const pid = pidOf(pool);
  await stop(pid);
  const held = run(pool, QUICK);
  const letGo = async () => {
    process.kill(pid, 'SIGCONT');
    await held;
  };
  return { pid, held, letGo };
}

async function openHeld(
  context: ExecutionContext,
  model: Parameters<typeof openPool>[1],
  options?: Partial<EnginePoolOptions>,
) {
  const pool = await openPool(context, model, options);
  return { pool, ...(await holdEngine(pool)) };
}

function runsOf(pool: EnginePool) {
  return pool.metrics().runsByImages;
}

/** What `of` counts of the shared pool, less what it had counted before. */
function countedBy<Counts extends object>(of: () => Counts) {
  const before = new Map(Object.entries(of()));
  return () =>
    Object.fromEntries(Object.entries(of()).map(([key, n]) => [key, n - before.get(key)]));
}

test('a free engine takes what waits at once, and each picture gets its own matte', async t => {
  const runs = countedBy(() => runsOf(mean));
  const { letGo } = await holdEngine(mean);
  const pictures = [3, 200, 45, 120, 255, 0, 77];
  const mattes = pictures.map(brightness => run(mean, brightness));
  await letGo();
  for (const [index, { alpha }] of (await Promise.all(mattes)).entries()) {
    t.is(alpha.length, SIDE_PX * SIDE_PX);
    t.true(
      alpha.every(value => value === pictures[index]),
      `picture ${index}`,
    );
  }
  // Seven wait: four, two and one.
  t.deepEqual(runs(), { 1: 2, 2: 1, 4: 1, 8: 0 });
});

test('a caller that goes before its run leaves the queue; within, the others are answered', async t => {
  const runs = countedBy(() => runsOf(mean));
  const ends = countedBy(() => mean.metrics().runs);
  const { letGo } = await holdEngine(mean);
  const before = new AbortController();
  const within = new AbortController();
  const gone = run(mean, 1, { signal: before.signal });
  const dropped = run(mean, 2, { signal: within.signal });
  const kept = run(mean, 3);
  before.abort(new Error('went before'));
  await t.throwsAsync(gone, { message: /went before/ });
  // Told when the engine took both, before it answers: its process is stopped by its own run.
  const taken = untilPool(mean, () => mean.snapshot().queued === 0).then(() => {
    within.abort(new Error('went within'));
  });
  await letGo();
  await taken;
  await t.throwsAsync(dropped, { message: /went within/ });
  t.is((await kept).alpha[0], 3);
  t.is(runs()[2], 1);
  t.deepEqual(ends(), { succeeded: 2, refused: 0, failed: 0, lost: 0, dropped: 1 });
});

test('one picture whose matte is not a number fails alone', async t => {
  const model = { kind: 'not-a-number', batches: SIZES } as const;
  const { pool, pid } = await openReady(t, model, { timing: AT_ONCE });
  await stop(pid);
  const held = run(pool, 200);
  const bright = [150, 160, 170];
  // Dark: its logarithm is not a number.
  const [first, poison, ...others] = [
    run(pool, 140),
    run(pool, 5),
    ...bright.map(brightness => run(pool, brightness)),
  ];
  const failed = t.throwsAsync(poison as Promise<unknown>, { code: 'NODE_FAULT' });
  process.kill(pid, 'SIGCONT');
  t.is(((await held) as { alpha: Buffer }).alpha[0], 200);
  await failed;
  t.is((await first)?.alpha[0], 140);
  const alphas = (await Promise.all(others)).map(({ alpha }) => alpha[0]);
  t.deepEqual(alphas, bright);
  t.deepEqual(pool.metrics().runs, { succeeded: 5, refused: 0, failed: 1, lost: 0, dropped: 0 });
  // The run of four was lost, and the picture's own.
  t.is(pool.metrics().deaths.fault, 2);
  t.deepEqual([runsOf(pool)[4], pool.snapshot().state], [1, 'ready']);
});

test('an engine that dies under several pictures: each runs again alone, in order', async t => {
  const { pool, pid, letGo } = await openHeld(
    t,
    { ...ENDLESS, batches: [2, 4] },
    { timing: AT_ONCE },
  );
  // Those lost with others wait for the next engine, though they leave when none is ready.
  const leaving = { leavesWhenDown: true };
  const order: number[] = [];
  const lost = t.throwsAsync(run(pool, SLOW, leaving), { code: 'ENGINE_LOST' });
  const neighbours = [10, 20, 30].map((brightness, index) =>
    run(pool, brightness, index === 1 ? {} : leaving).then(({ alpha }) => {
      order.push(alpha[0] ?? -1);
    }),
  );
  await letGo();
  await untilStarted(pool);
  process.kill(pid, 'SIGKILL');
  // Alone it is in the next engine, and dies with that one too.
  await untilPool(pool, () => pool.snapshot().running === 1 && pool.snapshot().queued === 3);
  const left = t.throwsAsync(run(pool, 40, leaving), { message: /No engine of the model is left/ });
  await untilBusy(pidOf(pool));
  process.kill(pidOf(pool), 'SIGKILL');
  await Promise.all([lost, left, ...neighbours]);
  t.deepEqual(order, [10, 20, 30]);
  t.deepEqual(runsOf(pool), { 1: 5, 2: 0, 4: 1, 8: 0 });
  t.like(pool.metrics().runs, { succeeded: 4, refused: 0, failed: 0, lost: 1 });
  t.is(pool.snapshot().state, 'ready');
});

test('an engine that dies before it began several: they run together again', async t => {
  const runs = countedBy(() => runsOf(mean));
  const deaths = countedBy(() => mean.metrics().deaths);
  const { pid, held } = await holdEngine(mean);
  const mattes = [10, 20].map(brightness => run(mean, brightness));
  killStopped(pid);
  await held;
  const alphas = (await Promise.all(mattes)).map(({ alpha }) => alpha[0]);
  t.deepEqual(alphas, [10, 20]);
  t.deepEqual([runs()[2], deaths().idle], [1, 1]);
});

test('runs of several that fail of being together are given up, with a line', async t => {
  const { log, lines } = collectLog();
  // Dark pictures are no numbers together, and are alone.
  const { batches = [] } = await createModel(t, { kind: 'not-a-number', batches: [2] });
  const model = { ...(await createModel(t, MEAN)), batches };
  const pool = await openPool(t, {}, { model, timing: AT_ONCE, log });
  for (let loss = 0; loss <= LOSSES_MAX; loss++) {
    t.is(pool.snapshot().imagesARunMax, loss < LOSSES_MAX ? 2 : 1);
    const { letGo } = await holdEngine(pool);
    const mattes = [4, 5].map(brightness => run(pool, brightness));
    await letGo();
    const alphas = (await Promise.all(mattes)).map(({ alpha }) => alpha[0]);
    t.deepEqual(alphas, [4, 5]);
  }
  const given = lines.filter(({ msg }) => /one at a time/.test(msg));
  const [line] = given;
  t.deepEqual([given.length, line?.level, line?.model], [1, 50, 'tiny-mean']);
  t.is(runsOf(pool)[2], LOSSES_MAX);
  t.is(pool.metrics().deaths.fault, LOSSES_MAX);
  t.is(pool.snapshot().state, 'ready');
});

test('several that are lost when the pool has failed: other nodes are to have them', async t => {
  const model = { ...ENDLESS, batches: [2] };
  const pool = await openPool(t, model, { engines: 2, timing: AT_ONCE });
  const pidsReady = async () => {
    await untilPool(pool, () => pool.snapshot().enginesReady === 2);
    return pool.processes().map(({ pid }) => pid);
  };
  const [first = 0, second = 0] = await pidsReady();
  for (const pid of [first, second]) await stop(pid);
  const held = [run(pool, QUICK), run(pool, QUICK)];
  const lost = [SLOW, SLOW].map(brightness =>
    t.throwsAsync(run(pool, brightness), { code: 'NODE_UNAVAILABLE' }),
  );
  process.kill(first, 'SIGCONT');
  await untilPool(pool, () => pool.snapshot().queued === 0);
  process.kill(second, 'SIGCONT');
  await Promise.all(held);
  await untilBusy(first);
  for (let death = 1; death <= FAILURE_DEATHS_MAX; death++) {
    const [, pid = 0] = await pidsReady();
    process.kill(pid, 'SIGKILL');
    await untilPool(pool, () => pool.metrics().deaths.idle === death);
  }
  t.deepEqual([pool.snapshot().state, pool.snapshot().running], ['failed', 1]);
  process.kill(first, 'SIGKILL');
  await Promise.all(lost);
  t.deepEqual(runsOf(pool), { 1: 2, 2: 1, 4: 0, 8: 0 });
});

test('runs whose callers all leave when they are lost are given up too', async t => {
  const pool = await openPool(t, { ...ENDLESS, batches: [2] }, { timing: AT_ONCE });
  for (let loss = 1; loss <= LOSSES_MAX; loss++) {
    // Queued before the engine is ready: both are in its first run.
    const caller = new AbortController();
    const gone = [1, 2].map(() =>
      t.throwsAsync(run(pool, SLOW - loss, { signal: caller.signal }), { message: /gone/ }),
    );
    await untilStarted(pool);
    process.kill(pidOf(pool), 'SIGKILL');
    await untilPool(pool, () => pool.snapshot().queued === 2);
    caller.abort(new Error('gone'));
    await Promise.all(gone);
  }
  t.deepEqual([pool.snapshot().imagesARunMax, pool.snapshot().state], [1, 'ready']);
});

// The last: it closes the pool of all.
test('closing: what waits is refused, a run of several has its grace', async t => {
  const { letGo } = await holdEngine(mean);
  const refused = [10, 20].map(brightness =>
    t.throwsAsync(run(mean, brightness), { code: 'NODE_UNAVAILABLE' }),
  );
  const closing = mean.close(60_000);
  await Promise.all(refused);
  await letGo();
  await closing;
  t.deepEqual(mean.processes(), []);
});
