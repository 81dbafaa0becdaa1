import test from 'ava';
import { at as elementAt } from '../../../../test/support/at.ts';
import { pixelsAt } from '../../../src/picture/kernels/kernels.ts';
import { resample, resampleColours } from '../../../src/picture/matte/resample.ts';

function grey(width: number, height: number, at: (x: number, y: number) => number) {
  const data = Buffer.alloc(width * height);
  for (let i = 0; i < data.length; i++) data[i] = at(i % width, Math.floor(i / width));
  return { data, width, height };
}

const SIZES = [
  [1, 1],
  [1, 7],
  [5, 1],
  [3, 2],
  [64, 64],
  [220, 380],
] as const;

test('an even plane stays what it is, from any size to any size', t => {
  for (const [width, height] of SIZES) {
    for (const [toWidth, toHeight] of SIZES) {
      for (const value of [0, 1, 128, 254, 255]) {
        const out = resample(
          grey(width, height, () => value),
          { width: toWidth, height: toHeight },
        );
        t.is(out.length, toWidth * toHeight);
        t.true(out.every(byte => byte === value));
      }
    }
  }
});

test('the same size gives the same pixels', t => {
  const raster = grey(17, 9, (x, y) => (x * 31 + y * 57) % 256);
  t.deepEqual(resample(raster, raster), raster.data);
});

test('a slope keeps its place and is mirrored by a mirrored input', t => {
  const raster = grey(40, 3, x => x * 6);
  const out = resample(raster, { width: 100, height: 3 });
  for (let x = 5; x < 95; x++) {
    const expected = ((x + 0.5) * 0.4 - 0.5) * 6;
    t.true(Math.abs(elementAt(out, x) - expected) <= 1, `${x}: ${out[x]} for ${expected}`);
  }
  const mirrored = resample(
    grey(40, 3, x => (39 - x) * 6),
    { width: 100, height: 3 },
  );
  t.deepEqual([...mirrored.subarray(0, 100)], [...out.subarray(0, 100)].reverse());
});

test('shrinking averages, nothing aliases', t => {
  const out = resample(
    grey(256, 256, (x, y) => ((x + y) % 2) * 255),
    { width: 16, height: 16 },
  );
  t.true(out.every(value => Math.abs(value - 127.5) <= 3));
});

test('three channels are resampled apart, by the same rule as one', t => {
  const pixels = Uint32Array.from({ length: 36 }, (_, i) => {
    return (i * 7) | ((255 - i * 7) << 8) | (99 << 16);
  });
  const to = { width: 13, height: 4 };
  const size = { width: 6, height: 6 };
  const writeRow = (y: number, at: number) =>
    pixelsAt(at, 6).set(pixels.subarray(6 * y, 6 * y + 6));
  const planes = [0, 8, 16].map(shift =>
    resample({ data: Uint8Array.from(pixels, pixel => (pixel >>> shift) & 255), ...size }, to),
  );
  for (const channels of [3, 4] as const) {
    const out = resampleColours({ ...size, extent: size, writeRow }, to, channels);
    t.is(out.length, to.width * to.height * channels);
    for (const [channel, plane] of planes.entries()) {
      t.deepEqual(plane, Buffer.from(plane.map((_, i) => elementAt(out, i * channels + channel))));
    }
  }
});
