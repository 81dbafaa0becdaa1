import test from 'ava';
import { chooseWorkers } from './node-layout.ts';

test('beside a GPU workers keep the cores busy while other images are at engines', t => {
  for (const [provider, cpuShare, engines, enginesInAll, workers] of [
    ['cuda', 16, 1, 3, 17],
    ['cuda', 16, 4, 12, 21],
    ['cuda', 256, 4, 12, 128],
    ['cpu', 64, 4, 10, 5],
  ] as const) {
    t.is(chooseWorkers({ provider, cpuShare }, engines, enginesInAll), workers);
  }
});
