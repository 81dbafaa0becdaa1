/**
 * Draws every usual gesture over things of known alpha, and checks what leaves, stays and comes
 * back. The stand-in for a model knows the answer in every crop.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { HintShape } from '@matting/proto/contract/hints.ts';
import test from 'ava';
import {
  type AlphaPlane,
  besideStroke,
  boxAround,
  boxOf,
  broadStroke,
  changedShare,
  dot,
  lowerHalf,
  middleStroke,
  overlap,
  polygon,
  scribble,
  shownShare,
} from '../../../test/hint-gestures.ts';
import type { RgbaPicture } from '../../rgba-picture.ts';
import { CROP_RUNS_MAX, HintedMatte } from './hinted-matte.ts';
import { drawSeeds, lumaOf } from './seeds.ts';

/** A fixed sequence of numbers from 0 to 1. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

type Edge = 'sharp' | 'fur';

interface Place {
  readonly x: number;
  readonly y: number;
  readonly radius: number;
}

/** A round thing with bumps; its fur is strands of up to a quarter of its radius. */
function drawThing(size: Size, { x, y, radius }: Place, edge: Edge, seed: number): AlphaPlane {
  const random = randomOf(seed);
  const phases = [random(), random(), random()].map(value => value * 2 * Math.PI);
  const strands = Array.from({ length: 720 }, () => (edge === 'fur' ? random() ** 3 / 4 : 0));
  const softness = edge === 'fur' ? 2 : 1;
  const data = new Uint8Array(size.width * size.height);
  for (let i = 0; i < data.length; i++) {
    const [dx, dy] = [(i % size.width) - x, Math.floor(i / size.width) - y];
    const angle = Math.atan2(dy, dx);
    const bumps = phases.reduce(
      (sum, phase, k) => sum + 0.05 * Math.sin((k + 2) * angle + phase),
      0,
    );
    const strand = strands[Math.floor(((angle + Math.PI) / (2 * Math.PI)) * 719)]!;
    const reach = radius * (1 + bumps + strand) - Math.hypot(dx, dy);
    data[i] = Math.round(255 * Math.min(1, Math.max(0, reach / softness + 0.5)));
  }
  return { data, ...size };
}

interface Scene {
  readonly name: string;
  readonly picture: RgbaPicture;
  readonly first: AlphaPlane;
  readonly second: AlphaPlane;
  readonly both: Uint8Array;
}

function drawScene(size: Size, edge: Edge, seed: number): Scene {
  const random = randomOf(seed);
  const { width, height } = size;
  const placeAt = (x: number): Place => ({
    x: x * width,
    y: height * (0.45 + 0.1 * random()),
    radius: height * (0.18 + 0.1 * random()),
  });
  const first = drawThing(size, placeAt(0.26), edge, seed + 1);
  const second = drawThing(size, placeAt(0.74), edge, seed + 2);
  const rgba = new Uint32Array(width * height);
  const both = new Uint8Array(rgba.length);
  for (let i = 0; i < rgba.length; i++) {
    const [one, other] = [first.data[i]! / 255, second.data[i]! / 255];
    const ground = 1 - Math.max(one, other);
    const noise = 12 * random();
    const red = 190 * one + 60 * other + 120 * ground + noise;
    const green = 70 * one + 150 * other + 125 * ground + noise;
    rgba[i] = (0xff000000 | (Math.round(90 + noise) << 16) | (green << 8) | red) >>> 0;
    both[i] = Math.max(first.data[i]!, second.data[i]!);
  }
  const picture = { rgba, ...size, translucent: false };
  return { name: `${edge} ${width}x${height} ${seed}`, picture, first, second, both };
}

const SIZES = [
  { width: 120, height: 80 },
  { width: 400, height: 260 },
  { width: 900, height: 500 },
];
const SCENES = SIZES.flatMap((size, index) =>
  (['sharp', 'fur'] as const).map((edge, kind) => drawScene(size, edge, 10 * index + kind + 1)),
);

interface Drawn {
  readonly keep?: HintShape[];
  readonly erase?: HintShape[];
}

