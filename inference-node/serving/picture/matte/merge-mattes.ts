/**
 * Merges several models' mattes into one. The average of mattes with the role `subject` decides. An
 * `opinion` counts only at soft edges, if it shows the same subject. Then areas are decided as a
 * whole (fill-areas.ts), and parts that are not connected to the subject fade. A refined matte
 * replaces the unsure band (trimap.ts).
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { MatteRole } from '../../models/prepared-model.ts';
import { type Borrow, borrowCopy, bytesAt, kernels, withMemory } from '../kernels/kernels.ts';
import { CERTAIN_ABOVE, CERTAIN_BELOW } from '../unsure-share.ts';
import { AREA_RULES, type AreaRules, fillAreas, gridSize, type MatteAt } from './fill-areas.ts';
import { type Plane, resample, resampleAt } from './resample.ts';
import { replaceUnsure } from './trimap.ts';

export interface RoleMatte extends Size {
  /** One byte a pixel, 255 opaque. */
  readonly alpha: Uint8Array;
  readonly role: MatteRole;
  /** In the picture's pixels; undefined: all of it. Merging ignores it. */
  readonly part?: Box | undefined;
}

/** Intersection over union; 0.85 and 0.95 make no difference. */
const AGREEMENT_MIN = 0.9;

interface MergeRules extends AreaRules {
  /** If a matte keeps less of the first one, it shows something else. */
  readonly shownAgainMin: number;
}

/** Judged by cross-validation: bench/quality-choose.ts, bench/MEASUREMENTS.md. */
export const MERGE_RULES: MergeRules = { ...AREA_RULES, shownAgainMin: 0.55 };

/** Radius of the window around a pixel, relative to the picture's long side. */
const WINDOW_REACH = 1 / 150;
/**
 * Shares of uncertain pixels in a pixel's window at which an opinion begins to count, and counts
 * fully. A sharp edge is a thin line in its window; fur and hair fill theirs. Of three pairs these
 * have the least SAD on either half of 30 photos, by little.
 */
const UNCERTAIN_SHARE_MIN = 0.2;
const UNCERTAIN_SHARE_FULL = 0.7;
/** Weight at half opacity; a certain matte has 1.05. */
const UNSURE_WEIGHT = 0.05;

/** @param mattes the first is a subject */
export function mergeMattes(
  mattes: readonly RoleMatte[],
  size: Size,
  rules = MERGE_RULES,
): Uint8Array {
  const [subject, ...others] = mattes.filter(({ role }) => role !== 'refine');
  if (subject?.role !== 'subject') throw new Error('a plan without a subject');
  const count = size.width * size.height;
  const merged = withMemory(borrow => {
    const own = matteAt(borrow, subject, size);
    const mattesAt = [
      own,
      ...others
        .map(matte => matteAt(borrow, matte, size))
        .filter(
          ({ at, decides }) => !decides || shownAgain(own.at, at, count) >= rules.shownAgainMin,
        ),
    ];
    const at = borrow(count);
    bytesAt(at, count).set(bytesAt(own.at, count));
    if (mattesAt.length > 1) withMemory(borrow => mergeSoft(borrow, mattesAt, at, size));
    fillAreas(mattesAt, at, size, rules);
    fadeIslands(at, size);
    return bytesAt(at, count).slice();
  });
  const refined = mattes.find(({ role }) => role === 'refine');
  if (refined !== undefined) replaceUnsure(resample(planeOf(refined), size), merged, size);
  return merged;
}

function planeOf({ alpha: data, width, height }: RoleMatte): Plane {
  return { data, width, height };
}

function matteAt(borrow: Borrow, matte: RoleMatte, size: Size): MatteAt {
  const source = planeOf(matte);
  const at = borrow(size.width * size.height);
  const isSame = matte.width === size.width && matte.height === size.height;
  if (isSame) bytesAt(at, matte.alpha.length).set(matte.alpha);
  else
    withMemory(borrow => resampleAt({ ...source, at: borrowCopy(borrow, matte.alpha) }, size, at));
  return { at, decides: matte.role !== 'opinion', source };
}

/** Share of the shown pixels of `own` that `other` shows too. */
function shownAgain(own: number, other: number, count: number): number {
  const shown = kernels.countFrom(own, count, 128);
  return shown === 0 ? 1 : kernels.countBoth(own, other, count) / shown;
}

/** Averages deciding mattes where they are soft, then adds opinions; in place. */
function mergeSoft(borrow: Borrow, mattesAt: readonly MatteAt[], merged: number, size: Size): void {
  const { width, height } = size;
  const count = width * height;
  const reach = Math.max(1, Math.round(Math.max(width, height) * WINDOW_REACH));
  const shares = borrow(4 * count);
  const counts = borrow(4 * width);
  const rules = [CERTAIN_BELOW, CERTAIN_ABOVE] as const;
  kernels.uncertainShares(merged, width, height, reach, ...rules, counts, shares);
  const weights = [UNCERTAIN_SHARE_MIN, UNCERTAIN_SHARE_FULL] as const;
  const deciding = mattesAt.slice(1).filter(({ decides }) => decides);
  const others = borrowCopy(
    borrow,
    Int32Array.from(deciding, ({ at }) => at),
  );
  if (deciding.length > 0) {
    kernels.averageLooks(others, deciding.length, shares, merged, count, ...weights);
  }
  for (const { at, decides } of mattesAt) {
    if (decides || agreement(at, merged, count) < AGREEMENT_MIN) continue;
    kernels.hearOpinion(at, shares, merged, count, ...weights, UNSURE_WEIGHT);
  }
}

function agreement(one: number, other: number, count: number): number {
  const both = kernels.countBoth(one, other, count);
  const shown = (at: number) => kernels.countFrom(at, count, 128);
  const either = shown(one) + shown(other) - both;
  return either === 0 ? 0 : both / either;
}

/*
 * Fades everything that is apart from surely shown cells: the print of a poster, the shine of a
 * wall. A cell keeps the least alpha along the best path to a surely shown one (grey
 * reconstruction: Vincent, IEEE Transactions on Image Processing, 1993). Hair and smoke fall off
 * from a body and stay.
 */

const SHOWN_FROM = 128;
/** Gaps of a wisp of hair that a path may cross, in cells. */
const GAP = 2;

/** In place. A matte that shows nothing surely does not change: it may be glass. */
export function fadeIslands(alpha: number, size: Size): void {
  const grid = gridSize(size);
  const { width, height } = grid;
  const count = width * height;
  withMemory(borrow => {
    const [cells, joined, shares] = [borrow(count), borrow(count), borrow(count)];
    const reach = borrow(count);
    resampleAt({ at: alpha, ...size }, grid, cells);
    kernels.widen(cells, width, height, GAP, joined, reach);
    kernels.joinShown(reach, width, height, SHOWN_FROM, joined);
    if (!kernels.keptShares(reach, joined, count, shares)) return;
    const kept = borrow(size.width * size.height);
    resampleAt({ at: shares, ...grid }, size, kept);
    kernels.scaleBytes(alpha, kept, size.width * size.height);
  });
}
