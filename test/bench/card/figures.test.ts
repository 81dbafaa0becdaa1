import assert from 'node:assert/strict';
import { test } from 'node:test';
import { growthAfter, percentile, shown } from '../../../bench/card/figures.ts';
import { summarise, type ThreadReport } from '../../../bench/card/load.ts';

test('a percentile is the least value that so many do not exceed', () => {
  const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);
  assert.equal(percentile(hundred, 0.5), 50);
  assert.equal(percentile(hundred, 0.99), 99);
  assert.equal(percentile(hundred, 1), 100);
  assert.equal(percentile([7], 0.99), 7);
  assert.equal(percentile([3, 1], 0.5), 1);
  assert.ok(Number.isNaN(percentile([], 0.5)));
});

test('growth compares the ends of what came after the settling', () => {
  const samples = [900, 100, 102, 98, 100, 100, 100, 100, 110, 111, 109].map((value, index) => ({
    atMs: 1000 * index,
    value,
  }));
  assert.equal(growthAfter(samples, 1000), 109 / 100);
  assert.equal(growthAfter(samples, 5000), 109 / 100);
  assert.ok(Number.isNaN(growthAfter(samples, 10_000)));
});

test('numbers are shown with three figures, whole ones whole, and what is none not at all', () => {
  assert.deepEqual([1234.5, 12.34, 1.234, 0.1234, 12, 0, Number.NaN].map(shown), [
    '1235',
    '12.3',
    '1.23',
    '0.123',
    '12',
    '0',
    '',
  ]);
});

test('threads of callers are summed up as one client', () => {
  const report = (latenciesMs: number[], busy: number, more: Partial<ThreadReport>) => ({
    ...{ latenciesMs, busy, answered: latenciesMs.length + 1, answeredLater: 0 },
    ...{ failures: new Map<string, number>(), answers: new Map(), ...more },
  });
  const file = new Uint8Array([1]);
  const figures = summarise(
    [
      report([10, 20], 0.5, { failures: new Map([['503 X', 2]]), answeredLater: 1 }),
      report([30, 40], 0.9, {
        failures: new Map([
          ['503 X', 1],
          ['other', 1],
        ]),
        answers: new Map([['a', { count: 2, file }]]),
      }),
      report([], 0.1, { answers: new Map([['a', { count: 3, file }]]) }),
    ],
    2000,
  );
  assert.deepEqual([figures.images, figures.imagesPerS, figures.answered], [4, 2, 7]);
  assert.deepEqual([figures.p50Ms, figures.p99Ms, figures.longestMs], [20, 40, 40]);
  assert.deepEqual([figures.failed, figures.failures], [4, { '503 X': 3, other: 1 }]);
  assert.deepEqual([figures.clientBusy, figures.answeredLater], [0.9, 1]);
  assert.deepEqual(figures.answers, [{ count: 5, file }]);
});
