/**
 * Holes and ghosts: errors inside of bodies and in the middle of the ground, which means over all
 * pixels hide and which are the first that an eye sees.
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
  /** The share of the pixels deep in the ground that shows. */
  readonly ghosts: number;
}

export const HOLE_ERROR_NAMES = [
  'faint',
  'blind',
  'holes',
  'ghosts',
] as const satisfies readonly (keyof HoleErrors)[];

const SUBJECT_MIN = 0.98 * 255;
const GROUND_MAX = 0.02 * 255;
/** A pixel is deep where this many pixels each way are as it is; outside of the photo all are. */
const DEEP_PX = 8;
const WHOLE_MIN = 0.9 * 255;
const FAINT_MIN = 0.12 * 255;
const GHOST_MIN = 0.1 * 255;

export function measureHoles({ data }: Plane, reference: Plane): HoleErrors {
  const subject = deep(reference, value => value >= SUBJECT_MIN);
  const ground = deep(reference, value => value <= GROUND_MAX);
  let inside = 0;
  let faint = 0;
  let blind = 0;
  let outside = 0;
  let ghosts = 0;
  for (let i = 0; i < data.length; i++) {
    const value = at(data, i);
    inside += at(subject, i);
    outside += at(ground, i);
    if (subject[i] === 1 && value < WHOLE_MIN) {
      if (value < FAINT_MIN) blind += 1;
      else faint += 1;
    }
    if (ground[i] === 1 && value > GHOST_MIN) ghosts += 1;
  }
  const share = (part: number, all: number) => (all === 0 ? 0 : part / all);
  return {
    faint: share(faint, inside),
    blind: share(blind, inside),
    holes: share(faint + blind, inside),
    ghosts: share(ghosts, outside),
  };
}

/** 1 where every pixel of the square of DEEP_PX around is one that `test` accepts. */
function deep({ data, width, height }: Plane, test: (value: number) => boolean): Uint8Array {
  const accepted = Uint8Array.from(data, value => (test(value) ? 1 : 0));
  const rows = new Uint8Array(data.length);
  for (let y = 0; y < height; y++) erodeLine(accepted, rows, y * width, 1, width);
  const both = new Uint8Array(data.length);
  for (let x = 0; x < width; x++) erodeLine(rows, both, x, width, height);
  return both;
}

function erodeLine(
  from: Uint8Array,
  to: Uint8Array,
  start: number,
  step: number,
  length: number,
): void {
  let lastRefused = -1 - DEEP_PX;
  for (let ahead = 0; ahead < length + DEEP_PX; ahead++) {
    if (ahead < length && from[start + ahead * step] === 0) lastRefused = ahead;
    const here = ahead - DEEP_PX;
    if (here >= 0) to[start + here * step] = here - lastRefused > DEEP_PX ? 1 : 0;
  }
}
