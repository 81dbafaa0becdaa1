/** What goes into one run, and when runs of several are given up. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  BatchRule,
  BLAMELESS_LOSSES_MAX,
  type LossVerdict,
} from '../../../src/engine/pool/batch-rule.ts';
import { RunQueue } from '../../../src/engine/pool/run-queue.ts';
import { createRunTask, type EndAlone, type RunTask } from '../../../src/engine/pool/run-task.ts';
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
  rule.recordLoss(all.slice(1, 3), all.slice(1, 3), () => undefined);
  assert.deepEqual(runsOf(rule, all), [[0], [1], [2], [3, 4], [5]]);
});

/** A run is lost, and its pictures end so. Returns what was said at the last end, and only then. */
function lose(rule: BatchRule, ...ends: EndAlone[]): LossVerdict | undefined {
  const lost = tasks(ends.length);
  const verdicts: LossVerdict[] = [];
  rule.recordLoss(lost, lost, verdict => verdicts.push(verdict));
  for (const [index, end] of ends.entries()) {
    assert.equal(verdicts.length, 0);
    lost[index]?.lostWith?.recordEnd(end);
  }
  assert.equal(verdicts.length, 1);
  return verdicts[0];
}

function loseAllWell(rule: BatchRule, images: number): LossVerdict | undefined {
  return lose(rule, ...Array.from({ length: images }, () => 'well' as const));
}

test('given up after three losses that nobody is to blame for: fewer at once, step by step', () => {
  const rule = new BatchRule(GRAPHS);
  for (let loss = 0; loss < 10; loss++) {
    assert.equal(lose(rule, 'well', 'blamed')?.imagesMax, undefined);
  }
  for (const [images, fewer] of [
    [8, 4],
    [4, 2],
    [2, 1],
  ] as const) {
    for (let loss = 1; loss < BLAMELESS_LOSSES_MAX; loss++) loseAllWell(rule, images);
    assert.equal(rule.imagesMax, images);
    assert.equal(loseAllWell(rule, images)?.imagesMax, fewer);
    assert.equal(rule.imagesMax, fewer);
    assert.equal(loseAllWell(rule, images)?.imagesMax, undefined, 'told once');
  }
  assert.deepEqual(runsOf(rule, tasks(3)), [[0], [1], [2]]);
});

test('a run that ends well says that its number works, and fewer, and nothing of more', () => {
  const rule = new BatchRule(GRAPHS);
  const loseTwice = (images: number) => {
    for (let loss = 1; loss < BLAMELESS_LOSSES_MAX; loss++) loseAllWell(rule, images);
  };
  loseTwice(4);
  rule.recordSuccess(4);
  loseTwice(4);
  rule.recordSuccess(8);
  loseTwice(4);
  rule.recordSuccess(1);
  rule.recordSuccess(2);
  assert.equal(rule.imagesMax, 8);
  assert.equal(loseAllWell(rule, 4)?.imagesMax, 2);
});

test('a loss does not count where one that left may have been at fault, and counts where all left', () => {
  const rule = new BatchRule(GRAPHS);
  for (let loss = 0; loss < 10; loss++) {
    assert.deepEqual(lose(rule, 'well', 'gone'), { noneJudged: false, imagesMax: undefined });
    // It left before its run was lost.
    const [stayed, left] = tasks(2) as [RunTask, RunTask];
    rule.recordLoss([stayed, left], [stayed], verdict => assert.ok(!verdict.noneJudged));
    stayed.lostWith?.recordEnd('well');
  }
  assert.equal(rule.imagesMax, 8);
  assert.deepEqual(lose(rule, 'gone', 'gone'), { noneJudged: true, imagesMax: undefined });
  lose(rule, 'gone', 'gone');
  let last: LossVerdict | undefined;
  rule.recordLoss(tasks(2), [], verdict => {
    last = verdict;
  });
  assert.deepEqual(last, { noneJudged: true, imagesMax: 1 });
});
