/** What goes into one run, and when runs of several are given up. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BatchRule, LOSSES_MAX } from '../../../src/engine/pool/loss-rules.ts';
import { RunQueue } from '../../../src/engine/pool/run-queue.ts';
import { createRunTask, type RunTask } from '../../../src/engine/pool/run-task.ts';
import { BATCH_SIZES } from '../../../src/models/prepared-model.ts';

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
