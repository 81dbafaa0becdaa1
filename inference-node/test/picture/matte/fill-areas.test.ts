import test from 'ava';
import { at } from '../../../../test/support/at.ts';
import { fillAreas } from '../../../src/picture/matte/fill-areas.ts';
import { findAreas } from '../../../src/picture/matte/undecided-areas.ts';

/** The size of every matte here. */
const GRID = { width: 128, height: 128 };

/** A square of `value` on the ground. */
function square(left: number, top: number, side: number, value: number): Uint8Array {
  return paint(new Uint8Array(GRID.width * GRID.height), left, top, side, side, value);
}

/** In place; returns the plane. */
function paint(
  plane: Uint8Array,
  left: number,
  top: number,
  width: number,
  height: number,
  value: number,
): Uint8Array {
  for (let y = top; y < top + height; y++) {
    plane.fill(value, y * GRID.width + left, y * GRID.width + left + width);
  }
  return plane;
}

const body = () => square(20, 20, 90, 255);
const patched = (value: number, side = 16) => paint(body(), 50, 50, side, side, value);
const INSIDE = 58 * GRID.width + 58;

/** @param opinion undefined: none. */
function fill(
  deciding: readonly Uint8Array[],
  opinion?: Uint8Array,
  merged: Uint8Array = Uint8Array.from(at(deciding, 0)),
): Uint8Array {
  const look = (alpha: Uint8Array, decides: boolean) => {
    return { alpha, decides, source: { data: alpha, ...GRID } };
  };
  const looks = deciding.map(alpha => look(alpha, true));
  fillAreas(opinion === undefined ? looks : [...looks, look(opinion, false)], merged, GRID);
  return merged;
}

test('what the subject doubts in a body is filled where an opinion is sure of it', t => {
  t.deepEqual(fill([patched(30)], body()), body());
});

test('a gap that the subject does not doubt stays, whatever an opinion says', t => {
  t.deepEqual(fill([patched(0)], body()), patched(0));
});

test('an opinion that shows another subject fills nothing', t => {
  const other = paint(square(0, 0, GRID.width, 255), 0, 0, 8, 8, 0);
  t.deepEqual(fill([patched(30)], other), patched(30));
});

test('where no look is sure a patch stays as it is', t => {
  t.deepEqual(fill([patched(120)]), patched(120));
  t.deepEqual(fill([patched(120), patched(140)], patched(150)), patched(120));
});

test('one look that is nearly sure decides for another that is not', t => {
  t.deepEqual(fill([patched(228), patched(120)]), body());
  t.deepEqual(fill([patched(120), patched(228)]), body());
});

test('smoke stays smoke: the ground is around it', t => {
  const smoke = square(40, 40, 50, 128);
  t.deepEqual(fill([smoke, square(40, 40, 50, 228)], square(40, 40, 50, 255)), smoke);
});

test('small areas stay', t => {
  t.deepEqual(fill([patched(30, 4)], body()), patched(30, 4));
});

test('an area is filled to its edge by the looks, not beyond', t => {
  // From inside the body to its right edge, behind which there is the ground.
  const doubted = paint(body(), 60, 60, 50, 20, 30);
  const filled = fill([doubted], body());
  t.deepEqual(filled, body());
  t.is(filled[INSIDE], 255);
});

test('a patch that is not filled does not fall below the first look', t => {
  const [first, second, mean] = [patched(200), patched(40), patched(120)];
  t.deepEqual(fill([first, second], undefined, mean), first);
  t.deepEqual(fill([second, first], undefined, mean.slice()), mean);
});

test('what has more ground than body around it may fall below the first look', t => {
  const lone = (value: number) => square(40, 40, 30, value);
  t.deepEqual(fill([lone(200), lone(40)], undefined, lone(120)), lone(120));
});

test('what the first look is nearly sure of stays where less than half around it is the body', t => {
  // A strip at the body's side: the body on one side of it, the ground on three.
  const strip = (value: number) => paint(square(20, 20, 60, 255), 80, 30, 12, 60, value);
  const [sure, unsure] = [strip(240), strip(170)];
  t.deepEqual(fill([sure, strip(0)], undefined, strip(120)), sure);
  t.deepEqual(fill([unsure, strip(0)], undefined, strip(120)), strip(120));
});

test('nothing becomes less', t => {
  const first = patched(30);
  const filled = fill([first, patched(228)], square(24, 24, 80, 255));
  t.true(filled.every((value, index) => value >= at(first, index)));
});

test('a picture of one pixel', t => {
  const merged = Uint8Array.of(120);
  const size = { width: 1, height: 1 };
  const data = Uint8Array.of(120);
  fillAreas([{ alpha: data, decides: true, source: { data, ...size } }], merged, size);
  t.deepEqual(merged, Uint8Array.of(120));
});

const seen = (alpha: Uint8Array, decides = true) => ({ alpha, decides });

test('areas without a look are a bug', t => {
  t.throws(() => findAreas([], GRID), { message: /without a look/ });
});

test('a sharp body and an empty picture have no area', t => {
  t.deepEqual(findAreas([seen(square(40, 40, 60, 255))], GRID), []);
  t.deepEqual(findAreas([seen(square(0, 0, 0, 255))], GRID), []);
});

test('a half transparent patch in a body is an area with the body around it', t => {
  const body = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 120);
  const areas = findAreas([seen(body)], GRID);
  t.is(areas.length, 1);
  const area = at(areas, 0);
  t.is(area.cells.length, 144);
  t.is(area.enclosed, 1);
  t.deepEqual([area.quarters, area.middles], [[120], [120]]);
});

test('a soft edge is an area that has the ground on its other side', t => {
  const body = paint(square(30, 30, 80, 255), 30, 30, 80, 6, 128);
  const area = at(findAreas([seen(body)], GRID), 0);
  t.true(area.enclosed > 0.2 && area.enclosed < 0.7, `enclosed by ${area.enclosed}`);
});

test('a line of one cell is an edge, not an area', t => {
  t.deepEqual(findAreas([seen(paint(square(30, 30, 80, 255), 40, 60, 40, 2, 120))], GRID), []);
});

test('what an opinion leaves half transparent is no area unless the others differ from it', t => {
  const body = square(30, 30, 80, 255);
  const opinion = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 200);
  t.deepEqual(findAreas([seen(body), seen(opinion, false)], GRID), []);
  const contrary = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 100);
  t.is(findAreas([seen(body), seen(contrary, false)], GRID).length, 1);
});

test('at the border a body on both sides surrounds an area, a ground on one side says nothing', t => {
  // Below the area there is the ground as far as the body reaches beside it and above.
  const between = paint(square(20, 0, 80, 255), 50, 0, 20, 30, 120);
  const inside = at(findAreas([seen(between)], GRID), 0);
  t.is(inside.enclosed, 1);
  const shoulder = paint(square(20, 0, 80, 255), 20, 0, 20, 30, 120);
  const outside = at(findAreas([seen(shoulder)], GRID), 0);
  const decided = 20 + 30 + 30;
  t.true(Math.abs(outside.enclosed - 50 / decided) < 0.05, `enclosed by ${outside.enclosed}`);
});

test('an area may cover the whole picture', t => {
  const area = at(findAreas([seen(square(0, 0, GRID.width, 120))], GRID), 0);
  t.is(area.cells.length, GRID.width * GRID.height);
  t.is(area.enclosed, 0);
});
