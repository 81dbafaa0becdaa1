import test from 'ava';
import { at as elementAt } from '../../../../test/support/at.ts';
import { applyAlpha, multiplySourceAlpha } from '../../../src/picture/matte/compose.ts';
import { createModelInput } from '../../../src/picture/matte/model-input.ts';
import { viewAsPixels } from '../../../src/picture/rgba-picture.ts';
import { asRgba, type Colour, paint } from '../pictures.ts';

const picture = (width: number, height: number, at: Colour, translucent = true) =>
  asRgba(paint(width, height, 4, at), translucent);

test('a result is the product of both alphas, and has no colour where nothing is seen', t => {
  const source = picture(4, 1, x => [200, 100, 50, elementAt([0, 128, 255, 255], x)]);
  const alpha = Buffer.from([255, 255, 0, 128]);
  multiplySourceAlpha(alpha, source);
  t.deepEqual([...alpha], [0, 128, 0, 128]);
  applyAlpha(source, alpha);
  const out = Buffer.from(source.rgba.buffer, source.rgba.byteOffset, 16);
  t.deepEqual([...out], [0, 0, 0, 0, 200, 100, 50, 128, 0, 0, 0, 0, 200, 100, 50, 128]);
});

test('the product of two alphas is rounded, for all of them', t => {
  const source = picture(256, 256, (_x, y) => [0, 0, 0, y]);
  const alpha = Buffer.alloc(65536).map((_, i) => i % 256);
  multiplySourceAlpha(alpha, source);
  for (let i = 0; i < alpha.length; i++) {
    t.is(alpha[i], Math.round(((i % 256) * Math.floor(i / 256)) / 255));
  }
});

test('pixels that lie unaligned are read all the same', t => {
  const bytes = Buffer.from([9, 1, 2, 3, 4, 5, 6, 7, 8]).subarray(1);
  t.deepEqual([...viewAsPixels(bytes)], [0x04030201, 0x08070605]);
});

test('a model sees the mean of what it is shrunk from', t => {
  const size = { width: 8, height: 8 };
  for (const [width, height] of [
    [64, 64],
    [100, 37],
    [1000, 8],
    [8, 1000],
    [7, 5],
    [1, 1],
  ] as const) {
    const input = createModelInput(
      picture(width, height, () => [10, 130, 250, 255], false),
      size,
    );
    t.is(input.length, 8 * 8 * 3);
    for (let i = 0; i < input.length; i += 3) {
      t.deepEqual([...input.subarray(i, i + 3)], [10, 130, 250], `${width}x${height}`);
    }
  }
  const stripes = createModelInput(
    picture(160, 160, x => [x % 2 ? 255 : 0, 0, 0, 255], false),
    size,
  );
  for (let i = 0; i < stripes.length; i += 3) t.true(Math.abs(elementAt(stripes, i) - 127.5) <= 1);
});

test('shrinking in boxes leaves everything in its place, also where the last box is a part', t => {
  const width = 1003;
  const slope = picture(width, 40, x => [Math.round((x * 255) / (width - 1)), 0, 0, 255], false);
  const input = createModelInput(slope, { width: 100, height: 10 });
  for (let x = 0; x < 100; x++) {
    const expected = ((((x + 0.5) * width) / 100 - 0.5) * 255) / (width - 1);
    t.true(
      Math.abs(elementAt(input, x * 3) - expected) <= 1.5,
      `${x}: ${input[x * 3]} for ${expected}`,
    );
  }
});

test('what lies hidden under transparency is not shown to a model', t => {
  for (const side of [4, 16, 64]) {
    const hidden = picture(side, side, x => (x < side / 2 ? [255, 0, 0, 0] : [0, 255, 0, 255]));
    const input = createModelInput(hidden, { width: 16, height: 16 });
    t.deepEqual([...input.subarray(0, 3)], [128, 128, 128]);
    t.deepEqual([...input.subarray(45, 48)], [0, 255, 0]);
  }
  const half = createModelInput(
    picture(32, 32, () => [0, 255, 128, 51]),
    { width: 16, height: 16 },
  );
  t.deepEqual([...half.subarray(0, 3)], [102, 153, 128]);
});
