/**
 * Fades what lies apart from everything that the matte shows surely: the faint print of a poster,
 * the shine of a wall. A cell keeps what the best way to a surely shown one lets through: the least
 * alpha along it (grey reconstruction: Vincent, "Morphological Grayscale Reconstruction in Image
 * Analysis", IEEE Transactions on Image Processing, 1993). Hair and smoke fall off from a body and
 * do not change. Pure.
 */
import type { Size } from '#contract/finishing.ts';
import { gridSize } from './fill-areas.ts';
import { resample } from './resample.ts';

/** Alpha from which a cell is surely shown. */
const SHOWN_FROM = 128;
/** Cells that a way may leap over: a wisp of hair has gaps. */
const GAP = 2;

/** In place. A matte that shows nothing surely does not change: it may be glass. */
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

/** The greatest value of the square of GAP around each cell. */
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

/** For each cell the least value along the best way to a shown cell; 0 where there is none. */
function reconstruct(cells: Uint8Array, { width }: Size): Uint8Array {
  const joined = new Uint8Array(cells.length);
  // Cells to go on from, by what they have: the highest first, so that each is final once taken.
  const fronts: number[][] = Array.from({ length: 256 }, () => []);
  const join = (cell: number, value: number) => {
    if (value <= joined[cell]!) return;
    joined[cell] = value;
    fronts[value]!.push(cell);
  };
  for (const [cell, value] of cells.entries()) if (value >= SHOWN_FROM) join(cell, value);
  for (let level = 255; level > 0; level--) {
    const front = fronts[level]!;
    // It grows meanwhile.
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
