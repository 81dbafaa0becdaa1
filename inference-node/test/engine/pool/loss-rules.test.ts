import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runTimeoutMs } from '../../../src/engine/pool/engine-group.ts';
import type { EngineDeathCause } from '../../../src/engine/pool/engine-pool.ts';
import {
  BatchRule,
  FAILURE_WINDOW_MS,
  FailureRule,
  LOSSES_MAX,
} from '../../../src/engine/pool/loss-rules.ts';
import { RunQueue } from '../../../src/engine/pool/run-queue.ts';
import { createRunTask, type RunTask } from '../../../src/engine/pool/run-task.ts';
import { BATCH_SIZES } from '../../../src/models/prepared-model.ts';

function death(atMs: number, cause: EngineDeathCause, imageDigest?: string, engine = 0) {
  return { atMs, cause, imageDigest, engine };
}

test('three deaths without an image to blame within the window are a failed node', () => {
  const rule = new FailureRule();
  assert.equal(rule.recordDeath(death(0, 'idle')), false);
  assert.equal(rule.recordDeath(death(1, 'idle')), false);
  assert.equal(rule.recordDeath(death(FAILURE_WINDOW_MS - 1, 'watchdog')), true);
});

test('deaths a window apart are not', () => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    assert.equal(rule.recordDeath(death(i * (FAILURE_WINDOW_MS / 2), 'idle')), false);
  }
});

test('one poison image never takes the node with it, however often it comes', () => {
  const rule = new FailureRule();
  for (let i = 0; i < 20; i++) {
    assert.equal(rule.recordDeath(death(i, i % 2 === 0 ? 'run' : 'watchdog', 'poison')), false);
  }
});

test('three different images do, and so does an image among other deaths', () => {
  const images = new FailureRule();
  assert.equal(images.recordDeath(death(0, 'run', 'a')), false);
  assert.equal(images.recordDeath(death(1, 'run', 'b')), false);
  assert.equal(images.recordDeath(death(2, 'run', 'a')), false);
  assert.equal(images.recordDeath(death(3, 'fault', 'c')), true);
  const mixed = new FailureRule();
  assert.equal(mixed.recordDeath(death(0, 'run', 'a')), false);
  assert.equal(mixed.recordDeath(death(1, 'load')), false);
  assert.equal(mixed.recordDeath(death(2, 'idle')), true);
});

test('a run that succeeds forgives all', () => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    assert.equal(rule.recordDeath(death(i * 3, 'run', 'a')), false);
    assert.equal(rule.recordDeath(death(i * 3 + 1, 'run', 'b')), false);
    rule.recordSuccess();
  }
});

test('three loads in a row of one engine are a failed node, whatever their distance', () => {
  const rule = new FailureRule();
  const farApartMs = 10 * FAILURE_WINDOW_MS;
  assert.equal(rule.recordDeath(death(0, 'load')), false);
  // The other engine serves meanwhile; this one still never loads.
  rule.recordSuccess();
  assert.equal(rule.recordDeath(death(farApartMs, 'load')), false);
  assert.equal(rule.recordDeath(death(2 * farApartMs, 'load', undefined, 1)), false);
  assert.equal(rule.recordDeath(death(3 * farApartMs, 'load')), true);
});

test('a load that succeeds ends the row', () => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    assert.equal(rule.recordDeath(death(i * FAILURE_WINDOW_MS, 'load')), false);
    rule.recordReady(0);
  }
});

const GRAPHS = BATCH_SIZES.map(images => ({ images, path: '', sha256: '' }));

/** Numbered from 0, in their order. */
function tasks(count: number): RunTask[] {
  const { signal } = new AbortController();
  return Array.from({ length: count }, (_, id) => {
    const run = { rgb: new Uint8Array(), priority: 'sync', signal } as const;
    return createRunTask(id, run, () => undefined).task;
  });
}

function queueOf(waiting: readonly RunTask[]): RunQueue<RunTask> {
  const queue = new RunQueue<RunTask>();
  for (const task of waiting) queue.push(task);
  return queue;
}

/** The numbers of each run, with as many engines idle as said, until nothing waits. */
function runsOf(rule: BatchRule, waiting: readonly RunTask[], idle = 1): number[][] {
  const queue = queueOf(waiting);
  const runs: number[][] = [];
  for (let run = rule.next(queue, idle); run !== undefined; run = rule.next(queue, idle)) {
    runs.push(run.map(({ id }) => id));
  }
  return runs;
}

test('as many as there is a graph for, in their order; nothing waits for more', () => {
  const sizes = (count: number) => runsOf(new BatchRule(GRAPHS), tasks(count)).map(r => r.length);
  assert.deepEqual([0, 1, 2, 3].map(sizes), [[], [1], [2], [2, 1]]);
  assert.deepEqual([7, 8, 13].map(sizes), [[4, 2, 1], [8], [8, 4, 1]]);
  assert.deepEqual(runsOf(new BatchRule(GRAPHS), tasks(5)), [[0, 1, 2, 3], [4]]);
  assert.deepEqual(runsOf(new BatchRule(), tasks(3)), [[0], [1], [2]]);
});

test('engines that are idle together share what waits', () => {
  const rule = new BatchRule(GRAPHS);
  const queue = queueOf(tasks(8));
  assert.equal(rule.next(queue, 2)?.length, 4);
  assert.equal(rule.next(queue, 1)?.length, 4);
  assert.deepEqual(
    runsOf(rule, tasks(2), 2).map(run => run.length),
    [1, 1],
  );
});

test('one that was lost with others runs alone, and nobody with it', () => {
  const rule = new BatchRule(GRAPHS);
  const all = tasks(6);
  for (const lost of all.slice(1, 3)) lost.runsAlone = true;
  assert.deepEqual(runsOf(rule, all), [[0], [1], [2], [3, 4], [5]]);
});

test('given up after three losses with no run of several that ended well between them', () => {
  const rule = new BatchRule(GRAPHS);
  const other = new BatchRule(GRAPHS);
  for (let loss = 1; loss < LOSSES_MAX; loss++) assert.equal(rule.recordLoss(), false);
  rule.recordSuccess(2);
  for (let loss = 1; loss < LOSSES_MAX; loss++) assert.equal(rule.recordLoss(), false);
  rule.recordSuccess(1);
  assert.equal(rule.imagesMax, 8);
  assert.equal(rule.recordLoss(), true);
  rule.recordSuccess(8);
  assert.deepEqual([rule.imagesMax, other.imagesMax], [1, 8]);
  assert.equal(rule.recordLoss(), false, 'told once');
  assert.deepEqual(runsOf(rule, tasks(3)), [[0], [1], [2]]);
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
