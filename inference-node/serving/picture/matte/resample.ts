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
  /** Taps per output pixel; unused ones have weight 0. */
  readonly taps: number;
  readonly starts: Int32Array;
  readonly weights: Float32Array;
}

/** @param extent what `from` pixels cover: less than `from` where the last one is partial. */
function createAxis(from: number, extent: number, to: number): Axis {
  const scale = extent / to;
  const reach = Math.max(1, scale);
  const taps = Math.min(from, Math.ceil(2 * reach));
  const starts = new Int32Array(to);
  const weights = new Float32Array(to * taps);
  const weightOf = (distance: number) => Math.max(0, 1 - Math.abs(distance) / reach);
  for (let out = 0; out < to; out++) {
    const centre = (out + 0.5) * scale - 0.5;
    const start = Math.min(Math.max(0, Math.floor(centre - reach) + 1), from - taps);
    let sum = 0;
    for (let tap = 0; tap < taps; tap++) sum += weightOf(start + tap - centre);
    for (let tap = 0; tap < taps; tap++) {
      weights[out * taps + tap] = weightOf(start + tap - centre) / sum;
    }
    starts[out] = start;
  }
  return { taps, starts, weights };
}

interface Passes {
  readonly sourceBytes: number;
  readonly floatBytes: number;
  readonly resultBytes: number;
  writeSource(y: number, at: number): void;
  along(source: number, starts: number, weights: number, taps: number, out: number): void;
  across(rows: number, weights: number, taps: number, out: number): void;
}

function resampleRows(from: Size, extent: Size, to: Size, passes: Passes): Buffer {
  const horizontal = createAxis(from.width, extent.width, to.width);
  const vertical = createAxis(from.height, extent.height, to.height);
  const { taps } = vertical;
  const rowBytes = to.width * passes.resultBytes;
  const result = Buffer.allocUnsafeSlow(rowBytes * to.height);
  withMemory(borrow => {
    const source = borrow(passes.sourceBytes);
    const starts = borrowCopy(borrow, horizontal.starts);
    const weights = borrowCopy(borrow, horizontal.weights);
    const shares = borrowCopy(borrow, vertical.weights);
    const ring = borrowRing(borrow, taps, to.width * passes.floatBytes);
    const rowsAt = borrow(4 * taps);
    const out = borrow(rowBytes);
    const rowAddresses = new Int32Array(kernels.memory.buffer, rowsAt, taps);
    const written = bytesAt(out, rowBytes);
    let rows = 0;
    // `ring` has an address for each tap, `starts` an element for each row of the result.
    const ringRow = (row: number) => ring[row % taps]!;
    for (let y = 0; y < to.height; y++) {
      const first = vertical.starts[y]!;
      for (; rows < first + taps; rows++) {
        passes.writeSource(rows, source);
        passes.along(source, starts, weights, horizontal.taps, ringRow(rows));
      }
      for (let tap = 0; tap < taps; tap++) rowAddresses[tap] = ringRow(first + tap);
      passes.across(rowsAt, shares + 4 * y * taps, taps, out);
      result.set(written, y * rowBytes);
    }
  });
  return result;
}

function borrowRing(borrow: Borrow, rows: number, rowBytes: number): readonly number[] {
  return Array.from({ length: rows }, () => borrow(rowBytes));
}

export function resample({ data, ...size }: Plane, to: Size): Buffer {
  return resampleRows(size, size, to, {
    sourceBytes: size.width,
    floatBytes: 4,
    resultBytes: 1,
    writeSource: (y, at) => {
      bytesAt(at, size.width).set(data.subarray(y * size.width, (y + 1) * size.width));
    },
    along: (source, starts, weights, taps, out) =>
      kernels.alongGrey(source, starts, weights, taps, to.width, out),
    across: (rows, weights, taps, out) => kernels.acrossGrey(rows, weights, taps, to.width, out),
  });
}

/** The fourth of `channels` is undefined. */
export function resampleColours(from: ColourRows, to: Size, channels: 3 | 4): Buffer {
  return resampleRows(from, from.extent, to, {
    sourceBytes: 4 * from.width,
    floatBytes: VECTOR_BYTES,
    resultBytes: channels,
    writeSource: (y, at) => from.writeRow(y, at),
    along: (source, starts, weights, taps, out) =>
      kernels.alongColour(source, starts, weights, taps, to.width, out),
    across: (rows, weights, taps, out) =>
      kernels.acrossColour(rows, weights, taps, to.width, channels, out),
  });
}
