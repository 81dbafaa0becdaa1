import assert from 'node:assert/strict';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { at } from '@matting/test-support/at.ts';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import { Random } from '@matting/test-support/random.ts';
import test from 'ava';
import { findSubject, SUBJECT_RULES } from './subject.ts';

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

/** The same rules by lists of the shown pixels of each cell, and a flood. */
function subjectByFlood(alpha: Uint8Array, { width, height }: Size) {
  const sidePx = Math.ceil(Math.max(width, height) / 512);
  const columns = Math.ceil(width / sidePx);
  const cells = Array.from({ length: columns * Math.ceil(height / sidePx) }, () => [] as number[]);
  for (const [pixel, value] of alpha.entries()) {
    const row = Math.floor(Math.floor(pixel / width) / sidePx);
    const cell = row * columns + Math.floor((pixel % width) / sidePx);
    if (value >= 26) at(cells, cell).push(pixel);
  }
  const values = (pixels: readonly number[]) => pixels.map(pixel => at(alpha, pixel));
  const { solidFrom, solidShareMin } = SUBJECT_RULES;
  const solid = cells.filter(pixels => values(pixels).some(value => value >= solidFrom)).length;
  if (solid === 0 || solid < solidShareMin * cells.length) return undefined;
  const parts = floodParts(cells, columns).map(pixels => {
    const [sum, peak] = [sumOf(values(pixels)), values(pixels).reduce((a, b) => Math.max(a, b), 0)];
    return { pixels, sum, peak };
  });
  const largest = parts.reduce((most, { sum }) => Math.max(most, sum), 0);
  const kept = parts.filter(
    ({ sum, peak }) => sum === largest || (peak >= 64 && sum >= 0.004 * largest),
  );
  const [xs, ys] = [new Set<number>(), new Set<number>()];
  for (const pixel of kept.flatMap(({ pixels }) => pixels)) {
    xs.add(pixel % width);
    ys.add(Math.floor(pixel / width));
  }
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return {
    box: { left, top, width: Math.max(...xs) + 1 - left, height: Math.max(...ys) + 1 - top },
    share: sumOf(kept.map(({ sum }) => sum)) / 255 / (width * height),
  };
}

const sumOf = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);

/** Empties the cells, and returns the pixels of each part. */
function floodParts(cells: number[][], columns: number): number[][] {
  const parts: number[][] = [];
  for (const first of cells.keys()) {
    const part: number[] = [];
    const open = [first];
    for (let cell = open.pop(); cell !== undefined; cell = open.pop()) {
      const pixels = at(cells, cell);
      if (pixels.length === 0) continue;
      for (const pixel of pixels.splice(0)) part.push(pixel);
      for (const step of [-1, 0, 1]) {
        if (cell % columns === (step < 0 ? 0 : step > 0 ? columns - 1 : -1)) continue;
        for (const next of [cell + step - columns, cell + step, cell + step + columns]) {
          if (next >= 0 && next < cells.length) open.push(next);
        }
      }
    }
    if (part.length > 0) parts.push(part);
  }
  return parts;
}

/** Blobs, rings, wandering lines, dots and noise of every alpha that a rule compares. */
function draw({ width, height }: Size, seed: number): Uint8Array {
  const random = new Random(seed);
  const alpha = new Uint8Array(width * height);
  const value = () => at([0, 25, 26, 63, 64, 159, 160, 229, 230, 255], random.below(10));
  if (random.below(8) === 0) return alpha.fill(value());
  if (random.below(8) === 0) return alpha.map(() => Math.max(0, random.below(1024) - 768));
  const put = (x: number, y: number, value: number) => {
    if (x >= 0 && x < width && y >= 0 && y < height) alpha[y * width + x] = value;
  };
  for (let shapes = random.below(10); shapes >= 0; shapes--) {
    const [own, kind] = [value(), random.below(4)];
    let [x, y] = [random.below(width), random.below(height)];
    const outer = random.below(Math.max(2, Math.min(width, height) >> 2));
    const inner = random.below(outer + 1);
    for (let v = -outer; kind === 0 && v <= outer; v++) {
      for (let u = -outer; u <= outer; u++) {
        const distance = Math.hypot(u, v);
        if (distance <= outer && distance >= inner) put(x + u, y + v, own);
      }
    }
    for (let steps = 200; kind === 1 && steps > 0; steps--) {
      x += random.below(3) - 1;
      y += random.below(3) - 1;
      put(x, y, own);
    }
    for (let row = 0; kind === 2 && row < height; row += 2) {
      for (let column = 0; column < width; column += 2) put(column, row, own);
    }
    if (kind === 3) put(x, y, own);
  }
  return alpha;
}

test('a subject › is what its rules say: holes, thin lines, dots and noise in pictures of any size', t => {
  const small = fc.integer({ min: 1, max: 48 });
  const sizes = fc.oneof(
    fc.record({ width: small, height: small }),
    fc.record({ width: fc.integer({ min: 513, max: 1700 }), height: small }),
    fc.record({ width: small, height: fc.integer({ min: 513, max: 1700 }) }),
  );
  holds(
    t,
    [sizes, fc.nat()],
    (size, seed) => {
      const alpha = draw(size, seed);
      const found = findSubject(alpha, size);
      const { box, share } = found ?? {};
      assert.deepEqual(found && { box, share }, subjectByFlood(alpha, size));
    },
    { numRuns: 400 },
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
        [700, 200, 800, 300, 25],
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

test('a subject › is unsure if much is faint, far from anything solid', t => {
  const size = { width: 400, height: 300 };
  const unsureWith = (haze: readonly number[]) =>
    findSubject(plane(400, 300, [haze, [20, 20, 120, 280]]), size)?.unsure;
  // 4800 of 120,000 pixels.
  t.true(unsureWith([300, 100, 340, 220, 20]));
  // 1600, then as many as above beside the subject.
  t.false(unsureWith([300, 100, 340, 140, 20]));
  t.false(unsureWith([16, 16, 123, 284, 20]));
});
