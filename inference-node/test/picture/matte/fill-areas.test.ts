import assert from 'node:assert/strict';
import { test } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { fillAreas } from '../../../src/picture/matte/fill-areas.ts';
import { GRID, paint, square } from './planes.ts';

const body = () => square(20, 20, 90, 255);
const patched = (value: number, side = 16) => paint(body(), 50, 50, side, side, value);
const INSIDE = 58 * GRID.width + 58;

/** @param opinion undefined: none. */
function fill(deciding: readonly Uint8Array[], opinion?: Uint8Array): Uint8Array {
  const merged = Uint8Array.from(at(deciding, 0));
  const looks = deciding.map(alpha => ({ alpha, decides: true }));
  fillAreas(
    opinion === undefined ? looks : [...looks, { alpha: opinion, decides: false }],
    merged,
    GRID,
  );
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

test('nothing becomes less', () => {
  const first = patched(30);
  const filled = fill([first, patched(228)], square(24, 24, 80, 255));
  assert.ok(filled.every((value, index) => value >= at(first, index)));
});

test('a picture of one pixel', () => {
  const merged = Uint8Array.of(120);
  const looks = [{ alpha: Uint8Array.of(120), decides: true }];
  fillAreas(looks, merged, { width: 1, height: 1 });
  assert.deepEqual(merged, Uint8Array.of(120));
});
