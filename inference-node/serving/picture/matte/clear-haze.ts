/**
 * Clears haze: faint pixels far from a body, which is more opaque (docs/adr/0059). Models leave it
 * over walls and floors, and on white it is a stain.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { borrowCopy, bytesAt, kernels, withMemory } from '../kernels/kernels.ts';
import { gridSize } from './fill-areas.ts';
import { layGrid } from './picture-grid.ts';
import { resampleAt } from './resample.ts';

/**
 * Judged together on 240 photos and variants: haze falls from 3.08 to 0.11 % of the pixels, and no
 * mean error rises by more than 0.4 % (bench/MEASUREMENTS.md#haze). Of other values only `bodyFrom`
 * of 64 was tried.
 */
const RULES = {
  /** Least alpha of a body's pixel. With 64 smoke is lost. */
  bodyFrom: 34,
  /** A subject with a larger share of sure cells is not glass. */
  sureShareMax: 0.28,
  /** `bodyFrom` of glass, which loses its fainter parts. */
  glassFrom: 14,
};
/** Haze has an alpha of 1 to 25. */
const SHOWN_FROM = 26;
/** Half opaque. */
const SURE_FROM = 128;

/**
 * Works in place.
 * @param at address of a plane of alpha
 * @param bodyFrom of the matte before hints changed it; undefined: of this one
 */
export function clearHaze(at: number, size: Size, bodyFrom?: number): void {
  const grid = gridSize(size);
  const { width, height } = grid;
  const count = width * height;
  withMemory(borrow => {
    const [peaksAt, scratch, shares] = [borrow(count), borrow(count), borrow(count)];
    const [kept, line] = [borrow(size.width * size.height), borrow(size.width)];
    const columns = layGrid(borrow, size, grid).starts;
    // Takes the greatest alpha of a cell, since a mean would lose hairs and wires.
    kernels.peaksOfCells(at, size.width, size.height, columns, width, height, line, peaksAt);
    const from = bodyFrom ?? leastOfBody(peaksAt, count);
    const peaks = bytesAt(peaksAt, count).slice();
    const bodies = new Uint8Array(count);
    for (let cell = 0; cell < count; cell++) if (peaks[cell]! >= from) bodies[cell] = 255;
    kernels.widen(borrowCopy(borrow, bodies), width, height, 1, scratch, shares);
    const near = bytesAt(shares, count);
    if (!hasFar(near, peaks)) return;
    near.set(soften(near, bodies, grid));
    resampleAt({ at: shares, ...grid }, size, kept);
    kernels.fadeCells(at, size.width, size.height, columns, width, height, peaksAt, from, kept);
  });
}

function hasFar(near: Uint8Array, peaks: Uint8Array): boolean {
  for (let cell = 0; cell < near.length; cell++) {
    if (near[cell] === 0 && peaks[cell]! > 0) return true;
  }
  return false;
}

export function bodyFromOf(alpha: Uint8Array, size: Size): number {
  const { width, height } = gridSize(size);
  return withMemory(borrow => {
    const [at, shares] = [borrowCopy(borrow, alpha), borrow(width * height)];
    const columns = layGrid(borrow, size, { width, height }).starts;
    const line = borrow(size.width);
    kernels.peaksOfCells(at, size.width, size.height, columns, width, height, line, shares);
    return leastOfBody(shares, width * height);
  });
}

/** @param peaks address of the greatest alpha of each cell */
function leastOfBody(peaks: number, count: number): number {
  const shown = kernels.countFrom(peaks, count, SHOWN_FROM);
  const sure = kernels.countFrom(peaks, count, SURE_FROM);
  return sure <= RULES.sureShareMax * shown ? RULES.glassFrom : RULES.bodyFrom;
}

/** Turns the step from 255 to 0 into a ramp, so that no cell shows as a square. */
function soften(near: Uint8Array, bodies: Uint8Array, { width, height }: Size): Uint8Array {
  const ramp = near.slice();
  for (let cell = 0; cell < near.length; cell++) {
    if (near[cell] === 0 || bodies[cell] === 255) continue;
    const x = cell % width;
    const left = x === 0 ? 0 : -1;
    const right = x === width - 1 ? 0 : 1;
    let sum = 0;
    for (let step = -width; step <= width; step += width) {
      const row = cell + step < 0 || cell + step >= width * height ? cell : cell + step;
      sum += near[row + left]! + near[row]! + near[row + right]!;
    }
    ramp[cell] = Math.max(0, sum / 6 - 127.5);
  }
  return ramp;
}
