/** The separate things of a matte, and those that an erasing stroke means. */
import { distancesFrom } from './cell-distances.ts';
import { type Cells, findGroups, type Stroke } from './grow-strokes.ts';

export const TOGETHER_FROM = 26;
/**
 * A stroke means a thing if this share of the stroke is on things, or if it covers this share of
 * them. A smaller share is enough for a scribble through their middle, as over legs.
 */
const ON_SHARE_MIN = 0.3;
const UNDER_SHARE_MIN = 0.3;
const SCRIBBLED_SHARE_MIN = 0.1;
/** A stroke through a thing means all of it only if another thing has this share of its alpha. */
const ELSEWHERE_SHARE_MIN = 0.1;
/** Depth of a thing's middle, relative to its greatest distance from the rim. */
export const MIDDLE_SHARE = 0.6;
/** The same for a scribble, or if a crop shows the whole thing. */
const SEEN_MIDDLE_SHARE = 0.4;

export interface ShownGroups {
  /** -1: empty. */
  readonly groupOf: Int32Array;
  readonly sums: readonly number[];
  /** Distance from the nearest empty cell, in cells. */
  readonly depths: Float32Array;
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

/** An erasing stroke, without slips of the hand. */
export interface Erasing extends Stroke {
  readonly size: number;
  readonly enclosed: readonly number[];
}

/** A stroke around a thing covers or encloses this share of it. */
const ENCLOSED_SHARE_MIN = 0.9;

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

/** False: the stroke means only the area under it. */
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
 * The groups that a stroke means as a whole. It means groups that it surrounds. It means groups
 * that it touches if a larger one is elsewhere, or if it goes through their middle and something
 * else is shown. Undefined: it means a part.
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

/** Alpha of the largest group that the stroke does not touch, relative to the largest touched. */
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
 * Whether a stroke means all touched groups, if a crop shows them: something else is shown too, and
 * the stroke goes through their middle.
 */
export function meansAll(
  stroke: Erasing,
  touched: ReadonlySet<number>,
  shown: ShownGroups,
): boolean {
  const isBeside = shareElsewhere(touched, shown) >= ELSEWHERE_SHARE_MIN;
  return isBeside && isThrough(stroke, touched, shown, SEEN_MIDDLE_SHARE);
}
