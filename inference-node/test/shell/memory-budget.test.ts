import assert from 'node:assert/strict';
import { totalmem } from 'node:os';
import test from 'ava';
import { countedMegapixels } from '#contract/picture-memory.ts';
import { ConfigError } from '#program/env.ts';
import {
  computeMegapixelBudget,
  type EngineModel,
  enginesInMemory,
  operatorsBudget,
  readMemoryLimitBytes,
  requireMegapixelBudget,
} from '../../src/memory-budget.ts';

const GB = 1_000_000_000;
const ISNET = { inputWidth: 1024, inputHeight: 1024, precision: 'fp32' } as const;
const ISNET_INT8 = { ...ISNET, precision: 'int8' } as const;
const graphOf = (images: number) => ({ images, path: '', sha256: '' });
const U2NETP = { inputWidth: 320, inputHeight: 320, precision: 'fp32' } as const;
const ISNET_TOGETHER: EngineModel = {
  ...{ ...ISNET_INT8, provider: 'cpu' },
  batches: [2, 4, 8].map(graphOf),
};
const TOGETHER: EngineModel = { ...U2NETP, provider: 'cpu', batches: [2, 4].map(graphOf) };

const rows: [string, number, EngineModel[], [number, number] | undefined][] = [
  // 42 MB a megapixel, of 0.6 of the limit shared and 0.85 alone, engines taken off first.
  ['one ISNet in 4 GB', 4 * GB, [ISNET], [34, 58]],
  ['one ISNet in 2 GB', 2 * GB, [ISNET], [12, 18]],
  ['one ISNet in int8 in 2 GB', 2 * GB, [ISNET_INT8], [15, 26]],
  ['two ISNets in 4 GB', 4 * GB, [ISNET, ISNET], [12, 36]],
  ['u2netp in 1 GB', 1 * GB, [U2NETP], [12, 14]],
  ['one ISNet in 24 GB', 24 * GB, [ISNET], [320, 167]],
  ['no room beside the engine', 1.2 * GB, [ISNET], undefined],
  ['u2netp that takes 4 at once on a CPU, in 4 GB', 4 * GB, [TOGETHER], [15, 38]],
  ['the same on a GPU, as alone', 4 * GB, [{ ...TOGETHER, provider: 'cuda' }], [51, 75]],
];
for (const [name, memoryLimitBytes, engines, expected] of rows) {
  test(`computeMegapixelBudget › ${name}`, t => {
    const budget = computeMegapixelBudget({ memoryLimitBytes, engines });
    const found = budget && [budget.megapixelsMax, budget.megapixelsAloneMax];
    t.deepEqual(found, expected);
  });
}

test('computeMegapixelBudget › takes an ordinary photo wherever it starts at all', t => {
  for (let limit = 0.5 * GB; limit < 8 * GB; limit += 0.05 * GB) {
    const budget = computeMegapixelBudget({
      memoryLimitBytes: limit,
      engines: [ISNET],
    });
    if (budget === undefined) continue;
    t.true(budget.megapixelsMax >= 12 && budget.megapixelsAloneMax >= 12);
  }
});

test('a large model that takes several at once has the room that it takes', t => {
  const engines = [ISNET_TOGETHER];
  assert.ok(computeMegapixelBudget({ memoryLimitBytes: 8 * GB, engines }) !== undefined);
  const fp32 = { ...ISNET_TOGETHER, precision: 'fp32' } as const;
  t.is(computeMegapixelBudget({ memoryLimitBytes: 8 * GB, engines: [fp32] }), undefined);
  // 0.57 GB, and 0.3 for each of 14 images.
  t.is(enginesInMemory(16 * GB, engines), 1);
});

test('an operator is told what leaves no room, images at once where there are several', t => {
  const told = (engines: EngineModel[]) => {
    try {
      requireMegapixelBudget({ memoryLimitBytes: 1.2 * GB, engines });
    } catch (error) {
      assert.ok(error instanceof ConfigError);
      return error.message;
    }
    return assert.fail('there is room');
  };
  t.regex(told([ISNET]), /MATTING_NODE_MEGAPIXELS_MAX must be set: .* fewer engines, or the/);
  t.regex(
    told([ISNET_TOGETHER]),
    /\(1200 MB\) leaves no room .* fewer images at once \(MATTING_BATCH_MAX\), or the/,
  );
});

test('counts an image by its pixels, one that takes more memory as larger', t => {
  const jpeg = { inputFormat: 'jpeg', outputFormat: 'png', resultKind: 'cutout' } as const;
  const jxl = { ...jpeg, outputFormat: 'jxl' } as const;
  t.is(countedMegapixels({ ...jpeg, pixels: 12_000_000 }), 12);
  t.is(countedMegapixels({ ...jpeg, pixels: undefined }), 100);
  const below = countedMegapixels({ ...jxl, pixels: 30_000_000 });
  const above = countedMegapixels({ ...jxl, pixels: 100_000_000 });
  t.true(below > 30 && below < 40, `${below}`);
  t.true(above > 160 && above < 170, `${above}`);
  const largest = { ...jxl, inputFormat: undefined, pixels: undefined };
  t.true(countedMegapixels(largest) <= operatorsBudget(20).megapixelsAloneMax);
});

test('holds as many engines as leave the pictures their room', t => {
  t.is(enginesInMemory(1 * GB, [ISNET]), 0);
  t.is(enginesInMemory(4 * GB, [ISNET]), 1);
  t.is(enginesInMemory(4 * GB, [ISNET_INT8]), 2);
  t.is(enginesInMemory(4 * GB, [ISNET_INT8, ISNET]), 1);
  t.is(enginesInMemory(64 * GB, [ISNET_INT8]), 44);
});

test("an operator's own figure stands, and the largest image is still taken alone", t => {
  t.deepEqual(operatorsBudget(20), { megapixelsMax: 20, megapixelsAloneMax: 167 });
});

test('the memory limit of this process is that of the machine or less', t => {
  const limit = readMemoryLimitBytes();
  t.true(limit > 0 && limit <= totalmem());
});
