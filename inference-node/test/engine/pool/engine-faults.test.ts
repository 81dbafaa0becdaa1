/** Engines that do not load, die, hang or answer wrongly, with the real ONNX Runtime. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { appendFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import type { ContractError } from '#contract/errors.ts';
import { killStopped } from '../../../../test/support/stopped-cannot-be-killed.ts';
import { isAlive, until, untilBusy } from '../../support/processes.ts';
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
} from './pool-harness.ts';

/** Far over a quick run's time on a busy machine. */
const WATCHDOG_MS = 2000;
const AT_ONCE = { respawnDelaysMs: [0] } as const;
const ENDLESS = { kind: 'paced', tripsMax: ENDLESS_TRIPS } as const;

test('a file that is no graph: ready() says so, no run is taken', async context => {
  const model = await createModel(context, {});
  const text = 'this is no graph';
  await writeFile(model.path, text);
  const sha256 = createHash('sha256').update(text).digest('hex');
  const pool = await openPool(context, {}, { model: { ...model, sha256 } });
  await assert.rejects(pool.ready(), /model tiny-mean does not run on cpu: .*protobuf/i);
  assert.equal(pool.snapshot().state, 'failed');
  await assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await until('no process is left', () => pool.processes().length === 0);
  assert.equal(pool.metrics().deaths.load, 1, 'what a load reports is not tried again');
});

test('a file altered while the node runs is not loaded again: the pool fails', async context => {
  const model = await createModel(context, {});
  const { pool } = await openReady(context, {}, { model, timing: AT_ONCE });
  // Field 1000 of protobuf, which nobody knows: ONNX Runtime would load it.
  await appendFile(model.path, Buffer.from([0xc0, 0x3e, 1]));
  process.kill(pidOf(pool), 'SIGKILL');
  await untilPool(pool, () => pool.snapshot().state === 'failed');
  await assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
});

