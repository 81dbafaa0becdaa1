/**
 * The alpha that the picture's own colours speak for: where a pixel lies between the subject's colour
 * around it and the background's, its place on the line from one to the other. A model blurs an
 * edge over several pixels, the photo does not. inference-node/kernels/colour-alpha.ts has the
 * arithmetic and its source.
 */

import type { Size } from '../size.ts';
import type { Guided } from './guided-filter.ts';
import { type Borrow, bytesAt, kernels, VECTOR_BYTES, withMemory } from './kernels.ts';

/** Nearer than this to 0 and 255 a pixel shows one of the two alone. */
const SURE = 4;
/** Of what is carried on from a coarser level, beside one known pixel in the finer one. */
const COARSER_WEIGHT = 0.05;
/** Distance of the two colours, of 255, at which the answer counts half. */
const DISTANCE_HALF = 20;
/** Distance of a pixel from the line between the two at which the answer counts 1 / e. */
const OFF_LINE = 20;
/** Of the answer where the colours are as clear as can be. */
const TRUST = 0.65;
/** Pixels a side of a cell of the finest grid: the colours beside an edge change slowly. */
const CELL_PX = 4;

/** Addresses of planes of cells, a vector each. */
interface Grid extends Size {
  readonly subject: number;
  readonly background: number;
}

/** Changes the alpha in place, where the matte is not sure. */
export function applyColours({ guide, alpha, width, height }: Guided): void {
  withMemory(borrow => {
    const finest = borrowGrid(borrow, { width, height }, CELL_PX);
    const { subject, background } = finest;
    bytesAt(subject, finest.width * finest.height * VECTOR_BYTES).fill(0);
    bytesAt(background, finest.width * finest.height * VECTOR_BYTES).fill(0);
    kernels.sumKnown(guide, alpha, width, height, SURE, CELL_PX, subject, background);
    carryOn(borrow, finest);
    kernels.applySides(
      guide,
      alpha,
      width,
      height,
      SURE,
      CELL_PX,
      subject,
      background,
      DISTANCE_HALF,
      OFF_LINE,
      TRUST,
    );
  });
}

function borrowGrid(borrow: Borrow, of: Size, cellPx: number): Grid {
  const width = Math.ceil(of.width / cellPx);
  const height = Math.ceil(of.height / cellPx);
  const bytes = width * height * VECTOR_BYTES;
  return { width, height, subject: borrow(bytes), background: borrow(bytes) };
}

/** From one cell for the whole picture down to the finest, in place. */
function carryOn(borrow: Borrow, finest: Grid): void {
  const grids = [finest];
  while (Math.max(grids[0].width, grids[0].height) > 1) {
    const [fine] = grids;
    const coarse = borrowGrid(borrow, fine, 2);
    kernels.sumCells(fine.subject, fine.width, fine.height, coarse.subject);
    kernels.sumCells(fine.background, fine.width, fine.height, coarse.background);
    grids.unshift(coarse);
  }
  for (const [index, { width, height, subject, background }] of grids.entries()) {
    const coarser = index === 0 ? { subject: 0, background: 0 } : grids[index - 1];
    kernels.carryOn(subject, width, height, coarser.subject, COARSER_WEIGHT);
    kernels.carryOn(background, width, height, coarser.background, COARSER_WEIGHT);
  }
}
