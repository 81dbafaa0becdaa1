import assert from 'node:assert/strict';
import { at } from '@matting/test-support/at.ts';
import { Random } from '@matting/test-support/random.ts';
import test from 'ava';
import { refineMatte, stretchMatte } from '../../test/picture/refine-matte.ts';
import { asRgba, paint } from '../../test/pictures.ts';
import { borrowCopy, bytesAt, withMemory } from '../kernels/kernels.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { applyColours } from './colour-alpha.ts';
import { estimateForeground } from './foreground.ts';

type Colour = readonly [red: number, green: number, blue: number];

const paintPicture = (width: number, height: number, at: (x: number, y: number) => Colour) =>
  asRgba(paint(width, height, 4, (x, y) => [...at(x, y), 255]));

function matteOf(width: number, height: number, alphaAt: (x: number, y: number) => number) {
  const alpha = Buffer.alloc(width * height);
  for (let i = 0; i < alpha.length; i++) {
    alpha[i] = Math.max(0, Math.min(255, Math.round(alphaAt(i % width, Math.floor(i / width)))));
  }
  return [{ alpha, width, height, role: 'subject' as const }];
}

const RED: Colour = [200, 40, 30];
const GREEN: Colour = [30, 160, 60];

for (const [width, height] of [
  [1, 1],
  [2, 3000],
  [3000, 2],
  [97, 1],
  [640, 360],
] as const) {
  test(`refinement › ${width}x${height}, one colour: a matte stays what it is`, t => {
    for (const value of [0, 1, 90, 254, 255]) {
      const picture = paintPicture(width, height, () => GREEN);
      const matte = matteOf(32, 32, () => value);
      const out = refineMatte(matte, picture);
      t.is(out.length, width * height);
      t.not(out.buffer, at(matte, 0).alpha.buffer);
      t.true(
        out.every(alpha => Math.abs(alpha - value) <= 1),
        `${value}`,
      );
    }
  });
}

test('refinement › noise under an unsure matte does not become a rescaled one', t => {
  const random = new Random(7);
  const noise = () => random.below(256);
  const picture = paintPicture(300, 200, () => [noise(), noise(), noise()]);
  const faint = matteOf(64, 64, () => random.below(9));
  const out = refineMatte(faint, picture);
  t.true(Math.max(...out) <= 16, `${Math.max(...out)}`);
});

for (const [name, make] of Object.entries({ refineMatte, stretchMatte })) {
  test(`${name} › leaves nothing of haze on the ground`, t => {
    const picture = paintPicture(640, 360, x => (x < 200 ? RED : GREEN));
    const out = make(
      matteOf(640, 360, x => (x < 200 ? 255 : 18)),
      picture,
    );
    const isRight = (alpha: number, i: number) => {
      const x = i % 640;
      return x < 200 ? alpha === 255 : x < 210 || alpha === 0;
    };
    t.true(out.every(isRight));
  });
}

test('refinement › a blurred edge follows the edge of the colours', t => {
  const picture = paintPicture(960, 200, x => (x < 480 ? RED : GREEN));
  const blurred = matteOf(960, 200, x => ((486 - x) / 12) * 255);
  const error = (alpha: Buffer) =>
    alpha.reduce((sum, value, i) => sum + Math.abs(value - (i % 960 < 480 ? 255 : 0)), 0);
  const plain = error(stretchMatte(blurred, picture));
  const refined = error(refineMatte(blurred, picture));
  t.true(refined < 0.5 * plain, `${refined} of ${plain}`);
});

test('refinement › in a small picture, what lies near a sharp edge does not blur it', t => {
  // The background has the subject's colour, next to a correct matte.
  const mixed: Colour = [115, 100, 45];
  const picture = paintPicture(240, 200, x =>
    x === 120 ? mixed : x < 120 || (x > 125 && x < 131) ? RED : GREEN,
  );
  const right = matteOf(240, 200, x => (x < 120 ? 255 : x === 120 ? 128 : 0));
  const out = refineMatte(right, picture);
  const changes = out.map((value, i) => Math.abs(value - at(at(right, 0).alpha, i)));
  t.true(Math.max(...changes) <= 8, `${Math.max(...changes)}`);
});

test('refinement › what the matte is sure of stays, whatever the colours say', t => {
  const picture = paintPicture(200, 200, (x, y) => ((x + y) % 2 === 0 ? RED : GREEN));
  const sure = matteOf(200, 200, x => (x < 100 ? 255 : 0));
  t.deepEqual(refineMatte(sure, picture), at(sure, 0).alpha);
});

test('refinement › no seam where one tile ends and the next begins', t => {
  // Every row must be the same.
  const picture = paintPicture(260, 330, x => (x < 130 ? RED : GREEN));
  const blurred = matteOf(260, 330, x => ((140 - x) / 20) * 255);
  const out = refineMatte(blurred, picture);
  for (let y = 1; y < 330; y++) {
    t.deepEqual(out.subarray(y * 260, (y + 1) * 260), out.subarray(0, 260), `row ${y}`);
  }
});

test('refinement › above the working size the answer is in the pixels of the picture', t => {
  const width = 2400;
  const height = 1200;
  const picture = paintPicture(width, height, x => (x < 1201 ? RED : GREEN));
  const blurred = matteOf(1024, 1024, x => ((520 - x) / 16) * 255);
  const row = refineMatte(blurred, picture).subarray(600 * width, 601 * width);
  // The jump is one pixel on each side of the edge, and nowhere else.
  t.true(at(row, 1200) - at(row, 1201) > 100, `${row[1200]} to ${row[1201]}`);
  t.true(at(row, 1190) > 200 && at(row, 1212) < 55, `${row[1190]}, ${row[1212]}`);
});

