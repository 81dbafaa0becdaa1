import assert from 'node:assert/strict';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { findSubject } from './subject.ts';

function plane(width: number, height: number, rects: readonly (readonly number[])[]) {
  const alpha = new Uint8Array(width * height);
  for (const [left = 0, top = 0, right = 0, bottom = 0, value = 255] of rects) {
    for (let y = top; y < bottom; y++) alpha.fill(value, y * width + left, y * width + right);
  }
  return alpha;
}

test('a subject › the box is exact at any size and place', t => {
  const sizes = fc.record({
    width: fc.integer({ min: 1, max: 1800 }),
    height: fc.integer({ min: 1, max: 1800 }),
  });
  const share = fc.double({ min: 0, max: 0.999, noNaN: true });
  holds(
    t,
    [sizes, share, share, share, share],
    ({ width, height }, x, y, w, h) => {
      const left = Math.floor(x * width);
      const top = Math.floor(y * height);
      const right = left + 1 + Math.floor(w * (width - left));
      const bottom = top + 1 + Math.floor(h * (height - top));
      const covered = ((right - left) * (bottom - top)) / (width * height);
      fc.pre(covered >= 0.0004);
      const found = findSubject(plane(width, height, [[left, top, right, bottom]]), {
        width,
        height,
      });
      assert.deepEqual(found?.box, { left, top, width: right - left, height: bottom - top });
      assert.ok(Math.abs((found?.share ?? 0) - covered) < 1e-9);
    },
    { numRuns: 60 },
  );
});

const SUBJECT_SIZE = { width: 1200, height: 800 };
const PERSON = [300, 100, 600, 800] as const;
const boxOf = (...rects: readonly (readonly number[])[]) =>
  findSubject(plane(SUBJECT_SIZE.width, SUBJECT_SIZE.height, rects), SUBJECT_SIZE)?.box;
const ALONE = { left: 300, top: 100, width: 300, height: 700 };

test('a subject › specks and haze far from the subject do not widen the box', t => {
  t.deepEqual(boxOf(PERSON), ALONE);
  t.deepEqual(boxOf(PERSON, [1190, 0, 1200, 10]), ALONE, 'small');
  t.deepEqual(boxOf(PERSON, [900, 0, 1100, 200, 50]), ALONE, 'faint');
});

test('a subject › what is small and opaque, or faint and part of it, does', t => {
  t.is(boxOf(PERSON, [900, 700, 950, 750])?.width, 650, 'a ball beside a person');
  t.is(boxOf(PERSON, [600, 100, 700, 104, 60])?.width, 400, 'a wisp of hair');
});

test('a subject › one that is nowhere solid is a ghost and none, as next to nothing is', t => {
  const box = { left: 100, top: 100, width: 400, height: 400 };
  t.deepEqual(boxOf([100, 100, 500, 500, 160]), box);
  t.deepEqual(boxOf([100, 100, 500, 500, 40], [300, 300, 320, 318]), box, 'a glass, its lights');
  t.is(boxOf([100, 100, 500, 500, 159]), undefined);
  t.is(boxOf([100, 99, 112, 111]), undefined);
  t.is(boxOf(), undefined);
});

test('a subject › is unsure where a quarter of what is shown is neither opaque nor transparent', t => {
  for (const [unsurePx, isUnsure] of [
    [99, false],
    [100, true],
  ] as const) {
    for (const value of [26, 229]) {
      const rects = [
        [100, 99, 400, 102],
        [500, 99, 500 + unsurePx, 102, value],
        [700, 200, 900, 400, 25],
      ];
      const found = findSubject(plane(1200, 800, rects), SUBJECT_SIZE);
      t.is(found?.unsure, isUnsure, `${unsurePx} of 400 at ${value}`);
    }
    const sure = [
      [100, 99, 400, 102],
      [500, 99, 500 + unsurePx, 102, 230],
    ];
    t.false(findSubject(plane(1200, 800, sure), SUBJECT_SIZE)?.unsure, 'soft, and sure');
  }
});

test('a subject › is cut off where a hundredth of the border is solid, on whatever side', t => {
  const [width, height] = [1200, 800];
  const body = [300, 200, 600, 600];
  for (const edge of [
    [200, 0, 240, 5],
    [200, height - 3, 240, height],
    [0, 100, 2, 140],
    [width - 1, 100, width, 140],
  ]) {
    const [left = 0, top = 0, right = 0, bottom = 0] = edge;
    const isAcross = top === 0 || bottom === height;
    const less = isAcross ? [left, top, right - 1, bottom] : [left, top, right, bottom - 1];
    const cut = (rect: readonly number[], value = 255) =>
      findSubject(plane(width, height, [body, [...rect, value]]), SUBJECT_SIZE)?.cutOff;
    t.deepEqual([cut(edge), cut(less), cut(edge, 159)], [true, false, false], String(edge));
  }
});
