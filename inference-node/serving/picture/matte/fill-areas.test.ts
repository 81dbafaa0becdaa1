import { at } from '@matting/test-support/at.ts';
import test from 'ava';
import type { MatteRole } from '../../models/prepared-model.ts';
import { borrowCopy, bytesAt, withMemory } from '../kernels/kernels.ts';
import { fillAreas, findAreas } from './fill-areas.ts';
import { fadeIslands, mergeMattes } from './merge-mattes.ts';

const GRID = { width: 128, height: 128 };

function square(left: number, top: number, side: number, value: number): Uint8Array {
  return paint(new Uint8Array(GRID.width * GRID.height), left, top, side, side, value);
}

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

function fill(
  deciding: readonly Uint8Array[],
  opinion?: Uint8Array,
  merged: Uint8Array = Uint8Array.from(at(deciding, 0)),
): Uint8Array {
  return withMemory(borrow => {
    const look = (data: Uint8Array, decides: boolean) => {
      return { at: borrowCopy(borrow, data), decides, source: { data, ...GRID } };
    };
    const at = borrowCopy(borrow, merged);
    const opinions = (opinion ? [opinion] : []).map(alpha => look(alpha, false));
    fillAreas([...deciding.map(alpha => look(alpha, true)), ...opinions], at, GRID);
    return bytesAt(at, merged.length).slice();
  });
}

const smoke = square(40, 40, 50, 128);
const elsewhere = paint(square(0, 0, GRID.width, 255), 0, 0, 8, 8, 0);
const FILLS: readonly [string, Uint8Array[], Uint8Array | undefined, Uint8Array][] = [
  ['what the subject doubts is filled where an opinion is sure', [patched(30)], body(), body()],
  ['a gap that the subject does not doubt stays', [patched(0)], body(), patched(0)],
  ['an opinion on another subject fills nothing', [patched(30)], elsewhere, patched(30)],
  ['where no look is sure a patch stays', [patched(120)], undefined, patched(120)],
  ['nor are several', [patched(120), patched(140)], patched(150), patched(120)],
  ['one look that is nearly sure decides', [patched(228), patched(120)], undefined, body()],
  ['in any order', [patched(120), patched(228)], undefined, body()],
  ['smoke stays smoke', [smoke, square(40, 40, 50, 228)], square(40, 40, 50, 255), smoke],
  ['small areas stay', [patched(30, 4)], body(), patched(30, 4)],
];

test('areas › are filled by looks that are sure, in a body that they share', t => {
  for (const [name, deciding, opinion, filled] of FILLS) {
    t.deepEqual(fill(deciding, opinion), filled, name);
  }
});

test('areas › an area is filled to its edge by the looks, not beyond', t => {
  // From inside the body to its right edge, next to background.
  const doubted = paint(body(), 60, 60, 50, 20, 30);
  const filled = fill([doubted], body());
  t.deepEqual(filled, body());
  t.is(filled[INSIDE], 255);
});

test('areas › a patch that is not filled does not fall below the first look', t => {
  const [first, second, mean] = [patched(200), patched(40), patched(120)];
  t.deepEqual(fill([first, second], undefined, mean), first);
  t.deepEqual(fill([second, first], undefined, mean.slice()), mean);
});

test('areas › clothes in the colours of the ground are filled where an opinion is wholly sure', t => {
  /** Two thirds of the surroundings are the body. */
  const shirt = (value: number) => paint(body(), 90, 40, 20, 40, value);
  t.deepEqual(fill([shirt(30)], body()), body());
  const surely = paint(body(), 90, 40, 20, 40, 250);
  const bag = (value: number) =>
    paint(paint(square(0, 0, 0, 0), 20, 4, 104, 120, 255), 8, 40, 12, 40, value);
  for (const [name, first, opinion] of [
    ['an opinion that is nearly sure', shirt(30), surely],
    ['a gap', shirt(0), body()],
    ['a small area', paint(body(), 100, 40, 10, 24, 30), body()],
    ['an area with more ground around it', bag(30), bag(255)],
  ] as const) {
    t.deepEqual(fill([first], opinion), first, name);
  }
});

