/** Which pixels of a picture lie in which cell of a coarser grid, as the kernels want it. */

import type { Size } from '../size.ts';
import { type Borrow, borrowCopy } from './kernels.ts';

/** Cells across and down; every cell has a pixel at least. */
export interface PictureGrid extends Size {
  readonly picture: Size;
  /** Address: the first column of each cell of a row, and the end of the last. */
  readonly starts: number;
  /** Address: for each of a row's pixels its cell in the row of the grid. */
  readonly cells: number;
}

/** @param size of the grid, no side longer than the picture's. */
export function layGrid(borrow: Borrow, picture: Size, size: Size): PictureGrid {
  const starts = Int32Array.from({ length: size.width + 1 }, (_, cell) =>
    startOf(cell, picture.width, size.width),
  );
  const cells = Int32Array.from({ length: picture.width }, (_, x) =>
    Math.floor((x * size.width) / picture.width),
  );
  return {
    width: size.width,
    height: size.height,
    picture,
    starts: borrowCopy(borrow, starts),
    cells: borrowCopy(borrow, cells),
  };
}

/** Rows of the picture in a row of the grid, the last outside. */
export function rowsOfCell(
  { height, picture }: PictureGrid,
  row: number,
): readonly [top: number, bottom: number] {
  return [startOf(row, picture.height, height), startOf(row + 1, picture.height, height)];
}

/** The row of the grid that a row of the picture lies in. */
export function cellOfRow({ height, picture }: PictureGrid, y: number): number {
  return Math.floor((y * height) / picture.height);
}

/** The first of a line's pixels that lie in a cell, and of the cell behind the last. */
function startOf(cell: number, pixels: number, cells: number): number {
  return Math.ceil((cell * pixels) / cells);
}
