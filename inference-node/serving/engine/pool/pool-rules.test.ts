/** What decides in a pool: who is next, what is lost with an engine, what a wait is. */
import assert from 'node:assert/strict';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { BATCH_SIZES } from '../../models/prepared-model.ts';
import { createRunTask, type RunTask } from './engine.ts';
import {
  BatchRule,
  FAILURE_WINDOW_MS,
  FailureRule,
  LOSSES_MAX,
  runTimeoutMs,
} from './engine-group.ts';
import { ASYNC_HANDICAP_MS, type EngineDeathCause, type Queued, RunQueue } from './engine-pool.ts';
import { estimateWaitMs } from './open-engine-pool.ts';

function item(priority: Queued['priority'], queuedAtMs: number): Queued {
  return { priority, queuedAtMs };
}

function drainInOrder(queue: RunQueue<Queued>): Queued[] {
  const out: Queued[] = [];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) out.push(next);
  return out;
}

test('what is not there is not removed, and draining empties both lines', t => {
  const queue = new RunQueue<Queued>();
  t.is(queue.shift(), undefined);
  t.false(queue.remove(item('sync', 0)));
  queue.push(item('async', 1));
  queue.push(item('sync', 2));
  t.deepEqual([queue.drain().length, queue.length], [2, 0]);
});

test('sync before async that came earlier, but not before async that has waited its time', t => {
  const queue = new RunQueue<Queued>();
  const old = item('async', 0);
  const young = item('async', 1);
  const inTime = item('sync', ASYNC_HANDICAP_MS);
  const late = item('sync', ASYNC_HANDICAP_MS + 2);
  for (const each of [old, young, inTime, late]) queue.push(each);
  t.deepEqual(drainInOrder(queue), [inTime, old, young, late]);
});

test('one that is put back goes first in its line again', t => {
  const queue = new RunQueue<Queued>();
  const [first, second] = [item('sync', 1), item('sync', 2)];
  queue.push(first);
  queue.push(second);
  const taken = queue.shift();
  t.is(taken, first);
  queue.putBack(first);
  t.deepEqual(drainInOrder(queue), [first, second]);
});

test('each line keeps its order and none waits behind what came long after it', t => {
  const arrivals = fc.array(
    fc.record({ sync: fc.boolean(), gapMs: fc.integer({ min: 0, max: 4000 }) }),
    { maxLength: 40 },
  );
  holds(t, [arrivals], list => {
    const queue = new RunQueue<Queued>();
    let nowMs = 0;
    for (const { sync, gapMs } of list) {
      nowMs += gapMs;
      queue.push(item(sync ? 'sync' : 'async', nowMs));
    }
    const out = drainInOrder(queue);
    assert.equal(out.length, list.length);
    for (const [i, earlier] of out.entries()) {
      for (const later of out.slice(i + 1)) {
        // Whoever went first came at most the handicap after whoever had to wait.
        const overtakenByMs = earlier.queuedAtMs - later.queuedAtMs;
        const mayOvertake = earlier.priority === 'sync' && later.priority === 'async';
        assert.ok(overtakenByMs <= (mayOvertake ? ASYNC_HANDICAP_MS : 0));
      }
    }
  });
});

test('the wait is what is left of runs, and all that wait shared among the engines', t => {
  for (const [freeInMs, queued, inferMs, waitMs] of [
    [[0], 0, 700, 0],
    [[500, 0], 0, 700, 0],
    [[300], 2, 700, 1700],
    [[300, 100], 1, 700, 300],
    [[300, 100], 2, 700, 800],
    // One that is being started again counts from then on.
    [[10_000, 200], 3, 100, 500],
  ] as const) {
    t.is(estimateWaitMs({ freeInMs, queued, inferMs }), waitMs);
  }
});

function death(atMs: number, cause: EngineDeathCause, imageDigest?: string, engine = 0) {
  return { atMs, cause, imageDigest, engine };
}

test('three deaths without an image to blame within the window are a failed node', t => {
  const rule = new FailureRule();
  t.false(rule.recordDeath(death(0, 'idle')));
  t.false(rule.recordDeath(death(1, 'idle')));
  t.true(rule.recordDeath(death(FAILURE_WINDOW_MS - 1, 'watchdog')));
});

test('deaths a window apart are not', t => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    t.false(rule.recordDeath(death(i * (FAILURE_WINDOW_MS / 2), 'idle')));
  }
});

test('one poison image never takes the node with it, however often it comes', t => {
  const rule = new FailureRule();
  for (let i = 0; i < 20; i++) {
    t.false(rule.recordDeath(death(i, i % 2 === 0 ? 'run' : 'watchdog', 'poison')));
  }
});