test('areas › what has more ground than body around it may fall below the first look', t => {
  const lone = (value: number) => square(40, 40, 30, value);
  t.deepEqual(fill([lone(200), lone(40)], undefined, lone(120)), lone(120));
});

test('areas › what the first look and an opinion call ground does not rise by a further look', t => {
  const ring = (middle: number) => paint(square(20, 20, 90, 255), 40, 40, 50, 50, middle);
  const [first, second, mean] = [ring(10), ring(200), ring(105)];
  t.deepEqual(fill([first, second], ring(0), mean.slice()), first);
  for (const [name, deciding, opinion] of [
    ['an opinion that doubts it', [first, second], ring(9)],
    ['an opinion on another subject', [first, second], elsewhere],
    ['no opinion', [first, second], undefined],
    ['a first look that doubts it', [ring(60), second], ring(0)],
  ] as const) {
    t.deepEqual(fill(deciding, opinion, mean.slice()), mean, name);
  }
});

test('areas › a picture of one pixel', t => {
  const subject = { alpha: Uint8Array.of(120), width: 1, height: 1, role: 'subject' } as const;
  t.deepEqual(mergeMattes([subject], subject), subject.alpha);
});

const seen = (alpha: Uint8Array, decides = true) => ({ alpha, decides });

test('areas › a sharp body and an empty picture have no area', t => {
  t.deepEqual(findAreas([seen(square(40, 40, 60, 255))], GRID), []);
  t.deepEqual(findAreas([seen(square(0, 0, 0, 255))], GRID), []);
});

test('areas › a half transparent patch in a body is an area with the body around it', t => {
  const body = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 120);
  const areas = findAreas([seen(body)], GRID);
  t.is(areas.length, 1);
  const area = at(areas, 0);
  t.is(area.cells.length, 144);
  t.is(area.enclosed, 1);
  t.deepEqual([area.quarters, area.middles], [[120], [120]]);
});

test('areas › a soft edge is an area that has the ground on its other side', t => {
  const body = paint(square(30, 30, 80, 255), 30, 30, 80, 6, 128);
  const area = at(findAreas([seen(body)], GRID), 0);
  t.true(area.enclosed > 0.2 && area.enclosed < 0.7, `enclosed by ${area.enclosed}`);
});

test('areas › a line of one cell is an edge, not an area', t => {
  t.deepEqual(findAreas([seen(paint(square(30, 30, 80, 255), 40, 60, 40, 2, 120))], GRID), []);
});

test('areas › what an opinion leaves half transparent is no area unless the others differ from it', t => {
  const body = square(30, 30, 80, 255);
  const opinion = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 200);
  t.deepEqual(findAreas([seen(body), seen(opinion, false)], GRID), []);
  const contrary = paint(square(30, 30, 80, 255), 60, 60, 12, 12, 100);
  t.is(findAreas([seen(body), seen(contrary, false)], GRID).length, 1);
});

test('areas › at the border a body on both sides surrounds an area, a ground on one side says nothing', t => {
  // Below the area is background, as far as the body reaches beside it and above.
  const between = paint(square(20, 0, 80, 255), 50, 0, 20, 30, 120);
  const inside = at(findAreas([seen(between)], GRID), 0);
  t.is(inside.enclosed, 1);
  const shoulder = paint(square(20, 0, 80, 255), 20, 0, 20, 30, 120);
  const outside = at(findAreas([seen(shoulder)], GRID), 0);
  const decided = 20 + 30 + 30;
  t.true(Math.abs(outside.enclosed - 50 / decided) < 0.05, `enclosed by ${outside.enclosed}`);
});

