/**
 * Alpha from the picture's own colours, by a pixel's position between the colours of subject and
 * background around it (inference-node/kernels/colour-alpha.ts). A model blurs an edge over several
 * pixels, the photo does not.
 */
import { borrowCopy, bytesAt, kernels, VECTOR_BYTES, withMemory } from '../kernels/kernels.ts';
import { carryColours } from './carry-colours.ts';
import type { Guided } from './guided-filter.ts';

/** Alpha nearer than this to 0 or 255 is certain. */
const SURE = 4;
/** Weight of a coarser cell's mean, relative to one known pixel of a finer cell. */
const COARSER_WEIGHT = 0.05;
/** Distance of the colours (0 to 255) at which the estimate has half its weight. */
const DISTANCE_HALF = 20;
/** Distance of a pixel from the line between the colours at which the weight falls to 1 / e. */
const OFF_LINE = 20;
/** Largest weight of the estimate, for the most distinct colours. */
const TRUST = 0.8;
/** Finest grid; colours beside an edge change slowly. */
const CELL_PX = 4;

/**
 * Works in place.
 * @param before the matte before hints changed it; undefined: it is this one
 */
export function applyColours({ guide, alpha, width, height }: Guided, before?: Uint8Array): void {
  withMemory(borrow => {
    const shown = bytesAt(alpha, width * height);
    const known =
      before === undefined ? alpha : borrowCopy(borrow, withErased(shown, before, width));
    const cells = { width: Math.ceil(width / CELL_PX), height: Math.ceil(height / CELL_PX) };
    const bytes = cells.width * cells.height * VECTOR_BYTES;
    const subject = borrow(bytes);
    const background = borrow(bytes);
    bytesAt(subject, bytes).fill(0);
    bytesAt(background, bytes).fill(0);
    kernels.sumKnown(guide, known, width, height, SURE, CELL_PX, subject, background);
    carryColours({ ...cells, at: subject }, COARSER_WEIGHT);
    carryColours({ ...cells, at: background }, COARSER_WEIGHT);
    const rules = [DISTANCE_HALF, OFF_LINE, TRUST] as const;
    kernels.applySides(guide, alpha, width, height, SURE, CELL_PX, subject, background, ...rules);
  });
}

/** Side of the squares in which `withErased` looks for shown pixels. */
const BLOCK_PX = 32;

/**
 * Restores pixels that hints erased, unless a shown pixel is in their square or next to it. A half
 * transparent subject takes its colours from far away, and removing another subject must not change
 * it.
 */
function withErased(alpha: Uint8Array, before: Uint8Array, width: number): Uint8Array {
  const columns = Math.ceil(width / BLOCK_PX);
  const rows = Math.ceil(alpha.length / width / BLOCK_PX);
  const blockOf = (i: number) =>
    Math.floor(Math.floor(i / width) / BLOCK_PX) * columns + Math.floor((i % width) / BLOCK_PX);
  const isNear = new Uint8Array(columns * rows);
  for (let i = 0; i < alpha.length; i++) {
    if (alpha[i]! <= SURE) continue;
    const block = blockOf(i);
    if (isNear[block] === 2) continue;
    isNear[block] = 2;
    for (const row of [-columns, 0, columns]) {
      for (const column of [-1, 0, 1]) {
        const near = block + row + column;
        if (near >= 0 && near < isNear.length && isNear[near] === 0) isNear[near] = 1;
      }
    }
  }
  return alpha.map((value, i) => (isNear[blockOf(i)] === 0 ? Math.max(value, before[i]!) : value));
}
