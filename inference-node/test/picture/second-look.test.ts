import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isWorthSecondLook } from '../../src/picture/second-look.ts';

const PIXELS = 70_000;

/** Of a hundred visible pixels `unsure` have half opacity, spread evenly among the rest. */
function matteOf(shown: number, unsure: number): Uint8Array {
  return Uint8Array.from({ length: PIXELS }, (_, i) => {
    if (i >= shown) return 0;
    return (i * 37) % 100 < unsure ? 128 : 255;
  });
}

test('an empty or a sure matte needs no second look', () => {
  assert.equal(isWorthSecondLook(new Uint8Array(0)), false);
  assert.equal(isWorthSecondLook(new Uint8Array(PIXELS)), false);
  assert.equal(isWorthSecondLook(new Uint8Array(PIXELS).fill(5)), false);
  assert.equal(isWorthSecondLook(new Uint8Array(PIXELS).fill(255)), false);
});

test('the uncertain share refers to the visible pixels, not to the picture', () => {
  for (const shown of [2_000, PIXELS]) {
    assert.equal(isWorthSecondLook(matteOf(shown, 6)), false, `6 of 100 of ${shown}`);
    assert.equal(isWorthSecondLook(matteOf(shown, 14)), true, `14 of 100 of ${shown}`);
  }
});

test('a matte that is unsure everywhere is worth a second look', () => {
  assert.equal(isWorthSecondLook(new Uint8Array(PIXELS).fill(90)), true);
});