test('areas › an area may cover the whole picture', t => {
  const area = at(findAreas([seen(square(0, 0, GRID.width, 120))], GRID), 0);
  t.is(area.cells.length, GRID.width * GRID.height);
  t.is(area.enclosed, 0);
});

const DISC_SIDE = 60;
const DISC_SIZE = { width: DISC_SIDE, height: DISC_SIDE };

/** Opaque inside, falling to 0 over `soft` pixels. */
function disc(radius: number, soft: number, centre = DISC_SIDE / 2, side = DISC_SIDE): Uint8Array {
  return Uint8Array.from({ length: side * side }, (_, i) => {
    const far = Math.hypot((i % side) - centre, Math.floor(i / side) - centre);
    return Math.max(0, Math.min(255, ((radius - far) / soft) * 255 + 128));
  });
}

const part = (alpha: Uint8Array, role: MatteRole) => ({ alpha, ...DISC_SIZE, role });

test('several mattes › an opinion that shows something else changes nothing', t => {
  const subject = disc(20, 6);
  for (const other of [disc(8, 6), disc(20, 6, 10), new Uint8Array(DISC_SIDE * DISC_SIDE)]) {
    t.deepEqual(
      mergeMattes([part(subject, 'subject'), part(other, 'opinion')], DISC_SIZE),
      subject,
    );
  }
});

test('several mattes › a second look that has lost half of the body changes nothing', t => {
  const subject = disc(20, 6);
  const looks = (radius: number) => [part(subject, 'subject'), part(disc(radius, 6), 'secondLook')];
  t.deepEqual(mergeMattes(looks(13), DISC_SIZE), subject);
  t.notDeepEqual(mergeMattes(looks(18), DISC_SIZE), subject);
});

test('several mattes › what the subject is sure of far from its edge does not change', t => {
  const subject = disc(20, 2);
  const opinion = subject.slice();
  opinion[DISC_SIDE * (DISC_SIDE / 2) + DISC_SIDE / 2] = 0;
  opinion[0] = 255;
  const merged = mergeMattes([part(subject, 'subject'), part(opinion, 'opinion')], DISC_SIZE);
  t.is(merged[DISC_SIDE * (DISC_SIDE / 2) + DISC_SIDE / 2], 255);
  t.is(merged[0], 0);
});

test('several mattes › at the edge the surer of the two counts more', t => {
  const subject = disc(20, 10);
  const opinion = disc(20.5, 1);
  const merged = mergeMattes([part(subject, 'subject'), part(opinion, 'opinion')], DISC_SIZE);
  const distance = (to: Uint8Array) =>
    merged.reduce((sum, value, i) => sum + Math.abs(value - at(to, i)), 0);
  t.true(distance(opinion) < distance(subject), 'the sharp one should have won');
  t.notDeepEqual(merged, subject);
});

test('several mattes › a sharp edge is left alone by a blurred opinion, a soft one is not', t => {
  const side = 600;
  const size = { width: side, height: side };
  const large = (soft: number, role: 'subject' | 'opinion') => ({
    alpha: disc(200, soft, side / 2, side),
    ...size,
    role,
  });
  const sharp = large(1, 'subject');
  // Printing the difference of two arrays of this length takes minutes.
  const changes = (subject: typeof sharp) =>
    Buffer.compare(mergeMattes([subject, large(24, 'opinion')], size), subject.alpha) !== 0;
  t.false(changes(sharp));
  t.true(changes(large(40, 'subject')));
});

test('several mattes › two that are sure of the opposite do not make a half transparent pixel', t => {
  const subject = disc(20, 4);
  const opinion = subject.slice();
  const inside = DISC_SIDE * (DISC_SIDE / 2) + DISC_SIDE / 2 + 17;
  t.is(subject[inside], 255);
  opinion[inside] = 0;
  const merged = mergeMattes([part(subject, 'subject'), part(opinion, 'opinion')], DISC_SIZE);
  t.is(merged[inside], 255);
});

