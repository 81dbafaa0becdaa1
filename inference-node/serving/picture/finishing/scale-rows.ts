/**
 * Scales pixels with straight alpha, row by row, with the cubic of Catmull and Rom, in floats of
 * colours multiplied by alpha: no colour under a transparent pixel is mixed in. sharp rounds
 * between its steps and clamps alpha before it divides, which lights up the last pixel of an edge
 * by 4 %; Lanczos leaves a line beside every edge. Values are those of the file (sRGB), not of
 * light: the matte is of that space, browsers composite in it, and in light dark curls on white
 * came out paler.
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

export interface Window extends Size {
  readonly left: number;
  readonly top: number;
}

export interface Pixels extends Size {
  readonly rgba: Uint32Array;
}

interface Axis {
  /** The first pixel that is read, and how many there are. */
  readonly first: number;
  readonly length: number;
  readonly taps: number;
  /** The first input pixel for each pixel of the result, counted from `first`. */
  readonly starts: Int32Array;
  /** `taps` for each pixel of the result. */
  readonly weights: Float32Array;
}

/** The cubic reaches this far, in pixels of the coarser side. */
const REACH = 2;

function cubic(distance: number): number {
  const x = Math.abs(distance);
  if (x >= REACH) return 0;
  if (x >= 1) return ((2.5 - 0.5 * x) * x - 4) * x + 2;
  return (1.5 * x - 2.5) * x * x + 1;
}

/** Only pixels of the window are read; at its edges the other weights are scaled to 1. */
function createAxis(side: number, start: number, extent: number, to: number): Axis {
  const first = Math.max(0, Math.floor(start));
  const length = Math.min(side, Math.ceil(start + extent)) - first;
  const scale = extent / to;
  const widened = Math.max(1, scale);
  const taps = Math.min(length, Math.ceil(2 * REACH * widened));
  const starts = new Int32Array(to);
  const weights = new Float32Array(to * taps);
  for (let out = 0; out < to; out++) {
    const centre = start - first + (out + 0.5) * scale - 0.5;
    const from = Math.ceil(centre - REACH * widened);
    const at = Math.min(Math.max(0, from), length - taps);
    let sum = 0;
    for (let tap = 0; tap < taps; tap++) sum += cubic((at + tap - centre) / widened);
    for (let tap = 0; tap < taps; tap++) {
      weights[out * taps + tap] = cubic((at + tap - centre) / widened) / sum;
    }
    starts[out] = at;
  }
  return { first, length, taps, starts, weights };
}

interface Passes {
  /** Bytes of a pixel between the passes, and of one of the result. */
  readonly floatBytes: number;
  readonly resultBytes: number;
  /** Reads `count` pixels of a row from `left` on, scales them along it. */
  along(y: number, left: number, count: number, axis: AxisAt, out: number): void;
  across(rows: number, weights: number, taps: number, out: number): void;
  /** Bytes for what `along` needs in between, for each pixel that it reads. */
  readonly scratchBytes: number;
}

interface AxisAt {
  readonly starts: number;
  readonly weights: number;
  readonly taps: number;
  readonly scratch: number;
}

function scaleRows(
  side: Size,
  window: Window,
  to: Size,
  passes: Passes,
  take: (y: number, at: number) => void,
): void {
  const across = createAxis(side.width, window.left, window.width, to.width);
  const down = createAxis(side.height, window.top, window.height, to.height);
  withMemory(borrow => {
    const axis = {
      starts: borrowCopy(borrow, across.starts),
      weights: borrowCopy(borrow, across.weights),
      taps: across.taps,
      scratch: borrow(across.length * passes.scratchBytes),
    };
    const shares = borrowCopy(borrow, down.weights);
    const ring = borrowRing(borrow, down.taps, to.width * passes.floatBytes);
    const rowsAt = borrow(4 * down.taps);
    const out = borrow(to.width * passes.resultBytes);
    const addresses = new Int32Array(down.taps);
    let rows = 0;
    // `ring` has an address for each tap, `starts` an element for each row of the result.
    for (let y = 0; y < to.height; y++) {
      const first = down.starts[y]!;
      for (; rows < first + down.taps; rows++) {
        const to = ring[rows % down.taps]!;
        passes.along(down.first + rows, across.first, across.length, axis, to);
      }
      for (let tap = 0; tap < down.taps; tap++) addresses[tap] = ring[(first + tap) % down.taps]!;
      bytesAt(rowsAt, 4 * down.taps).set(new Uint8Array(addresses.buffer));
      passes.across(rowsAt, shares + 4 * y * down.taps, down.taps, out);
      take(y, out);
    }
  });
}

function borrowRing(borrow: Borrow, rows: number, rowBytes: number): readonly number[] {
  return Array.from({ length: rows }, () => borrow(rowBytes));
}

/** `take` gets the address of each row in the kernels' memory, in order; it is valid meanwhile. */
export function scalePixels(
  { rgba, width, height }: Pixels,
  window: Window,
  to: Size,
  take: (y: number, at: number) => void,
): void {
  const passes: Passes = {
    floatBytes: VECTOR_BYTES,
    resultBytes: 4,
    scratchBytes: 4 + VECTOR_BYTES,
    along: (y, left, count, { starts, weights, taps, scratch }, out) => {
      const from = y * width + left;
      const row = scratch + VECTOR_BYTES * count;
      pixelsAt(row, count).set(rgba.subarray(from, from + count));
      kernels.premultiply(row, count, scratch);
      kernels.alongVectors(scratch, starts, weights, taps, to.width, out);
    },
    across: (rows, weights, taps, out) => kernels.acrossCutOut(rows, weights, taps, to.width, out),
  };
  scaleRows({ width, height }, window, to, passes, take);
}

export function scalePlane(
  plane: Uint8Array,
  { width, height }: Size,
  window: Window,
  to: Size,
  take: (y: number, at: number) => void,
): void {
  const passes: Passes = {
    floatBytes: 4,
    resultBytes: 1,
    scratchBytes: 1,
    along: (y, left, count, { starts, weights, taps, scratch }, out) => {
      const from = y * width + left;
      bytesAt(scratch, count).set(plane.subarray(from, from + count));
      kernels.alongGrey(scratch, starts, weights, taps, to.width, out);
    },
    across: (rows, weights, taps, out) => kernels.acrossGrey(rows, weights, taps, to.width, out),
  };
  scaleRows({ width, height }, window, to, passes, take);
}
