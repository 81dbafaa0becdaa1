/**
 * Resamples 8-bit pixels with a triangle, along the rows, then across them, widened by the factor
 * of the shrink, so that nothing aliases. At edges taps outside are dropped and the others scaled
 * to 1 (Pillow's Resample.c). Only the rows that the next one needs are kept.
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
  /** The size that they cover, in their own pixels; fractional where the last one is partial. */
  readonly extent: Size;
  /** Writes row `y` to an address of the kernels' memory. Called once per row, in order. */
  writeRow(y: number, at: number): void;
}

interface Axis {
  /** Taps per output pixel; unused ones have weight 0, and so have pixels up to a multiple of 4. */
  readonly taps: number;
  readonly starts: Int32Array;
  readonly weights: Float32Array;
}

/** A line of `from` pixels, of which those from `start` on, as many as `extent`, become `to`. */
interface Line {
  readonly from: number;
  readonly start: number;
  readonly extent: number;
  readonly to: number;
}

/** @param reach of the weights, in pixels of the coarser side. */
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

/** @param extent what `from` pixels cover: less than `from` where the last one is partial. */
function triangleAxis(from: number, extent: number, to: number): Axis {
  return createAxis({ from, start: 0, extent, to }, 1, distance =>
    Math.max(0, 1 - Math.abs(distance)),
  );
}

/**
 * Keeps the rows of vectors that the next row of the result needs.
 * @param along writes a row to an address. Called once per row, in order.
 * @param across gets for each row of the result the addresses of its rows, and their weights.
 */
export function acrossRows(
  borrow: Borrow,
  { taps, starts, weights }: Axis,
  to: Size,
  along: (y: number, at: number) => void,
  across: (y: number, rows: number, weights: number) => void,
): void {
  const shares = borrowCopy(borrow, weights);
  const ring = Array.from({ length: taps }, () => borrow(to.width * VECTOR_BYTES));
  const rowsAt = borrow(4 * taps);
  const addresses = pixelsAt(rowsAt, taps);
  // `ring` has an address for each tap, `starts` an element for each row of the result.
  for (let y = 0, rows = 0; y < to.height; y++) {
    const first = starts[y]!;
    for (; rows < first + taps; rows++) along(rows, ring[rows % taps]!);
    for (let tap = 0; tap < taps; tap++) addresses[tap] = ring[(first + tap) % taps]!;
    across(y, rowsAt, shares + 4 * y * taps);
  }
}

/** A plane of bytes in the kernels' memory. */
export interface PlaneAt extends Size {
  readonly at: number;
}

/** Rows of a plane of bytes that are made at once. */
const STRIP_BYTES = 1024 * 1024;

type WriteRows = (from: number, to: number, out: number) => void;

/** Resamples rows of `to`, each time those that are asked for. */
function greyRows(borrow: Borrow, { at, width, height }: PlaneAt, to: Size): WriteRows {
  const along = triangleAxis(width, width, to.width);
  const across = triangleAxis(height, height, to.height);
  const lend = ({ starts, weights, taps }: Axis) =>
    [borrowCopy(borrow, starts), borrowCopy(borrow, weights), taps] as const;
  const [columns, rows] = [lend(along), lend(across)];
  const scratch = borrow(kernels.greyBytes(width, to.width, across.taps));
  return (...range) =>
    kernels.resampleGrey(at, width, height, ...columns, to.width, ...rows, scratch, ...range);
}

/** Writes rows `from` to `end` of the plane at `to`. */
export function resampleAt(plane: PlaneAt, to: Size, out: number, from = 0, end = to.height): void {
  withMemory(borrow => greyRows(borrow, plane, to)(from, end, out));
}

/** Gives the plane at `to`; the result is the caller's. */
export function resamplePlane(plane: PlaneAt, { width, height }: Size): Buffer {
  const result = Buffer.allocUnsafeSlow(width * height);
  withMemory(borrow => {
    const write = greyRows(borrow, plane, { width, height });
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

export function resample({ data, ...size }: Plane, to: Size): Buffer {
  return withMemory(borrow => resamplePlane({ at: borrowCopy(borrow, data), ...size }, to));
}

/** The fourth of `channels` is undefined. */
export function resampleColours(from: ColourRows, to: Size, channels: 3 | 4): Buffer {
  const columns = triangleAxis(from.width, from.extent.width, to.width);
  const rows = triangleAxis(from.height, from.extent.height, to.height);
  const rowBytes = to.width * channels;
  const result = Buffer.allocUnsafeSlow(rowBytes * to.height);
  withMemory(borrow => {
    const source = borrow(4 * from.width);
    const starts = borrowCopy(borrow, columns.starts);
    const weights = borrowCopy(borrow, columns.weights);
    const out = borrow(rowBytes);
    const along = (y: number, at: number) => {
      from.writeRow(y, source);
      kernels.alongColour(source, starts, weights, columns.taps, to.width, at);
    };
    acrossRows(borrow, rows, to, along, (y, at, shares) => {
      kernels.acrossColour(at, shares, rows.taps, to.width, channels, out);
      result.set(bytesAt(out, rowBytes), y * rowBytes);
    });
  });
  return result;
}
