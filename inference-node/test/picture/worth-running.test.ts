import test from 'ava';
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

test('an empty or a sure matte needs no further run', t => {
  for (const role of FURTHER) {
    t.false(isWorthRunning(role, new Uint8Array(0)));
    t.false(isWorthRunning(role, new Uint8Array(PIXELS)));
    t.false(isWorthRunning(role, new Uint8Array(PIXELS).fill(5)));
    t.false(isWorthRunning(role, new Uint8Array(PIXELS).fill(255)));
  }
});

test('the uncertain share refers to the visible pixels, not to the picture', t => {
  for (const shown of [2_000, PIXELS]) {
    for (const role of FURTHER) {
      t.is(isWorthRunning(role, matteOf(shown, 6)), false, `${role}, 6 of 100 of ${shown}`);
      t.is(isWorthRunning(role, matteOf(shown, 14)), true, `${role}, 14 of 100 of ${shown}`);
    }
  }
});

test('an opinion is worth its time on a surer matte than a second look', t => {
  const matte = matteOf(PIXELS, 11);
  t.true(isWorthRunning('opinion', matte));
  t.false(isWorthRunning('secondLook', matte));
});

test('a matte that is unsure everywhere is worth both', t => {
  for (const role of FURTHER) {
    t.true(isWorthRunning(role, new Uint8Array(PIXELS).fill(90)));
  }
});

test('a subject always runs', t => {
  t.true(isWorthRunning('subject', new Uint8Array(PIXELS).fill(255)));
});
