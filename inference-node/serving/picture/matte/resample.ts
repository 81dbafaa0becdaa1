/**
 * Resamples 8-bit pixels with a triangle, along the rows, then across them, widened by the factor
 * of the shrink against aliasing. At edges, taps outside are dropped and the others scaled to 1
 * (Pillow's Resample.c).
 */

import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  type Borrow,
  borrowCopy,
  bytesAt,
  kernels,
  pixelsAt,
  VECTOR_BYTES,
  withMemory,
} from '../kernels/kernels.ts';

export interface Plane extends Size {
  readonly data: Uint8Array;
}

export interface ColourRows extends Size {
  /** Covered size in their own pixels; fractional if the last one is partial. */
  readonly extent: Size;
  /** Called once per row, in order. @param at address */
  writeRow(y: number, at: number): void;
}

interface Axis {
  /** Taps of an output pixel. Unused taps, and the pixels that pad to 4, have weight 0. */
  readonly taps: number;
  readonly starts: Int32Array;
  readonly weights: Float32Array;
}

/** `extent` of `from` pixels, beginning at `start`, become `to`. */
interface Line {
  readonly from: number;
  readonly start: number;
  readonly extent: number;
  readonly to: number;
}

/** @param reach of the weights, in pixels of the coarser side */
export function createAxis(
  { from, start, extent, to }: Line,
  reach: number,
  weightOf: (distance: number) => number,
): Axis {
  const scale = extent / to;
  const widened = Math.max(1, scale);
  const taps = Math.min(from, Math.ceil(2 * reach * widened));
  const padded = 4 * Math.ceil(to / 4);
  const starts = new Int32Array(padded);
  const weights = new Float32Array(padded * taps);
  for (let out = 0; out < to; out++) {
    const centre = start + (out + 0.5) * scale - 0.5;
    const first = Math.min(Math.max(0, Math.ceil(centre - reach * widened)), from - taps);
    let sum = 0;
    for (let tap = 0; tap < taps; tap++) sum += weightOf((first + tap - centre) / widened);
    for (let tap = 0; tap < taps; tap++) {
      weights[out * taps + tap] = weightOf((first + tap - centre) / widened) / sum;
    }
    starts[out] = first;
  }
  return { taps, starts, weights };
}

/** @param extent less than `from` if the last pixel is partial */
function triangleAxis(from: number, extent: number, to: number): Axis {
  return createAxis({ from, start: 0, extent, to }, 1, distance =>
    Math.max(0, 1 - Math.abs(distance)),
  );
}

/**
 * Keeps only the rows for the next row of the result.
 * @param along writes a row to an address; called once per row, in order
 * @param across gets for each row of the result the addresses of its rows, and their weights
 */
export function acrossRows(
  borrow: Borrow,
  { taps, starts, weights }: Axis,
  to: Size,
  along: (y: number, at: number) => void,
  across: (y: number, rows: number, weights: number) => void,
): void {
  const shares = borrowCopy(borrow, weights);
  // Kernels read up to three vectors more.
  const ring = Array.from({ length: taps }, () => borrow((to.width + 3) * VECTOR_BYTES));
  const rowsAt = borrow(4 * taps);
  const addresses = pixelsAt(rowsAt, taps);
  for (let y = 0, rows = 0; y < to.height; y++) {
    const first = starts[y]!;
    for (; rows < first + taps; rows++) along(rows, ring[rows % taps]!);
    for (let tap = 0; tap < taps; tap++) addresses[tap] = ring[(first + tap) % taps]!;
    across(y, rowsAt, shares + 4 * y * taps);
  }
}

export interface PlaneAt extends Size {
  readonly at: number;
}

const STRIP_BYTES = 1024 * 1024;

type WriteRows = (from: number, to: number, out: number) => void;

/** Writes rows `from` to `to` of the result at an address. */
export function greyRows(borrow: Borrow, { at, width, height }: PlaneAt, to: Size): WriteRows {
  const along = triangleAxis(width, width, to.width);
  const across = triangleAxis(height, height, to.height);
  const lend = ({ starts, weights, taps }: Axis) =>
    [borrowCopy(borrow, starts), borrowCopy(borrow, weights), taps] as const;
  const [columns, rows] = [lend(along), lend(across)];
  const scratch = borrow(kernels.greyBytes(width, to.width, across.taps));
  return (...range) =>
    kernels.resampleGrey(at, width, height, ...columns, to.width, ...rows, scratch, ...range);
}

/** @param out address of rows `from` to `end` of the result */
export function resampleAt(plane: PlaneAt, to: Size, out: number, from = 0, end = to.height): void {
  withMemory(borrow => greyRows(borrow, plane, to)(from, end, out));
}

export function resample({ data, ...size }: Plane, { width, height }: Size): Buffer {
  const result = Buffer.allocUnsafeSlow(width * height);
  withMemory(borrow => {
    const write = greyRows(borrow, { at: borrowCopy(borrow, data), ...size }, { width, height });
    const rows = Math.min(height, Math.ceil(STRIP_BYTES / width));
    const strip = borrow(rows * width);
    for (let y = 0; y < height; y += rows) {
      const end = Math.min(height, y + rows);
      write(y, end, strip);
      result.set(bytesAt(strip, (end - y) * width), y * width);
    }
  });
  return result;
}

/**
 * The fourth of `channels` is undefined.
 * @param out address
 */
export function resampleColours(from: ColourRows, to: Size, channels: 3 | 4, out: number): void {
  const columns = triangleAxis(from.width, from.extent.width, to.width);
  const rows = triangleAxis(from.height, from.extent.height, to.height);
  withMemory(borrow => {
    const source = borrow(4 * from.width);
    const vectors = borrow(VECTOR_BYTES * (from.width + 3));
    const starts = borrowCopy(borrow, columns.starts);
    const weights = borrowCopy(borrow, columns.weights);
    const along = (y: number, at: number) => {
      from.writeRow(y, source);
      const axis = [starts, weights, columns.taps, to.width] as const;
      kernels.alongColour(source, from.width, vectors, ...axis, at);
    };
    acrossRows(borrow, rows, to, along, (y, at, shares) => {
      const row = out + y * to.width * channels;
      kernels.acrossColour(at, shares, rows.taps, to.width, channels, row);
    });
  });
}