function fileOf(drawn: Drawn, size: Size) {
  const all = { left: 0, top: 0, ...size };
  const rgba = new Uint32Array(size.width * size.height).fill(0xff808080);
  for (const [shapes, colour] of [
    [drawn.keep, 0xffffffff],
    [drawn.erase, 0xff000000],
  ] as const) {
    if (shapes === undefined) continue;
    drawSeeds({ keep: shapes }, size, all, size).forEach((seed, i) => {
      if (seed !== 0) rgba[i] = colour;
    });
  }
  return lumaOf({ rgba, ...size, translucent: false });
}

/** @param model its matte of the whole picture; undefined: no model runs */
function follow(
  { picture }: Scene,
  before: Uint8Array,
  drawn: Drawn,
  { model, asFile = false }: { readonly model?: Uint8Array; readonly asFile?: boolean } = {},
) {
  const size = { width: picture.width, height: picture.height };
  const all = { left: 0, top: 0, ...size };
  const matte = before.slice();
  const seeds = drawSeeds(asFile ? fileOf(drawn, size) : drawn, size, all, size);
  const hinted = new HintedMatte(matte, seeds, size, picture);
  let runs = 0;
  for (let crop = model && hinted.nextCrop(); crop !== undefined; crop = hinted.nextCrop()) {
    runs += 1;
    const scale = size.width / hinted.grid.width;
    const at = (value: number) => Math.round(value * scale);
    const [width, height] = [at(crop.width), Math.min(size.height - at(crop.top), at(crop.height))];
    const data = new Uint8Array(width * height);
    for (let y = 0; y < height; y++) {
      const from = (at(crop.top) + y) * size.width + at(crop.left);
      data.set(model!.subarray(from, from + width), y * width);
    }
    hinted.takeCrop({ data, width, height });
  }
  hinted.apply();
  return { matte, runs };
}

const penOf = ({ picture }: Scene) => Math.max(2, picture.width / 100);

const GESTURES: Readonly<Record<string, (scene: Scene) => HintShape>> = {
  'a box around it': scene => boxAround(scene.second, penOf(scene)),
  'a box over its half of the picture': ({ picture: { width, height } }) => ({
    box: [width / 2, 0, width, height],
  }),
  'a broad stroke': ({ second }) => broadStroke(second),
  'a scribble': scene => scribble(scene.second, penOf(scene)),
  'a stroke along its middle': scene => middleStroke(scene.second, penOf(scene)),
  'a dot in its middle': ({ second }) => dot(second),
  'lines around it and across': scene => polygon(scene.second, penOf(scene)),
};

for (const [name, gesture] of Object.entries(GESTURES)) {
  test(`${name} erases a thing and leaves the other alone`, t => {
    for (const scene of SCENES) {
      for (const asFile of scene.picture.width === 400 ? [false, true] : [false]) {
        const { matte } = follow(scene, scene.both, { erase: [gesture(scene)] }, { asFile });
        const left = shownShare(matte, scene.second);
        const changed = changedShare(matte, scene.both, scene.first);
        t.true(left < 0.01, `${scene.name} ${asFile}: ${left} is left`);
        t.true(changed < 0.01, `${scene.name} ${asFile}: ${changed} of the other changed`);
      }
    }
  });

  test(`${name} keeps a thing that only the model shows`, t => {
    for (const scene of SCENES) {
      // In a file a box is a broad stroke.
      const drawn = { keep: [gesture(scene)] };
      const { matte, runs } = follow(scene, scene.first.data, drawn, { model: scene.both });
      const whole = overlap(matte, { ...scene.second, data: scene.both });
      t.true(whole > 0.95, `${scene.name}: ${whole}`);
      t.true(runs > 0 && runs <= CROP_RUNS_MAX, `${runs}`);
    }
  });
}

test('a box over the lower half erases that half, and nothing outside of the box', t => {
  for (const scene of SCENES) {
    const half = lowerHalf(scene.second, penOf(scene));
    const { matte } = follow(scene, scene.both, { erase: [half] }, { model: scene.both });
    const [left, top, right, bottom] = half.box as readonly number[];
    const { width } = scene.picture;
    let [shown, all, outside] = [0, 0, 0];
    for (let i = 0; i < matte.length; i++) {
      const [x, y] = [(i % width) + 0.5, Math.floor(i / width) + 0.5];
      const isInside = x > left! && x < right! && y > top! && y < bottom!;
      if (isInside) {
        shown += Math.min(matte[i]!, scene.second.data[i]!);
        all += scene.second.data[i]!;
      } else outside += Math.abs(matte[i]! - scene.both[i]!);
    }
    t.true(shown < 0.02 * all, `${scene.name}: ${shown / all}`);
    // A pixel on the side of a box counts as inside.
    t.true(outside < 255 * 2 * (right! - left!), `${scene.name}: ${outside}`);
  }
});