const EDGE_SIZE = { width: 97, height: 61 };
const PIXELS = EDGE_SIZE.width * EDGE_SIZE.height;
const EDGE_RED: Colour = [220, 40, 30];
const EDGE_GREEN: Colour = [20, 150, 70];

/** The subject's share of each column's colour: an edge of a few pixels. */
const coverage = (x: number) => Math.min(1, Math.max(0, (51 - x) / 6));

function paintEdge(subject: Colour, background: Colour): Uint8Array {
  const guide = new Uint8Array(4 * PIXELS);
  for (let i = 0; i < PIXELS; i++) {
    const share = coverage(i % EDGE_SIZE.width);
    const mixed = subject.map((value, c) =>
      Math.round(share * value + (1 - share) * at(background, c)),
    );
    guide.set(mixed, 4 * i);
  }
  return guide;
}

function matte(alphaAt: (x: number) => number): Uint8Array {
  return Uint8Array.from({ length: PIXELS }, (_, i) =>
    Math.round(255 * Math.min(1, Math.max(0, alphaAt(i % EDGE_SIZE.width)))),
  );
}

function applied(guide: Uint8Array, alpha: Uint8Array, size = EDGE_SIZE): Uint8Array {
  return withMemory(borrow => {
    const source = { guide: borrowCopy(borrow, guide), alpha: borrowCopy(borrow, alpha), ...size };
    applyColours(source);
    return Uint8Array.from(bytesAt(source.alpha, alpha.length));
  });
}

/** Blurred over 24 pixels and 3 pixels aside, as by a model. */
const blurred = matte(x => (60 - x) / 24);
const truth = matte(coverage);
const error = (alpha: Uint8Array) =>
  alpha.reduce((sum, value, i) => sum + Math.abs(value - at(truth, i)), 0);

test('colours at an edge › moves a blurred edge to where the colours mix', t => {
  const out = applied(paintEdge(EDGE_RED, EDGE_GREEN), blurred);
  t.true(error(out) < 0.6 * error(blurred), `${error(out)} of ${error(blurred)}`);
});

test('colours at an edge › has no effect where both sides have the same colour', t => {
  t.deepEqual(applied(paintEdge(EDGE_RED, EDGE_RED), blurred), blurred);
});

test('colours at an edge › has no effect on a pixel that neither side explains', t => {
  const guide = paintEdge(EDGE_RED, EDGE_GREEN);
  const middle = 4 * (30 * EDGE_SIZE.width + 48);
  guide.set([0, 0, 255], middle);
  const out = applied(guide, blurred);
  t.true(Math.abs(at(out, middle / 4) - at(blurred, middle / 4)) <= 1);
});

test('colours at an edge › has no effect without a subject, without a background, or without either', t => {
  for (const alpha of [
    matte(x => x / (2 * EDGE_SIZE.width)),
    matte(x => 0.5 + x / (2 * EDGE_SIZE.width)),
    matte(() => 0.5),
  ]) {
    const only = alpha.map(value => (value < 4 ? 0 : value));
    t.deepEqual(applied(paintEdge(EDGE_RED, EDGE_GREEN), only), only);
  }
});

test('colours at an edge › takes pictures of one pixel, row and column', t => {
  for (const [width, height] of [
    [1, 1],
    [1, 300],
    [300, 1],
  ] as const) {
    const alpha = new Uint8Array(width * height).fill(128);
    alpha[0] = 255;
    const guide = new Uint8Array(4 * width * height).fill(77);
    t.is(applied(guide, alpha, { width, height })[0], 255);
  }
});

const SUBJECT: Colour = [190, 120, 40];
const BACKGROUND: Colour = [20, 90, 220];

function mix(alpha: number): number {
  const channels = SUBJECT.map((value, i) =>
    Math.round(value * alpha + at(BACKGROUND, i) * (1 - alpha)),
  );
  return at(channels, 0) | (at(channels, 1) << 8) | (at(channels, 2) << 16) | 0xff000000;
}

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

for (const value of [0, 255]) {
  test(`foreground › without a soft pixel (all ${value}) nothing changes`, t => {
    const { picture, alpha } = composite(200, 100, 9);
    const before = picture.rgba.slice();
    estimateForeground(picture, alpha.fill(value));
    t.deepEqual(picture.rgba, before);
  });
}

test('foreground › the background leaves a soft edge, and opaque pixels do not change', t => {
  const { picture, alpha } = composite(420, 300, 40);
  const before = picture.rgba.slice();
  requireImprovement(picture, alpha);
  for (const [i, pixel] of picture.rgba.entries()) {
    if (alpha[i] === 0 || alpha[i] === 255) t.is(pixel, at(before, i));
  }
});

test('foreground › a picture many times the grid, and no seam between strips', t => {
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

test("foreground › pixels that the file itself made translucent keep the file's colours", t => {
  const { picture, alpha } = composite(200, 100, 30);
  const rgba = picture.rgba.map(pixel => (pixel & 0xffffff) | (180 << 24));
  estimateForeground({ ...picture, rgba, translucent: true }, alpha);
  for (const [i, pixel] of rgba.entries()) {
    t.is(pixel, ((at(picture.rgba, i) & 0xffffff) | (180 << 24)) >>> 0);
  }
});
