/**
 * The connectivity error: how far a pixel is cut off from the main body at its own opacity, in the
 * matte and in the reference.
 */

import { at } from '../../test/support/at.ts';
import type { Plane } from './plane.ts';

const LEVELS = 10;
/** Smaller distances are not seen. */
const DISTANCE_MIN = 0.15;

/** Gives the error in thousands. */
export function connectivityError(matte: Plane, reference: Plane): number {
  const levels = connectedLevels(matte, reference);
  let sum = 0;
  for (const [i, highest] of levels.entries()) {
    const level = highest / LEVELS;
    const difference =
      connectedness(at(matte.data, i), level) - connectedness(at(reference.data, i), level);
    sum += Math.abs(difference);
  }
  return sum / 1000;
}

function connectedness(value: number, level: number): number {
  const distance = value / 255 - level;
  return distance >= DISTANCE_MIN ? 1 - distance : 1;
}

/** Gives for each pixel the highest of the levels up to which it hangs with the main body. */
function connectedLevels(matte: Plane, reference: Plane): Uint8Array {
  const pixels = matte.data.length;
  const levels = new Uint8Array(pixels);
  const open = new Uint8Array(pixels).fill(1);
  const stack = new Int32Array(pixels);
  for (let level = 1; level <= LEVELS; level++) {
    const value = (level / LEVELS) * 255;
    const above = new Uint8Array(pixels);
    for (let i = 0; i < pixels; i++) {
      above[i] = at(matte.data, i) >= value && at(reference.data, i) >= value ? 1 : 0;
    }
    const body = largestBody(above, matte.width, stack);
    for (let i = 0; i < pixels; i++) {
      if (open[i] === 0) continue;
      if (body !== 0 && above[i] === body) levels[i] = level;
      else open[i] = 0;
    }
  }
  return levels;
}

/** Marks the largest 4-connected body of ones by 2, the others by 3. Returns 2; 0: there is none. */
function largestBody(pixels: Uint8Array, width: number, stack: Int32Array): number {
  let largestSeed = -1;
  let largestSize = 0;
  for (let seed = 0; seed < pixels.length; seed++) {
    if (pixels[seed] !== 1) continue;
    const size = flood(pixels, width, stack, seed, 1, 3);
    if (size > largestSize) {
      largestSize = size;
      largestSeed = seed;
    }
  }
  if (largestSeed < 0) return 0;
  flood(pixels, width, stack, largestSeed, 3, 2);
  return 2;
}

/** Returns how many pixels changed. */
function flood(
  pixels: Uint8Array,
  width: number,
  stack: Int32Array,
  seed: number,
  from: number,
  to: number,
): number {
  let size = 0;
  let depth = 0;
  stack[depth++] = seed;
  pixels[seed] = to;
  while (depth > 0) {
    depth -= 1;
    const pixel = at(stack, depth);
    size += 1;
    const x = pixel % width;
    // Written out: an array of neighbours for every pixel would cost more than the search.
    if (x > 0 && pixels[pixel - 1] === from) {
      pixels[pixel - 1] = to;
      stack[depth++] = pixel - 1;
    }
    if (x < width - 1 && pixels[pixel + 1] === from) {
      pixels[pixel + 1] = to;
      stack[depth++] = pixel + 1;
    }
    if (pixel >= width && pixels[pixel - width] === from) {
      pixels[pixel - width] = to;
      stack[depth++] = pixel - width;
    }
    if (pixel + width < pixels.length && pixels[pixel + width] === from) {
      pixels[pixel + width] = to;
      stack[depth++] = pixel + width;
    }
  }
  return size;
}
