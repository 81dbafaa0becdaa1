/** Runs of several pictures, with the real ONNX Runtime: who gets which matte, and who fails. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { killStopped } from '../../../../test/support/stopped-cannot-be-killed.ts';
import type { EnginePool, EnginePoolOptions } from '../../../src/engine/pool/engine-pool.ts';
import { FAILURE_DEATHS_MAX, LOSSES_MAX } from '../../../src/engine/pool/loss-rules.ts';
import { stop, untilBusy } from '../../support/processes.ts';
import { collectLog } from '../devices/gpu-host.ts';
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
} from './pool-harness.ts';

const SIZES = [2, 4, 8];
/** Seconds: what waits behind it waits. */
const ENDLESS = { kind: 'paced', tripsMax: ENDLESS_TRIPS, batches: SIZES } as const;
const MEAN = { kind: 'mean', batches: SIZES } as const;
const AT_ONCE = { respawnDelaysMs: [0] } as const;

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

/** Opened, and its engine held. */
async function openHeld(
  context: TestContext,
  model: Parameters<typeof openPool>[1],
  options?: Partial<EnginePoolOptions>,
) {
  const pool = await openPool(context, model, options);
  return { pool, ...(await holdEngine(pool)) };
}

function runsOf(pool: EnginePool) {
  return pool.metrics().runsByImages;
}

test('a free engine takes what waits at once, and each picture gets its own matte', async context => {
  const { pool, letGo } = await openHeld(context, MEAN);
  const pictures = [3, 200, 45, 120, 255, 0, 77];
  const mattes = pictures.map(brightness => run(pool, brightness));
  await letGo();
  for (const [index, { alpha }] of (await Promise.all(mattes)).entries()) {
    assert.equal(alpha.length, SIDE_PX * SIDE_PX);
    assert.ok(
      alpha.every(value => value === pictures[index]),
      `picture ${index}`,
    );
  }
  // Seven wait: four, two and one.
  assert.deepEqual(runsOf(pool), { 1: 2, 2: 1, 4: 1, 8: 0 });
  assert.deepEqual(pool.metrics().runs, { succeeded: 8, failed: 0, lost: 0, dropped: 0 });
});

test('pictures that differ in every pixel come back as they would alone', async context => {
  const { pool, letGo } = await openHeld(context, MEAN);
  const { signal } = new AbortController();
  const pictures = Array.from({ length: 8 }, (_, picture) =>
    Uint8Array.from({ length: 3 * SIDE_PX * SIDE_PX }, (_, i) => (i * (2 * picture + 3)) % 251),
  );
  const answers = () => pictures.map(rgb => pool.run({ rgb, priority: 'sync', signal }));
  const together = answers();
  await letGo();
  const mattes = await Promise.all(together);
  assert.equal(runsOf(pool)[8], 1);
  for (const [index, rgb] of pictures.entries()) {
    const alone = await pool.run({ rgb, priority: 'sync', signal });
    assert.deepEqual(mattes[index]?.alpha, alone.alpha, `picture ${index}`);
  }
  assert.equal(runsOf(pool)[1], 9);
});

test('nothing is held back for company: one that comes to a free engine runs alone', async context => {
  const { pool } = await openReady(context, MEAN);
  const [first, second, third] = [run(pool, 1), run(pool, 2), run(pool, 3)];
  assert.equal(pool.snapshot().queued, 2, 'the first is in the engine, before the call returns');
  await Promise.all([first, second, third]);
  assert.deepEqual(runsOf(pool), { 1: 1, 2: 1, 4: 0, 8: 0 });
});

test('a model without graphs for several runs them one by one', async context => {
  const { pool, letGo } = await openHeld(context, { kind: 'mean' });
  assert.equal(pool.snapshot().imagesARunMax, 1);
  const mattes = [10, 20, 30].map(brightness => run(pool, brightness));
  await letGo();
  await Promise.all(mattes);
  assert.deepEqual(runsOf(pool), { 1: 4, 2: 0, 4: 0, 8: 0 });
});

test('synchronous pictures are in the first run, before asynchronous ones that came earlier', async context => {
  const { pool, letGo } = await openHeld(context, { kind: 'mean', batches: [2] });
  const order: string[] = [];
  const noted = (name: string, priority: 'sync' | 'async') =>
    run(pool, QUICK, { priority }).then(() => order.push(name));
  const all = [
    noted('async 1', 'async'),
    noted('async 2', 'async'),
    noted('sync 1', 'sync'),
    noted('sync 2', 'sync'),
  ];
  await letGo();
  await Promise.all(all);
  assert.deepEqual(order, ['sync 1', 'sync 2', 'async 1', 'async 2']);
  assert.equal(runsOf(pool)[2], 2);
});

