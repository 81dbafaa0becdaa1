import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { AttemptWindows } from '../../src/domain/attempt-window.ts';

const LIMIT = { windowMs: 60_000, max: 10, keysMax: 50 };

function fail(windows: AttemptWindows, key: string): number {
  for (let count = 0; count < LIMIT.max; count += 1) windows.count(key);
  return windows.waitS(key);
}

describe('counted attempts', () => {
  it('of others close nobody out, and are forgotten after their minute', () => {
    let nowMs = 0;
    const windows = new AttemptWindows(LIMIT, () => nowMs);
    for (let key = 0; key < LIMIT.keysMax; key += 1) assert.equal(fail(windows, `${key}`), 60);
    assert.equal(windows.waitS('another'), 0);
    nowMs = 59_001;
    assert.equal(windows.waitS('1'), 1);
    nowMs = 60_000;
    assert.equal(windows.waitS('1'), 0);
    assert.equal(fail(windows, '1'), 60);
  });

  it('are of a bounded number of keys, the latest ones', () => {
    const windows = new AttemptWindows(LIMIT, () => 0);
    for (let key = 0; key <= LIMIT.keysMax; key += 1) assert.equal(fail(windows, `${key}`), 60);
    assert.deepEqual([windows.waitS('0'), windows.waitS('1')], [0, 60]);
  });
});
