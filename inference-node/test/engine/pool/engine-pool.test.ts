/** What a pool does while its engines are well, with the real ONNX Runtime. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import type { EnginePoolSnapshot } from '../../../src/engine/pool/engine-pool.ts';
import { QUEUED_RUNS_MAX } from '../../../src/engine/pool/open-engine-pool.ts';
import { isAlive, stop, untilBusy, WRITING_ENV } from '../../support/processes.ts';
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
} from './pool-harness.ts';

const ENDLESS = { kind: 'paced', tripsMax: ENDLESS_TRIPS } as const;
/** About half a second. */
const PACED = { kind: 'paced', tripsMax: 150 } as const;

test('a picture of another size is a bug of the caller, and costs nothing', async context => {
  const pool = await openPool(context, {});
  const signal = new AbortController().signal;
  const wrong = pool.run({ rgb: new Uint8Array(5), priority: 'sync', signal });
  await assert.rejects(wrong, /5 bytes of RGB for an input of 32x32/);
  assert.equal(pool.snapshot().queued, 0);
});

test('aborted before it came: never queued', async context => {
  const pool = await openPool(context, {});
  const signal = AbortSignal.abort(new Error('too late'));
  await assert.rejects(run(pool, QUICK, { signal }), /too late/);
  assert.equal(pool.snapshot().queued, 0);
});

test('aborted while running: told at once, but nothing overtakes native code', async context => {
  const { pool, pid } = await openReady(context, PACED);
  const caller = new AbortController();
  // Stopped, it cannot have ended before the caller goes.
  await stop(pid);
  const aborted = run(pool, SLOW, { signal: caller.signal });
  const next = run(pool, QUICK);
  caller.abort(new Error('went away'));
  await assert.rejects(aborted, /went away/);
  assert.equal(pool.snapshot().running, 1, 'the engine is still taken');
  assert.equal(pool.snapshot().queued, 1);
  process.kill(pid, 'SIGCONT');
  assert.equal((await next).alpha[0], QUICK);
  assert.equal(pidOf(pool), pid, 'the engine was not killed');
  assert.deepEqual(pool.metrics().runs, { succeeded: 1, failed: 0, lost: 0, dropped: 1 });
});

test('over the bound of the queue: NODE_OVERLOADED', async context => {
  const pool = await openPool(context, ENDLESS);
  const queued = Array.from({ length: QUEUED_RUNS_MAX }, () =>
    assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' }),
  );
  assert.equal(pool.snapshot().queued, QUEUED_RUNS_MAX);
  await assert.rejects(run(pool, QUICK), { code: 'NODE_OVERLOADED' });
  await pool.close(0);
  await Promise.all(queued);
});

test('close during a run: it finishes, the queued are refused, none is left', async context => {
  const { pool, pid } = await openReady(context, PACED);
  const running = run(pool, SLOW);
  const queued = assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  const closing = pool.close(60_000);
  await assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await queued;
  assert.equal((await running).alpha[0], SLOW);
  await closing;
  assert.equal(isAlive(pid), false);
  assert.deepEqual(pool.processes(), []);
});

test('close with no grace left: the run is refused, its process gone', async context => {
  const { pool, pid } = await openReady(context, ENDLESS);
  const refused = assert.rejects(run(pool, SLOW), { code: 'NODE_UNAVAILABLE' });
  await untilBusy(pid);
  const patient = pool.close(3_600_000);
  // A second close with less time hurries the first.
  await pool.close(0);
  await patient;
  await refused;
  assert.equal(isAlive(pid), false);
});

test('close while the engines load: ready() rejects, no process is left', async context => {
  const pool = await openPool(context, {});
  const pid = pidOf(pool);
  const ready = assert.rejects(pool.ready(), { code: 'NODE_UNAVAILABLE' });
  await pool.close(60_000);
  await ready;
  assert.equal(isAlive(pid), false);
});

test('alpha is what the graph says, for each kind of model', async context => {
  const cases = [
    [{ kind: 'mean' }, [0, 90, 255], [0, 90, 255]],
    [{ kind: 'overshoot' }, [0, 85, 128, 170, 255], [0, 0, 129, 255, 255]],
    [{ kind: 'sigmoid' }, [0, 100, 255], [5, 76, 250]],
  ] as const;
  for (const [kind, brightnesses, alphas] of cases) {
    const pool = await openPool(context, kind);
    for (const [i, brightness] of brightnesses.entries()) {
      const { alpha } = await run(pool, brightness);
      assert.equal(alpha.length, SIDE_PX * SIDE_PX);
      assert.ok(
        alpha.every(value => value === alphas[i]),
        `${kind.kind}: ${alpha[0]}`,
      );
    }
    await pool.close(0);
  }
});

