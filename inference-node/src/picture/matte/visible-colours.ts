/**
 * The colours that can be seen in a picture, carried on to where it is transparent (pull-push, as
 * in colour-alpha.ts). What lies hidden there is arbitrary, often the very background that somebody
 * cut away, and must not be taken for a neighbour of what is seen. Grey, which the models are shown
 * there, would be mixed into the subject's colour just the same.
 */

import type { RgbaPicture } from '../rgba-picture.ts';
import type { Size } from '../size.ts';
import { type Borrow, bytesAt, kernels, pixelsAt, VECTOR_BYTES, withMemory } from './kernels.ts';
import { cellOfRow, type PictureGrid, rowsOfCell } from './picture-grid.ts';

/** Opacities of the kernels' sums: of one opaque pixel. */
const OPAQUE = 255;
/** Of what is carried on from a coarser level, beside one opaque pixel in the finer one. */
const COARSER_WEIGHT = 0.05 * OPAQUE;

/** A plane of the grid's cells, a vector each; its colours are seen under the picture's own. */
export interface VisibleColours {
  readonly grid: PictureGrid;
  readonly at: number;
}

/** Undefined where nothing can be seen through. The result lives as long as what it borrowed. */
export function carryVisible(
  borrow: Borrow,
  picture: RgbaPicture,
  grid: PictureGrid,
): VisibleColours | undefined {
  if (!picture.translucent) return undefined;
  const at = borrow(grid.width * grid.height * VECTOR_BYTES);
  withMemory(borrow => sumVisible(borrow, picture, grid, at));
  withMemory(borrow => carryOn(borrow, grid, at));
  return { grid, at };
}

/**
 * Lays pixels of a row of the picture over the colours beneath, in place: what is opaque stays as
 * it is. The opacity is kept.
 * @param pixels address of `count` pixels, the first that of column `left`.
 */
export function layOver(
  { grid, at }: VisibleColours,
  pixels: number,
  y: number,
  left: number,
  count: number,
): void {
  const row = at + cellOfRow(grid, y) * grid.width * VECTOR_BYTES;
  kernels.layOver(pixels, count, grid.cells + 4 * left, row);
}

function sumVisible(borrow: Borrow, picture: RgbaPicture, grid: PictureGrid, at: number): void {
  const { rgba, width } = picture;
  const address = borrow(4 * width);
  const pixels = pixelsAt(address, width);
  bytesAt(at, grid.width * grid.height * VECTOR_BYTES).fill(0);
  for (let row = 0; row < grid.height; row++) {
    const [top, bottom] = rowsOfCell(grid, row);
    for (let y = top; y < bottom; y++) {
      pixels.set(rgba.subarray(y * width, (y + 1) * width));
      kernels.addVisible(address, grid.starts, grid.width, at + row * grid.width * VECTOR_BYTES);
    }
  }
}

/** From sums to means, from one cell for the whole picture down to the grid, in place. */
function carryOn(borrow: Borrow, { width, height }: Size, at: number): void {
  const levels = [{ width, height, at }];
  while (Math.max(levels[0].width, levels[0].height) > 1) {
    const [fine] = levels;
    const half = { width: Math.ceil(fine.width / 2), height: Math.ceil(fine.height / 2) };
    const coarse = { ...half, at: borrow(half.width * half.height * VECTOR_BYTES) };
    kernels.sumCells(fine.at, fine.width, fine.height, coarse.at);
    levels.unshift(coarse);
  }
  for (const [index, level] of levels.entries()) {
    const coarser = index === 0 ? 0 : levels[index - 1].at;
    kernels.carryOn(level.at, level.width, level.height, coarser, COARSER_WEIGHT);
  }
}
