import assert from 'node:assert/strict';
import { test } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { findAreas } from '../../../src/picture/matte/undecided-areas.ts';
import { GRID, paint, square } from './planes.ts';

const look = (alpha: Uint8Array, decides = true) => ({ alpha, decides });

test('areas without a look are a bug', () => {
  assert.throws(() => findAreas([], GRID), /without a look/);
});

test('a sharp body and an empty picture have no area', () => {
  assert.deepEqual(findAreas([look(square(40, 40, 60, 255))], GRID), []);
  assert.deepEqual(findAreas([look(square(0, 0, 0, 255))], GRID), []);
});

test('a half transparent patch in a body is an area with the body around it', () => {
  const body = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 120);
  const areas = findAreas([look(body)], GRID);
  assert.equal(areas.length, 1);
  const area = at(areas, 0);
  assert.equal(area.cells.length, 144);
  assert.equal(area.enclosed, 1);
  assert.deepEqual([area.quarters, area.middles], [[120], [120]]);
});

test('a soft edge is an area that has the ground on its other side', () => {
  const body = paint(square(30, 30, 80, 255), 30, 30, 80, 6, 128);
  const area = at(findAreas([look(body)], GRID), 0);
  assert.ok(area.enclosed > 0.2 && area.enclosed < 0.7, `enclosed by ${area.enclosed}`);
});

test('a line of one cell is an edge, not an area', () => {
  assert.deepEqual(findAreas([look(paint(square(30, 30, 80, 255), 40, 60, 40, 2, 120))], GRID), []);
});

test('what an opinion leaves half transparent is no area unless the others differ from it', () => {
  const body = square(30, 30, 80, 255);
  const opinion = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 200);
  assert.deepEqual(findAreas([look(body), look(opinion, false)], GRID), []);
  const contrary = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 100);
  assert.equal(findAreas([look(body), look(contrary, false)], GRID).length, 1);
});

test('at the border a body on both sides surrounds an area, a ground on one side says nothing', () => {
  // Below the area there is the ground as far as the body reaches beside it and above.
  const between = paint(square(20, 0, 80, 255), 50, 0, 20, 30, 120);
  const inside = at(findAreas([look(between)], GRID), 0);
  assert.equal(inside.enclosed, 1);
  const shoulder = paint(square(20, 0, 80, 255), 20, 0, 20, 30, 120);
  const outside = at(findAreas([look(shoulder)], GRID), 0);
  const decided = 20 + 30 + 30;
  assert.ok(Math.abs(outside.enclosed - 50 / decided) < 0.05, `enclosed by ${outside.enclosed}`);
});

test('an area may cover the whole picture', () => {
  const area = at(findAreas([look(square(0, 0, GRID.width, 120))], GRID), 0);
  assert.equal(area.cells.length, GRID.width * GRID.height);
  assert.equal(area.enclosed, 0);
});
