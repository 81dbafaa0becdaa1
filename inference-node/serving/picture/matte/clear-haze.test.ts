import { at } from '@matting/test-support/at.ts';
import test from 'ava';
import { borrowCopy, bytesAt, withMemory } from '../kernels/kernels.ts';
import { clearHaze } from './clear-haze.ts';

type Alpha = (x: number, y: number) => number;

/** A cell of the grid is one pixel here, */
const SMALL = { width: 256, height: 160 };
/** and a square of four here. */
const LARGE = { width: 1024, height: 640 };

const paint = ({ width, height }: typeof SMALL, alphaAt: Alpha) =>
  Uint8Array.from({ length: width * height }, (_none, i) =>
    alphaAt(i % width, Math.floor(i / width)),
  );

function cleared(size: typeof SMALL, alphaAt: Alpha): Uint8Array {
  return withMemory(borrow => {
    const alpha = borrowCopy(borrow, paint(size, alphaAt));
    clearHaze(alpha, size);
    return bytesAt(alpha, size.width * size.height).slice();
  });
}

test('haze › goes beyond the ramp of a body, and nothing of the body changes', t => {
  for (const haze of [1, 12, 25]) {
    const alpha = cleared(SMALL, x => (x < 60 ? 255 : haze));
    for (const [i, value] of alpha.entries()) {
      const x = i % SMALL.width;
      const half = Math.floor((haze * 127) / 255);
      t.is(value, x < 60 ? 255 : x === 60 ? half : 0, `${haze}, column ${x}`);
    }
  }
});

test('haze › ends softly in a picture of many pixels a cell', t => {
  const alpha = cleared(LARGE, x => (x < 480 ? 255 : 20));
  const row = alpha.subarray(0, LARGE.width);
  t.true(row.subarray(0, 480).every(value => value === 255));
  t.true(at(row, 480) >= 12);
  t.true(row.subarray(486).every(value => value === 0));
  for (let x = 481; x < 487; x++) t.true(at(row, x - 1) - at(row, x) <= 6, `column ${x}`);
});

test('haze › is not a gap of a body, a soft edge, or a hair', t => {
  const kept: readonly Alpha[] = [
    // The gap is as wide as the ramps of its two sides.
    x => (x < 480 ? 255 : x < 488 ? 20 : x < 700 ? 255 : 0),
    x => Math.max(0, Math.min(255, 255 - 16 * (x - 480))),
    // A hair of one pixel in a cell of four.
    (x, y) => (x < 480 ? 255 : y === 323 && x < 900 ? 45 : 0),
  ];
  for (const [index, alphaAt] of kept.entries()) {
    t.is(Buffer.compare(cleared(LARGE, alphaAt), paint(LARGE, alphaAt)), 0, `${index}`);
  }
});

test('haze › in a picture of glass is fainter: its body stays', t => {
  const alphaAt = (rim: number) => (x: number, y: number) => {
    const isIn = x >= 60 && x < 140 && y >= 20 && y < 140;
    if (!isIn) return 6;
    return x < 64 || x >= 136 ? rim : 20;
  };
  const glass = cleared(SMALL, alphaAt(90));
  const inside = 80 * SMALL.width + 100;
  t.is(glass[inside], 20);
  t.deepEqual([glass[0], glass.at(-1)], [0, 0]);
  t.is(cleared(SMALL, alphaAt(255))[inside], 0, 'a sure rim is a thing of its own');
});

test('haze › is not what shows nothing more anywhere', t => {
  t.true(cleared(SMALL, () => 20).every(value => value === 20));
  t.true(cleared(SMALL, () => 0).every(value => value === 0));
});
