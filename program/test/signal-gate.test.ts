import test from 'ava';
import { SignalGate } from '../signal-gate.ts';

test('a signal that comes again within a second is one, a later one hurries', t => {
  const gate = new SignalGate();
  const read = [5000, 5010, 5999, 7000].map(nowMs => gate.read(nowMs));
  t.deepEqual(read, ['drain', 'repeat', 'repeat', 'hurry']);
});

test('the second may be the one that hurries', t => {
  const gate = new SignalGate();
  t.deepEqual([gate.read(0), gate.read(1000)], ['drain', 'hurry']);
});
