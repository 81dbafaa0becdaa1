/** A ZIP archive of colours (color.jpg) and alpha (alpha.png), stored: neither gets smaller. */

import { zipSync } from 'fflate';
import { type RawPixels, viewAsBytes, viewAsPixels } from '../rgba-picture.ts';
import { encodeJpeg } from './encode-jpeg.ts';
import { encodePng } from './encode-png.ts';

/** The archive of one picture has the same bytes at any time: the earliest that the format knows. */
const MODIFIED_AT = new Date(1980, 0, 1);

export async function encodeZip(pixels: RawPixels): Promise<Buffer> {
  const { width, height } = pixels;
  if (pixels.channels !== 4) throw new Error('an archive of colours without their alpha');
  const rgba = viewAsPixels(pixels.data);
  const alpha = Buffer.allocUnsafeSlow(rgba.length);
  for (let i = 0; i < rgba.length; i++) alpha[i] = rgba[i]! >>> 24;
  const alphaPng = await encodePng({ data: alpha, width, height, channels: 1 });
  spreadColours(rgba, width, height);
  const colourJpeg = await encodeJpeg({ ...pixels, data: viewAsBytes(rgba) });
  const files = { 'color.jpg': colourJpeg, 'alpha.png': alphaPng };
  const archive = zipSync(files, { level: 0, mtime: MODIFIED_AT });
  return Buffer.from(archive.buffer, archive.byteOffset, archive.byteLength);
}

/**
 * Gives transparent pixels the colours of the nearest visible ones, so that colours without alpha
 * have no edge to black. Summed in blocks, two by two a level; an empty block takes the mean of the
 * finest one above it that has any.
 */

const BLOCK_SIDE = 8;
/** Numbers of a cell: alpha, and red, green and blue weighted with it. */
const PARTS = 4;

interface Level {
  readonly columns: number;
  readonly rows: number;
  readonly cells: Float64Array;
}

/** Works in place; no alpha changes. */
function spreadColours(pixels: Uint32Array, width: number, height: number): void {
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
      if (alpha === 0) return;
      const red = Math.round(cells[at + 1]! / alpha);
      const green = Math.round(cells[at + 2]! / alpha);
      const blue = Math.round(cells[at + 3]! / alpha);
      pixels[i] = red | (green << 8) | (blue << 16);
    }
  }
}