test('an erasing stroke beside a thing, a little over its rim, leaves it', t => {
  for (const scene of SCENES) {
    const over = Math.max(1, scene.picture.width / 120);
    const erase = [besideStroke(scene.first, 2.4 * over, over)];
    const { matte, runs } = follow(scene, scene.both, { erase }, { model: scene.both });
    const stays = shownShare(matte, scene.first);
    t.true(stays > 0.985, `${scene.name}: ${stays}`);
    t.is(runs, 0);
  }
});

test('a stroke through one of two things that touch takes that one, if the model shows it alone', t => {
  const size = { width: 600, height: 360 };
  for (const edge of ['sharp', 'fur'] as const) {
    const first = drawThing(size, { x: 210, y: 180, radius: 105 }, edge, 71);
    const second = drawThing(size, { x: 400, y: 180, radius: 95 }, edge, 72);
    const both = first.data.map((value, i) => Math.max(value, second.data[i]!));
    const own = second.data.map((value, i) => Math.min(value, 255 - first.data[i]!));
    const rgba = new Uint32Array(both.length).fill(0xff808080);
    const scene = { ...SCENES[0]!, first, second, picture: { rgba, ...size, translucent: false } };
    const erase = [middleStroke(second, 5)];
    const { matte, runs } = follow(scene, both, { erase }, { model: own });
    t.true(runs > 0);
    t.true(shownShare(matte, { ...second, data: own }) < 0.03);
    t.true(changedShare(matte, both, first) < 0.01);
    const seenAsOne = follow(scene, both, { erase }, { model: both });
    t.true(changedShare(seenAsOne.matte, both, first) < 0.03, 'the model sees one subject');
  }
});

test('hints that the matte follows ask for no run, and runs have a bound', t => {
  const scene = SCENES[2]!;
  const keep = [dot(scene.first), middleStroke(scene.second, 4)];
  t.deepEqual(follow(scene, scene.both, { keep }, { model: scene.both }), {
    matte: scene.both,
    runs: 0,
  });
  const { width, height } = scene.picture;
  const dots = Array.from({ length: 20 }, (_none, i) => ({
    line: [[(i + 0.5) * (width / 20), height / 2]] as [number, number][],
    radius: 3,
  }));
  const nothing = new Uint8Array(scene.both.length);
  t.is(follow(scene, nothing, { keep: dots }, { model: nothing }).runs, CROP_RUNS_MAX);
});

test('a look at a box counts although the engine is lost before the next one', t => {
  const scene = SCENES[2]!;
  const { picture, second, first, both } = scene;
  const size = { width: picture.width, height: picture.height };
  const all = { left: 0, top: 0, ...size };
  const matte = first.data.slice();
  const seeds = drawSeeds({ keep: [boxAround(second, 40)] }, size, all, size);
  const hinted = new HintedMatte(matte, seeds, size, picture);
  const crop = hinted.nextCrop()!;
  const scale = size.width / hinted.grid.width;
  const data = new Uint8Array(crop.width * crop.height);
  for (let i = 0; i < data.length; i++) {
    const x = Math.floor((crop.left + (i % crop.width)) * scale);
    const y = Math.floor((crop.top + Math.floor(i / crop.width)) * scale);
    data[i] = second.data[y * size.width + x]!;
  }
  hinted.takeCrop({ data, width: crop.width, height: crop.height });
  t.truthy(hinted.nextCrop(), 'the box is much wider than the object');
  hinted.apply();
  t.true(overlap(matte, { ...second, data: both }) > 0.95);
});

test('a keep box that the model finds nothing in is kept as it is drawn', t => {
  const scene = SCENES[2]!;
  const keep = [boxAround(scene.second, 0)];
  const none = new Uint8Array(scene.both.length);
  const { matte } = follow(scene, scene.first.data, { keep }, { model: none });
  const { left, top, width, height } = boxOf(scene.second, 20);
  const middle = (top + (height >> 1)) * scene.picture.width + left + (width >> 1);
  t.is(matte[middle], 255);
  t.is(matte[(top + 2) * scene.picture.width + left + 2], 255);
});
