import { at } from '@matting/test-support/at.ts';
import test from 'ava';
import { refineMatte, stretchMatte } from '../../test/picture/refine-matte.ts';
import { asRgba, paint } from '../../test/pictures.ts';
import { createModelInput } from './model-input.ts';
import { createRefineInput } from './refine.ts';
import { createTrimap, replaceUnsure } from './trimap.ts';

/** Two pixels. */
const REACH = 2 / 20;
const SIZE = { width: 20, height: 3 };
const matteOf = (alphaAt: (x: number) => number, { width, height } = SIZE) =>
  Uint8Array.from({ length: width * height }, (_, i) => alphaAt(i % width));
const letters = (trimap: Uint8Array | undefined) =>
  [...(trimap ?? [])].map(value => (value === 128 ? '?' : value === 255 ? '#' : '.')).join('');

test('a trimap › is unsure around all that is not surely one or the other, hard edges too', t => {
  for (const [alphaAt, row] of [
    [x => (x < 10 ? 255 : 0), '########????........'],
    [x => (x < 10 ? 250 : 5), '########????........'],
    [x => (x < 10 ? 255 : x < 12 ? 128 : 0), '########??????......'],
    [x => (x < 10 ? 255 : 6), '########????????????'],
    [x => (x === 19 ? 249 : 255), '#################???'],
    [x => (x === 0 ? 255 : 0), '???.................'],
  ] as const satisfies readonly (readonly [(x: number) => number, string])[]) {
    t.is(letters(createTrimap(matteOf(alphaAt), SIZE, REACH)), row.repeat(3));
  }
  t.is(
    createTrimap(
      matteOf(() => 255),
      SIZE,
    ),
    undefined,
  );
  t.is(
    createTrimap(
      matteOf(() => 3),
      SIZE,
    ),
    undefined,
  );
});

test('the refined matte › counts where the matte is unsure, and less towards certain areas', t => {
  const reach = 6;
  const size = { width: 60, height: 60 };
  const own = matteOf(x => (x < 30 ? 255 : x < 34 ? 100 : 0), size);
  const matte = own.slice();
  replaceUnsure(
    matteOf(() => 60, size),
    matte,
    size,
    reach / 60,
  );
  const row = [...matte.subarray(0, 60)];
  t.deepEqual(row.slice(0, 24), new Array(24).fill(255));
  t.deepEqual(row.slice(40), new Array(20).fill(0));
  t.deepEqual(row.slice(30, 34), [60, 60, 60, 60]);
  const [left, right] = [row.slice(23, 31), row.slice(33, 41)];
  t.deepEqual(
    left,
    left.toSorted((a, b) => b - a),
  );
  t.deepEqual(
    right,
    right.toSorted((a, b) => b - a),
  );
  const steps = [...left, ...right].map((value, i, all) => Math.abs(value - (all[i - 1] ?? value)));
  // A fourth of the 195 levels at most.
  t.true(Math.max(...steps) <= 56, `${left} | ${right}`);
  // A sure spot of three pixels inside of the band.
  const isSpot = (i: number) => [i % 60, Math.floor(i / 60)].every(at => at >= 29 && at < 32);
  const spot = Uint8Array.from({ length: 3600 }, (_, i) => {
    return [i % 60, Math.floor(i / 60)].every(at => at >= 23 && at < 38) ? 255 : 100;
  });
  replaceUnsure(
    matteOf(() => 60, size),
    spot,
    size,
    reach / 60,
  );
  t.true(spot.every((value, i) => !isSpot(i) || value === 255));
  const sure = matteOf(() => 255, size);
  replaceUnsure(
    matteOf(() => 0, size),
    sure,
    size,
  );
  t.deepEqual(
    sure,
    matteOf(() => 255, size),
  );
});

const PICTURE = asRgba(paint(120, 80, 4, (x, y) => [2 * x, 3 * y, 90, 255]));
const SUBJECT = {
  ...{ width: 120, height: 80, role: 'subject' as const },
  alpha: matteOf(x => Math.max(0, Math.min(255, (64 - x) * 32)), { width: 120, height: 80 }),
};

test('the input of a model that refines › is the picture, and the trimap of what the others made', t => {
  const size = { width: 60, height: 40 };
  const input = createRefineInput(PICTURE, [SUBJECT], size);
  t.deepEqual(
    input?.filter((_, i) => i % 4 < 3),
    createModelInput(PICTURE, size),
  );
  const trimap = [...(input ?? [])].filter((_, i) => i % 4 === 3);
  t.is(letters(Uint8Array.from(trimap.slice(0, 60))), `${'#'.repeat(28)}????${'.'.repeat(28)}`);
  t.is(
    createRefineInput(PICTURE, [{ ...SUBJECT, alpha: matteOf(() => 0, SUBJECT) }], size),
    undefined,
  );
});

test('a refined matte › decides in the band alone, at any size, with and without refinement', t => {
  const refined = (value: number) => ({
    ...{ width: 30, height: 20, role: 'refine' as const },
    alpha: matteOf(() => value, { width: 30, height: 20 }),
  });
  for (const finish of [refineMatte, stretchMatte]) {
    const own = finish([SUBJECT], PICTURE);
    const all = finish([SUBJECT, refined(200)], PICTURE);
    const none = finish([SUBJECT, refined(20)], PICTURE);
    const row = 40 * 120;
    for (const x of [0, 30, 50, 75, 100, 119]) {
      t.deepEqual([at(all, row + x), at(none, row + x)], [at(own, row + x), at(own, row + x)]);
    }
    t.true(at(all, row + 60) - at(none, row + 60) > 60, `${all[row + 60]} ${none[row + 60]}`);
  }
});
