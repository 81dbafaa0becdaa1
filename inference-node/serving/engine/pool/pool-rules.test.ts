import assert from 'node:assert/strict';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import type { EngineDeathCause } from './engine-pool.ts';
import { estimateWaitMs } from './estimated-wait.ts';
import { FailureRule } from './failure-rule.ts';
import { runTimeoutMs } from './open-engine-pool.ts';
import { RunQueue } from './run-queue.ts';

const FAILURE_WINDOW_MS = 60_000;
const ASYNC_HANDICAP_MS = 5_000;

function item(priority: 'sync' | 'async', queuedAtMs: number) {
  return { priority, queuedAtMs };
}

type Item = ReturnType<typeof item>;

function drainInOrder(queue: RunQueue<Item>) {
  const out: Item[] = [];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) out.push(next);
  return out;
}

test('removing an unknown run fails, and draining empties both queues', t => {
  const queue = new RunQueue<Item>();
  t.is(queue.shift(), undefined);
  t.false(queue.remove(item('sync', 0)));
  queue.push(item('async', 1));
  queue.push(item('sync', 2));
  t.deepEqual([queue.drain().length, queue.length], [2, 0]);
});

test('sync before async that came earlier, but not before async that has waited its time', t => {
  const queue = new RunQueue<Item>();
  const old = item('async', 0);
  const young = item('async', 1);
  const inTime = item('sync', ASYNC_HANDICAP_MS);
  const late = item('sync', ASYNC_HANDICAP_MS + 2);
  for (const each of [old, young, inTime, late]) queue.push(each);
  t.deepEqual(drainInOrder(queue), [inTime, old, young, late]);
});

test('one that is put back goes first in its line again', t => {
  const queue = new RunQueue<Item>();
  const [first, second] = [item('sync', 1), item('sync', 2)];
  queue.push(first);
  queue.push(second);
  const taken = queue.shift();
  t.is(taken, first);
  queue.putBack(first);
  t.deepEqual(drainInOrder(queue), [first, second]);
});

test('each priority keeps its order and no run waits for one that came long after it', t => {
  const arrivals = fc.array(
    fc.record({ sync: fc.boolean(), gapMs: fc.integer({ min: 0, max: 4000 }) }),
    { maxLength: 40 },
  );
  holds(t, [arrivals], list => {
    const queue = new RunQueue<Item>();
    let nowMs = 0;
    for (const { sync, gapMs } of list) {
      nowMs += gapMs;
      queue.push(item(sync ? 'sync' : 'async', nowMs));
    }
    const out = drainInOrder(queue);
    assert.equal(out.length, list.length);
    for (const [i, earlier] of out.entries()) {
      for (const later of out.slice(i + 1)) {
        // An image that overtook another came at most the handicap after it.
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
    // An engine that starts again counts from then on.
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
  // The other engine serves meanwhile.
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

test('the watchdog waits twenty times what a run takes, and never less than its floor', t => {
  const timing = {
    loadTimeoutMs: 0,
    respawnDelaysMs: [0],
    killWaitMaxMs: 0,
    runTimeoutMinMs: 10_000,
    runTimeoutMeans: 20,
  } as const;
  t.is(runTimeoutMs(timing, 10), 10_000);
  t.is(runTimeoutMs(timing, 1000), 20_000);
});
