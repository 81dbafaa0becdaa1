import { createHash } from 'node:crypto';
import { appendFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { ContractError } from '@matting/proto/contract/errors.ts';
import { killStopped } from '@matting/test-support/stopped-cannot-be-killed.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { onEachRuntime as test } from '../../test/openvino.ts';
import { ownClock } from '../../test/own-clock.ts';
import {
  createModel,
  ENDLESS_TRIPS,
  openPool,
  openReady,
  pidOf,
  QUICK,
  run,
  SLOW,
  untilPool,
  untilStarted,
} from '../../test/pool-harness.ts';
import { isAlive, stop, until, untilBusy } from '../../test/processes.ts';
import type { EnginePoolSnapshot } from './engine-pool.ts';
import { RunningMean } from './estimated-wait.ts';

const QUEUED_RUNS_MAX = 128;

/** The same with any runtime. */
const alone = ava.serial;

const AT_ONCE = { respawnDelaysMs: [0] } as const;
const ENDLESS = { kind: 'paced', tripsMax: ENDLESS_TRIPS } as const;
/** Longer than any run: only a clock that is put forward reaches it. */
const WATCHDOG_MS = 600_000;

alone(
  'a run of the wrong size is refused at once, and a pool closed while it loads leaves no process',
  async t => {
    const pool = await openPool(t, {});
    const pid = pidOf(pool);
    const { signal } = new AbortController();
    const odd = pool.run({ rgb: new Uint8Array(5), priority: 'sync', signal });
    await t.throwsAsync(odd, { message: /5 bytes of pixels for an input of 32x32/ });
    const aborted = run(pool, QUICK, { signal: AbortSignal.abort(new Error('too late')) });
    await t.throwsAsync(aborted, { message: /too late/ });
    t.is(pool.snapshot().queued, 0, 'neither was queued');
    const queued = Array.from({ length: QUEUED_RUNS_MAX }, () =>
      t.throwsAsync(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' }),
    );
    t.is(pool.snapshot().queued, QUEUED_RUNS_MAX);
    await t.throwsAsync(run(pool, QUICK), { code: 'NODE_OVERLOADED' });
    const ready = t.throwsAsync(pool.ready(), { code: 'NODE_UNAVAILABLE' });
    await pool.close(60_000);
    await Promise.all([ready, ...queued]);
    t.false(isAlive(pid));
  },
);

test('aborted while running, and closed: the caller learns at once, but nothing overtakes native code', async t => {
  const { pool, pid } = await openReady(t, {});
  const caller = new AbortController();
  // Stopped, it cannot end before the caller leaves.
  await stop(pid);
  const aborted = run(pool, QUICK, { signal: caller.signal });
  const next = run(pool, QUICK);
  caller.abort(new Error('went away'));
  await t.throwsAsync(aborted, { message: /went away/ });
  t.is(pool.snapshot().running, 1, 'the engine is still taken');
  t.is(pool.snapshot().queued, 1);
  process.kill(pid, 'SIGCONT');
  t.is((await next).alpha[0], QUICK);
  t.is(pidOf(pool), pid, 'the engine was not killed');
  t.deepEqual(pool.metrics().runs, { succeeded: 1, refused: 0, failed: 0, lost: 0, dropped: 1 });
  await stop(pid);
  const running = run(pool, QUICK);
  const queued = t.throwsAsync(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  const closing = pool.close(60_000);
  await t.throwsAsync(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await queued;
  process.kill(pid, 'SIGCONT');
  t.is((await running).alpha[0], QUICK);
  await closing;
  t.false(isAlive(pid));
  t.deepEqual(pool.processes(), []);
});

test('close with no grace left: the run is refused, its process gone', async t => {
  const { pool, pid } = await openReady(t, ENDLESS);
  const refused = t.throwsAsync(run(pool, SLOW), { code: 'NODE_UNAVAILABLE' });
  await untilBusy(pid);
  const patient = pool.close(3_600_000);
  await pool.close(0);
  await patient;
  await refused;
  t.false(isAlive(pid));
});

alone('the snapshot follows what happens, and listeners hear of it', async t => {
  const pool = await openPool(t, { kind: 'paced', tripsMax: 40 });
  const seen: EnginePoolSnapshot[] = [];
  const unsubscribe = pool.onChange(() => seen.push(pool.snapshot()));
  t.like(pool.snapshot(), {
    state: 'starting',
    engines: 1,
    enginesReady: 0,
    running: 0,
    queued: 0,
  });
  const early = run(pool, QUICK);
  t.is(pool.snapshot().queued, 1);
  const runs = [await early];
  const [running, queued] = [run(pool, SLOW), run(pool, SLOW)];
  const busy = pool.snapshot();
  t.deepEqual([busy.running, busy.queued], [1, 1]);
  t.true((await queued).waitMs > 0);
  runs.push(await running, await queued);
  const idle = pool.snapshot();
  t.is(idle.estimatedWaitMs, 0);
  const mean = new RunningMean();
  for (const { inferMs } of runs) mean.add(inferMs);
  t.true(mean.value > 0);
  t.is(idle.inferMs, mean.value);
  t.true(seen.some(({ state }) => state === 'starting'));
  t.true(seen.some(each => each.state === 'ready' && each.running === 1 && each.queued === 1));
  t.deepEqual([seen.at(-1)?.running, seen.at(-1)?.queued], [0, 0]);
  const { busyS, loadMs, warmMs } = pool.metrics();
  t.true(busyS > 0 && loadMs > 0 && warmMs > 0);
  const heard = seen.length;
  unsubscribe();
  await run(pool, QUICK);
  t.is(seen.length, heard);
});

ava('the mean begins with what the warm run took, and follows the runs', t => {
  const mean = new RunningMean();
  mean.seed(5);
  t.is(mean.value, 5);
  mean.add(10);
  t.is(mean.value, 10, 'a run of a picture says more');
  mean.seed(5);
  t.is(mean.value, 10, 'also where another engine is ready later');
  mean.add(20);
  t.true(mean.value > 10 && mean.value < 20);
});

test('a file that is no graph: ready() says so, no run is taken', async t => {
  const model = await createModel(t, {});
  const text = 'this is no graph';
  await writeFile(model.path, text);
  const sha256 = createHash('sha256').update(text).digest('hex');
  const pool = await openPool(t, {}, { model: { ...model, sha256 } });
  await t.throwsAsync(pool.ready(), {
    message: /model tiny-mean does not run on cpu: .*(protobuf|Unable to read the model)/i,
  });
  t.is(pool.snapshot().state, 'failed');
  await t.throwsAsync(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await until('no process is left', () => pool.processes().length === 0);
  t.is(pool.metrics().deaths.load, 1, 'what a load reports is not tried again');
});

test('a file altered while the node runs is not loaded again: the pool fails', async t => {
  const model = await createModel(t, {});
  const { pool } = await openReady(t, {}, { model, timing: AT_ONCE });
  // Unknown field 1000 of protobuf: ONNX Runtime would load the file.
  await appendFile(model.path, Buffer.from([0xc0, 0x3e, 1]));
  process.kill(pidOf(pool), 'SIGKILL');
  await untilPool(pool, () => pool.snapshot().state === 'failed');
  await t.throwsAsync(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
});

alone('loads that hang are killed, and three of them are the end', async t => {
  const timing = { ...AT_ONCE, loadTimeoutMs: 100 };
  const hanging = path.join(import.meta.dirname, '../../test/hanging-import.ts');
  const childEnv = { NODE_OPTIONS: `--import=${hanging}` };
  const pool = await openPool(t, {}, { timing, childEnv });
  await t.throwsAsync(pool.ready(), { message: /did not load within 100 ms/ });
  t.is(pool.metrics().deaths.load, 3);
  await until('no process is left', () => pool.processes().length === 0);
});

alone('killed while idle, or before it began an image: no image pays for it', async t => {
  const { pool, pid: before } = await openReady(t, {}, { timing: AT_ONCE });
  process.kill(before, 'SIGKILL');
  // The pool has not seen the death yet, so this run goes to the dead engine.
  t.is(pool.snapshot().enginesReady, 1);
  t.is((await run(pool, QUICK)).alpha[0], QUICK);
  t.not(pidOf(pool), before);
  t.is(pool.metrics().deaths.idle, 1);
  t.is(pool.metrics().runs.lost, 0);
  // Stopped, it does not begin: the next engine gets both, in order.
  const pid = pidOf(pool);
  process.kill(pid, 'SIGSTOP');
  const order: string[] = [];
  const first = run(pool, QUICK).then(() => order.push('first'));
  const second = run(pool, QUICK).then(() => order.push('second'));
  t.is(pool.snapshot().running, 1);
  killStopped(pid);
  await Promise.all([first, second]);
  t.deepEqual(order, ['first', 'second']);
  t.deepEqual(pool.metrics().runs, { succeeded: 3, refused: 0, failed: 0, lost: 0, dropped: 0 });
  process.kill(pidOf(pool), 'SIGKILL');
  await untilPool(pool, () => pool.snapshot().enginesReady === 0);
  t.deepEqual([pool.metrics().deaths.idle, pool.metrics().deaths.run], [3, 0]);
});

alone(
  'a run that leaves where engines are lost waits for the first one, and for none after it',
  async t => {
    const pool = await openPool(t, ENDLESS);
    const early = run(pool, QUICK, { failsWhenDown: true });
    t.is(pool.snapshot().state, 'starting');
    t.is((await early).alpha[0], QUICK);
    process.kill(pidOf(pool), 'SIGKILL');
    await untilPool(pool, () => pool.snapshot().enginesReady === 0);
    await t.throwsAsync(run(pool, QUICK, { failsWhenDown: true }), { code: 'ENGINE_LOST' });
  },
);

test('one image that kills its engine every time does not take the node with it', async t => {
  const { pool } = await openReady(t, ENDLESS, { timing: AT_ONCE });
  // As by the kernel without memory, and by native code that crashes.
  for (const signal of ['SIGKILL', 'SIGSEGV', 'SIGABRT'] as const) {
    const running = run(pool, SLOW);
    const lost = t.throwsAsync(running, { code: 'ENGINE_LOST' });
    await untilStarted(pool);
    process.kill(pidOf(pool), signal);
    await lost;
  }
  t.is(pool.snapshot().state, 'ready');
  t.is((await run(pool, QUICK)).alpha[0], QUICK);
  t.is(pool.metrics().deaths.run, 3);
  t.deepEqual(pool.metrics().runs, { succeeded: 1, refused: 0, failed: 0, lost: 3, dropped: 0 });
  const caller = new AbortController();
  const gone = t.throwsAsync(run(pool, SLOW, { signal: caller.signal }), { message: /went away/ });
  await untilStarted(pool);
  caller.abort(new Error('went away'));
  await gone;
  process.kill(pidOf(pool), 'SIGKILL');
  await untilPool(pool, () => pool.snapshot().running === 0);
  t.deepEqual(pool.metrics().runs, { succeeded: 1, refused: 0, failed: 0, lost: 3, dropped: 1 });
});

test('a run over its time is killed by the watchdog, and its image ends though the engine does not die', async t => {
  const clock = ownClock(t);
  const timing = { ...AT_ONCE, runTimeoutMinMs: WATCHDOG_MS, killWaitMaxMs: 3_600_000 };
  const { pool } = await openReady(t, ENDLESS, { timing });
  for (const [index, stopped] of ['never', 'within', 'before'].entries()) {
    const pid = pidOf(pool);
    if (stopped === 'before') process.kill(pid, 'SIGSTOP');
    const error = { code: 'ENGINE_LOST', message: /took too long/ };
    const lost = t.throwsAsync(
      run(pool, SLOW),
      stopped === 'before' ? { code: 'ENGINE_LOST' } : error,
    );
    if (stopped !== 'before') await untilStarted(pool);
    if (stopped === 'within') process.kill(pid, 'SIGSTOP');
    await clock.tickAsync(WATCHDOG_MS);
    await lost;
    const { deaths, runs } = pool.metrics();
    t.deepEqual([deaths.watchdog, runs.lost], [index + 1, index + 1]);
    const { running, enginesReady, enginesStuck } = pool.snapshot();
    t.deepEqual([running, enginesReady, enginesStuck], [0, 0, 0]);
    if (stopped !== 'never') killStopped(pid);
    await untilPool(pool, () => pool.snapshot().enginesReady === 1);
    t.is((await run(pool, QUICK)).alpha[0], QUICK);
    t.false(isAlive(pid));
    t.is(pool.metrics().deaths.watchdog, index + 1, 'counted once');
  }
});

alone('a single engine that does not die is a failed node, and holds no end up', async t => {
  const clock = ownClock(t);
  const timing = { runTimeoutMinMs: WATCHDOG_MS, killWaitMaxMs: 100 };
  const { pool, pid } = await openReady(t, {}, { timing });
  t.teardown(() => killStopped(pid));
  process.kill(pid, 'SIGSTOP');
  const lost = t.throwsAsync(run(pool, SLOW), { code: 'ENGINE_LOST' });
  const queued = t.throwsAsync(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await clock.tickAsync(WATCHDOG_MS);
  await lost;
  await queued;
  const { state, failure, enginesStuck } = pool.snapshot();
  t.deepEqual([state, enginesStuck], ['failed', 1]);
  t.is(failure, `process ${pid} of engine 0 was killed and does not die`);
  await t.throwsAsync(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await pool.close(60_000);
  t.deepEqual(
    pool.processes().map(child => child.pid),
    [pid],
    'it is named for who ends the node',
  );
});

alone('a load that does not die is a failed node too', async t => {
  const timing = { loadTimeoutMs: 50, killWaitMaxMs: 100 };
  const pool = await openPool(t, {}, { timing });
  const pid = pidOf(pool);
  t.teardown(() => killStopped(pid));
  process.kill(pid, 'SIGSTOP');
  await rejectsWith(t, pool.ready(), new RegExp(`process ${pid} of engine 0 .* does not die`));
  t.deepEqual([pool.metrics().deaths.load, pool.snapshot().state], [1, 'failed']);
});

alone('two engines run side by side, and the death of one costs only its own image', async t => {
  const pool = await openPool(t, ENDLESS, { engines: 2, timing: AT_ONCE });
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  const processes = pool.processes();
  t.deepEqual(
    processes.map(({ engine }) => engine),
    [0, 1],
  );
  t.is(new Set(processes.map(({ pid }) => pid)).size, 2);
  for (const { residentBytes = 0 } of processes) t.true(residentBytes > 10_000_000);
  const lost = t.throwsAsync(run(pool, SLOW), { code: 'ENGINE_LOST' });
  const beside = run(pool, QUICK);
  t.deepEqual([pool.snapshot().running, pool.snapshot().queued], [2, 0]);
  const pid = pidOf(pool);
  await untilBusy(pid);
  process.kill(pid, 'SIGKILL');
  t.is((await beside).alpha[0], QUICK);
  await lost;
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
});

alone('an engine that does not die keeps its slot empty until it does', async t => {
  const clock = ownClock(t);
  const timing = { ...AT_ONCE, runTimeoutMinMs: WATCHDOG_MS, killWaitMaxMs: 100 };
  const pool = await openPool(t, {}, { engines: 2, timing });
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  const pid = pidOf(pool);
  process.kill(pid, 'SIGSTOP');
  // The run has not begun: the other engine takes it after this one's timeout.
  const moved = run(pool, QUICK);
  await clock.tickAsync(WATCHDOG_MS);
  t.is((await moved).alpha[0], QUICK);
  await untilPool(pool, () => pool.snapshot().enginesStuck === 1);
  t.deepEqual([pool.snapshot().state, pool.snapshot().enginesReady], ['ready', 1]);
  t.is((await run(pool, QUICK)).alpha[0], QUICK);
  killStopped(pid);
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  t.is(pool.snapshot().enginesStuck, 0);
  t.is(pool.metrics().deaths.watchdog, 1);
});

alone('closing waits for no engine that does not die', async t => {
  const { pool, pid } = await openReady(t, {}, { timing: { killWaitMaxMs: 100 } });
  t.teardown(() => killStopped(pid));
  process.kill(pid, 'SIGSTOP');
  const refused = t.throwsAsync(run(pool, SLOW), { code: 'NODE_UNAVAILABLE' });
  await pool.close(0);
  await refused;
});

test('an answer that is not a number is NODE_FAULT, and the engine is replaced', async t => {
  const { pool, pid: before } = await openReady(t, { kind: 'not-a-number' });
  await rejectsWith(t, run(pool, QUICK), (error: ContractError) => {
    return error.code === 'NODE_FAULT' && /not numbers/.test(String(error.cause));
  });
  t.is((await run(pool, 200)).alpha[0], 200);
  t.not(pidOf(pool), before);
  t.deepEqual(pool.metrics().runs, { succeeded: 1, refused: 0, failed: 1, lost: 0, dropped: 0 });
  t.is(pool.metrics().deaths.fault, 1);
});

test('pictures of which a graph of others makes no matte end alone, their engine continues', async t => {
  const form = { inputType: 'float32', layout: 'nchw', fit: 'stretch', inverted: false } as const;
  const { pool, pid } = await openReady(t, { kind: 'not-a-number', form });
  // More different images than engines may die of.
  for (let brightness = 1; brightness <= 5; brightness++) {
    const code = {
      code: 'PROCESSING_FAILED',
      message: /tiny-not-a-number cannot process this image/,
    };
    await t.throwsAsync(run(pool, brightness), code);
  }
  t.is((await run(pool, 200)).alpha[0], 200);
  t.is(pidOf(pool), pid);
  t.deepEqual(pool.metrics().runs, { succeeded: 1, refused: 5, failed: 0, lost: 0, dropped: 0 });
});
