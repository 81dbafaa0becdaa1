/**
 * Gives transparent pixels colours of the visible ones nearest to them, so that a picture's colours
 * without its alpha have no edge to black that any later scaling would mix into the subject.
 *
 * The picture is summed in blocks, each level of two by two of the finer ones, until all is one
 * block. A block without a visible pixel takes the mean of the finest one above it that has any.
 */

const BLOCK_SIDE = 8;
/** Numbers of a cell: alpha, and red, green and blue weighted with it. */
const PARTS = 4;

interface Level {
  readonly columns: number;
  readonly rows: number;
  /** PARTS numbers a cell. */
  readonly cells: Float64Array;
}

/** In place; no alpha changes. */
export function spreadColours(pixels: Uint32Array, width: number, height: number): void {
  const levels = [sumBlocks(pixels, width, height)];
  for (let fine = levels[0]!; fine.columns * fine.rows > 1; fine = levels[0]!) {
    levels.unshift(halve(fine));
  }
  for (let i = 1; i < levels.length; i++) fillEmpty(levels[i]!, levels[i - 1]!);
  paintHidden(pixels, width, height, levels.at(-1)!);
}

function createLevel(columns: number, rows: number): Level {
  return { columns, rows, cells: new Float64Array(columns * rows * PARTS) };
}

function sumBlocks(pixels: Uint32Array, width: number, height: number): Level {
  const level = createLevel(Math.ceil(width / BLOCK_SIDE), Math.ceil(height / BLOCK_SIDE));
  const { columns, cells } = level;
  // Every index is within the picture and its cells.
  for (let y = 0, i = 0; y < height; y++) {
    const row = Math.floor(y / BLOCK_SIDE) * columns;
    for (let x = 0; x < width; x++, i++) {
      const pixel = pixels[i]!;
      const alpha = pixel >>> 24;
      if (alpha === 0) continue;
      const at = (row + (x >>> 3)) * PARTS;
      cells[at]! += alpha;
      cells[at + 1]! += (pixel & 255) * alpha;
      cells[at + 2]! += ((pixel >>> 8) & 255) * alpha;
      cells[at + 3]! += ((pixel >>> 16) & 255) * alpha;
    }
  }
  return level;
}

function halve(fine: Level): Level {
  const coarse = createLevel(Math.ceil(fine.columns / 2), Math.ceil(fine.rows / 2));
  for (let row = 0; row < fine.rows; row++) {
    for (let column = 0; column < fine.columns; column++) {
      const from = (row * fine.columns + column) * PARTS;
      const to = ((row >>> 1) * coarse.columns + (column >>> 1)) * PARTS;
      for (let part = 0; part < PARTS; part++) coarse.cells[to + part]! += fine.cells[from + part]!;
    }
  }
  return coarse;
}

function fillEmpty(fine: Level, coarse: Level): void {
  for (let row = 0; row < fine.rows; row++) {
    for (let column = 0; column < fine.columns; column++) {
      const to = (row * fine.columns + column) * PARTS;
      if (fine.cells[to]! > 0) continue;
      const from = ((row >>> 1) * coarse.columns + (column >>> 1)) * PARTS;
      for (let part = 0; part < PARTS; part++) fine.cells[to + part] = coarse.cells[from + part]!;
    }
  }
}

function paintHidden(
  pixels: Uint32Array,
  width: number,
  height: number,
  { columns, cells }: Level,
): void {
  for (let y = 0, i = 0; y < height; y++) {
    const row = Math.floor(y / BLOCK_SIDE) * columns;
    for (let x = 0; x < width; x++, i++) {
      if (pixels[i]! >>> 24 !== 0) continue;
      const at = (row + (x >>> 3)) * PARTS;
      const alpha = cells[at]!;
      // Nothing is visible at all.
      if (alpha === 0) return;
      const red = Math.round(cells[at + 1]! / alpha);
      const green = Math.round(cells[at + 2]! / alpha);
      const blue = Math.round(cells[at + 3]! / alpha);
      pixels[i] = red | (green << 8) | (blue << 16);
    }
  }
}
