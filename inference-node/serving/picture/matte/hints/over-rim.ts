/**
 * Finds slips of the hand, where a stroke or a box crosses the rim of something else. A slip is
 * small on the picture's scale, lies at the stroke's outline, and covers little of the other thing,
 * away from its middle. The matte decides there, unless the colours are those of the stroke's own
 * side.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { distancesFrom } from './cell-distances.ts';
import { type Cells, findGroups, likenessOf, type Stroke, wrongOf } from './grow-strokes.ts';
import { MIDDLE_SHARE } from './shown-groups.ts';

/** Least contradiction (of 255): the surest first, then the rest of a soft rim. */
const OTHER_FROM = [230, 128, 64];
/** Greatest depth of a slip, relative to the picture's long side. */
const SLIP_SHARE = 0.012;
/** Greatest depth of a slip in a small picture, in cells. */
const SLIP_CELLS_MIN = 3;
/** Greatest depth of a slip, relative to half a stroke's breadth. */
const DEPTH_SHARE = 0.8;
/** Cells within this many slip depths of a deeper part are its rim, not slips. */
const BESIDE = 2;
/** A stroke with a larger share on the other side has no slips. */
const STROKE_SHARE_MAX = 0.5;
/** If a larger share of a stroke's cells on a thing is deep, the stroke means the thing. */
const DEEP_SHARE_MAX = 0.3;
/** A slip covers at most this share of the object whose rim it crosses. */
const TOUCHED_SHARE_MAX = 0.2;
/** Least likeness to the stroke's own side. */
const OWN_FROM = 0.9;
/** MATTE: the matte decides a cell. STROKE: the stroke does. */
const [MATTE, STROKE] = [255, 1];

/** How far the matte decides in each cell over a rim; 0 elsewhere. */
export function findOverRim(
  strokes: readonly Stroke[],
  kind: 'keep' | 'erase',
  cells: Cells,
): Uint8Array {
  const over = new Uint8Array(cells.alpha.length);
  if (strokes.length === 0) return over;
  const wrong = wrongOf(kind, cells);
  const strokeOf = new Int32Array(over.length).fill(-1);
  for (const [at, { cells }] of strokes.entries()) for (const cell of cells) strokeOf[cell] = at;
  // The picture's sides are not an outline.
  const depths = distancesFrom(cell => strokeOf[cell] === -1, cells);
  const slipMax = Math.max(SLIP_CELLS_MIN, SLIP_SHARE * Math.max(cells.width, cells.height));
  const depthMax = strokes.map(stroke => {
    const half = stroke.cells.reduce((most, cell) => Math.max(most, depths[cell]!), 0);
    return Math.min(slipMax, Math.max(1, DEPTH_SHARE * half));
  });
  for (const from of OTHER_FROM) {
    const isOther = (cell: number) => wrong[cell]! >= from;
    // Most hints cross no other thing: the slow steps below are skipped.
    const parts = strokes.map(({ cells: covered }) => {
      const others = covered.filter(isOther);
      return others.length <= STROKE_SHARE_MAX * covered.length ? others : [];
    });
    if (parts.every(others => others.length === 0)) continue;
    const isOwn = (cell: number) => strokeOf[cell] !== -1 && !isOther(cell);
    const away = distancesFrom(isOwn, cells);
    const isDeep = (cell: number) =>
      Math.max(depths[cell]!, away[cell]!) > depthMax[strokeOf[cell]!]!;
    const isPart = (cell: number) => strokeOf[cell] !== -1 && isOther(cell);
    const deep = distancesFrom(cell => isPart(cell) && isDeep(cell), cells);
    const { groupOf, groups } = groupsOf(isOther, cells);
    let inner: Float32Array | undefined;
    for (const [at, stroke] of strokes.entries()) {
      const slips = parts[at]!.filter(
        cell => over[cell] === 0 && deep[cell]! > BESIDE * depthMax[at]!,
      );
      const byGroup = Map.groupBy(slips, cell => groupOf[cell]!);
      if (slips.length === 0) continue;
      const own = stroke.cells.filter(isOwn);
      const likeness = likenessOf(stroke, own, wrong, undefined, cells, depthMax[at]!);
      const all = Map.groupBy(parts[at]!, cell => groupOf[cell]!);
      inner ??= distancesFrom(cell => !isOther(cell), cells);
      for (const [group, some] of byGroup) {
        if (some.length > TOUCHED_SHARE_MAX * groups[group]!.cells.length) continue;
        const ofGroup = all.get(group)!;
        const middle = groups[group]!.cells.reduce(
          (most, cell) => Math.max(most, inner![cell]!),
          0,
        );
        if (ofGroup.some(cell => inner![cell]! >= MIDDLE_SHARE * middle)) continue;
        if (ofGroup.filter(isDeep).length > DEEP_SHARE_MAX * ofGroup.length) continue;
        for (const cell of some) over[cell] = likeness(cell) < OWN_FROM ? MATTE : STROKE;
      }
    }
  }
  return over;
}

function groupsOf(isIn: (cell: number) => boolean, size: Size) {
  const groupOf = new Int32Array(size.width * size.height).fill(-1);
  const groups = findGroups(isIn, size);
  for (const [group, { cells }] of groups.entries()) {
    for (const cell of cells) groupOf[cell] = group;
  }
  return { groupOf, groups };
}