test('a graph that is not what its model says does not become ready', async context => {
  const model = await createModel(context, {});
  const cases = [
    [{ path: `${model.path}.gone` }, /doesn't exist|not exist|No such file/i],
    [{ inputName: 'picture' }, /inputs are input, not picture/],
    [{ outputName: 'matte' }, /outputs are output, without matte/],
    [{ inputWidth: 64 }, /invalid dimensions/i],
    [
      { ...(await createModel(context, { kind: 'wrong-shape' })) },
      /float32 1x2x32x32, not float32/,
    ],
  ] as const;
  for (const [wrong, message] of cases) {
    const pool = await openPool(context, {}, { model: { ...model, ...wrong } });
    await assert.rejects(pool.ready(), message);
    await pool.close(0);
  }
});

test('loads that hang are killed, and three of them are the end', async context => {
  const timing = { ...AT_ONCE, loadTimeoutMs: 100 };
  const hanging = path.join(import.meta.dirname, 'hanging-import.ts');
  const childEnv = { NODE_OPTIONS: `--import=${hanging}` };
  const pool = await openPool(context, {}, { timing, childEnv });
  await assert.rejects(pool.ready(), /did not load within 100 ms/);
  assert.equal(pool.metrics().deaths.load, 3);
  await until('no process is left', () => pool.processes().length === 0);
});

test('killed in the middle of a run: ENGINE_LOST, and the next image is served', async context => {
  const { pool } = await openReady(context, ENDLESS);
  const running = run(pool, SLOW);
  await untilBusy(pidOf(pool));
  process.kill(pidOf(pool), 'SIGKILL');
  await assert.rejects(running, { code: 'ENGINE_LOST' });
  assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
  assert.equal(pool.metrics().deaths.run, 1);
  assert.deepEqual(pool.metrics().runs, { succeeded: 1, failed: 0, lost: 1, dropped: 0 });
});

test('killed while idle: no image pays for it', async context => {
  const { pool, pid: before } = await openReady(context, { kind: 'mean' });
  process.kill(before, 'SIGKILL');
  // Not seen yet: this run is sent to the dead.
  assert.equal(pool.snapshot().enginesReady, 1);
  assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
  assert.notEqual(pidOf(pool), before);
  assert.equal(pool.metrics().deaths.idle, 1);
  assert.equal(pool.metrics().runs.lost, 0);
  // One that has run is idle again.
  process.kill(pidOf(pool), 'SIGKILL');
  await untilPool(pool, () => pool.snapshot().enginesReady === 0);
  assert.deepEqual([pool.metrics().deaths.idle, pool.metrics().deaths.run], [2, 0]);
});

test('killed before it began an image: the next engine gets it, in its turn', async context => {
  const { pool, pid } = await openReady(context, { kind: 'mean' });
  process.kill(pid, 'SIGSTOP');
  const order: string[] = [];
  const first = run(pool, QUICK).then(() => order.push('first'));
  const second = run(pool, QUICK).then(() => order.push('second'));
  assert.equal(pool.snapshot().running, 1);
  killStopped(pid);
  await Promise.all([first, second]);
  assert.deepEqual(order, ['first', 'second']);
  assert.deepEqual(pool.metrics().runs, { succeeded: 2, failed: 0, lost: 0, dropped: 0 });
});

test('one image that kills its engine every time does not take the node with it', async context => {
  const { pool } = await openReady(context, ENDLESS, { timing: AT_ONCE });
  for (let attempt = 0; attempt < 4; attempt++) {
    const running = run(pool, SLOW);
    const lost = assert.rejects(running, { code: 'ENGINE_LOST' });
    await untilPool(pool, () => pool.snapshot().running === 1);
    await untilBusy(pidOf(pool));
    process.kill(pidOf(pool), 'SIGKILL');
    await lost;
  }
  assert.equal(pool.snapshot().state, 'ready');
  assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
});

test('engines that die under different images are a failed node', async context => {
  const { pool } = await openReady(context, ENDLESS, { timing: AT_ONCE });
  let queued: Promise<unknown> | undefined;
  for (const brightness of [SLOW, SLOW - 1, SLOW - 2]) {
    const lost = assert.rejects(run(pool, brightness), { code: 'ENGINE_LOST' });
    await untilPool(pool, () => pool.snapshot().running === 1);
    if (brightness === SLOW - 2) {
      queued = assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
    }
    await untilBusy(pidOf(pool));
    process.kill(pidOf(pool), 'SIGKILL');
    await lost;
  }
  await queued;
  assert.equal(pool.snapshot().state, 'failed');
  await assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await until('no process is left', () => pool.processes().length === 0);
});

test('a run over its time is killed by the watchdog', async context => {
  const timing = { runTimeoutMinMs: 1000, runTimeoutMeans: 1 };
  const { pool, pid: before } = await openReady(context, ENDLESS, { timing });
  await assert.rejects(run(pool, SLOW), {
    code: 'ENGINE_LOST',
    message: /took too long/,
  });
  assert.equal(pool.metrics().deaths.watchdog, 1, 'counted when the image ends');
  assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
  assert.equal(isAlive(before), false);
  assert.equal(pool.metrics().deaths.watchdog, 1);
});

test('an engine that does not die: its image ends by the watchdog all the same', async context => {
  for (const begun of [true, false]) {
    // However long its process is waited for.
    const timing = { runTimeoutMinMs: WATCHDOG_MS, runTimeoutMeans: 1, killWaitMaxMs: 3_600_000 };
    const { pool } = await openReady(context, ENDLESS, { timing });
    const pid = pidOf(pool);
    if (!begun) process.kill(pid, 'SIGSTOP');
    const lost = assert.rejects(run(pool, SLOW), { code: 'ENGINE_LOST' });
    if (begun) {
      await untilStarted(pool);
      process.kill(pid, 'SIGSTOP');
    }
    await lost;
    assert.deepEqual([pool.metrics().deaths.watchdog, pool.metrics().runs.lost], [1, 1]);
    const { running, enginesReady, enginesStuck } = pool.snapshot();
    assert.deepEqual([running, enginesReady, enginesStuck], [0, 0, 0]);
    killStopped(pid);
    await untilPool(pool, () => pool.snapshot().enginesReady === 1);
    assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
    assert.equal(pool.metrics().deaths.watchdog, 1, 'counted once');
  }
});

test('a single engine that does not die is a failed node, and holds no end up', async context => {
  const timing = { runTimeoutMinMs: WATCHDOG_MS, runTimeoutMeans: 1, killWaitMaxMs: 100 };
  const { pool, pid } = await openReady(context, ENDLESS, { timing });
  context.after(() => killStopped(pid));
  process.kill(pid, 'SIGSTOP');
  const lost = assert.rejects(run(pool, SLOW), { code: 'ENGINE_LOST' });
  const queued = assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await lost;
  await queued;
  const { state, failure, enginesStuck } = pool.snapshot();
  assert.deepEqual([state, enginesStuck], ['failed', 1]);
  assert.equal(failure, `process ${pid} of engine 0 was killed and does not die`);
  await assert.rejects(run(pool, QUICK), { code: 'NODE_UNAVAILABLE' });
  await pool.close(60_000);
  assert.deepEqual(
    pool.processes().map(child => child.pid),
    [pid],
    'it is named for who ends the node',
  );
});

test('a load that does not die is a failed node too', async context => {
  const timing = { loadTimeoutMs: 500, killWaitMaxMs: 100 };
  const pool = await openPool(context, {}, { timing });
  const pid = pidOf(pool);
  context.after(() => killStopped(pid));
  process.kill(pid, 'SIGSTOP');
  await assert.rejects(pool.ready(), new RegExp(`process ${pid} of engine 0 .* does not die`));
  assert.deepEqual([pool.metrics().deaths.load, pool.snapshot().state], [1, 'failed']);
});

test('of two engines one that does not die leaves its place empty until it does', async context => {
  const timing = {
    ...AT_ONCE,
    runTimeoutMinMs: WATCHDOG_MS,
    runTimeoutMeans: 1,
    killWaitMaxMs: 100,
  };
  const pool = await openPool(context, ENDLESS, { engines: 2, timing });
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  const pid = pidOf(pool);
  process.kill(pid, 'SIGSTOP');
  // Not begun: the other one takes it, once this one's time is over.
  assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
  await untilPool(pool, () => pool.snapshot().enginesStuck === 1);
  assert.deepEqual([pool.snapshot().state, pool.snapshot().enginesReady], ['ready', 1]);
  assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
  killStopped(pid);
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  assert.equal(pool.snapshot().enginesStuck, 0);
  assert.equal(pool.metrics().deaths.watchdog, 1);
});

test('closing waits for no engine that does not die', async context => {
  const { pool, pid } = await openReady(context, ENDLESS, { timing: { killWaitMaxMs: 100 } });
  context.after(() => killStopped(pid));
  const refused = assert.rejects(run(pool, SLOW), { code: 'NODE_UNAVAILABLE' });
  process.kill(pid, 'SIGSTOP');
  await pool.close(0);
  await refused;
});

test('an image whose caller has gone is lost with its engine, told once', async context => {
  const { pool } = await openReady(context, ENDLESS);
  const caller = new AbortController();
  const gone = assert.rejects(run(pool, SLOW, { signal: caller.signal }), /went away/);
  await untilBusy(pidOf(pool));
  caller.abort(new Error('went away'));
  await gone;
  process.kill(pidOf(pool), 'SIGKILL');
  await untilPool(pool, () => pool.snapshot().running === 0);
  assert.deepEqual(pool.metrics().runs, { succeeded: 0, failed: 0, lost: 0, dropped: 1 });
});

test('an answer that is not a number is NODE_FAULT, and the engine is replaced', async context => {
  const { pool, pid: before } = await openReady(context, { kind: 'not-a-number' });
  await assert.rejects(run(pool, QUICK), (error: ContractError) => {
    return error.code === 'NODE_FAULT' && /not numbers/.test(String(error.cause));
  });
  assert.equal((await run(pool, 200)).alpha[0], 200);
  assert.notEqual(pidOf(pool), before);
  assert.deepEqual(pool.metrics().runs, { succeeded: 1, failed: 1, lost: 0, dropped: 0 });
  assert.equal(pool.metrics().deaths.fault, 1);
});

test('two engines: the death of one costs only its own image', async context => {
  const pool = await openPool(context, ENDLESS, { engines: 2 });
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
  const lost = assert.rejects(run(pool, SLOW), { code: 'ENGINE_LOST' });
  const pid = pidOf(pool);
  await untilBusy(pid);
  process.kill(pid, 'SIGKILL');
  assert.equal((await run(pool, QUICK)).alpha[0], QUICK);
  await lost;
  await untilPool(pool, () => pool.snapshot().enginesReady === 2);
});

test('the engine ends with a parent that is killed during a run', async () => {
  const program = path.join(import.meta.dirname, 'pool-parent.ts');
  const parent = spawn(process.execPath, [program], { stdio: ['ignore', 'pipe', 'inherit'] });
  const lines = createInterface({ input: parent.stdout })[Symbol.asyncIterator]();
  const engine = Number((await lines.next()).value);
  await untilBusy(engine);
  parent.kill('SIGKILL');
  await once(parent, 'exit');
  await until('the engine is gone', () => !isAlive(engine));
});