test('pixels and channels keep their places, whatever the order of the tensor', async context => {
  const size = { width: 40, height: 24 };
  const rgb = new Uint8Array(3 * size.width * size.height);
  for (let i = 0; i < rgb.length; i++) rgb[i] = (i * 7) % 256;
  const channel = (which: number) => Buffer.from(rgb.filter((_, i) => i % 3 === which));
  const model = await createModel(context, { kind: 'red', ...size });
  const signal = new AbortController().signal;
  for (const [colourOrder, which] of [
    ['rgb', 0],
    ['bgr', 2],
  ] as const) {
    const pool = await openPool(context, {}, { model: { ...model, colourOrder } });
    const { alpha } = await pool.run({ rgb, priority: 'sync', signal });
    assert.ok(alpha.equals(channel(which)), colourOrder);
    await pool.close(0);
  }
});

test('the snapshot follows what happens, and listeners hear of it', async context => {
  const pool = await openPool(context, PACED);
  const seen: EnginePoolSnapshot[] = [];
  const unsubscribe = pool.onChange(() => seen.push(pool.snapshot()));
  assert.deepEqual(
    { ...pool.snapshot(), inferMs: 0, estimatedWaitMs: 0 },
    {
      state: 'starting',
      failure: undefined,
      engines: 1,
      enginesReady: 0,
      enginesStuck: 0,
      running: 0,
      imagesARunMax: 1,
      queued: 0,
      inferMs: 0,
      estimatedWaitMs: 0,
    },
  );
  // Before ready: it waits for the engine.
  const early = run(pool, QUICK);
  assert.equal(pool.snapshot().queued, 1);
  await early;
  const [running, queued] = [run(pool, SLOW), run(pool, SLOW)];
  const busy = pool.snapshot();
  assert.deepEqual([busy.running, busy.queued], [1, 1]);
  const { inferMs, waitMs } = await queued;
  assert.ok(waitMs > 0 && inferMs > 0);
  await running;
  const idle = pool.snapshot();
  assert.equal(idle.estimatedWaitMs, 0);
  assert.ok(idle.inferMs > busy.inferMs, 'the mean follows slower runs');
  assert.ok(seen.some(({ state }) => state === 'starting'));
  assert.ok(seen.some(each => each.state === 'ready' && each.running === 1 && each.queued === 1));
  assert.deepEqual([seen.at(-1)?.running, seen.at(-1)?.queued], [0, 0]);
  const { busyS, loadMs, warmMs } = pool.metrics();
  assert.ok(busyS > 0 && loadMs > 0 && warmMs > 0);
  const heard = seen.length;
  unsubscribe();
  await run(pool, QUICK);
  assert.equal(seen.length, heard);
});

test('what an engine writes is a line of the log, of neither output of the node', async context => {
  const lines: { msg: string; line?: string; engine?: number; enginePid?: number }[] = [];
  const log = pino({}, { write: line => void lines.push(JSON.parse(line)) });
  const { pool, pid } = await openReady(context, {}, { log, childEnv: WRITING_ENV });
  await pool.close(0);
  const written = lines.filter(({ msg }) => msg === 'engine wrote');
  assert.deepEqual(written.map(({ line, engine, enginePid }) => [line, engine, enginePid]).sort(), [
    ['(process:1): GLib-WARNING', 0, pid],
    ['on the standard output', 0, pid],
  ]);
});

test('processes are told with their memory, and two engines run side by side', async context => {
  const pool = await openPool(context, PACED, { engines: 2 });
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  const processes = pool.processes();
  assert.deepEqual(
    processes.map(({ engine }) => engine),
    [0, 1],
  );
  assert.equal(new Set(processes.map(({ pid }) => pid)).size, 2);
  for (const { residentBytes = 0 } of processes) assert.ok(residentBytes > 10_000_000);
  const both = [run(pool, SLOW), run(pool, SLOW)];
  assert.deepEqual([pool.snapshot().running, pool.snapshot().queued], [2, 0]);
  await Promise.all(both);
});
