/**
 * Merges several models' mattes into one: pure arithmetic. Subjects decide what is cut out (several
 * are averaged). An opinion counts only where the edge is soft and both show the same thing. Then
 * areas are decided as a whole (fill-areas.ts), and what nothing joins to the subject fades. What
 * was refined replaces the unsure band of that (trimap.ts).
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { MatteRole } from '../../models/prepared-model.ts';
import { borrowCopy, floatsAt, kernels, withMemory } from '../kernels/kernels.ts';
import { CERTAIN_ABOVE, CERTAIN_BELOW } from '../worth-running.ts';
import { AREA_RULES, type AreaRules, type FullLook, fillAreas, gridSize } from './fill-areas.ts';
import { resample } from './resample.ts';
import { replaceUnsure } from './trimap.ts';

export interface RoleMatte extends Size {
  /** The plane has one byte a pixel, 255 opaque. */
  readonly alpha: Uint8Array;
  readonly role: MatteRole;
  /** The part of the picture in its pixels; undefined: all of it. Merging ignores it. */
  readonly part?: Box | undefined;
}

/** Intersection over union at half opacity; 0.85 and 0.95 make no difference. */
const AGREEMENT_MIN = 0.9;

interface MergeRules extends AreaRules {
  /** A look that has lost half of the body looks at something else. */
  readonly shownAgainMin: number;
}

/** Judged by cross-validation: bench/quality-choose.ts, bench/MEASUREMENTS.md. */
export const MERGE_RULES: MergeRules = { ...AREA_RULES, shownAgainMin: 0.55 };

/** Radius of the window around a pixel, relative to the picture's long side. */
const WINDOW_REACH = 1 / 150;
/**
 * Share of a pixel's window in which the subject is uncertain: up to the first an opinion has no
 * weight, from the second on all. A sharp edge is a thin line in its window, fur and hair fill
 * theirs. Of three pairs these have the least SAD on either half of 30 photos, by little.
 */
const UNCERTAIN_SHARE_MIN = 0.2;
const UNCERTAIN_SHARE_FULL = 0.7;
/** Weight of a matte at half opacity; a certain one has 1.05. */
const UNSURE_WEIGHT = 0.05;

/** Makes a matte of `size`. The first of `mattes` is a subject. */
export function mergeMattes(
  mattes: readonly RoleMatte[],
  size: Size,
  rules = MERGE_RULES,
): Uint8Array {
  const [subject, ...others] = mattes.filter(({ role }) => role !== 'refine');
  if (subject?.role !== 'subject') throw new Error('a plan without a subject');
  const own = resampleTo(subject, size);
  const looks = [
    lookOf(subject, own),
    ...others
      .map(matte => lookOf(matte, resampleTo(matte, size)))
      .filter(({ alpha, decides }) => !decides || shownAgain(own, alpha) >= rules.shownAgainMin),
  ];
  // A buffer's slice would be the same memory.
  const merged = Uint8Array.from(own);
  if (looks.length > 1) {
    const uncertain = uncertainShares(merged, size);
    const deciding = looks.slice(1).filter(({ decides }) => decides);
    const planes = deciding.map(({ alpha }) => alpha);
    if (planes.length > 0) average(planes, merged, uncertain);
    for (const { alpha, decides } of looks) if (!decides) applyOpinion(alpha, merged, uncertain);
  }
  fillAreas(looks, merged, size, rules);
  fadeIslands(merged, size);
  const refined = mattes.find(({ role }) => role === 'refine');
  if (refined !== undefined) replaceUnsure(resampleTo(refined, size), merged, size);
  return merged;
}

function lookOf({ alpha: data, width, height, role }: RoleMatte, alpha: Uint8Array): FullLook {
  return { alpha, decides: role !== 'opinion', source: { data, width, height } };
}

/** Share of what `own` shows at half opacity that `other` shows too; 1 where it shows nothing. */
function shownAgain(own: Uint8Array, other: Uint8Array): number {
  let shown = 0;
  let again = 0;
  for (let i = 0; i < own.length; i++) {
    const here = own[i]! >>> 7;
    shown += here;
    again += here & (other[i]! >>> 7);
  }
  return shown === 0 ? 1 : again / shown;
}

function resampleTo(matte: RoleMatte, size: Size): Uint8Array {
  const { alpha, width, height } = matte;
  if (width === size.width && height === size.height) return Uint8Array.from(alpha);
  return resample({ data: alpha, width, height }, size);
}

// In the loops below all planes have as many elements as `merged`.

/** Averages in place: the softer the edge, the more the others count, at most as `merged`. */
function average(others: readonly Uint8Array[], merged: Uint8Array, uncertain: Float32Array): void {
  for (let i = 0; i < merged.length; i++) {
    if (uncertain[i]! <= UNCERTAIN_SHARE_MIN) continue;
    const soft = softness(uncertain[i]!);
    let sum = 0;
    for (const other of others) sum += other[i]!;
    merged[i] = Math.round((merged[i]! + soft * sum) / (1 + soft * others.length));
  }
}

/**
 * Works in place: the softer the edge, the more the surer of the two counts. If both are sure of
 * the opposite, the subject's value stays: the mean would be a hole.
 */
