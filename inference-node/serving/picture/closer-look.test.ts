import test from 'ava';
import type { MatteRole } from '../models/prepared-model.ts';
import { isCloserBelieved, partsAround } from './closer-look.ts';
import { inferPlan, type ModelRun } from './infer-plan.ts';

const SIZE = { width: 100, height: 80 };
/** Larger than the mattes, and of another shape. */
const PICTURE = { width: 1000, height: 400 };

type Box = readonly [left: number, top: number, width: number, height: number];

function matteOf(boxes: readonly Box[], value = 255) {
  const alpha = Buffer.alloc(SIZE.width * SIZE.height);
  for (const [left, top, width, height] of boxes) {
    for (let y = top; y < top + height; y++) {
      alpha.fill(value, y * SIZE.width + left, y * SIZE.width + left + width);
    }
  }
  return { alpha, size: SIZE };
}

const SMALL: Box = [40, 20, 10, 8];
const PART = { left: 350, top: 50, width: 200, height: 140 };

test('the part around a small subject › has its box with a margin, in the pixels of the picture', t => {
  // 10 x 8 of the matte are 100 x 40 of the picture; the margin is half of the longer side.
  t.deepEqual(partsAround(matteOf([SMALL]), PICTURE), [PART]);
});

test('the part around a small subject › ends with the picture', t => {
  const parts = partsAround(matteOf([[95, 0, 5, 4]]), PICTURE);
  t.deepEqual(parts, [{ left: 925, top: 0, width: 75, height: 45 }]);
});

test('the part around a small subject › holds several subjects', t => {
  const near = matteOf([SMALL, [52, 30, 3, 3]]);
  t.deepEqual(partsAround(near, PICTURE), [{ left: 325, top: 25, width: 300, height: 215 }]);
});

test('the part around a small subject › is neither widened by a speck nor by a ghost', t => {
  t.deepEqual(partsAround(matteOf([SMALL, [90, 70, 1, 1]]), PICTURE), [PART]);
  const ghost = matteOf([[0, 0, 100, 80]], 63);
  const alpha = ghost.alpha.map((value, i) => Math.max(value, matteOf([SMALL]).alpha[i] ?? 0));
  t.deepEqual(partsAround({ alpha, size: SIZE }, PICTURE), [PART]);
});

test('there is no zoomed part › for a large subject, or for none', t => {
  t.deepEqual(partsAround(matteOf([[10, 10, 60, 60]]), PICTURE), []);
  t.deepEqual(partsAround(matteOf([]), PICTURE), []);
  t.deepEqual(partsAround(matteOf([SMALL], 63), PICTURE), []);
});

const FAR: Box = [80, 60, 5, 5];
const FAR_PART = { left: 775, top: 275, width: 100, height: 75 };

test('small subjects that lie apart › have a part each', t => {
  t.deepEqual(partsAround(matteOf([SMALL, FAR]), PICTURE), [PART, FAR_PART]);
  const third = { left: 75, top: 275, width: 100, height: 75 };
  const three = partsAround(matteOf([SMALL, FAR, [10, 60, 5, 5]]), PICTURE);
  t.deepEqual(
    three.toSorted((one, other) => one.left - other.left),
    [third, PART, FAR_PART],
  );
});

test('small subjects that lie apart › share a part with those near them', t => {
  // The margin of the larger box reaches the other.
  const parts = partsAround(matteOf([SMALL, [52, 30, 3, 3], FAR]), PICTURE);
  t.deepEqual(parts, [{ left: 325, top: 25, width: 300, height: 215 }, FAR_PART]);
});

test('small subjects that lie apart › have none if they are too many, or one is large', t => {
  const four: Box[] = [SMALL, FAR, [10, 60, 5, 5], [10, 5, 5, 5]];
  t.deepEqual(partsAround(matteOf(four), PICTURE), []);
  t.deepEqual(partsAround(matteOf([[10, 10, 30, 30], FAR]), PICTURE), []);
});

function isBelieved(closer: readonly Box[], part = PART, first = matteOf([SMALL])) {
  return isCloserBelieved(matteOf(closer), first, part, PICTURE);
}
const SUBJECT: Box = [25, 28, 50, 24];

test('a closer look › is believed where it shows what the first look shows', t => {
  t.true(isBelieved([SUBJECT]));
  t.true(isBelieved([[20, 20, 60, 45]]));
});

test('a closer look › is not believed where it has lost the subject', t => {
  t.false(isBelieved([]));
  t.false(isBelieved([[25, 28, 20, 24]]));
  t.false(isBelieved([], PART, matteOf([SMALL], 100)));
});

