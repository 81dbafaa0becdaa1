import type { Size } from '@matting/proto/contract/finishing.ts';
import { boxOf, SHOWN_FROM, type Target } from './crop-search.ts';
import { type Cells, findStrokes, type Stroke } from './grow-strokes.ts';
import { findOverRim } from './over-rim.ts';
import { ERASE_BOX_SEED, ERASE_SEED, KEEP_BOX_SEED, KEEP_SEED, keeps } from './seeds.ts';
import { meansThing, meantGroups, type ShownGroups } from './shown-groups.ts';

/** Least alpha of a kept cell: half transparent is not enough. */
const KEPT_FROM = 192;
/** A smaller missing share of a hint to keep is ignored. */
const WRONG_SHARE_MIN = 0.15;
const SEEDS = [KEEP_SEED, ERASE_SEED, KEEP_BOX_SEED, ERASE_BOX_SEED] as const;
type Marks = Readonly<Record<(typeof SEEDS)[number], Uint8Array>>;

/** A connected part of the hints of one kind. Its cells exclude slips of the hand. */
export interface HintStroke extends Stroke {
  readonly kind: 'keep' | 'erase';
  readonly isBox: boolean;
  /** The number of all its cells. */
  readonly size: number;
  /** The cells that it surrounds. */
  readonly enclosed: readonly number[];
}

/** `over`: how far the matte overrules a stroke in each cell. */
export function readStrokes(seeds: Uint8Array, size: Size, cells: Cells) {
  const marks = markCells(seeds, size, cells);
  const over = new Uint8Array(cells.alpha.length);
  const strokes = SEEDS.flatMap((seed): HintStroke[] => {
    const kind = keeps(seed) ? 'keep' : 'erase';
    const isBox = seed === KEEP_BOX_SEED || seed === ERASE_BOX_SEED;
    const found = findStrokes(marks[seed], cells);
    const slips = findOverRim(found, kind, cells);
    for (let cell = 0; cell < slips.length; cell++) {
      if (slips[cell]! > over[cell]!) over[cell] = slips[cell]!;
    }
    return found.map(stroke => {
      const meant = stroke.cells.filter(cell => slips[cell] === 0);
      const enclosed = isBox ? [] : enclosedBy(stroke, cells);
      return { ...stroke, kind, isBox, cells: meant, size: stroke.cells.length, enclosed };
    });
  });
  return { strokes, over };
}

/**
 * Undefined: the matte follows the stroke, or colours alone decide its reach.
 * @param shown called only for strokes that erase
 */
export function targetOf(
  stroke: HintStroke,
  shown: () => ShownGroups,
  cells: Cells,
): Target<HintStroke> | undefined {
  const { kind, size, enclosed } = stroke;
  const isBox = stroke.isBox || (kind === 'keep' && enclosed.length > 0);
  if (kind === 'erase' && isBox) return undefined;
  const { alpha } = cells;
  const isLeft = (cell: number) =>
    kind === 'keep' ? alpha[cell]! < KEPT_FROM : alpha[cell]! >= SHOWN_FROM;
  const left = [...stroke.cells, ...(kind === 'keep' ? enclosed : [])].filter(isLeft);
  if (left.length === 0) return undefined;
  if (kind === 'keep' && left.length < WRONG_SHARE_MIN * (size + enclosed.length)) return undefined;
  if (kind === 'erase' && meantGroups(stroke, shown(), cells) !== undefined) return undefined;
  if (kind === 'erase' && !meansThing(stroke, shown(), cells)) return undefined;
  return { stroke, kind, isBox, cells: left, box: boxOf(stroke) };
}

/** No path leads from these cells to the sides of the stroke's box. */
function enclosedBy({ cells, left, top, right, bottom }: Stroke, { width }: Size): number[] {
  // A frame of one cell connects all of the outside.
  const [across, down] = [right - left + 3, bottom - top + 3];
  const seen = new Uint8Array(across * down);
  for (const cell of cells) {
    seen[(Math.floor(cell / width) - top + 1) * across + (cell % width) - left + 1] = 1;
  }
  seen[0] = 1;
  const outside = [0];
  for (let next = 0; next < outside.length; next++) {
    const at = outside[next]!;
    const x = at % across;
    const near = [at - across, at + across];
    if (x > 0) near.push(at - 1);
    if (x < across - 1) near.push(at + 1);
    for (const cell of near) {
      if (cell < 0 || cell >= seen.length || seen[cell] === 1) continue;
      seen[cell] = 1;
      outside.push(cell);
    }
  }
  const enclosed: number[] = [];
  for (let at = 0; at < seen.length; at++) {
    if (seen[at] === 0) {
      enclosed.push((Math.floor(at / across) - 1 + top) * width + (at % across) - 1 + left);
    }
  }
  return enclosed;
}

/** Per seed: 1 for each cell with a pixel of it. */
function markCells(seeds: Uint8Array, size: Size, grid: Size): Marks {
  const plane = () => new Uint8Array(grid.width * grid.height);
  const marked = {
    [KEEP_SEED]: plane(),
    [ERASE_SEED]: plane(),
    [KEEP_BOX_SEED]: plane(),
    [ERASE_BOX_SEED]: plane(),
  };
  for (let y = 0, at = 0; y < size.height; y++) {
    const row = Math.floor((y * grid.height) / size.height) * grid.width;
    for (let x = 0; x < size.width; x++, at++) {
      const seed = seeds[at]! as 0 | keyof Marks;
      if (seed !== 0) marked[seed][row + Math.floor((x * grid.width) / size.width)] = 1;
    }
  }
  return marked;
}
