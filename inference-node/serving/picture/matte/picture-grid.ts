/** Cells of a small grid over a picture: which columns and rows of pixels each has. */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { type Borrow, borrowCopy } from '../kernels/kernels.ts';

export interface PictureGrid extends Size {
  readonly picture: Size;
  /** Address: the first column of each cell of a row, then the end of the last cell. */
  readonly starts: number;
  /** Address: for each pixel of a row its cell in the grid's row. */
  readonly cells: number;
}

/** @param size of the grid; no side is longer than the picture's. */
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

export function rowsOfCell(
  { height, picture }: PictureGrid,
  row: number,
): readonly [top: number, bottom: number] {
  return [startOf(row, picture.height, height), startOf(row + 1, picture.height, height)];
}

export function cellOfRow({ height, picture }: PictureGrid, y: number): number {
  return Math.floor((y * height) / picture.height);
}

/** The first of a line's pixels that lies in `cell`; `pixels` where `cell` is `cells`. */
function startOf(cell: number, pixels: number, cells: number): number {
  return Math.ceil((cell * pixels) / cells);
}
