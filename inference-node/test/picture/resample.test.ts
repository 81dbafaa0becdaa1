import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resample } from '../../src/picture/resample.ts';

function grey(width: number, height: number, at: (x: number, y: number) => number) {
  const data = Buffer.alloc(width * height);
  for (let i = 0; i < data.length; i++) data[i] = at(i % width, Math.floor(i / width));
  return { data, width, height, channels: 1 } as const;
}

const SIZES = [
  [1, 1],
  [1, 7],
  [5, 1],
  [3, 2],
  [64, 64],
  [220, 380],
] as const;

for (const kernel of ['triangle', 'cubic'] as const) {
  test(`${kernel}: an even plane stays what it is, from any size to any size`, () => {
    for (const [width, height] of SIZES) {
      for (const [toWidth, toHeight] of SIZES) {
        for (const value of [0, 1, 128, 254, 255]) {
          const out = resample(
            grey(width, height, () => value),
            { width: toWidth, height: toHeight },
            kernel,
          );
          assert.equal(out.length, toWidth * toHeight);
          assert.ok(out.every(byte => byte === value));
        }
      }
    }
  });

  test(`${kernel}: the same size gives the same pixels`, () => {
    const raster = grey(17, 9, (x, y) => (x * 31 + y * 57) % 256);
    assert.deepEqual(resample(raster, raster, kernel), raster.data);
  });

  test(`${kernel}: a slope keeps its place and is mirrored by a mirrored input`, () => {
    const raster = grey(40, 3, x => x * 6);
    const out = resample(raster, { width: 100, height: 3 }, kernel);
    for (let x = 5; x < 95; x++) {
      const expected = ((x + 0.5) * 0.4 - 0.5) * 6;
      assert.ok(Math.abs(out[x] - expected) <= 1, `${x}: ${out[x]} for ${expected}`);
    }
    const mirrored = resample(
      grey(40, 3, x => (39 - x) * 6),
      { width: 100, height: 3 },
      kernel,
    );
    assert.deepEqual([...mirrored.subarray(0, 100)], [...out.subarray(0, 100)].reverse());
  });

  test(`${kernel}: shrinking averages, nothing aliases`, () => {
    const out = resample(
      grey(256, 256, (x, y) => ((x + y) % 2) * 255),
      { width: 16, height: 16 },
      kernel,
    );
    assert.ok(out.every(value => Math.abs(value - 127.5) <= 3));
  });
}

test('cubic: an edge overshoots and is clamped, it does not wrap', () => {
  const out = resample(
    grey(8, 1, x => (x < 4 ? 0 : 255)),
    { width: 64, height: 1 },
    'cubic',
  );
  assert.equal(out[0], 0);
  assert.equal(out[63], 255);
  for (let x = 1; x < 64; x++) assert.ok(out[x] >= out[x - 1] || out[x] >= 250);
});

test('three channels are resampled apart', () => {
  const data = Buffer.alloc(6 * 6 * 3);
  for (let i = 0; i < 36; i++) data.set([i * 7, 255 - i * 7, 99], i * 3);
  const to = { width: 13, height: 4 };
  const out = resample({ data, width: 6, height: 6, channels: 3 }, to, 'triangle');
  for (const channel of [0, 1, 2]) {
    const plane = Buffer.from(Array.from({ length: 36 }, (_, i) => data[i * 3 + channel]));
    const one = resample({ data: plane, width: 6, height: 6, channels: 1 }, to, 'triangle');
    const picked = Buffer.from(Array.from({ length: one.length }, (_, i) => out[i * 3 + channel]));
    assert.deepEqual(picked, one);
  }
});
