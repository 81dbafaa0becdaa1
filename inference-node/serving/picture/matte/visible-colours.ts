/**
 * Extends visible colours to transparent areas (pull-push). Hidden colours are arbitrary, often the
 * removed background; grey would be mixed in too.
 */
import {
  type Borrow,
  bytesAt,
  kernels,
  pixelsAt,
  VECTOR_BYTES,
  withMemory,
} from '../kernels/kernels.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { carryColours } from './carry-colours.ts';
import { cellOfRow, type PictureGrid, rowsOfCell } from './picture-grid.ts';

const OPAQUE = 255;
/** Weight of a coarser cell's mean, relative to one opaque pixel of the finer level. */
const COARSER_COLOURS_WEIGHT = 0.05 * OPAQUE;

export interface VisibleColours {
  readonly grid: PictureGrid;
  readonly at: number;
}

/** Undefined: the picture is opaque. Valid as long as the borrowed memory. */
export function carryVisible(
  borrow: Borrow,
  picture: RgbaPicture,
  grid: PictureGrid,
): VisibleColours | undefined {
  if (!picture.translucent) return undefined;
  const at = borrow(grid.width * grid.height * VECTOR_BYTES);
  withMemory(borrow => sumVisible(borrow, picture, grid, at));
  carryColours({ width: grid.width, height: grid.height, at }, COARSER_COLOURS_WEIGHT);
  return { grid, at };
}

/** @param pixels address of whole rows; changed in place */
export function layOver(
  { grid, at }: VisibleColours,
  pixels: number,
  top: number,
  bottom: number,
): void {
  const { width } = grid.picture;
  for (let y = top; y < bottom; y++) {
    const row = at + cellOfRow(grid, y) * grid.width * VECTOR_BYTES;
    kernels.layOver(pixels + 4 * (y - top) * width, width, grid.cells, row);
  }
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
