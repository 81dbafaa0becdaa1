import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { workerWaitMs } from '../../../src/picture/pool/worker-wait.ts';

describe('the wait for a picture worker', () => {
  it('is none while one is free', () => {
    assert.equal(workerWaitMs(1, [], []), 0);
    assert.equal(workerWaitMs(2, [{ elapsedMs: 0, expectedMs: 900 }], []), 0);
  });

  it('is the remaining time of the first to end, and the queue before', () => {
    const held = [
      { elapsedMs: 100, expectedMs: 900 },
      { elapsedMs: 100, expectedMs: 400 },
    ];
    assert.equal(workerWaitMs(2, held, []), 300);
    assert.equal(workerWaitMs(2, held, [200]), 500);
    assert.equal(workerWaitMs(2, held, [200, 400]), 800);
  });

  it('never runs out while an image outlasts what was expected of it', () => {
    assert.equal(workerWaitMs(1, [{ elapsedMs: 1000, expectedMs: 400 }], []), 200);
    assert.equal(workerWaitMs(1, [{ elapsedMs: 390, expectedMs: 400 }], []), 78);
  });
});
