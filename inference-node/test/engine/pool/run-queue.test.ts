import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fc } from '../../../../test/support/property-tests.ts';
import { ASYNC_HANDICAP_MS, type Queued, RunQueue } from '../../../src/engine/pool/run-queue.ts';
import { estimateWaitMs } from '../../../src/engine/pool/wait-estimate.ts';

function item(priority: Queued['priority'], queuedAtMs: number): Queued {
  return { priority, queuedAtMs };
}

function drainInOrder(queue: RunQueue<Queued>): Queued[] {
  const out: Queued[] = [];
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) out.push(next);
  return out;
}

test('what is not there is not removed', () => {
  const queue = new RunQueue<Queued>();
  assert.equal(queue.shift(), undefined);
  assert.equal(queue.remove(item('sync', 0)), false);
});

test('sync before async that came earlier, but not before async that has waited its time', () => {
  const queue = new RunQueue<Queued>();
  const old = item('async', 0);
  const young = item('async', 1);
  const inTime = item('sync', ASYNC_HANDICAP_MS);
  const late = item('sync', ASYNC_HANDICAP_MS + 2);
  for (const each of [old, young, inTime, late]) queue.push(each);
  assert.deepEqual(drainInOrder(queue), [inTime, old, young, late]);
});

test('one that is put back goes first in its line again', () => {
  const queue = new RunQueue<Queued>();
  const [first, second] = [item('sync', 1), item('sync', 2)];
  queue.push(first);
  queue.push(second);
  const taken = queue.shift();
  assert.equal(taken, first);
  queue.putBack(first);
  assert.deepEqual(drainInOrder(queue), [first, second]);
});

test('drain empties both lines', () => {
  const queue = new RunQueue<Queued>();
  queue.push(item('async', 1));
  queue.push(item('sync', 2));
  assert.equal(queue.drain().length, 2);
  assert.equal(queue.length, 0);
});

test('each line keeps its order and none waits behind what came long after it', () => {
  const arrivals = fc.array(
    fc.record({ sync: fc.boolean(), gapMs: fc.integer({ min: 0, max: 4000 }) }),
    { maxLength: 40 },
  );
  fc.assert(
    fc.property(arrivals, list => {
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
    }),
  );
});

test('an idle engine takes it at once', () => {
  assert.equal(estimateWaitMs({ freeInMs: [0], queued: 0, inferMs: 700 }), 0);
  assert.equal(estimateWaitMs({ freeInMs: [500, 0], queued: 0, inferMs: 700 }), 0);
});

test('one engine: what is left of its run, and all that wait', () => {
  assert.equal(estimateWaitMs({ freeInMs: [300], queued: 2, inferMs: 700 }), 1700);
});

test('several engines share those that wait', () => {
  assert.equal(estimateWaitMs({ freeInMs: [300, 100], queued: 1, inferMs: 700 }), 300);
  assert.equal(estimateWaitMs({ freeInMs: [300, 100], queued: 2, inferMs: 700 }), 800);
});

test('an engine that is being started again counts from then on', () => {
  assert.equal(estimateWaitMs({ freeInMs: [10_000, 200], queued: 3, inferMs: 100 }), 500);
});
