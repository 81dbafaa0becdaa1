import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isWorthRunning } from '../../src/picture/worth-running.ts';

const PIXELS = 70_000;

/** Of a hundred visible pixels `unsure` have half opacity, spread evenly among the rest. */
function matteOf(shown: number, unsure: number): Uint8Array {
  return Uint8Array.from({ length: PIXELS }, (_, i) => {
    if (i >= shown) return 0;
    return (i * 37) % 100 < unsure ? 128 : 255;
  });
}

const FURTHER = ['opinion', 'secondLook'] as const;

test('an empty or a sure matte needs no further run', () => {
  for (const role of FURTHER) {
    assert.equal(isWorthRunning(role, new Uint8Array(0)), false);
    assert.equal(isWorthRunning(role, new Uint8Array(PIXELS)), false);
    assert.equal(isWorthRunning(role, new Uint8Array(PIXELS).fill(5)), false);
    assert.equal(isWorthRunning(role, new Uint8Array(PIXELS).fill(255)), false);
  }
});

test('the uncertain share refers to the visible pixels, not to the picture', () => {
  for (const shown of [2_000, PIXELS]) {
    for (const role of FURTHER) {
      assert.equal(isWorthRunning(role, matteOf(shown, 6)), false, `${role}, 6 of 100 of ${shown}`);
      assert.equal(
        isWorthRunning(role, matteOf(shown, 14)),
        true,
        `${role}, 14 of 100 of ${shown}`,
      );
    }
  }
});

test('an opinion is worth its time on a surer matte than a second look', () => {
  const matte = matteOf(PIXELS, 11);
  assert.equal(isWorthRunning('opinion', matte), true);
  assert.equal(isWorthRunning('secondLook', matte), false);
});

test('a matte that is unsure everywhere is worth both', () => {
  for (const role of FURTHER) {
    assert.equal(isWorthRunning(role, new Uint8Array(PIXELS).fill(90)), true);
  }
});

test('a subject always runs', () => {
  assert.equal(isWorthRunning('subject', new Uint8Array(PIXELS).fill(255)), true);
});
