/** The tables of docs/sizing.md follow from the figures of its first section. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readPage } from '../runbook/runbook-page.ts';
import { at } from '../support/at.ts';

const PAGE = readPage('docs/sizing.md');
const RATES = [1, 10, 100];
const USED = 0.7;
const PLANES_USED = 0.5;
const PLANE_CORES = 2;
const DAY_S = 86_400;
const KEPT_DAYS = 30;
/** Sums of decimal fractions are a hair off: no core for that. */
const HAIR = 1e-9;

const numbers = (text: string): number[] =>
  (text.match(/\d[\d,]*(?:\.\d+)?/g) ?? []).map(each => Number(each.replaceAll(',', '')));

/** Cells of the rows whose first one begins so. */
function rowOf(begins: string): readonly string[] {
  const line = PAGE.split('\n').find(each => each.startsWith(`| ${begins}`));
  assert.ok(line !== undefined, `no row ${begins}`);
  return line
    .split('|')
    .slice(2, -1)
    .map(cell => cell.trim());
}

/** The first number of a row's cell. */
const figure = (begins: string, cell = 0): number => at(numbers(at(rowOf(begins), cell)), 0);
const round = (value: number, digits = 0): number => Number(value.toFixed(digits));

test('the cores of nodes are those of the rule', () => {
  const models = ['`standard` |', '`fast` |', '`MATTING_MODEL=u2netp` |'].map(row => figure(row));
  for (const [column, size] of ['0.25 MP', '2 MP', '12 MP'].entries()) {
    for (const format of ['PNG', 'WebP', 'AVIF', 'JPEG XL']) {
      const picture = figure(`${format} |`, column);
      const cells = rowOf(`${size}, ${format} `).map(numbers);
      const computed = models.map(model =>
        RATES.map(rate => Math.ceil((rate * (model + picture)) / USED - HAIR)),
      );
      assert.deepEqual(cells, computed, `${size}, ${format}`);
    }
  }
});

test('the rest follows from what a job costs', () => {
  const planeS = figure('control plane | 23') / 1000;
  const databaseS = figure('database server | 4.8') / 1000;
  const [rowKb = 0, , everKb = 0] = numbers(at(rowOf('rows | 2'), 0));
  const expected: readonly (readonly [string, (rate: number) => readonly number[]])[] = [
    [
      'control planes, ',
      rate => [Math.max(2, 1 + Math.ceil((rate * planeS) / PLANE_CORES / PLANES_USED - HAIR))],
    ],
    ['cores that they use', rate => [round(rate * planeS, rate < 100 ? 2 : 1)]],
    ['database: cores', rate => [round(rate * databaseS, rate === 1 ? 3 : 2), 4 * rate]],
    ['rows of jobs', rate => [round((rate * KEPT_DAYS * DAY_S * rowKb) / 1e6, rate === 1 ? 1 : 0)]],
    ['ledger, each', rate => [round((rate * 365 * DAY_S * everKb) / 1e6)]],
    ['results in the bucket', rate => [round((rate * DAY_S) / 1000)]],
    ['requests to the bucket', rate => [6 * rate]],
    ['bytes through', rate => [4 * rate]],
    ['the same with `MATTING_DIRECT', rate => [rate]],
  ];
  for (const [row, compute] of expected) {
    assert.deepEqual(rowOf(row).map(numbers), RATES.map(compute), row);
  }
  const connections = rowOf('control planes, ').map(cell => 16 * at(numbers(cell), 0));
  assert.deepEqual(
    rowOf('connections to it').map(numbers),
    connections.map(each => [each]),
  );
});

test('its figures are those of the pages that it names', () => {
  const performance = readPage('docs/performance.md');
  const scaling = readPage('docs/scaling.md');
  const operations = readPage('docs/operations.md');
  for (const said of ['| isnet 1024 int8 alone | 6.6', '| `fast` | 12.1', '0.96 s', '1.57 GB']) {
    assert.ok(performance.includes(said), said);
  }
  for (const said of ['4.8 ms', '13 ms', '23 ms with a JPEG of 2 MP', '1 job of 2 KB']) {
    assert.ok(scaling.includes(said), said);
  }
  for (const [format, column] of [
    ['PNG', 'PNG | 8 | 1.0 s'],
    ['WebP', '1.2 s | 1.0 GB, 6.7 s'],
    ['AVIF', '2.1 s | 1.4 GB, 14.3 s'],
    ['JPEG XL', '2.7 s | 6.9 GB, 24 s'],
  ] as const) {
    assert.ok(operations.includes(column), format);
  }
});
