/**
 * Merges hints into a matte before it is refined, so that edges follow the picture's colours and
 * not the strokes. Pure arithmetic, on a grid of a bounded size.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { RgbaPicture } from '../../rgba-picture.ts';
import { createGuide } from '../model-input.ts';
import { resample } from '../resample.ts';
import { findStrokes, growStrokes } from './grow-strokes.ts';
import { findOverRim } from './over-rim.ts';
import { ERASE_SEED, KEEP_SEED } from './seeds.ts';

/** Cells of the long side: a thing of 3 of 1500 pixels still has one. */
const GRID_SIDE = 512;

/**
 * Works in place: keeps, then erases, so that erase wins.
 * @param matte one byte a pixel of `size`, as `seeds`
 * @param picture that both show
 */
export function applyHints(
  matte: Uint8Array,
  seeds: Uint8Array,
  size: Size,
  picture: RgbaPicture,
): void {
  const grid = gridOf(size);
  const marked = markCells(seeds, size, grid);
  const [keep, erase] = [marked[KEEP_SEED]!, marked[ERASE_SEED]!];
  const alpha = resample({ data: matte, ...size }, grid);
  const cells = { colours: createGuide(picture, grid), alpha, ...grid };
  const overKeep = findOverRim(keep, 'keep', cells);
  const overErase = findOverRim(erase, 'erase', cells);
  // Nothing grows from over a rim, nor back over it.
  const strokes = (marked: Uint8Array, over: Uint8Array) =>
    findStrokes(
      marked.map((mark, cell) => (over[cell] === 0 ? mark : 0)),
      grid,
    );
  const barred = (marked: Uint8Array, over: Uint8Array) =>
    marked.map((mark, cell) => mark | over[cell]!);
  const kept = growStrokes(strokes(keep, overKeep), 'keep', cells, barred(erase, overKeep));
  const erased = growStrokes(strokes(erase, overErase), 'erase', cells, barred(keep, overErase));
  // A cell that both win is the surer one's; erase wins a tie.
  for (let cell = 0; cell < kept.length; cell++) {
    if (kept[cell]! > erased[cell]!) erased[cell] = 0;
    else if (erased[cell]! > 0) kept[cell] = 0;
  }
  const more = resample({ data: kept, ...grid }, size);
  const less = resample({ data: erased, ...grid }, size);
  const over = overKeep.map((share, cell) => Math.max(share, overErase[cell]!));
  const rim = resample({ data: over, ...grid }, size);
  // All planes have as many elements as `matte`.
  for (let i = 0; i < matte.length; i++) {
    const most = 255 - less[i]!;
    const seed = seeds[i]!;
    let alpha = matte[i]!;
    if (more[i]! > alpha) alpha = more[i]!;
    if (alpha > most) alpha = most;
    if (seed === KEEP_SEED) alpha = Math.max(alpha, 255 - rim[i]!);
    else if (seed === ERASE_SEED) alpha = Math.min(alpha, rim[i]!);
    matte[i] = alpha;
  }
}

function gridOf({ width, height }: Size): Size {
  const scale = Math.min(1, GRID_SIDE / Math.max(width, height));
  const side = (pixels: number) => Math.max(1, Math.round(pixels * scale));
  return { width: side(width), height: side(height) };
}

/** Per seed: 1 for each cell with a pixel of it. */
function markCells(seeds: Uint8Array, size: Size, grid: Size): readonly Uint8Array[] {
  const marked = [0, KEEP_SEED, ERASE_SEED].map(() => new Uint8Array(grid.width * grid.height));
  for (let y = 0, at = 0; y < size.height; y++) {
    const row = Math.floor((y * grid.height) / size.height) * grid.width;
    for (let x = 0; x < size.width; x++, at++) {
      const seed = seeds[at]!;
      if (seed !== 0) marked[seed]![row + Math.floor((x * grid.width) / size.width)] = 1;
    }
  }
  return marked;
}
