import type { Size } from '@matting/proto/contract/finishing.ts';
import { type Borrow, borrowCopy } from '../kernels/kernels.ts';

export interface PictureGrid extends Size {
  readonly picture: Size;
  /** Address: first columns of a row's cells, then the end. */
  readonly starts: number;
  /** Address: the cell of each pixel of a row. */
  readonly cells: number;
}

/** @param size of the grid, at most the picture's */
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

function startOf(cell: number, pixels: number, cells: number): number {
  return Math.ceil((cell * pixels) / cells);
}
