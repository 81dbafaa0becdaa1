import assert from 'node:assert/strict';
import test from 'ava';
import { at } from '../../../../test/support/at.ts';
import { estimateForeground } from '../../../src/picture/matte/foreground.ts';
import type { RgbaPicture } from '../../../src/picture/rgba-picture.ts';

type Colour = readonly [red: number, green: number, blue: number];

const SUBJECT: Colour = [190, 120, 40];
const BACKGROUND: Colour = [20, 90, 220];

function mix(alpha: number): number {
  const channels = SUBJECT.map((value, i) =>
    Math.round(value * alpha + at(BACKGROUND, i) * (1 - alpha)),
  );
  return at(channels, 0) | (at(channels, 1) << 8) | (at(channels, 2) << 16) | 0xff000000;
}

/** A subject on the left with an edge `soft` pixels wide. */
function composite(width: number, height: number, soft: number) {
  const alpha = new Uint8Array(width * height);
  const rgba = new Uint32Array(width * height);
  for (let i = 0; i < alpha.length; i++) {
    const share = Math.max(0, Math.min(1, (width / 2 + soft / 2 - (i % width)) / soft));
    alpha[i] = Math.round(share * 255);
    rgba[i] = mix(at(alpha, i) / 255);
  }
  const picture: RgbaPicture = { width, height, rgba, translucent: false };
  return { picture, alpha };
}

function colourError(rgba: Uint32Array, alpha: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < rgba.length; i++) {
    if (alpha[i] === 0 || alpha[i] === 255) continue;
    for (const [c, value] of SUBJECT.entries()) {
      sum += at(alpha, i) * Math.abs(((at(rgba, i) >>> (8 * c)) & 255) - value);
    }
  }
  return sum;
}

function requireImprovement(picture: RgbaPicture, alpha: Uint8Array): void {
  const before = colourError(picture.rgba, alpha);
  estimateForeground(picture, alpha);
  const ratio = colourError(picture.rgba, alpha) / before;
  assert.ok(ratio < 0.5, `${ratio} of the photo's own error`);
}

for (const [width, height] of [
  [1, 1],
  [2, 3000],
  [3000, 2],
  [1, 300],
] as const) {
  test(`${width}x${height}: whatever is soft, every colour is one`, t => {
    const { picture, alpha } = composite(width, height, 3);
    estimateForeground(picture, alpha.fill(100));
    t.true(picture.rgba.every(pixel => pixel >>> 24 === 255));
  });
}

for (const value of [0, 255]) {
  test(`without a soft pixel (all ${value}) nothing changes`, t => {
    const { picture, alpha } = composite(200, 100, 9);
    const before = picture.rgba.slice();
    estimateForeground(picture, alpha.fill(value));
    t.deepEqual(picture.rgba, before);
  });
}

test('the background leaves a soft edge, and opaque pixels do not change', t => {
  const { picture, alpha } = composite(420, 300, 40);
  const before = picture.rgba.slice();
  requireImprovement(picture, alpha);
  for (const [i, pixel] of picture.rgba.entries()) {
    if (alpha[i] === 0 || alpha[i] === 255) t.is(pixel, at(before, i));
  }
});

test('a picture many times the grid, and no seam between strips', t => {
  const { picture, alpha } = composite(1400, 700, 60);
  requireImprovement(picture, alpha);
  for (const y of [127, 255, 383]) {
    for (let x = 0; x < 1400; x++) {
      const above = at(picture.rgba, y * 1400 + x);
      const below = at(picture.rgba, (y + 1) * 1400 + x);
      for (const shift of [0, 8, 16]) {
        const step = Math.abs(((above >>> shift) & 255) - ((below >>> shift) & 255));
        t.true(step <= 4, `a step of ${step} at ${x}, ${y}`);
      }
    }
  }
});

test("pixels that the file itself made translucent keep the file's colours", t => {
  const { picture, alpha } = composite(200, 100, 30);
  const rgba = picture.rgba.map(pixel => (pixel & 0xffffff) | (180 << 24));
  estimateForeground({ ...picture, rgba, translucent: true }, alpha);
  for (const [i, pixel] of rgba.entries()) {
    t.is(pixel, ((at(picture.rgba, i) & 0xffffff) | (180 << 24)) >>> 0);
  }
});
