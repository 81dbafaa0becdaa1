/**
 * Pictures with a subject and without, to judge the verdict on a result by: photos with reference
 * mattes, their subjects on other grounds, small ones on walls and skies, close-ups that cut them
 * off; and walls, patterns, skies and pieces of the photos' grounds, in which nothing is. The same
 * each time.
 */
import type { Box } from '@matting/proto/contract/finishing.ts';
import {
  type RgbaPicture,
  viewAsBytes,
} from '../../inference-node/serving/picture/rgba-picture.ts';
import { at } from '../../test/support/at.ts';
import { findPhotos, loadPhoto, type Photo } from './photos.ts';
import { scaleDown } from './scale-down.ts';
import { makeVariant } from './variants.ts';

export type SampleKind = 'whole' | 'crop' | 'filled' | 'empty';

export interface Sample {
  readonly name: string;
  readonly kind: SampleKind;
  /** The picture from which the sample is made. Constants chosen without it judge its samples. */
  readonly source: string;
  /** The order within its source and kind: lower ones come first where time is short. */
  readonly turn: number;
  make(): Promise<Pick<Photo, 'picture' | 'alpha'>>;
}

const MEGAPIXELS = 0.7;
const GROUNDS = 4;
const CROPS = 13;
const SMALL_ON = ['litWall', 'sky'] as const;
/** The whole photo's longer side relative to that of the picture that it is laid into. */
const SMALL_SIDE = { least: 0.1, more: 0.2 };
const GROUND_PIECES = 5;
const PATTERN_PICTURES = 10;
const PATTERN_SIZE = { width: 800, height: 600 };
/** The subject's share of a close-up; above it, no ground is left to distinguish it from. */
const CROP_SHARE = { min: 0.25, max: 0.9 };
const PIECE_SIDE_MIN = 160;
const DRAWS = 400;

/** @param folders as findPhotos takes them */
export function listSamples(folders: readonly string[]): Sample[] {
  const stems = findPhotos(folders);
  const photos = stems.flatMap((stem, index) => samplesOf(stem, index, stems));
  const patterns = Object.entries(PATTERNS).flatMap(([pattern, paint]) =>
    Array.from({ length: PATTERN_PICTURES }, (_none, index): Sample => {
      const name = `empty/${pattern}-${index}`;
      const make = async () => painted(paint, name);
      return { name, kind: 'empty', source: pattern, turn: index, make };
    }),
  );
  return [...photos, ...patterns].toSorted((one, other) => one.turn - other.turn);
}

function samplesOf(stem: string, index: number, stems: readonly string[]): Sample[] {
  const source = at(stem.split('/').slice(-1), 0);
  const place = stem.split('/').slice(-2).join('/');
  let loaded: Promise<Photo> | undefined;
  const own = () => {
    loaded ??= loadPhoto(stem);
    return loaded;
  };
  const small = async (photo: Photo) => await scaleDown(photo, MEGAPIXELS * 1e6);
  const crops = (kind: SampleKind, count: number, share: { min: number; max: number }) =>
    Array.from({ length: count }, (_none, turn): Sample => {
      const name = `${kind}/${place}-${turn}`;
      const make = async () => small(cutOutPiece(await own(), share, randomOf(name)));
      return { name, kind, source, turn: kind === 'filled' ? CROPS : turn, make };
    });
  const grounds = Array.from({ length: GROUNDS }, (_none, turn): Sample => {
    const other = at(stems, (index + 1 + 7 * turn) % stems.length);
    const make = async () =>
      makeVariant('ground', await small(await own()), await loadPhoto(other));
    return { name: `ground/${place}-${turn}`, kind: 'whole', source, turn, make };
  });
  const smalls = SMALL_ON.map((ground, index): Sample => {
    const name = `small/${place}-${ground}`;
    const make = async () => laidInto(await own(), ground, randomOf(name));
    return { name, kind: 'whole', source, turn: GROUNDS + index, make };
  });
  return [
    {
      name: `whole/${place}`,
      kind: 'whole',
      source,
      turn: 0,
      make: async () => small(await own()),
    },
    ...grounds,
    ...smalls,
    ...crops('crop', CROPS, CROP_SHARE),
    ...crops('filled', 1, { min: 0.97, max: 1 }),
    ...crops('empty', GROUND_PIECES, { min: 0, max: 0.001 }),
  ];
}

type Random = () => number;

