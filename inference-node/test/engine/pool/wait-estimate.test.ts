import assert from 'node:assert/strict';
import { test } from 'node:test';
import { estimateWaitMs } from '../../../src/engine/pool/wait-estimate.ts';

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
