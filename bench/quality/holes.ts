/**
 * Holes, ghosts and haze: errors inside of bodies and in the middle of the ground, which means over
 * all pixels hide and which are the first that an eye sees.
 */
import { at } from '../../test/support/at.ts';
import type { Plane } from './plane.ts';

/** Smaller is better, all of them. Shares of 0 to 1; 0 where the reference has no such pixel. */
export interface HoleErrors {
  /** The share of the pixels deep in the subject that comes out half transparent. */
  readonly faint: number;
  /** The share that comes out as ground: what no look saw. */
  readonly blind: number;
  /** The sum of both. */
  readonly holes: number;
  /** What a plain body lacks: the mean of 1 less alpha, so deep that no edge or hair is near. */
  readonly lost: number;
  /** The share of the pixels deep in the ground that shows. */
  readonly ghosts: number;
  /** The share of the pixels far from any alpha in the reference that shows faintly. */
  readonly haze: number;
  /** The share of the same pixels that shows more. */
  readonly strong: number;
}

export const HOLE_ERROR_NAMES = [
  'faint',
  'blind',
  'holes',
  'lost',
  'ghosts',
  'haze',
  'strong',
] as const satisfies readonly (keyof HoleErrors)[];

const SUBJECT_MIN = 0.98 * 255;
const GROUND_MAX = 0.02 * 255;
/** A plain body has such a reference this many pixels each way. */
const PLAIN_MIN = 250;
const PLAIN_PX = 16;
/** A pixel is deep where this many pixels each way are as it is; outside of the photo all are. */
const DEEP_PX = 8;
const WHOLE_MIN = 0.9 * 255;
const FAINT_MIN = 0.12 * 255;
const GHOST_MIN = 0.1 * 255;
/** A pixel is far where this many pixels each way have no alpha, in a photo of a long side of 1600. */
const FAR_PX = 12;
/** A pixel that shows more than this (of 255) is not faint: buyers see haze up to it on white. */
const HAZE_MAX = 25;

export function measureHoles({ data }: Plane, reference: Plane): HoleErrors {
  const { width, height } = reference;
  const farPx = Math.round((FAR_PX * Math.max(width, height)) / 1600);
  const subject = deep(reference, DEEP_PX, value => value >= SUBJECT_MIN);
  const ground = deep(reference, DEEP_PX, value => value <= GROUND_MAX);
  const plain = deep(reference, PLAIN_PX, value => value >= PLAIN_MIN);
  const nothing = deep(reference, farPx, value => value === 0);
  let inside = 0;
  let [plainPixels, lost] = [0, 0];
  let faint = 0;
  let blind = 0;
  let outside = 0;
  let ghosts = 0;
  let far = 0;
  let haze = 0;
  let strong = 0;
  for (let i = 0; i < data.length; i++) {
    const value = at(data, i);
    inside += at(subject, i);
    outside += at(ground, i);
    if (subject[i] === 1 && value < WHOLE_MIN) {
      if (value < FAINT_MIN) blind += 1;
      else faint += 1;
    }
    plainPixels += at(plain, i);
    lost += at(plain, i) * (255 - value);
    if (ground[i] === 1 && value > GHOST_MIN) ghosts += 1;
    far += at(nothing, i);
    if (nothing[i] === 1 && value > HAZE_MAX) strong += 1;
    else if (nothing[i] === 1 && value > 0) haze += 1;
  }
  const share = (part: number, all: number) => (all === 0 ? 0 : part / all);
  return {
    faint: share(faint, inside),
    blind: share(blind, inside),
    holes: share(faint + blind, inside),
    lost: share(lost / 255, plainPixels),
    ghosts: share(ghosts, outside),
    haze: share(haze, far),
    strong: share(strong, far),
  };
}

/** 1 where every pixel so many each way is one that `test` accepts. */
function deep(
  { data, width, height }: Plane,
  reach: number,
  test: (value: number) => boolean,
): Uint8Array {
  const accepted = Uint8Array.from(data, value => (test(value) ? 1 : 0));
  const rows = new Uint8Array(data.length);
  for (let y = 0; y < height; y++)
    erodeLine(accepted, rows, { start: y * width, step: 1, length: width, reach });
  const both = new Uint8Array(data.length);
  for (let x = 0; x < width; x++)
    erodeLine(rows, both, { start: x, step: width, length: height, reach });
  return both;
}

function erodeLine(
  from: Uint8Array,
  to: Uint8Array,
  { start, step, length, reach }: Record<'start' | 'step' | 'length' | 'reach', number>,
): void {
  let lastRefused = -1 - reach;
  for (let ahead = 0; ahead < length + reach; ahead++) {
    if (ahead < length && from[start + ahead * step] === 0) lastRefused = ahead;
    const here = ahead - reach;
    if (here >= 0) to[start + here * step] = here - lastRefused > reach ? 1 : 0;
  }
}
