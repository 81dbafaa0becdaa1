import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { describe, it } from 'node:test';
import {
  computeMegapixelBudget,
  operatorsBudget,
  readMemoryLimitBytes,
} from '../../src/memory-budget.ts';

const GB = 1_000_000_000;
const ISNET = 1024 * 1024;
const U2NETP = 320 * 320;

describe('computeMegapixelBudget', () => {
  const rows: [string, number, number[], [number, number] | undefined][] = [
    // 42 MB a megapixel, of 0.6 of the limit shared and 0.85 alone, engines taken off first.
    ['one ISNet in 4 GB', 4 * GB, [ISNet()], [34, 58]],
    ['one ISNet in 2 GB', 2 * GB, [ISNet()], [12, 18]],
    ['two ISNets in 4 GB', 4 * GB, [ISNet(), ISNet()], [12, 36]],
    ['u2netp in 1 GB', 1 * GB, [U2NETP], [12, 14]],
    ['one ISNet in 24 GB', 24 * GB, [ISNet()], [320, 100]],
    ['no room beside the engine', 1.2 * GB, [ISNet()], undefined],
  ];
  function ISNet(): number {
    return ISNET;
  }
  for (const [name, memoryLimitBytes, engineInputPixels, expected] of rows) {
    it(name, () => {
      const budget = computeMegapixelBudget({ memoryLimitBytes, engineInputPixels });
      const found = budget && [budget.megapixelsMax, budget.megapixelsAloneMax];
      assert.deepEqual(found, expected);
    });
  }

  it('takes an ordinary photo wherever it starts at all', () => {
    for (let limit = 0.5 * GB; limit < 8 * GB; limit += 0.05 * GB) {
      const budget = computeMegapixelBudget({
        memoryLimitBytes: limit,
        engineInputPixels: [ISNET],
      });
      if (budget === undefined) continue;
      assert.ok(budget.megapixelsMax >= 12 && budget.megapixelsAloneMax >= 12);
    }
  });
});

it("an operator's own figure stands, and the largest image is still taken alone", () => {
  assert.deepEqual(operatorsBudget(20), { megapixelsMax: 20, megapixelsAloneMax: 100 });
});

it('the memory limit of this process is that of the machine or less', () => {
  const limit = readMemoryLimitBytes();
  assert.ok(limit > 0 && limit <= totalmem());
});
