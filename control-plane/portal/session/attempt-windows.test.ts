import test from 'ava';
import { AttemptWindows } from './attempt-windows.ts';

const LIMIT = { windowMs: 60_000, max: 10, keysMax: 50 };

function fail(windows: AttemptWindows, key: string): number {
  for (let count = 0; count < LIMIT.max; count += 1) windows.count(key);
  return windows.waitS(key);
}

test('failed attempts › of others close nobody out, and are forgotten after their minute', t => {
  let nowMs = 0;
  const windows = new AttemptWindows(LIMIT, () => nowMs);
  for (let key = 0; key < LIMIT.keysMax; key += 1) t.is(fail(windows, `${key}`), 60);
  t.is(windows.waitS('another'), 0);
  nowMs = 59_001;
  t.is(windows.waitS('1'), 1);
  nowMs = 60_000;
  t.is(windows.waitS('1'), 0);
  t.is(fail(windows, '1'), 60);
});

test('failed attempts › are of a bounded number of keys, the latest ones', t => {
  const windows = new AttemptWindows(LIMIT, () => 0);
  for (let key = 0; key <= LIMIT.keysMax; key += 1) t.is(fail(windows, `${key}`), 60);
  t.deepEqual([windows.waitS('0'), windows.waitS('1')], [0, 60]);
});
