import assert from 'node:assert/strict';
import test from 'ava';
import fc from 'fast-check';
import { findSubject } from '../../../src/picture/finishing/subject.ts';

function plane(width: number, height: number, rects: readonly (readonly number[])[]) {
  const alpha = new Uint8Array(width * height);
  for (const [left = 0, top = 0, right = 0, bottom = 0, value = 255] of rects) {
    for (let y = top; y < bottom; y++) alpha.fill(value, y * width + left, y * width + right);
  }
  return alpha;
}

test('the box is exact at any size and place', t => {
  const size = fc.record({
    width: fc.integer({ min: 1, max: 1800 }),
    height: fc.integer({ min: 1, max: 1800 }),
  });
  const share = fc.double({ min: 0, max: 0.999, noNaN: true });
  // Within it nothing of `t`: its first failure would stand for the smallest that is found.
  t.notThrows(() =>
    fc.assert(
      fc.property(size, share, share, share, share, ({ width, height }, x, y, w, h) => {
        const left = Math.floor(x * width);
        const top = Math.floor(y * height);
        const right = left + 1 + Math.floor(w * (width - left));
        const bottom = top + 1 + Math.floor(h * (height - top));
        const covered = ((right - left) * (bottom - top)) / (width * height);
        fc.pre(covered >= 0.0002);
        const found = findSubject(plane(width, height, [[left, top, right, bottom]]), {
          width,
          height,
        });
        assert.deepEqual(found?.box, { left, top, width: right - left, height: bottom - top });
        assert.ok(Math.abs((found?.share ?? 0) - covered) < 1e-9);
      }),
      { numRuns: 60 },
    ),
  );
});

const SIZE = { width: 1200, height: 800 };
const PERSON = [300, 100, 600, 800] as const;
const boxOf = (...rects: readonly (readonly number[])[]) =>
  findSubject(plane(SIZE.width, SIZE.height, rects), SIZE)?.box;
const ALONE = { left: 300, top: 100, width: 300, height: 700 };

test('specks and haze far from the subject do not widen the box', t => {
  t.deepEqual(boxOf(PERSON), ALONE);
  t.deepEqual(boxOf(PERSON, [1190, 0, 1200, 10]), ALONE, 'small');
  t.deepEqual(boxOf(PERSON, [900, 0, 1100, 200, 50]), ALONE, 'faint');
});

test('what is small and opaque, or faint and part of it, does', t => {
  t.is(boxOf(PERSON, [900, 700, 950, 750])?.width, 650, 'a ball beside a person');
  t.is(boxOf(PERSON, [600, 100, 700, 104, 60])?.width, 400, 'a wisp of hair');
});

test('a subject that is faint everywhere is one; next to nothing is none', t => {
  t.deepEqual(boxOf([100, 100, 500, 500, 40]), {
    left: 100,
    top: 100,
    width: 400,
    height: 400,
  });
  t.is(boxOf([100, 100, 500, 500, 20]), undefined);
  t.is(boxOf([100, 100, 108, 110]), undefined);
  t.is(boxOf(), undefined);
});
