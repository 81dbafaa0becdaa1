import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CardResults, SectionResult } from '../../../bench/card/card-file.ts';
import { goalsOf } from '../../../bench/card/goals.ts';
import { describeSection } from '../../../bench/card/print.ts';
import { type Row, renderTable } from '../../../bench/card/table.ts';

const RATE = { title: 'images/s', of: (figures: Row['figures']) => figures.imagesPerS };
const LIMIT = { title: 'limit', of: (figures: Row['figures']) => figures.limit };
const BY_RATE = { key: 'imagesPerS', title: 'To the first' };

test('a table has ratios to its first row that was measured, beside what they are of', () => {
  const rows: Row[] = [
    { name: 'broken', failed: 'CUDA failure 100: no | device', figures: {} },
    { name: 'one', figures: { imagesPerS: 200, limit: 'GPU' } },
    { name: 'two', figures: { imagesPerS: 350.26 } },
  ];
  assert.equal(
    renderTable('Engines', [RATE, LIMIT], rows, BY_RATE),
    [
      '| Engines | To the first | images/s | limit |',
      '| --- | --- | --- | --- |',
      '| broken | failed: CUDA failure 100: no / device | | |',
      '| one | 1 | 200 | GPU |',
      '| two | 1.75 | 350 | |',
    ].join('\n'),
  );
});

const section = (rows: Row[], more: Partial<SectionResult> = {}): SectionResult => ({
  ...{ measuredAt: '2026-01-01T00:00:00.000Z', seconds: 7, facts: { provider: 'cuda' } },
  ...{ rows, leftOut: [], ...more },
});

test('a section says what it left out and why it ended', () => {
  const bare = section([{ name: 'isnet', figures: { imagesPerS: 3 } }], {
    leftOut: ['modnet, 4 engines'],
    failed: 'told to end',
  });
  const text = describeSection('bare', { machine: {}, sections: { bare } });
  assert.match(text, /\| isnet \| 1 \| 3 \|/);
  assert.match(
    text,
    /7 s: provider: cuda\nEnded early: told to end\nLeft out.*: modnet, 4 engines\n/,
  );
  assert.equal(describeSection('steady', { machine: {}, sections: { bare } }), '');
});

test('goals are held against the rows that they speak of, and others are not measured', () => {
  const service = section([
    { name: 'isnet, 0.25 MP png to png, REST', figures: { imagesPerS: 150, coresBusy: 12.5 } },
    { name: 'isnet, 0.25 MP png to png, gRPC', figures: { imagesPerS: 180, coresBusy: 9 } },
    { name: 'isnet, 2 MP jpeg to webp, gRPC', figures: { imagesPerS: 89 } },
    { name: 'isnet, 12 MP jpeg to webp, gRPC', figures: { imagesPerS: 400 } },
    { name: 'standard, 0.25 MP png to png, gRPC', figures: { imagesPerS: 90 } },
  ]);
  const results: CardResults = {
    machine: {},
    sections: {
      bare: section([
        { name: 'isnet 1024 fp16, 1 engine', figures: { imagesPerS: 240 } },
        { name: 'isnet 1024 fp16, 4 engines', figures: { imagesPerS: 300 } },
        { name: 'isnet 1024 fp32, 4 engines', figures: { imagesPerS: 900 } },
      ]),
      parity: section([
        { name: 'isnet 1024 fp16', figures: { meanLevels: 0.31, worstQualityRatio: 1.001 } },
        { name: 'modnet 448 fp32', failed: 'another matte', figures: {} },
      ]),
      service,
    },
  };
  const rows = new Map(goalsOf(results).map(({ name, figures }) => [name.split(',')[0], figures]));
  const of = (name: string) => [rows.get(name)?.measured, rows.get(name)?.met];
  assert.deepEqual(of('bare images/s'), [300, true]);
  // By the cores that are busy: 0.6 is under 0.8.
  assert.deepEqual(of('service at 512 x 512 to bare'), [0.6, true]);
  assert.deepEqual(of('2 MP JPEG to WebP'), [89, false]);
  assert.deepEqual(of('`standard` to isnet alone'), [0.5, true]);
  assert.deepEqual(of('mattes against the CPU in fp32'), [0.31, false]);
  assert.deepEqual(of('quality to the CPU in fp32'), [1.001, true]);
  assert.deepEqual(of('images not answered rightly in faults'), ['not measured', undefined]);
});
