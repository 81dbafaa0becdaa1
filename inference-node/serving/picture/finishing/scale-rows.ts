/**
 * Scales pixels with straight alpha by the cubic of Catmull and Rom, in floats premultiplied by
 * alpha. sharp rounds between its steps and clamps alpha before it divides, which lightens the last
 * pixel of an edge by 4 %; Lanczos rings beside every edge. Values are sRGB, not linear light, in
 * which dark curls on white came out paler: the matte is of that space, and browsers composite in
 * it.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { borrowCopy, kernels, pixelsAt, VECTOR_BYTES, withMemory } from '../kernels/kernels.ts';
import { acrossRows, createAxis } from '../matte/resample.ts';

export interface Window extends Size {
  readonly left: number;
  readonly top: number;
}

export interface Pixels extends Size {
  readonly rgba: Uint32Array;
}

/** In pixels of the coarser side. */
const REACH = 2;

function cubic(distance: number): number {
  const x = Math.abs(distance);
  if (x >= REACH) return 0;
  if (x >= 1) return ((2.5 - 0.5 * x) * x - 4) * x + 2;
  return (1.5 * x - 2.5) * x * x + 1;
}

/** Reads only pixels of the window. */
function axisOf(side: number, start: number, extent: number, to: number) {
  const first = Math.max(0, Math.floor(start));
  const length = Math.min(side, Math.ceil(start + extent)) - first;
  return {
    first,
    length,
    ...createAxis({ from: length, start: start - first, extent, to }, REACH, cubic),
  };
}

type ReadRow = (from: number, row: Uint32Array) => void;

function scaleRows(
  side: Size,
  window: Window,
  to: Size,
  read: ReadRow,
  take: (y: number, at: number) => void,
): void {
  const across = axisOf(side.width, window.left, window.width, to.width);
  const down = axisOf(side.height, window.top, window.height, to.height);
  withMemory(borrow => {
    const row = borrow(4 * across.length);
    const vectors = borrow(VECTOR_BYTES * across.length);
    const [starts, weights] = [
      borrowCopy(borrow, across.starts),
      borrowCopy(borrow, across.weights),
    ];
    const out = borrow(4 * to.width);
    const pixels = pixelsAt(row, across.length);
    const along = (y: number, at: number) => {
      read((down.first + y) * side.width + across.first, pixels);
      kernels.premultiply(row, across.length, vectors);
      kernels.alongVectors(vectors, starts, weights, across.taps, to.width, at);
    };
    acrossRows(borrow, down, to, along, (y, rows, shares) => {
      kernels.acrossCutOut(rows, shares, down.taps, to.width, out);
      take(y, out);
    });
  });
}

/** @param take gets the address of each row, in order, valid during the call */
export function scalePixels(
  { rgba, width, height }: Pixels,
  window: Window,
  to: Size,
  take: (y: number, at: number) => void,
): void {
  const read: ReadRow = (from, row) => row.set(rgba.subarray(from, from + row.length));
  scaleRows({ width, height }, window, to, read, take);
}

/** Scales like alpha. @param take gets each row in order, valid during the call */
export function scalePlane(
  plane: Uint8Array,
  size: Size,
  window: Window,
  to: Size,
  take: (y: number, row: Uint8Array) => void,
): void {
  const taken = new Uint8Array(to.width);
  const read: ReadRow = (from, row) => {
    for (let x = 0; x < row.length; x++) row[x] = plane[from + x]! << 24;
  };
  scaleRows(size, window, to, read, (y, at) => {
    const pixels = pixelsAt(at, to.width);
    for (let x = 0; x < to.width; x++) taken[x] = pixels[x]! >>> 24;
    take(y, taken);
  });
}