function applyOpinion(opinion: Uint8Array, merged: Uint8Array, uncertain: Float32Array): void {
  if (agreement(opinion, merged) < AGREEMENT_MIN) return;
  for (let i = 0; i < merged.length; i++) {
    if (uncertain[i]! <= UNCERTAIN_SHARE_MIN) continue;
    const soft = softness(uncertain[i]!);
    const own = merged[i]!;
    const other = opinion[i]!;
    const ownWeight = weight(own);
    const otherWeight = soft * weight(other) * compatibility(own, other);
    merged[i] = Math.round((ownWeight * own + otherWeight * other) / (ownWeight + otherWeight));
  }
}

/** 1, down to 0 where the subject is sure and the opinion says the opposite. */
function compatibility(own: number, other: number): number {
  const sureness = Math.abs((2 * own) / 255 - 1);
  return 1 - (sureness * Math.abs(own - other)) / 255;
}

function weight(value: number): number {
  const sureness = (2 * value) / 255 - 1;
  return sureness * sureness + UNSURE_WEIGHT;
}

function agreement(one: Uint8Array, other: Uint8Array): number {
  let both = 0;
  let either = 0;
  for (let i = 0; i < one.length; i++) {
    const here = one[i]! >>> 7;
    const there = other[i]! >>> 7;
    both += here & there;
    either += here | there;
  }
  return either === 0 ? 0 : both / either;
}

/** Tells how soft the matte is around a pixel, by the uncertain share of its window; at most 1. */
function softness(uncertain: number): number {
  const span = UNCERTAIN_SHARE_FULL - UNCERTAIN_SHARE_MIN;
  return Math.fround(Math.min(1, (uncertain - UNCERTAIN_SHARE_MIN) / span));
}

/** Gives the share of each pixel's window that is uncertain: of most pixels it is 0. */
function uncertainShares(alpha: Uint8Array, { width, height }: Size): Float32Array {
  const reach = Math.max(1, Math.round(Math.max(width, height) * WINDOW_REACH));
  return withMemory(borrow => {
    const counts = borrow(4 * width);
    const shares = borrow(4 * alpha.length);
    const at = borrowCopy(borrow, alpha);
    kernels.uncertainShares(at, width, height, reach, CERTAIN_BELOW, CERTAIN_ABOVE, counts, shares);
    return floatsAt(shares, alpha.length).slice();
  });
}

/*
 * Fades what lies apart from everything surely shown: the print of a poster, the shine of a wall. A
 * cell keeps the least alpha along the best way to a surely shown one (grey reconstruction:
 * Vincent, IEEE Transactions on Image Processing, 1993). Hair and smoke fall off from a body and
 * stay.
 */

/** Alpha from which a cell is surely shown. */
const SHOWN_FROM = 128;
/** Cells that a way may leap over: a wisp of hair has gaps. */
const GAP = 2;

/** Fades in place. A matte that shows nothing surely does not change: it may be glass. */
export function fadeIslands(alpha: Uint8Array, size: Size): void {
  const grid = gridSize(size);
  const reach = widen(resample({ data: alpha, ...size }, grid), grid);
  const joined = reconstruct(reach, grid);
  let shown = false;
  let faded = false;
  // Both have one element a cell.
  const shares = reach.map((value, cell) => {
    if (joined[cell]! > 0) shown = true;
    if (joined[cell]! === value) return 255;
    faded = true;
    return Math.round((255 * joined[cell]!) / value);
  });
  if (!shown || !faded) return;
  const kept = resample({ data: shares, ...grid }, size);
  for (let i = 0; i < alpha.length; i++) {
    if (kept[i]! < 255) alpha[i] = Math.round((alpha[i]! * kept[i]!) / 255);
  }
}

function widen(cells: Uint8Array, { width, height }: Size): Uint8Array {
  const rows = new Uint8Array(cells.length);
  for (let y = 0; y < height; y++) widenLine(cells, rows, y * width, 1, width);
  const both = new Uint8Array(cells.length);
  for (let x = 0; x < width; x++) widenLine(rows, both, x, width, height);
  return both;
}

function widenLine(
  from: Uint8Array,
  to: Uint8Array,
  start: number,
  step: number,
  length: number,
): void {
  for (let at = 0; at < length; at++) {
    let most = 0;
    const last = Math.min(length - 1, at + GAP);
    for (let near = Math.max(0, at - GAP); near <= last; near++) {
      most = Math.max(most, from[start + near * step]!);
    }
    to[start + at * step] = most;
  }
}

/** Gives for each cell the least value along the best way to a shown cell; 0 if there is none. */
function reconstruct(cells: Uint8Array, { width }: Size): Uint8Array {
  const joined = new Uint8Array(cells.length);
  // Cells to go on from, by what they have: the highest first, so that each is final once taken.
  const fronts: number[][] = Array.from({ length: 256 }, () => []);
  const join = (cell: number, value: number) => {
    if (value <= joined[cell]!) return;
    joined[cell] = value;
    fronts[value]!.push(cell);
  };
  for (let cell = 0; cell < cells.length; cell++) {
    if (cells[cell]! >= SHOWN_FROM) join(cell, cells[cell]!);
  }
  for (let level = 255; level > 0; level--) {
    const front = fronts[level]!;
    // The list grows meanwhile.
    for (let next = 0; next < front.length; next++) {
      const cell = front[next]!;
      if (joined[cell] !== level) continue;
      const x = cell % width;
      if (x > 0) join(cell - 1, Math.min(level, cells[cell - 1]!));
      if (x < width - 1) join(cell + 1, Math.min(level, cells[cell + 1]!));
      if (cell >= width) join(cell - width, Math.min(level, cells[cell - width]!));
      const below = cell + width;
      if (below < cells.length) join(below, Math.min(level, cells[below]!));
    }
  }
  return joined;
}
