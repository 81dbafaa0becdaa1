import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import { describe, it } from 'node:test';
import {
  computeMegapixelBudget,
  countedMegapixels,
  type EngineModel,
  enginesInMemory,
  operatorsBudget,
  readMemoryLimitBytes,
} from '../../src/memory-budget.ts';

const GB = 1_000_000_000;
const ISNET = { inputWidth: 1024, inputHeight: 1024, precision: 'fp32' } as const;
const ISNET_INT8 = { ...ISNET, precision: 'int8' } as const;
const U2NETP = { inputWidth: 320, inputHeight: 320, precision: 'fp32' } as const;

describe('computeMegapixelBudget', () => {
  const rows: [string, number, EngineModel[], [number, number] | undefined][] = [
    // 42 MB a megapixel, of 0.6 of the limit shared and 0.85 alone, engines taken off first.
    ['one ISNet in 4 GB', 4 * GB, [ISNET], [34, 58]],
    ['one ISNet in 2 GB', 2 * GB, [ISNET], [12, 18]],
    ['one ISNet in int8 in 2 GB', 2 * GB, [ISNET_INT8], [15, 26]],
    ['two ISNets in 4 GB', 4 * GB, [ISNET, ISNET], [12, 36]],
    ['u2netp in 1 GB', 1 * GB, [U2NETP], [12, 14]],
    ['one ISNet in 24 GB', 24 * GB, [ISNET], [320, 167]],
    ['no room beside the engine', 1.2 * GB, [ISNET], undefined],
  ];
  for (const [name, memoryLimitBytes, engines, expected] of rows) {
    it(name, () => {
      const budget = computeMegapixelBudget({ memoryLimitBytes, engines });
      const found = budget && [budget.megapixelsMax, budget.megapixelsAloneMax];
      assert.deepEqual(found, expected);
    });
  }

  it('takes an ordinary photo wherever it starts at all', () => {
    for (let limit = 0.5 * GB; limit < 8 * GB; limit += 0.05 * GB) {
      const budget = computeMegapixelBudget({
        memoryLimitBytes: limit,
        engines: [ISNET],
      });
      if (budget === undefined) continue;
      assert.ok(budget.megapixelsMax >= 12 && budget.megapixelsAloneMax >= 12);
    }
  });
});

it('counts an image by its pixels, one that takes more memory as larger', () => {
  const jpeg = { inputFormat: 'jpeg', outputFormat: 'png', resultKind: 'cutout' } as const;
  const jxl = { ...jpeg, outputFormat: 'jxl' } as const;
  assert.equal(countedMegapixels({ ...jpeg, pixels: 12_000_000 }), 12);
  assert.equal(countedMegapixels({ ...jpeg, pixels: undefined }), 100);
  const below = countedMegapixels({ ...jxl, pixels: 30_000_000 });
  const above = countedMegapixels({ ...jxl, pixels: 100_000_000 });
  assert.ok(below > 30 && below < 40, `${below}`);
  assert.ok(above > 160 && above < 170, `${above}`);
  const largest = { ...jxl, inputFormat: undefined, pixels: undefined };
  assert.ok(countedMegapixels(largest) <= operatorsBudget(20).megapixelsAloneMax);
});

it('holds as many engines as leave the pictures their room', () => {
  assert.equal(enginesInMemory(1 * GB, [ISNET]), 0);
  assert.equal(enginesInMemory(4 * GB, [ISNET]), 1);
  assert.equal(enginesInMemory(4 * GB, [ISNET_INT8]), 2);
  assert.equal(enginesInMemory(4 * GB, [ISNET_INT8, ISNET]), 1);
  assert.equal(enginesInMemory(64 * GB, [ISNET_INT8]), 44);
});

it("an operator's own figure stands, and the largest image is still taken alone", () => {
  assert.deepEqual(operatorsBudget(20), { megapixelsMax: 20, megapixelsAloneMax: 167 });
});

it('the memory limit of this process is that of the machine or less', () => {
  const limit = readMemoryLimitBytes();
  assert.ok(limit > 0 && limit <= totalmem());
});
