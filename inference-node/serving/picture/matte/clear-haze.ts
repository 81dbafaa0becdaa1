/**
 * Clears haze: what shows faintly, far from anything that shows more. Models leave it over walls
 * and floors, and on white it is a stain. What lies beside a body stays. Pure. docs/adr/0059.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { borrowCopy, bytesAt, kernels, withMemory } from '../kernels/kernels.ts';
import { gridSize } from './fill-areas.ts';
import { resampleAt } from './resample.ts';

/** Judged on photos and variants of them (bench/MEASUREMENTS.md). */
const RULES = {
  /** Alpha from which a pixel is of a body: haze has less. */
  bodyFrom: 34,
  /** Glass hardly shows anything surely: at most this share of its shown cells has a sure pixel. */
  sureShareMax: 0.28,
  /** The same bound as `bodyFrom` for glass. */
  glassFrom: 14,
};
const SHOWN_FROM = 26;
const SURE_FROM = 128;

/** Works in place. */
export function clearHaze(alpha: Uint8Array, size: Size): void {
  const grid = gridSize(size);
  const { width, height } = grid;
  const starts = startsOf(size.width, width);
  const peaks = peaksOf(alpha, size, grid, starts);
  const from = bodyFrom(peaks);
  const bodies = peaks.map(peak => (peak >= from ? 255 : 0));
  withMemory(borrow => {
    const [scratch, shares] = [borrow(peaks.length), borrow(peaks.length)];
    const kept = borrow(alpha.length);
    kernels.widen(borrowCopy(borrow, bodies), width, height, 1, scratch, shares);
    const near = bytesAt(shares, peaks.length);
    // All planes of cells have one element a cell, all others one a pixel.
    if (!near.some((share, cell) => share === 0 && peaks[cell]! > 0)) return;
    near.set(soften(near, bodies, grid));
    resampleAt({ at: shares, ...grid }, size, kept);
    const share = bytesAt(kept, alpha.length);
    for (let y = 0; y < size.height; y++) {
      const row = Math.floor((y * height) / size.height) * width;
      for (let column = 0; column < width; column++) {
        const peak = peaks[row + column]!;
        if (peak === 0 || peak >= from) continue;
        const end = y * size.width + starts[column + 1]!;
        for (let at = y * size.width + starts[column]!; at < end; at++) {
          // Rounded down: one of 255 is haze, too.
          alpha[at] = (alpha[at]! * share[at]!) / 255;
        }
      }
    }
  });
}

function bodyFrom(peaks: Uint8Array): number {
  let shown = 0;
  let sure = 0;
  for (const peak of peaks) {
    if (peak >= SHOWN_FROM) shown += 1;
    if (peak >= SURE_FROM) sure += 1;
  }
  return sure <= RULES.sureShareMax * shown ? RULES.glassFrom : RULES.bodyFrom;
}

/**
 * Makes a ramp of the step from 255 to 0, so that no cell shows as a square: beside a straight step
 * a cell near a body keeps a half.
 */
function soften(near: Uint8Array, bodies: Uint8Array, { width, height }: Size): Uint8Array {
  return near.map((share, cell) => {
    if (share === 0 || bodies[cell] === 255) return share;
    const x = cell % width;
    const left = x === 0 ? 0 : -1;
    const right = x === width - 1 ? 0 : 1;
    let sum = 0;
    // Inside: at the border a row or column counts twice.
    for (let step = -width; step <= width; step += width) {
      const row = cell + step < 0 || cell + step >= width * height ? cell : cell + step;
      sum += near[row + left]! + near[row]! + near[row + right]!;
    }
    return Math.max(0, sum / 6 - 127.5);
  });
}

/** Gives where each column of cells begins, and where the last one ends. */
function startsOf(width: number, columns: number): Int32Array {
  return Int32Array.from({ length: columns + 1 }, (_none, at) => Math.ceil((at * width) / columns));
}

/** Gives the greatest alpha in each cell, or one that is sure. A mean would lose hairs and wires. */
function peaksOf(
  alpha: Uint8Array,
  { width, height }: Size,
  grid: Size,
  starts: Int32Array,
): Uint8Array {
  const peaks = new Uint8Array(grid.width * grid.height);
  for (let y = 0; y < height; y++) {
    const row = Math.floor((y * grid.height) / height) * grid.width;
    for (let column = 0; column < grid.width; column++) {
      let peak = peaks[row + column]!;
      if (peak >= SURE_FROM) continue;
      const end = y * width + starts[column + 1]!;
      // Inside: the last column ends where the row does.
      for (let at = y * width + starts[column]!; at < end; at++) {
        if (alpha[at]! > peak) peak = alpha[at]!;
      }
      peaks[row + column] = peak;
    }
  }
  return peaks;
}
