import test from 'ava';
import { at } from '../../../../test/support/at.ts';
import { borrowCopy, bytesAt, withMemory } from '../../../src/picture/kernels/kernels.ts';
import { applyColours } from '../../../src/picture/matte/colour-alpha.ts';

const SIZE = { width: 97, height: 61 };
const PIXELS = SIZE.width * SIZE.height;
type Colour = readonly [red: number, green: number, blue: number];
const RED: Colour = [220, 40, 30];
const GREEN: Colour = [20, 150, 70];

/** The share of the subject in each column's colour: an edge of a few pixels, half way across. */
const coverage = (x: number) => Math.min(1, Math.max(0, (51 - x) / 6));

function paint(subject: Colour, background: Colour): Uint8Array {
  const guide = new Uint8Array(4 * PIXELS);
  for (let i = 0; i < PIXELS; i++) {
    const share = coverage(i % SIZE.width);
    const mixed = subject.map((value, c) =>
      Math.round(share * value + (1 - share) * at(background, c)),
    );
    guide.set(mixed, 4 * i);
  }
  return guide;
}

function matte(alphaAt: (x: number) => number): Uint8Array {
  return Uint8Array.from({ length: PIXELS }, (_, i) =>
    Math.round(255 * Math.min(1, Math.max(0, alphaAt(i % SIZE.width)))),
  );
}

function applied(guide: Uint8Array, alpha: Uint8Array, size = SIZE): Uint8Array {
  return withMemory(borrow => {
    const source = { guide: borrowCopy(borrow, guide), alpha: borrowCopy(borrow, alpha), ...size };
    applyColours(source);
    return Uint8Array.from(bytesAt(source.alpha, alpha.length));
  });
}

/** Blurred over 24 pixels and 3 pixels aside, as a model does it. */
const blurred = matte(x => (60 - x) / 24);
const truth = matte(coverage);
const error = (alpha: Uint8Array) =>
  alpha.reduce((sum, value, i) => sum + Math.abs(value - at(truth, i)), 0);

test('moves a blurred edge to where the colours mix', t => {
  const out = applied(paint(RED, GREEN), blurred);
  t.true(error(out) < 0.6 * error(blurred), `${error(out)} of ${error(blurred)}`);
});

test('has no effect where both sides have the same colour', t => {
  t.deepEqual(applied(paint(RED, RED), blurred), blurred);
});

test('has no effect on a pixel that neither side explains', t => {
  const guide = paint(RED, GREEN);
  const middle = 4 * (30 * SIZE.width + 48);
  guide.set([0, 0, 255], middle);
  const out = applied(guide, blurred);
  t.true(Math.abs(at(out, middle / 4) - at(blurred, middle / 4)) <= 1);
});

test('changes nothing that the matte is sure of', t => {
  const sure = matte(x => (x < 30 ? 1 : 0));
  t.deepEqual(applied(paint(RED, GREEN), sure), sure);
});

test('has no effect without a subject, without a background, or without either', t => {
  for (const alpha of [
    matte(x => x / (2 * SIZE.width)),
    matte(x => 0.5 + x / (2 * SIZE.width)),
    matte(() => 0.5),
  ]) {
    const only = alpha.map(value => (value < 4 ? 0 : value));
    t.deepEqual(applied(paint(RED, GREEN), only), only);
  }
});

test('takes pictures of one pixel, row and column', t => {
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