for (const role of ['subject', 'secondLook'] as const) {
  test(`several mattes › where the first is unsure, a ${role} counts as much as it; no input is written to`, t => {
    const one = new Uint8Array(DISC_SIDE * DISC_SIDE).fill(100);
    const other = new Uint8Array(DISC_SIDE * DISC_SIDE).fill(151);
    const merged = mergeMattes([part(one, 'subject'), part(other, role)], DISC_SIZE);
    t.true(merged.every(value => value === 126));
    t.true(one.every(value => value === 100));
    t.true(other.every(value => value === 151));
  });

  test(`several mattes › a ${role} that shows something else has no effect where the first is sure`, t => {
    const first = disc(12, 4, 20);
    const merged = mergeMattes([part(first, 'subject'), part(disc(8, 4, 48), role)], DISC_SIZE);
    t.is(merged[48 * DISC_SIDE + 48], 0, 'the other thing is not there');
    t.is(merged[20 * DISC_SIDE + 20], 255, 'the first one is whole');
  });
}

/** A cell of the grid is one pixel here. */
const ISLAND_SIZE = { width: 60, height: 40 };

type PaintIsland = (x: number, y: number) => number | undefined;

function islandMatte(paint: PaintIsland, ground = 0): Uint8Array {
  return Uint8Array.from({ length: ISLAND_SIZE.width * ISLAND_SIZE.height }, (_, i) => {
    const x = i % ISLAND_SIZE.width;
    if (x < 15) return 255;
    return paint(x, Math.floor(i / ISLAND_SIZE.width)) ?? ground;
  });
}

function faded(alpha: Uint8Array, size = ISLAND_SIZE): Uint8Array {
  return withMemory(borrow => {
    const at = borrowCopy(borrow, alpha);
    fadeIslands(at, size);
    return bytesAt(at, alpha.length).slice();
  });
}

const island =
  (value: number): PaintIsland =>
  (x, y) =>
    x >= 40 && x < 52 && y >= 10 && y < 25 ? value : undefined;
const ISLAND_MIDDLE = 17 * ISLAND_SIZE.width + 46;

test('an area apart from the subject › vanishes if nothing joins it, up to nearly half opaque', t => {
  for (const value of [10, 60, 120]) {
    const alpha = faded(islandMatte(island(value)));
    t.is(at(alpha, ISLAND_MIDDLE), 0, `${value}`);
    t.true(alpha.every((left, i) => left === 255 || i % ISLAND_SIZE.width >= 15));
  }
});

test('an area apart from the subject › keeps as much alpha as the faint ground between', t => {
  t.is(at(faded(islandMatte(island(60), 8)), ISLAND_MIDDLE), 8);
});

test('an area apart from the subject › stays if a part of it is certain', t => {
  const alpha = islandMatte((x, y) => (x === 46 && y === 17 ? 255 : island(60)(x, y)));
  // That pixel alone is a speck, but its neighbours are reached.
  t.deepEqual(faded(alpha), alpha);
});

test('an area apart from the subject › is neither a wide edge nor a wisp, and needs a certain subject', t => {
  for (const alpha of [
    islandMatte(x => Math.max(0, 255 - 7 * (x - 14))),
    // Gaps of four cells.
    islandMatte((x, y) => (y === 20 && (x - 15) % 8 >= 4 ? 90 : 0)),
    islandMatte(island(100)).map(value => Math.min(value, 100)),
  ]) {
    t.deepEqual(faded(alpha), alpha);
  }
});

test('a picture of many pixels a cell fades to the island alone, softly', t => {
  const size = { width: 1024, height: 512 };
  const alpha = Uint8Array.from({ length: size.width * size.height }, (_, i) => {
    const x = i % size.width;
    return x < 300 ? 255 : x >= 600 && x < 800 ? 70 : 0;
  });
  for (const [i, value] of faded(alpha, size).entries()) {
    const x = i % size.width;
    t.is(value, x >= 600 && x < 800 ? 0 : at(alpha, i), `column ${x}`);
  }
});
