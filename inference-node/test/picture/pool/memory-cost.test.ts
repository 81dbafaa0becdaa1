import assert from 'node:assert/strict';
import { test } from 'node:test';
import { INPUT_FORMATS, OUTPUT_FORMATS } from '#contract/formats.ts';
import { pictureMemoryBytes } from '#contract/picture-memory.ts';
import { budgetFor, RESIDENT_BYTES_BUDGET } from '../../../src/picture/budgets.ts';

const RESULTS = OUTPUT_FORMATS.flatMap(format =>
  (['cutout', 'mask'] as const).map(kind => [format, kind] as const),
);

test('more pixels never cost less, and an unknown input costs the most', () => {
  for (const [outputFormat, resultKind] of RESULTS) {
    const unknown = (pixels: number) =>
      pictureMemoryBytes({ inputFormat: undefined, outputFormat, resultKind, pixels });
    for (const inputFormat of INPUT_FORMATS) {
      let before = 0;
      for (let pixels = 0; pixels <= 100e6; pixels += 0.5e6) {
        const bytes = pictureMemoryBytes({ inputFormat, outputFormat, resultKind, pixels });
        assert.ok(bytes >= before && bytes <= unknown(pixels));
        before = bytes;
      }
    }
  }
});

test('what a picture may take before it is killed is well above what it takes', () => {
  for (const [outputFormat, resultKind] of RESULTS) {
    for (const megapixels of [1, 12, 40, 41, 100]) {
      const pixels = megapixels * 1e6;
      const cost = { inputFormat: undefined, outputFormat, resultKind, pixels };
      const budget = budgetFor(RESIDENT_BYTES_BUDGET, megapixels);
      assert.ok(pictureMemoryBytes(cost) * 1.4 < budget, `${outputFormat} at ${megapixels} MP`);
    }
  }
});

test('100 megapixels of PNG or WebP from a JPEG take less than 2 GB', () => {
  for (const outputFormat of ['png', 'webp'] as const) {
    const picture = { inputFormat: 'jpeg', resultKind: 'cutout', pixels: 100e6 } as const;
    const cost = { ...picture, outputFormat };
    assert.ok(pictureMemoryBytes(cost) < 2e9);
  }
});

test('finishing costs no less for a larger result or background, and never more than is let be', () => {
  const megapixels = [0, 0.1, 12, 40, 100];
  for (const [outputFormat, resultKind] of RESULTS) {
    for (const input of megapixels) {
      const before = { frame: 0, behind: 0 };
      for (const frame of megapixels) {
        for (const behind of [0, 1, 25]) {
          const finishing = {
            framePixels: frame * 1e6,
            background: { inputFormat: undefined, pixels: behind * 1e6 },
          };
          const cost = { inputFormat: undefined, outputFormat, resultKind, pixels: input * 1e6 };
          const bytes = pictureMemoryBytes({ ...cost, finishing });
          const budget = budgetFor(RESIDENT_BYTES_BUDGET, input + frame + behind);
          assert.ok(bytes * 1.3 < budget, `${outputFormat} of ${input}, ${frame}, ${behind} MP`);
          assert.ok(bytes >= before.behind);
          before.behind = bytes;
        }
        assert.ok(before.behind >= before.frame);
        before.frame = before.behind;
        before.behind = 0;
      }
    }
  }
});
