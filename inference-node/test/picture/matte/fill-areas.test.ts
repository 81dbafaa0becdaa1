import assert from 'node:assert/strict';
import { test } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { fillAreas } from '../../../src/picture/matte/fill-areas.ts';
import { GRID, paint, square } from './planes.ts';

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

test('what the subject doubts in a body is filled where an opinion is sure of it', () => {
  assert.deepEqual(fill([patched(30)], body()), body());
});

test('a gap that the subject does not doubt stays, whatever an opinion says', () => {
  assert.deepEqual(fill([patched(0)], body()), patched(0));
});

test('an opinion that shows another subject fills nothing', () => {
  const other = paint(square(0, 0, GRID.width, 255), 0, 0, 8, 8, 0);
  assert.deepEqual(fill([patched(30)], other), patched(30));
});

test('where no look is sure a patch stays as it is', () => {
  assert.deepEqual(fill([patched(120)]), patched(120));
  assert.deepEqual(fill([patched(120), patched(140)], patched(150)), patched(120));
});

test('one look that is nearly sure decides for another that is not', () => {
  assert.deepEqual(fill([patched(228), patched(120)]), body());
  assert.deepEqual(fill([patched(120), patched(228)]), body());
});

test('smoke stays smoke: the ground is around it', () => {
  const smoke = square(40, 40, 50, 128);
  assert.deepEqual(fill([smoke, square(40, 40, 50, 228)], square(40, 40, 50, 255)), smoke);
});

test('small areas stay', () => {
  assert.deepEqual(fill([patched(30, 4)], body()), patched(30, 4));
});

test('an area is filled to its edge by the looks, not beyond', () => {
  // From inside the body to its right edge, behind which there is the ground.
  const doubted = paint(body(), 60, 60, 50, 20, 30);
  const filled = fill([doubted], body());
  assert.deepEqual(filled, body());
  assert.equal(filled[INSIDE], 255);
});

test('a patch that is not filled does not fall below the first look', () => {
  const [first, second, mean] = [patched(200), patched(40), patched(120)];
  assert.deepEqual(fill([first, second], undefined, mean), first);
  assert.deepEqual(fill([second, first], undefined, mean.slice()), mean);
});

test('what has more ground than body around it may fall below the first look', () => {
  const lone = (value: number) => square(40, 40, 30, value);
  assert.deepEqual(fill([lone(200), lone(40)], undefined, lone(120)), lone(120));
});

test('what the first look is nearly sure of stays where less than half around it is the body', () => {
  // A strip at the body's side: the body on one side of it, the ground on three.
  const strip = (value: number) => paint(square(20, 20, 60, 255), 80, 30, 12, 60, value);
  const [sure, unsure] = [strip(240), strip(170)];
  assert.deepEqual(fill([sure, strip(0)], undefined, strip(120)), sure);
  assert.deepEqual(fill([unsure, strip(0)], undefined, strip(120)), strip(120));
});

test('nothing becomes less', () => {
  const first = patched(30);
  const filled = fill([first, patched(228)], square(24, 24, 80, 255));
  assert.ok(filled.every((value, index) => value >= at(first, index)));
});

test('a picture of one pixel', () => {
  const merged = Uint8Array.of(120);
  const size = { width: 1, height: 1 };
  const data = Uint8Array.of(120);
  fillAreas([{ alpha: data, decides: true, source: { data, ...size } }], merged, size);
  assert.deepEqual(merged, Uint8Array.of(120));
});
