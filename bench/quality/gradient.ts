/** The gradient error: how far edges differ in place and sharpness. */

import { at } from '../../test/support/at.ts';
import type { Plane } from './plane.ts';

const SIGMA = 1.4;
/** The Gaussian's derivative has fallen to a hundredth there. */
const REACH = Math.ceil(SIGMA * Math.sqrt(-2 * Math.log(Math.sqrt(2 * Math.PI) * SIGMA * 0.01)));
const TAPS = 2 * REACH + 1;
/** Pixels a side. A tile in whose reach the mattes are the same adds nothing and is left out. */
const TILE = 32;
const PATCH = TILE + 2 * REACH;

function gaussian(x: number): number {
  return Math.exp((-x * x) / (2 * SIGMA * SIGMA)) / (SIGMA * Math.sqrt(2 * Math.PI));
}

/** Both kernels, scaled so that the squares of their product sum to 1; alpha is in bytes. */
function createKernels(): { smooth: Float64Array; derive: Float64Array } {
  const taps = Array.from({ length: TAPS }, (_, index) => index - REACH);
  const smooth = Float64Array.from(taps, gaussian);
  const derive = Float64Array.from(taps, x => (-x * gaussian(x)) / (SIGMA * SIGMA));
  const energy = (kernel: Float64Array) => kernel.reduce((sum, value) => sum + value * value, 0);
  const scale = 1 / Math.sqrt(energy(smooth) * energy(derive)) / 255;
  return { smooth, derive: derive.map(value => value * scale) };
}

const { smooth: SMOOTH, derive: DERIVE } = createKernels();

/** Sum of squared differences of gradient magnitudes of two mattes in [0, 1], in thousands. */
export function gradientError(matte: Plane, reference: Plane): number {
  const found = new Float64Array(PATCH * PATCH);
  const wanted = new Float64Array(PATCH * PATCH);
  let sum = 0;
  for (let top = 0; top < matte.height; top += TILE) {
    for (let left = 0; left < matte.width; left += TILE) {
      readPatch(matte, left, top, found);
      readPatch(reference, left, top, wanted);
      if (found.every((value, at) => value === wanted[at])) continue;
      const columns = Math.min(TILE, matte.width - left);
      const rows = Math.min(TILE, matte.height - top);
      sum += patchError(magnitudes(found), magnitudes(wanted), columns, rows);
    }
  }
  return sum / 1000;
}

/** A tile with what is in reach around it; the picture's border repeats outside. */
function readPatch({ data, width, height }: Plane, left: number, top: number, out: Float64Array) {
  for (let row = 0, to = 0; row < PATCH; row++) {
    const y = Math.min(height - 1, Math.max(0, top + row - REACH));
    for (let column = 0; column < PATCH; column++, to++) {
      const x = Math.min(width - 1, Math.max(0, left + column - REACH));
      out[to] = at(data, y * width + x);
    }
  }
}

/** Gradient magnitudes of a patch's tile. */
function magnitudes(patch: Float64Array): Float64Array {
  const across = filterDown(filterAcross(patch, DERIVE), SMOOTH);
  const down = filterDown(filterAcross(patch, SMOOTH), DERIVE);
  return across.map((value, i) => Math.sqrt(value * value + at(down, i) ** 2));
}

/** All rows of the patch, the tile's columns. */
function filterAcross(patch: Float64Array, kernel: Float64Array): Float64Array {
  const out = new Float64Array(TILE * PATCH);
  for (let row = 0; row < PATCH; row++) {
    for (let column = 0; column < TILE; column++) {
      let sum = 0;
      for (let tap = 0; tap < TAPS; tap++) {
        sum += at(patch, row * PATCH + column + tap) * at(kernel, tap);
      }
      out[row * TILE + column] = sum;
    }
  }
  return out;
}

function filterDown(rows: Float64Array, kernel: Float64Array): Float64Array {
  const out = new Float64Array(TILE * TILE);
  for (let row = 0; row < TILE; row++) {
    for (let column = 0; column < TILE; column++) {
      let sum = 0;
      for (let tap = 0; tap < TAPS; tap++) {
        sum += at(rows, (row + tap) * TILE + column) * at(kernel, tap);
      }
      out[row * TILE + column] = sum;
    }
  }
  return out;
}

function patchError(a: Float64Array, b: Float64Array, columns: number, rows: number): number {
  let sum = 0;
  for (let row = 0; row < rows; row++) {
    for (let i = row * TILE; i < row * TILE + columns; i++) sum += (at(a, i) - at(b, i)) ** 2;
  }
  return sum;
}
