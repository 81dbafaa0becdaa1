/** Which separate things a matte shows, and which of them an erasing stroke means. Pure. */
import { distancesFrom } from './cell-distances.ts';
import { type Cells, findGroups, type Stroke } from './grow-strokes.ts';

/** From this alpha on cells belong together. */
export const TOGETHER_FROM = 26;
/**
 * A stroke means a thing if this share of it is on things, or this share of them under it, or if a
 * smaller share is on things and it goes through their middle: a scribble over legs.
 */
const ON_SHARE_MIN = 0.3;
const UNDER_SHARE_MIN = 0.3;
const SCRIBBLED_SHARE_MIN = 0.1;
/** A stroke in the largest thing means all of it only if this share of it is shown elsewhere. */
const ELSEWHERE_SHARE_MIN = 0.1;
/** And if it goes through the middle: this share of the largest distance from the thing's rim. */
export const MIDDLE_SHARE = 0.6;
/** The same for a scribble, and if a look shows the whole thing under the stroke. */
const SEEN_MIDDLE_SHARE = 0.4;

export interface ShownGroups {
  /** Group of each cell, -1 where the matte shows nothing. */
  readonly groupOf: Int32Array;
  /** Sum of the alpha of each group. */
  readonly sums: readonly number[];
  /** Distance of each cell from the nearest that shows nothing, in cells. */
  readonly depths: Float32Array;
  /** The largest distance in each group. */
  readonly deepest: readonly number[];
}

export function findShown({ alpha, ...size }: Cells): ShownGroups {
  const groupOf = new Int32Array(alpha.length).fill(-1);
  const depths = distancesFrom(cell => alpha[cell]! < TOGETHER_FROM, size);
  const groups = findGroups(cell => alpha[cell]! >= TOGETHER_FROM, size);
  const sums = groups.map(({ cells }, group) => {
    let sum = 0;
    for (const cell of cells) {
      groupOf[cell] = group;
      sum += alpha[cell]!;
    }
    return sum;
  });
  const deepest = groups.map(({ cells }) =>
    cells.reduce((most, cell) => Math.max(most, depths[cell]!), 0),
  );
  return { groupOf, sums, depths, deepest };
}

/** An erasing stroke. Its cells are those that it covers, without its slips. */
export interface Erasing extends Stroke {
  /** The number of all its cells. */
  readonly size: number;
  /** The cells that it goes around. */
  readonly enclosed: readonly number[];
}

/** A stroke goes around a thing if it covers or encloses this share of it. */
const ENCLOSED_SHARE_MIN = 0.9;

/** Gives the groups that a stroke goes around. */
function enclosedGroups(
  { cells: covered, enclosed }: Erasing,
  { groupOf, sums }: ShownGroups,
  { alpha }: Cells,
): ReadonlySet<number> {
  const inside = new Map<number, number>();
  if (enclosed.length === 0) return new Set();
  for (const cell of [...covered, ...enclosed]) {
    const group = groupOf[cell]!;
    if (group >= 0) inside.set(group, (inside.get(group) ?? 0) + alpha[cell]!);
  }
  const groups = [...inside].filter(([group, sum]) => sum >= ENCLOSED_SHARE_MIN * sums[group]!);
  return new Set(groups.map(([group]) => group));
}

/**
 * Tells whether a stroke means a thing and not only what lies under it: much of the stroke is on
 * things, or much of them under it.
 */
export function meansThing(stroke: Erasing, shown: ShownGroups, { alpha }: Cells): boolean {
  const { cells, size } = stroke;
  const { groupOf, sums } = shown;
  const touched = new Set<number>();
  let [on, under] = [0, 0];
  for (const cell of cells) {
    if (groupOf[cell]! < 0) continue;
    on += 1;
    under += alpha[cell]!;
    touched.add(groupOf[cell]!);
  }
  let all = 0;
  for (const group of touched) all += sums[group]!;
  if (on >= ON_SHARE_MIN * size || under >= UNDER_SHARE_MIN * all) return true;
  return on >= SCRIBBLED_SHARE_MIN * size && isThrough(stroke, touched, shown, SEEN_MIDDLE_SHARE);
}

/**
 * Gives the groups that a stroke that means a thing takes as a whole: those that it goes around;
 * those that it touches, if a larger one lies apart from them all; or if it goes through the middle
 * of them, and there is something else. Undefined: what it means is a part of what it touches.
 */
export function meantGroups(
  erasing: Erasing,
  shown: ShownGroups,
  cells: Cells,
): ReadonlySet<number> | undefined {
  const around = enclosedGroups(erasing, shown, cells);
  if (around.size > 0) return around;
  if (!meansThing(erasing, shown, cells)) return undefined;
  const touched = touchedBy(erasing.cells, shown);
  const elsewhere = shareElsewhere(touched, shown);
  const isMeant =
    elsewhere > 1 ||
    (elsewhere >= ELSEWHERE_SHARE_MIN && isThrough(erasing, touched, shown, MIDDLE_SHARE));
  return touched.size > 0 && isMeant ? touched : undefined;
}

export function touchedBy(cells: readonly number[], { groupOf }: ShownGroups): Set<number> {
  const touched = new Set(cells.map(cell => groupOf[cell]!));
  touched.delete(-1);
  return touched;
}

/** The largest other group, relative to the largest touched one. */
function shareElsewhere(touched: ReadonlySet<number>, { sums }: ShownGroups): number {
  let [most, largest] = [0, 0];
  for (const [group, sum] of sums.entries()) {
    if (touched.has(group)) largest = Math.max(largest, sum);
    else most = Math.max(most, sum);
  }
  return most / Math.max(1, largest);
}

function isThrough(
  { cells }: Erasing,
  touched: ReadonlySet<number>,
  { groupOf, depths, deepest }: ShownGroups,
  share: number,
): boolean {
  const middle = [...touched].reduce((max, group) => Math.max(max, deepest[group]!), 0);
  return cells.some(cell => groupOf[cell]! >= 0 && depths[cell]! >= share * middle);
}

/**
 * Tells whether a stroke means the touched groups as a whole, if a look shows them under it: they
 * are not all that is shown, and the stroke goes through their middle.
 */
export function meansAll(
  stroke: Erasing,
  touched: ReadonlySet<number>,
  shown: ShownGroups,
): boolean {
  const isBeside = shareElsewhere(touched, shown) >= ELSEWHERE_SHARE_MIN;
  return isBeside && isThrough(stroke, touched, shown, SEEN_MIDDLE_SHARE);
}
