import type { HintShape } from '@matting/proto/contract/hints.ts';
import test from 'ava';
import type { RgbaPicture } from '../../rgba-picture.ts';
import { HintedMatte } from './hinted-matte.ts';
import { drawSeeds, ERASE_SEED, KEEP_BOX_SEED, KEEP_SEED, lumaOf } from './seeds.ts';

const SIZE = { width: 96, height: 64 };
const ALL = { left: 0, top: 0, ...SIZE };

function planeOf(valueAt: (x: number, y: number) => number): Uint8Array {
  const { width, height } = SIZE;
  return Uint8Array.from({ length: width * height }, (_none, i) =>
    valueAt(i % width, Math.floor(i / width)),
  );
}

const GREY = 0xff808080;
const RED = 0xff2020d0;
const GREEN = 0xff20c040;

function pictureOf(colourAt: (x: number, y: number) => number): RgbaPicture {
  const rgba = new Uint32Array(SIZE.width * SIZE.height);
  for (let i = 0; i < rgba.length; i++) {
    // Noise of a photo: three levels.
    const noise = (i * 2_654_435_761) % 3;
    rgba[i] = colourAt(i % SIZE.width, Math.floor(i / SIZE.width)) + noise * 0x010101;
  }
  return { rgba, ...SIZE, translucent: false };
}

const within = (x: number, y: number, left: number, top: number, right: number, bottom: number) =>
  x >= left && x < right && y >= top && y < bottom;

const inBody = (x: number, y: number) => within(x, y, 10, 20, 40, 50);
/** A ring beside the body, six pixels thick. */
const inHandle = (x: number, y: number) =>
  within(x, y, 40, 22, 66, 48) && !within(x, y, 40, 28, 60, 42);

const stroke = (radius: number, ...line: [x: number, y: number][]): HintShape => ({ line, radius });
const handle = stroke(1.5, [46, 25], [62, 26], [63, 44], [48, 45]);

function hinted(
  matte: Uint8Array,
  picture: RgbaPicture,
  hints: { readonly keep?: HintShape[]; readonly erase?: HintShape[] },
): Uint8Array {
  const result = matte.slice();
  new HintedMatte(result, drawSeeds(hints, SIZE, ALL, SIZE), SIZE, picture).apply();
  return result;
}

const shareOf = (matte: Uint8Array, isIn: (x: number, y: number) => boolean) => {
  let [shown, all] = [0, 0];
  for (let i = 0; i < matte.length; i++) {
    if (!isIn(i % SIZE.width, Math.floor(i / SIZE.width))) continue;
    all += 1;
    shown += matte[i]! / 255;
  }
  return shown / all;
};

const missing = planeOf((x, y) => (inBody(x, y) ? 255 : 0));
const cup = pictureOf((x, y) => (inBody(x, y) || inHandle(x, y) ? RED : GREY));

test('a stroke in a missing handle brings back the handle, and not a blob', t => {
  const matte = hinted(missing, cup, { keep: [handle] });
  t.true(shareOf(matte, inHandle) > 0.9);
  t.true(shareOf(matte, (x, y) => !inHandle(x, y) && !inBody(x, y)) < 0.03);
  t.is(shareOf(matte, inBody), 1);
});

test('a stroke stops where another one says the opposite, and erase wins', t => {
  const lower: HintShape = { box: [40, 42, 60, 48] };
  const matte = hinted(missing, cup, { keep: [handle], erase: [lower] });
  t.is(
    shareOf(matte, (x, y) => within(x, y, 40, 42, 60, 48)),
    0,
  );
  t.true(shareOf(matte, (x, y) => within(x, y, 44, 22, 66, 28)) > 0.9);
  const both = hinted(missing, cup, { keep: [lower], erase: [lower] });
  t.is(
    shareOf(both, (x, y) => within(x, y, 40, 42, 60, 48)),
    0,
  );
});

const inOther = (x: number, y: number) => within(x, y, 60, 10, 84, 30);
/** Two colours: by colours alone half of it would leave. */
const pair = pictureOf((x, y) => {
  if (inOther(x, y)) return y < 20 ? GREEN : RED;
  return inBody(x, y) ? RED : GREY;
});
const shown = planeOf((x, y) => (inBody(x, y) || inOther(x, y) ? 255 : 0));

test('an erasing stroke on a second object takes the object, and nothing of the first', t => {
  const matte = hinted(shown, pair, { erase: [stroke(3, [70, 14])] });
  t.is(shareOf(matte, inOther), 0);
  t.is(shareOf(matte, inBody), 1);
});