test('three different images do, and so does an image among other deaths', t => {
  const images = new FailureRule();
  t.false(images.recordDeath(death(0, 'run', 'a')));
  t.false(images.recordDeath(death(1, 'run', 'b')));
  t.false(images.recordDeath(death(2, 'run', 'a')));
  t.true(images.recordDeath(death(3, 'fault', 'c')));
  const mixed = new FailureRule();
  t.false(mixed.recordDeath(death(0, 'run', 'a')));
  t.false(mixed.recordDeath(death(1, 'load')));
  t.true(mixed.recordDeath(death(2, 'idle')));
});

test('a run that succeeds forgives all', t => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    t.false(rule.recordDeath(death(i * 3, 'run', 'a')));
    t.false(rule.recordDeath(death(i * 3 + 1, 'run', 'b')));
    rule.recordSuccess();
  }
});

test('three loads in a row of one engine are a failed node, whatever their distance', t => {
  const rule = new FailureRule();
  const farApartMs = 10 * FAILURE_WINDOW_MS;
  t.false(rule.recordDeath(death(0, 'load')));
  // The other engine serves meanwhile; this one still never loads.
  rule.recordSuccess();
  t.false(rule.recordDeath(death(farApartMs, 'load')));
  t.false(rule.recordDeath(death(2 * farApartMs, 'load', undefined, 1)));
  t.true(rule.recordDeath(death(3 * farApartMs, 'load')));
});

test('a load that succeeds ends the row', t => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    t.false(rule.recordDeath(death(i * FAILURE_WINDOW_MS, 'load')));
    rule.recordReady(0);
  }
});

const GRAPHS = BATCH_SIZES.map(images => ({ images, path: '', sha256: '' }));

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

test('as many as there is a graph for, in their order; nothing waits for more', t => {
  const sizes = (count: number) => runsOf(new BatchRule(GRAPHS), tasks(count)).map(r => r.length);
  t.deepEqual([0, 1, 2, 3].map(sizes), [[], [1], [2], [2, 1]]);
  t.deepEqual([7, 8, 13].map(sizes), [[4, 2, 1], [8], [8, 4, 1]]);
  t.deepEqual(runsOf(new BatchRule(GRAPHS), tasks(5)), [[0, 1, 2, 3], [4]]);
  t.deepEqual(runsOf(new BatchRule(), tasks(3)), [[0], [1], [2]]);
});

test('engines that are idle together share what waits', t => {
  const rule = new BatchRule(GRAPHS);
  const queue = queueOf(tasks(8));
  t.is(rule.next(queue, 2)?.length, 4);
  t.is(rule.next(queue, 1)?.length, 4);
  t.deepEqual(
    runsOf(rule, tasks(2), 2).map(run => run.length),
    [1, 1],
  );
});

test('one that was lost with others runs alone, and nobody with it', t => {
  const rule = new BatchRule(GRAPHS);
  const all = tasks(6);
  for (const lost of all.slice(1, 3)) lost.runsAlone = true;
  t.deepEqual(runsOf(rule, all), [[0], [1], [2], [3, 4], [5]]);
});

test('given up after three losses with no run of several that ended well between them', t => {
  const rule = new BatchRule(GRAPHS);
  const other = new BatchRule(GRAPHS);
  for (let loss = 1; loss < LOSSES_MAX; loss++) t.false(rule.recordLoss());
  rule.recordSuccess(2);
  for (let loss = 1; loss < LOSSES_MAX; loss++) t.false(rule.recordLoss());
  rule.recordSuccess(1);
  t.is(rule.imagesMax, 8);
  t.true(rule.recordLoss());
  rule.recordSuccess(8);
  t.deepEqual([rule.imagesMax, other.imagesMax], [1, 8]);
  t.is(rule.recordLoss(), false, 'told once');
  t.deepEqual(runsOf(rule, tasks(3)), [[0], [1], [2]]);
});

test('the watchdog of a run of several: four times what they take, not twenty', t => {
  const timing = {
    loadTimeoutMs: 0,
    respawnDelaysMs: [0],
    killWaitMaxMs: 0,
    runTimeoutMinMs: 10_000,
    runTimeoutMeans: 20,
  } as const;
  const limits = (meanMs: number) => [1, 2, 4, 8].map(n => runTimeoutMs(timing, n, meanMs));
  t.deepEqual(limits(10), [10_000, 10_000, 10_000, 10_000]);
  t.deepEqual(limits(1000), [20_000, 20_000, 20_000, 32_000]);
});
