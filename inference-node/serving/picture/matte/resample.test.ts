import assert from 'node:assert/strict';
import { at as elementAt } from '@matting/test-support/at.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import {
  asRgba,
  type Colour,
  type Pixels,
  paint,
  readRgba,
  toPicture,
} from '../../test/pictures.ts';
import { bytesAt, pixelsAt, withMemory } from '../kernels/kernels.ts';
import { viewAsPixels } from '../rgba-picture.ts';
import { finishPicture } from '../worker/finish.ts';
import { createModelInput } from './model-input.ts';
import { multiplySourceAlpha } from './picture-alpha.ts';
import { resample, resampleColours } from './resample.ts';

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

test('resampling › an even plane stays what it is, from any size to any size', t => {
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

test('resampling › the same size gives the same pixels', t => {
  const raster = grey(17, 9, (x, y) => (x * 31 + y * 57) % 256);
  t.deepEqual(resample(raster, raster), raster.data);
});

test('resampling › a slope keeps its place and is mirrored by a mirrored input', t => {
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

test('resampling › shrinking averages, nothing aliases', t => {
  const out = resample(
    grey(256, 256, (x, y) => ((x + y) % 2) * 255),
    { width: 16, height: 16 },
  );
  t.true(out.every(value => Math.abs(value - 127.5) <= 3));
});

test('resampling › three channels are resampled apart, by the same rule as one', t => {
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
    const out = withMemory(borrow => {
      const at = borrow(to.width * to.height * channels);
      resampleColours({ ...size, extent: size, writeRow }, to, channels, at);
      return bytesAt(at, to.width * to.height * channels).slice();
    });
    for (const [channel, plane] of planes.entries()) {
      t.deepEqual(plane, Buffer.from(plane.map((_, i) => elementAt(out, i * channels + channel))));
    }
  }
});

const picture = (width: number, height: number, at: Colour, translucent = true) =>
  asRgba(paint(width, height, 4, at), translucent);

test('arithmetic › the product of two alphas is rounded, for all of them', t => {
  const source = picture(256, 256, (_x, y) => [0, 0, 0, y]);
  const alpha = Buffer.alloc(65536).map((_, i) => i % 256);
  multiplySourceAlpha(alpha, source);
  for (let i = 0; i < alpha.length; i++) {
    t.is(alpha[i], Math.round(((i % 256) * Math.floor(i / 256)) / 255));
  }
});

test('arithmetic › pixels that lie unaligned are read all the same', t => {
  const bytes = Buffer.from([9, 1, 2, 3, 4, 5, 6, 7, 8]).subarray(1);
  t.deepEqual([...viewAsPixels(bytes)], [0x04030201, 0x08070605]);
});

test('arithmetic › a model sees the mean of what it is shrunk from', t => {
  const size = { width: 8, height: 8 };
  for (const [width, height] of [
    [64, 64],
    // The most white pixels in a box.
    [128, 128],
    [100, 37],
    [1000, 8],
    [8, 1000],
    [7, 5],
    [1, 1],
  ] as const) {
    const input = createModelInput(
      picture(width, height, () => [10, 130, 255, 255], false),
      size,
    );
    t.is(input.length, 8 * 8 * 3);
    for (let i = 0; i < input.length; i += 3) {
      t.deepEqual([...input.subarray(i, i + 3)], [10, 130, 255], `${width}x${height}`);
    }
  }
  const stripes = createModelInput(
    picture(160, 160, x => [x % 2 ? 255 : 0, 0, 0, 255], false),
    size,
  );
  for (let i = 0; i < stripes.length; i += 3) t.true(Math.abs(elementAt(stripes, i) - 127.5) <= 1);
});

test('arithmetic › shrinking in boxes leaves everything in its place, also where the last box is a part', t => {
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

test('arithmetic › what lies hidden under transparency is not shown to a model', t => {
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

// Colours under transparent pixels must not change the result.

const DISC = [120, 90, 70] as const;
const MODEL = { width: 64, height: 64 };
const CHOICES = {
  refinement: true,
  foregroundEstimation: true,
  outputFormat: 'png',
  resultKind: 'cutout',
} as const;

const even = (value: number) => () => [value, value, value];

/** An antialiased disc in the middle. @param texture added to its colour */
function disc(side: number, texture: number, hidden: Colour): Pixels {
  return paint(side, side, 4, (x, y) => {
    const far = Math.hypot(x - side / 2, y - side / 2);
    const alpha = Math.round(255 * Math.max(0, Math.min(1, side * 0.35 - far + 0.5)));
    const own = DISC.map(value => value + ((x * 13 + y * 7) % (texture + 1)));
    return [...(alpha === 0 ? hidden(x, y) : own), alpha];
  });
}

/** Soft as a model's; a visible hidden colour would change it. */
function matteOf(input: Buffer, blurPx: number): Buffer {
  const alpha = Buffer.alloc(MODEL.width * MODEL.height);
  for (let i = 0; i < alpha.length; i++) {
    const far = Math.hypot((i % MODEL.width) - 32, Math.floor(i / MODEL.width) - 32);
    const soft = 127 + ((MODEL.width * 0.33 - far) * 127) / blurPx;
    alpha[i] = Math.max(0, Math.min(255, Math.round(soft + (elementAt(input, 3 * i) - 124) / 8)));
  }
  return alpha;
}

async function cutOut(pixels: Pixels, blurPx: number) {
  const picture = await toPicture(pixels);
  const alpha = matteOf(createModelInput(picture, MODEL), blurPx);
  const matte = { alpha, ...MODEL, role: 'subject' as const };
  return await readRgba((await finishPicture(picture, [matte], CHOICES)).file, 'png');
}

function worstStep(result: Pixels, source: Pixels): number {
  let worst = 0;
  for (let at = 0; at < source.data.length; at += 4) {
    if (elementAt(source.data, at + 3) < 255 || result.data[at + 3] === 0) continue;
    for (const c of [0, 1, 2]) {
      worst = Math.max(
        worst,
        Math.abs(elementAt(result.data, at + c) - elementAt(source.data, at + c)),
      );
    }
  }
  return worst;
}

test('hidden colours › change no pixel of the result, whatever the texture, softness and bytes', async t => {
  const cases = fc.record({
    side: fc.integer({ min: 3, max: 90 }),
    texture: fc.integer({ min: 0, max: 100 }),
    blurPx: fc.integer({ min: 1, max: 20 }),
    bytes: fc.uint8Array({ minLength: 30, maxLength: 30 }),
  });
  // A failed assertion of `t` would hide the smallest counterexample.
  await t.notThrowsAsync(
    fc.assert(
      fc.asyncProperty(cases, async ({ side, texture, blurPx, bytes }) => {
        const drawn: Colour = (x, y) => {
          const at = (x * 7 + y * 3) % 28;
          return [...bytes.subarray(at, at + 3)];
        };
        const one = await cutOut(disc(side, texture, drawn), blurPx);
        const other = await cutOut(disc(side, texture, even(128)), blurPx);
        assert.ok(one.data.equals(other.data));
        // With one colour nothing is estimated: no hidden colour bleeds into it.
        if (texture === 0) assert.ok(worstStep(one, disc(side, texture, drawn)) <= 1);
      }),
      { numRuns: 30 },
    ),
  );
});

test('hidden colours › an opaque picture with an alpha channel has the colours of one without', async t => {
  const source = disc(120, 60, even(200));
  const opaque = (channels: 3 | 4) =>
    paint(120, 120, channels, (x, y) => {
      const at = 4 * (y * 120 + x);
      return [...source.data.subarray(at, at + 3), 255].slice(0, channels);
    });
  const [one, other] = [await cutOut(opaque(3), 6), await cutOut(opaque(4), 6)];
  t.true(one.data.equals(other.data));
});
