import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SignalGate } from '../signal-gate.ts';

test('a signal that comes again within a second is one, a later one hurries', () => {
  const gate = new SignalGate();
  const read = [5000, 5010, 5999, 7000].map(nowMs => gate.read(nowMs));
  assert.deepEqual(read, ['drain', 'repeat', 'repeat', 'hurry']);
});

test('the second may be the one that hurries', () => {
  const gate = new SignalGate();
  assert.deepEqual([gate.read(0), gate.read(1000)], ['drain', 'hurry']);
});