test('a caller that goes before its run leaves the queue; within, the others are answered', async context => {
  const { pool, letGo } = await openHeld(context, { kind: 'mean', batches: SIZES });
  const before = new AbortController();
  const within = new AbortController();
  const gone = run(pool, 1, { signal: before.signal });
  const dropped = run(pool, 2, { signal: within.signal });
  const kept = run(pool, 3);
  before.abort(new Error('went before'));
  await assert.rejects(gone, /went before/);
  // Told when the engine took both, before it answers: its process is stopped by its own run.
  const taken = untilPool(pool, () => pool.snapshot().queued === 0).then(() => {
    within.abort(new Error('went within'));
  });
  await letGo();
  await taken;
  await assert.rejects(dropped, /went within/);
  assert.equal((await kept).alpha[0], 3);
  assert.equal(runsOf(pool)[2], 1);
  assert.deepEqual(pool.metrics().runs, { succeeded: 2, failed: 0, lost: 0, dropped: 1 });
});

test('one picture whose matte is not a number fails alone', async context => {
  const model = { kind: 'not-a-number', batches: SIZES } as const;
  const { pool, pid } = await openReady(context, model, { timing: AT_ONCE });
  await stop(pid);
  const held = run(pool, 200);
  const bright = [150, 160, 170];
  // Dark: its logarithm is not a number.
  const [first, poison, ...others] = [
    run(pool, 140),
    run(pool, 5),
    ...bright.map(brightness => run(pool, brightness)),
  ];
  const failed = assert.rejects(poison as Promise<unknown>, { code: 'NODE_FAULT' });
  process.kill(pid, 'SIGCONT');
  assert.equal(((await held) as { alpha: Buffer }).alpha[0], 200);
  await failed;
  assert.equal((await first)?.alpha[0], 140);
  const alphas = (await Promise.all(others)).map(({ alpha }) => alpha[0]);
  assert.deepEqual(alphas, bright);
  assert.deepEqual(pool.metrics().runs, { succeeded: 5, failed: 1, lost: 0, dropped: 0 });
  // The run of four was lost, and the picture's own.
  assert.equal(pool.metrics().deaths.fault, 2);
  assert.deepEqual([runsOf(pool)[4], pool.snapshot().state], [1, 'ready']);
});

test('an engine that dies under several pictures: each runs again alone, in order', async context => {
  const { pool, pid, letGo } = await openHeld(context, ENDLESS, { timing: AT_ONCE });
  const order: number[] = [];
  const poison = run(pool, SLOW);
  const neighbours = [10, 20, 30].map(brightness =>
    run(pool, brightness).then(({ alpha }) => order.push(alpha[0] ?? -1)),
  );
  const lost = assert.rejects(poison, { code: 'ENGINE_LOST' });
  await letGo();
  await untilStarted(pool);
  process.kill(pid, 'SIGKILL');
  // Alone it is in the next engine, and dies with that one too.
  await untilPool(pool, () => pool.snapshot().running === 1 && pool.snapshot().queued === 3);
  await untilBusy(pidOf(pool));
  process.kill(pidOf(pool), 'SIGKILL');
  await lost;
  await Promise.all(neighbours);
  assert.deepEqual(order, [10, 20, 30]);
  assert.deepEqual(runsOf(pool), { 1: 5, 2: 0, 4: 1, 8: 0 });
  assert.deepEqual(pool.metrics().runs, { succeeded: 4, failed: 0, lost: 1, dropped: 0 });
  assert.equal(pool.snapshot().state, 'ready');
});

test('several pictures that take too long: the watchdog ends the one that does', async context => {
  const timing = { ...AT_ONCE, runTimeoutMinMs: 1000, runTimeoutMeans: 1 };
  const { pool, letGo } = await openHeld(context, ENDLESS, { timing });
  const poison = assert.rejects(run(pool, SLOW), /took too long/);
  const neighbour = run(pool, 20);
  await letGo();
  await poison;
  assert.equal((await neighbour).alpha[0], 20);
  assert.equal(pool.metrics().deaths.watchdog, 2);
});

test('an engine that dies before it began several: they run together again', async context => {
  const { pool, pid, held } = await openHeld(context, MEAN, { timing: AT_ONCE });
  const mattes = [10, 20].map(brightness => run(pool, brightness));
  killStopped(pid);
  await held;
  const alphas = (await Promise.all(mattes)).map(({ alpha }) => alpha[0]);
  assert.deepEqual(alphas, [10, 20]);
  assert.deepEqual([runsOf(pool)[2], pool.metrics().deaths.idle], [1, 1]);
});

test('closing: what waits is refused, a run of several has its grace', async context => {
  const { pool, letGo } = await openHeld(context, MEAN);
  const refused = [10, 20].map(brightness =>
    assert.rejects(run(pool, brightness), { code: 'NODE_UNAVAILABLE' }),
  );
  const closing = pool.close(60_000);
  await Promise.all(refused);
  await letGo();
  await closing;
  assert.deepEqual(pool.processes(), []);
});