test('an erasing stroke in the only object takes its colour there, and not the object', t => {
  const two = pictureOf((x, y) => (within(x, y, 10, 20, 20, 50) ? GREEN : RED));
  const matte = hinted(missing, two, { erase: [stroke(2, [14, 24], [14, 46])] });
  t.true(shareOf(matte, (x, y) => within(x, y, 10, 20, 20, 50)) < 0.1);
  t.true(shareOf(matte, (x, y) => within(x, y, 22, 20, 40, 50)) > 0.98);
});

test('a stroke that goes a little over a rim leaves the other side to the matte and the colours', t => {
  const body = pictureOf((x, y) => (inBody(x, y) ? RED : GREY));
  const outside = (x: number, y: number) => !inBody(x, y);
  const erased = hinted(missing, body, { erase: [stroke(6, [44, 30], [44, 40])] });
  t.true(shareOf(erased, inBody) > 0.99, `${shareOf(erased, inBody)}`);
  const kept = hinted(missing, body, { keep: [stroke(6, [36, 30], [36, 40])] });
  t.true(shareOf(kept, outside) < 0.002, `${shareOf(kept, outside)}`);
  // Two pixels of the background are in the matte.
  const inFringe = (x: number, y: number) => within(x, y, 40, 30, 42, 40);
  const wide = planeOf((x, y) => (inBody(x, y) || inFringe(x, y) ? 255 : 0));
  const trimmed = hinted(wide, body, { erase: [stroke(6, [46, 28], [46, 42])] });
  t.true(shareOf(trimmed, inFringe) < 0.05, `${shareOf(trimmed, inFringe)}`);
  t.true(shareOf(trimmed, inBody) > 0.99);
  const deep = hinted(missing, body, { erase: [stroke(6, [25, 35])] });
  const left = shareOf(deep, (x, y) => Math.hypot(x + 0.5 - 25, y + 0.5 - 35) < 5);
  t.is(left, 0);
});

test('strokes that say what the matte shows anyway change nothing', t => {
  const keep: HintShape[] = [{ box: [14, 24, 36, 46] }];
  const erase = [stroke(4, [80, 4], [80, 60])];
  t.deepEqual(hinted(missing, cup, { keep, erase }), missing);
});

test('lines are drawn with their radius and round ends, as far as the plane goes', t => {
  const seeds = drawSeeds({ keep: [stroke(5, [10, 32], [30, 32])] }, SIZE, ALL, SIZE);
  const drawn = seeds.reduce((sum, seed) => sum + seed, 0);
  t.true(Math.abs(drawn - (20 * 10 + Math.PI * 25)) < 30, `${drawn}`);
  const everything = { keep: [stroke(10_000, [0, 0])] };
  t.true(drawSeeds(everything, SIZE, ALL, SIZE).every(seed => seed === KEEP_SEED));
  const speck = { erase: [stroke(0.01, [96, 64])] };
  t.is(drawSeeds(speck, SIZE, ALL, SIZE).at(-1), ERASE_SEED);
});

test('a part sees the seeds in its own pixels', t => {
  const part = { left: 48, top: 32, width: 48, height: 32 };
  const seeds = drawSeeds({ keep: [{ box: [48, 32, 72, 64] }] }, SIZE, part, SIZE);
  t.is(seeds[0], KEEP_BOX_SEED);
  t.deepEqual([seeds[47], seeds[49]], [KEEP_BOX_SEED, 0]);
});

test('a picture of hints is stretched, and a thin line of it is not lost', t => {
  const size = { width: 960, height: 640 };
  const rgba = new Uint32Array(size.width * size.height).fill(GREY);
  for (let y = 0; y < size.height; y++) rgba[y * size.width + 500] = 0xffffffff;
  rgba[0] = 0xff050505;
  rgba[1] = 0xff060606;
  rgba[11] = 0xfff9f9f9;
  const plane = lumaOf({ rgba, ...size, translucent: false });
  const seeds = drawSeeds(plane, SIZE, ALL, SIZE);
  t.is(seeds.filter(seed => seed === KEEP_SEED).length, SIZE.height);
  t.deepEqual([seeds[0], seeds[1], seeds[50]], [ERASE_SEED, 0, KEEP_SEED]);
  const small = lumaOf({
    rgba: Uint32Array.of(0xff000000, GREY),
    width: 2,
    height: 1,
    translucent: false,
  });
  const halves = drawSeeds(small, SIZE, ALL, SIZE);
  t.is(halves.filter(seed => seed === ERASE_SEED).length, halves.length / 2);
});