/** Numbers from 0 to 1, the same for the same name. */
function randomOf(name: string): Random {
  let state = 2_166_136_261;
  for (const character of name) {
    state = Math.imul(state ^ character.charCodeAt(0), 16_777_619) >>> 0;
  }
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export class NoPieceError extends Error {}

/** @throws NoPieceError where the photo has no piece with that share of its subject */
function cutOutPiece(photo: Photo, share: { min: number; max: number }, random: Random): Photo {
  const { width, height } = photo.picture;
  for (let draw = 0; draw < DRAWS; draw++) {
    const scale = 0.2 + 0.5 * random();
    const stretch = 0.75 + 0.5 * random();
    const box = {
      width: Math.min(width, Math.round(scale * Math.sqrt(width * height) * stretch)),
      height: Math.min(height, Math.round((scale * Math.sqrt(width * height)) / stretch)),
    };
    const left = Math.floor(random() * (width - box.width + 1));
    const top = Math.floor(random() * (height - box.height + 1));
    if (Math.min(box.width, box.height) < PIECE_SIDE_MIN) continue;
    const piece = cropPhoto(photo, { left, top, ...box });
    const mean = piece.alpha.reduce((sum, value) => sum + value, 0) / piece.alpha.length / 255;
    if (mean >= share.min && mean <= share.max) return piece;
  }
  throw new NoPieceError(photo.name);
}

function cropPhoto(photo: Photo, { left, top, width, height }: Box): Photo {
  const { picture } = photo;
  const rgba = new Uint32Array(width * height);
  const alpha = new Uint8Array(width * height);
  for (let y = 0; y < height; y++) {
    const from = (top + y) * picture.width + left;
    rgba.set(picture.rgba.subarray(from, from + width), y * width);
    alpha.set(photo.alpha.subarray(from, from + width), y * width);
  }
  const cut = { rgba, width, height, translucent: picture.translucent };
  return { name: photo.name, picture: cut, alpha, foreground: undefined };
}

async function laidInto(photo: Photo, ground: keyof typeof PATTERNS, random: Random) {
  const whole = painted(PATTERNS[ground], `${photo.name} ${ground}`);
  const { width, height } = PATTERN_SIZE;
  const side = width * (SMALL_SIDE.least + SMALL_SIDE.more * random());
  const { picture } = photo;
  const scale = Math.min(1, side / Math.max(picture.width, picture.height));
  const laid = await scaleDown(photo, scale ** 2 * picture.width * picture.height);
  const left = Math.floor(random() * (width - laid.picture.width));
  const top = Math.floor(random() * (height - laid.picture.height));
  const bytes = viewAsBytes(whole.picture.rgba);
  const own = laid.foreground;
  const seen = viewAsBytes(laid.picture.rgba);
  for (let i = 0; i < laid.alpha.length; i++) {
    const opacity = at(laid.alpha, i);
    const x = left + (i % laid.picture.width);
    const y = top + Math.floor(i / laid.picture.width);
    whole.alpha[y * width + x] = opacity;
    for (let channel = 0; channel < 3; channel++) {
      const to = 4 * (y * width + x) + channel;
      const of = own === undefined ? at(seen, 4 * i + channel) : at(own, 3 * i + channel);
      bytes[to] = Math.round(at(bytes, to) + (opacity / 255) * (of - at(bytes, to)));
    }
  }
  return whole;
}

type Colour = readonly [number, number, number];
/** The colour at x and y, each 0 to 1 along the longer side. */
type Shade = (x: number, y: number) => Colour;
type Paint = (random: Random) => Shade;

const GRAIN = 6;

function painted(
  paint: Paint,
  name: string,
): Pick<Photo, 'picture'> & { readonly alpha: Uint8Array } {
  const { width, height } = PATTERN_SIZE;
  const random = randomOf(name);
  const shade = paint(random);
  const grain = GRAIN * random();
  const rgba = Uint32Array.from({ length: width * height }, (_none, i) => {
    const colour = shade((i % width) / width, Math.floor(i / width) / width);
    const noise = grain * (random() + random() + random() - 1.5);
    const byte = (value: number) => Math.round(clamp(value + noise, 255));
    const [red, green, blue] = colour;
    return ((255 << 24) | (byte(blue) << 16) | (byte(green) << 8) | byte(red)) >>> 0;
  });
  const picture: RgbaPicture = { rgba, width, height, translucent: false };
  return { picture, alpha: new Uint8Array(width * height) };
}

const clamp = (value: number, most = 1) => Math.max(0, Math.min(most, value));
const colour = (random: Random): Colour => [255 * random(), 255 * random(), 255 * random()];
const mix = (a: Colour, b: Colour, share: number): Colour =>
  [0, 1, 2].map(i => at(a, i) + share * (at(b, i) - at(a, i))) as unknown as Colour;

/** Smooth noise in octaves, about 0 to 1. */
function clouds(random: Random, scale: number, octaves: number) {
  const side = 64;
  const lattice = Float64Array.from({ length: side * side }, random);
  const value = (x: number, y: number) => {
    const [x0, y0] = [Math.floor(x), Math.floor(y)];
    const ease = (t: number) => t * t * (3 - 2 * t);
    const [u, v] = [ease(x - x0), ease(y - y0)];
    const node = (i: number, j: number) => at(lattice, ((j & 63) << 6) | (i & 63));
    const above = node(x0, y0) * (1 - u) + node(x0 + 1, y0) * u;
    return above * (1 - v) + (node(x0, y0 + 1) * (1 - u) + node(x0 + 1, y0 + 1) * u) * v;
  };
  return (x: number, y: number) => {
    let [sum, weight, total] = [0, 1, 0];
    for (let octave = 0; octave < octaves; octave++) {
      sum += weight * value(x * scale * 2 ** octave + 17 * octave, y * scale * 2 ** octave);
      total += weight;
      weight /= 2;
    }
    return sum / total;
  };
}

const fraction = (value: number) => value - Math.floor(value);

/** Two colours by a measure of 0 to 1. */
const between = (random: Random, measure: (x: number, y: number) => number): Shade => {
  const [a, b] = [colour(random), colour(random)];
  return (x, y) => mix(a, b, clamp(measure(x, y)));
};

const PATTERNS = {
  plain: random => {
    const only = colour(random);
    return () => only;
  },
  gradient: random => {
    const turn = 2 * Math.PI * random();
    return between(random, (x, y) => 0.5 + (x - 0.5) * Math.cos(turn) + (y - 0.4) * Math.sin(turn));
  },
  litWall: random => {
    const [x0, y0, reach] = [random(), random(), 0.4 + 0.6 * random()];
    const wall = colour(random);
    const dark = mix(wall, [0, 0, 0], 0.3 + 0.4 * random());
    return (x, y) => mix(wall, dark, clamp(Math.hypot(x - x0, y - y0) / reach));
  },
  plaster: random => {
    const rough = clouds(random, 20 + 40 * random(), 5);
    const wall = colour(random);
    const dark = mix(wall, [0, 0, 0], 0.3);
    return (x, y) => mix(wall, dark, rough(x, y));
  },
  stripes: random => {
    const [turn, count] = [Math.PI * random(), 4 + 30 * random()];
    return between(random, (x, y) =>
      Number(fraction(count * (x * Math.cos(turn) + y * Math.sin(turn))) < 0.5),
    );
  },
  checks: random => {
    const count = 4 + 20 * random();
    return between(random, (x, y) => (Math.floor(x * count) + Math.floor(y * count)) & 1);
  },
  bricks: random => {
    const count = 6 + 10 * random();
    const tone = clouds(random, 30, 3);
    return between(random, (x, y) => {
      const row = Math.floor(y * count * 2);
      const along = fraction(x * count + (row & 1) / 2);
      const isJoint = along < 0.04 || fraction(y * count * 2) < 0.08;
      return isJoint ? 0 : 0.7 + 0.3 * tone(x, y);
    });
  },
  dots: random => {
    const count = 6 + 20 * random();
    return between(random, (x, y) =>
      Number(Math.hypot(fraction(x * count) - 0.5, fraction(y * count) - 0.5) < 0.3),
    );
  },
  waves: random => {
    const bend = clouds(random, 3, 3);
    const count = 5 + 20 * random();
    return between(random, (x, y) => 0.5 + 0.5 * Math.sin(6.28 * (count * y + 3 * bend(x, y))));
  },
  noise: random => () => [255 * random(), 255 * random(), 255 * random()],
  sky: random => {
    const cover = clouds(random, 2 + 4 * random(), 6);
    const [high, low]: [Colour, Colour] = [
      [40 + 60 * random(), 110 + 40 * random(), 200 + 40 * random()],
      [170, 205, 240],
    ];
    return (x, y) => mix(mix(high, low, y / 0.75), [250, 250, 250], clamp(3 * cover(x, y) - 1.4));
  },
  haze: random => between(random, clouds(random, 2 + 6 * random(), 6)),
} as const satisfies Readonly<Record<string, Paint>>;