test('a closer look › is not believed where it is less sure than the first look', t => {
  const closer = matteOf([SUBJECT], 200);
  t.false(isCloserBelieved(closer, matteOf([SMALL]), PART, PICTURE));
  t.true(isCloserBelieved(closer, matteOf([SMALL], 200), PART, PICTURE));
});

test('a closer look › is not believed where what it shows goes on outside of the part', t => {
  t.false(isBelieved([SUBJECT, [0, 70, 100, 10]]));
  t.false(isBelieved([[0, 0, 100, 80]]));
  const low = { left: 350, top: 250, width: 200, height: 150 };
  t.true(isBelieved([[25, 28, 50, 52]], low, matteOf([[40, 60, 10, 20]])));
});

const RUNS = (['subject', 'opinion', 'secondLook'] as const).map(role => ({
  model: { model: role === 'opinion' ? 'another' : 'one' },
  role,
}));

type Closer = readonly Box[] | ((part: object) => readonly Box[]);

const noFurther = () => {
  throw new Error('no further run was taken');
};

async function take(first: readonly Box[], closer: Closer, value = 255, part?: object) {
  const taken: (readonly [MatteRole, object | undefined])[] = [];
  const answer = async ({ entry, part: seen }: ModelRun<(typeof RUNS)[number]>) => {
    taken.push([entry.role, seen]);
    const seenCloser = typeof closer === 'function' ? closer(seen ?? {}) : closer;
    return matteOf(seen === undefined ? first : seenCloser, value);
  };
  const target = { picture: PICTURE, part: part as typeof PART | undefined };
  const { mattes, runs } = await inferPlan(RUNS, target, answer, noFurther);
  const roles = runs.map(({ role }) => role);
  return { mattes, roles, taken, parts: mattes.map(({ part }) => part) };
}

test('a plan › looks closer at a small subject, and at nothing else from then on', async t => {
  const { taken, mattes, parts, roles } = await take([SMALL], [SUBJECT]);
  t.deepEqual(taken, [
    ['subject', undefined],
    ['subject', PART],
  ]);
  t.deepEqual([parts, roles.length], [[PART], 1]);
  t.deepEqual(mattes[0]?.alpha, matteOf([SUBJECT]).alpha);
  // Everything is unsure, so the opinion and the second look see the part too.
  const unsure = await take([SMALL], [SUBJECT], 200);
  t.true(unsure.taken.slice(1).every(([, seen]) => seen !== undefined));
  t.deepEqual(unsure.roles, ['subject', 'opinion', 'secondLook']);
});

test('a plan › goes on with the whole picture where it does not believe its closer look', async t => {
  const { taken, mattes, parts } = await take([SMALL], [[0, 0, 100, 80]]);
  t.deepEqual([taken.length, parts], [2, [undefined]]);
  t.deepEqual(mattes[0]?.alpha, matteOf([SMALL]).alpha);
});

test('a plan › takes no closer look at a large subject, nor within a part that it is given', async t => {
  const large = await take([[10, 10, 60, 60]], [SUBJECT]);
  t.deepEqual(large.taken, [['subject', undefined]]);
  const given = { left: 0, top: 0, width: 500, height: 400 };
  const { taken, parts } = await take([], [SMALL], 255, given);
  t.deepEqual([taken, parts], [[['subject', given]], [given]]);
});

test('a plan › looks closer at each of several small subjects, and at nothing else', async t => {
  const { taken, parts, roles } = await take([SMALL, FAR], [SUBJECT]);
  t.deepEqual(taken, [
    ['subject', undefined],
    ['subject', PART],
    ['subject', FAR_PART],
  ]);
  t.deepEqual([parts, roles.length], [[PART, FAR_PART], 1]);
  // Further runs see each part, and count once among the runs.
  const unsure = await take([SMALL, FAR], [SUBJECT], 200);
  t.deepEqual(unsure.parts, [PART, PART, PART, FAR_PART, FAR_PART, FAR_PART]);
  t.deepEqual(unsure.roles, ['subject', 'opinion', 'secondLook']);
});

test('a plan › keeps the whole picture where it does not believe the look at one of several', async t => {
  const lost = (part: object) => ('left' in part && part.left === PART.left ? [] : [SUBJECT]);
  const { mattes, parts } = await take([SMALL, FAR], lost);
  t.deepEqual(parts, [undefined, FAR_PART]);
  t.deepEqual(mattes[0]?.alpha, matteOf([SMALL, FAR]).alpha);
});
