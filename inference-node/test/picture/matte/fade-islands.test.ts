import test from 'ava';
import { at } from '../../../../test/support/at.ts';
import { fadeIslands } from '../../../src/picture/matte/fade-islands.ts';

/** One cell of the grid is one pixel of these. */
const SIZE = { width: 60, height: 40 };

type Paint = (x: number, y: number) => number | undefined;

/** A body on the left; what `paint` leaves open is `ground`. */
function matte(paint: Paint, ground = 0): Uint8Array {
  return Uint8Array.from({ length: SIZE.width * SIZE.height }, (_, i) => {
    const x = i % SIZE.width;
    if (x < 15) return 255;
    return paint(x, Math.floor(i / SIZE.width)) ?? ground;
  });
}

function faded(alpha: Uint8Array): Uint8Array {
  const copy = alpha.slice();
  fadeIslands(copy, SIZE);
  return copy;
}

const island =
  (value: number): Paint =>
  (x, y) =>
    x >= 40 && x < 52 && y >= 10 && y < 25 ? value : undefined;
const MIDDLE = 17 * SIZE.width + 46;

test('what lies apart from the subject › vanishes where nothing joins it, up to what is nearly half opaque', t => {
  for (const value of [10, 60, 120]) {
    const alpha = faded(matte(island(value)));
    t.is(at(alpha, MIDDLE), 0, `${value}`);
    t.true(alpha.every((left, i) => left === 255 || i % SIZE.width >= 15));
  }
});

test('what lies apart from the subject › keeps what the faint ground between lets through', t => {
  t.is(at(faded(matte(island(60), 8)), MIDDLE), 8);
});

test('what lies apart from the subject › stays where a part of it is shown surely', t => {
  const alpha = matte((x, y) => (x === 46 && y === 17 ? 255 : island(60)(x, y)));
  // Alone that pixel is a speck; the cells around it are reached.
  t.deepEqual(faded(alpha), alpha);
});

test('what does not change › an edge that falls off from the body, however wide', t => {
  const alpha = matte(x => Math.max(0, 255 - 7 * (x - 14)));
  t.deepEqual(faded(alpha), alpha);
});

test('what does not change › a wisp with gaps of four cells', t => {
  const alpha = matte((x, y) => (y === 20 && (x - 15) % 8 >= 4 ? 90 : 0));
  t.deepEqual(faded(alpha), alpha);
});

test('what does not change › a matte that shows nothing surely', t => {
  const alpha = matte(island(100)).map(value => Math.min(value, 100));
  t.deepEqual(faded(alpha), alpha);
});

test('what does not change › an empty one', t => {
  t.deepEqual(faded(new Uint8Array(2400)), new Uint8Array(2400));
});

test('a picture of many pixels a cell fades to the island alone, softly', t => {
  const size = { width: 1024, height: 512 };
  const alpha = Uint8Array.from({ length: size.width * size.height }, (_, i) => {
    const x = i % size.width;
    return x < 300 ? 255 : x >= 600 && x < 800 ? 70 : 0;
  });
  const before = alpha.slice();
  fadeIslands(alpha, size);
  for (const [i, value] of alpha.entries()) {
    const x = i % size.width;
    t.is(value, x >= 600 && x < 800 ? 0 : at(before, i), `column ${x}`);
  }
});