test('runs of several that fail of being together are given up, with a line', async context => {
  const { log, lines } = collectLog();
  // Dark pictures are no numbers together, and are alone.
  const { batches = [] } = await createModel(context, { kind: 'not-a-number', batches: [2] });
  const model = { ...(await createModel(context, MEAN)), batches };
  const pool = await openPool(context, {}, { model, timing: AT_ONCE, log });
  for (let loss = 0; loss <= LOSSES_MAX; loss++) {
    assert.equal(pool.snapshot().imagesARunMax, loss < LOSSES_MAX ? 2 : 1);
    const { letGo } = await holdEngine(pool);
    const mattes = [4, 5].map(brightness => run(pool, brightness));
    await letGo();
    const alphas = (await Promise.all(mattes)).map(({ alpha }) => alpha[0]);
    assert.deepEqual(alphas, [4, 5]);
  }
  const given = lines.filter(({ msg }) => /one at a time/.test(msg));
  const [line] = given;
  assert.deepEqual([given.length, line?.level, line?.model], [1, 50, 'tiny-mean']);
  assert.equal(runsOf(pool)[2], LOSSES_MAX);
  assert.equal(pool.metrics().deaths.fault, LOSSES_MAX);
  assert.equal(pool.snapshot().state, 'ready');
});

test('several that are lost when the pool has failed: other nodes are to have them', async context => {
  const model = { ...ENDLESS, batches: [2] };
  const pool = await openPool(context, model, { engines: 2, timing: AT_ONCE });
  const pidsReady = async () => {
    await untilPool(pool, () => pool.snapshot().enginesReady === 2);
    return pool.processes().map(({ pid }) => pid);
  };
  const [first = 0, second = 0] = await pidsReady();
  for (const pid of [first, second]) await stop(pid);
  const held = [run(pool, QUICK), run(pool, QUICK)];
  const lost = [SLOW, SLOW].map(brightness =>
    assert.rejects(run(pool, brightness), { code: 'NODE_UNAVAILABLE' }),
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
  assert.deepEqual([pool.snapshot().state, pool.snapshot().running], ['failed', 1]);
  process.kill(first, 'SIGKILL');
  await Promise.all(lost);
  assert.deepEqual(runsOf(pool), { 1: 2, 2: 1, 4: 0, 8: 0 });
});

test('a wait is told by what a run takes for each of its pictures', async context => {
  const { pool, letGo } = await openHeld(context, {
    kind: 'paced',
    tripsMax: 300,
    batches: SIZES,
  });
  const mattes = Array.from({ length: 4 }, () => run(pool, SLOW));
  await letGo();
  const answered = await Promise.all(mattes);
  const [first] = answered;
  assert.ok(answered.every(({ inferMs }) => inferMs === first?.inferMs));
  // A fifth of it, and four fifths of what the quick one took.
  assert.ok(pool.snapshot().inferMs < (first?.inferMs ?? 0) / 4);
});

test('those lost with others wait for the next engine, whoever leaves when none is ready', async context => {
  const { pool, pid, letGo } = await openHeld(context, ENDLESS, { timing: AT_ONCE });
  const leaving = { leavesWhenDown: true };
  const lost = assert.rejects(run(pool, SLOW, leaving), { code: 'ENGINE_LOST' });
  const neighbours = [10, 20, 30].map(brightness => run(pool, brightness, leaving));
  await letGo();
  await untilStarted(pool);
  process.kill(pid, 'SIGKILL');
  await untilPool(pool, () => pool.snapshot().running === 1 && pool.snapshot().queued === 3);
  const left = assert.rejects(run(pool, 40, leaving), /No engine of the model is left/);
  await untilBusy(pidOf(pool));
  process.kill(pidOf(pool), 'SIGKILL');
  await Promise.all([lost, left]);
  const alphas = (await Promise.all(neighbours)).map(({ alpha }) => alpha[0]);
  assert.deepEqual(alphas, [10, 20, 30]);
  assert.deepEqual(runsOf(pool), { 1: 5, 2: 0, 4: 1, 8: 0 });
});

test('runs whose callers all leave when they are lost are given up too', async context => {
  const pool = await openPool(context, { ...ENDLESS, batches: [2] }, { timing: AT_ONCE });
  for (let loss = 1; loss <= LOSSES_MAX; loss++) {
    // Queued before the engine is ready: both are in its first run.
    const caller = new AbortController();
    const gone = [1, 2].map(() =>
      assert.rejects(run(pool, SLOW - loss, { signal: caller.signal }), /gone/),
    );
    await untilStarted(pool);
    process.kill(pidOf(pool), 'SIGKILL');
    await untilPool(pool, () => pool.snapshot().queued === 2);
    caller.abort(new Error('gone'));
    await Promise.all(gone);
  }
  assert.deepEqual([pool.snapshot().imagesARunMax, pool.snapshot().state], [1, 'ready']);
});
