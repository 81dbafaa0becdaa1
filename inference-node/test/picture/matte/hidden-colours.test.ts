/** Colours under transparent pixels are arbitrary: whatever they are, the result is the same. */
import assert from 'node:assert/strict';
import test from 'ava';
import { at as elementAt } from '../../../../test/support/at.ts';
import { fc } from '../../../../test/support/property-tests.ts';
import { createModelInput } from '../../../src/picture/matte/model-input.ts';
import { finishPicture } from '../../../src/picture/worker/finish.ts';
import { type Colour, type Pixels, paint, readRgba, toPicture } from '../pictures.ts';

const DISC = [120, 90, 70] as const;
const MODEL = { width: 64, height: 64 };
const CHOICES = {
  refinement: true,
  foregroundEstimation: true,
  outputFormat: 'png',
  resultKind: 'cutout',
} as const;

const even = (value: number) => () => [value, value, value];
const HIDDEN: Readonly<Record<string, Colour>> = {
  white: even(255),
  black: even(0),
  grey: even(128),
  magenta: () => [255, 0, 255],
  green: () => [0, 255, 0],
  noise: (x, y) => [(x * 7919 + y * 104_729) & 255, (x * y) & 255, (x * 31 + y * 17) & 255],
};

/** An antialiased disc whose centre is the picture's. @param texture added to its colour. */
function disc(side: number, texture: number, hidden: Colour): Pixels {
  return paint(side, side, 4, (x, y) => {
    const far = Math.hypot(x - side / 2, y - side / 2);
    const alpha = Math.round(255 * Math.max(0, Math.min(1, side * 0.35 - far + 0.5)));
    const own = DISC.map(value => value + ((x * 13 + y * 7) % (texture + 1)));
    return [...(alpha === 0 ? hidden(x, y) : own), alpha];
  });
}

/** Soft as a model's, from what a model sees: a hidden colour that is seen changes it. */
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

/** The largest step away from the source's colour among pixels that are opaque in it. */
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

test('hidden colours change no pixel of the result, and none bleeds into the visible', async t => {
  for (const [side, blurPx] of [
    [160, 4],
    [300, 9],
  ] as const) {
    const expected = await cutOut(
      disc(side, 0, () => DISC),
      blurPx,
    );
    for (const [name, hidden] of Object.entries(HIDDEN)) {
      const source = disc(side, 0, hidden);
      const result = await cutOut(source, blurPx);
      t.true(worstStep(result, source) <= 1, `${name}: ${worstStep(result, source)} off`);
      t.true(result.data.equals(expected.data), `${name}: another result`);
    }
  }
});

test('the same for any texture, softness and hidden bytes', async t => {
  const cases = fc.record({
    side: fc.integer({ min: 3, max: 90 }),
    texture: fc.integer({ min: 0, max: 100 }),
    blurPx: fc.integer({ min: 1, max: 20 }),
    bytes: fc.uint8Array({ minLength: 30, maxLength: 30 }),
  });
  // Within it nothing of `t`: its first failure would stand for the smallest that is found.
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
      }),
      { numRuns: 30 },
    ),
  );
});

test('an opaque picture with an alpha channel has the colours of one without', async t => {
  const source = disc(120, 60, even(200));
  const opaque = (channels: 3 | 4) =>
    paint(120, 120, channels, (x, y) => {
      const at = 4 * (y * 120 + x);
      return [...source.data.subarray(at, at + 3), 255].slice(0, channels);
    });
  const [one, other] = [await cutOut(opaque(3), 6), await cutOut(opaque(4), 6)];
  t.true(one.data.equals(other.data));
});
