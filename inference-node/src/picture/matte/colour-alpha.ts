/**
 * Estimates alpha from the picture's own colours: where a pixel's colour lies between the subject's
 * and the background's colours around it, its position on the line between them. A model blurs an
 * edge over several pixels, the photo does not. inference-node/kernels/colour-alpha.ts has the
 * arithmetic and its source.
 */
import type { Size } from '../size.ts';
import type { Guided } from './guided-filter.ts';
import { type Borrow, bytesAt, kernels, VECTOR_BYTES, withMemory } from './kernels.ts';

/** Nearer than this to 0 or 255 a pixel shows only background or only subject. */
const SURE = 4;
/** Weight of a coarser level's colour relative to one known pixel of the finer level. */
const COARSER_WEIGHT = 0.05;
/** Distance of the two colours (0 to 255) at which the estimate has half its weight. */
const DISTANCE_HALF = 20;
/** Distance of a pixel from the line between them at which the weight falls to 1 / e. */
const OFF_LINE = 20;
/** Weight of the estimate where the colours are as distinct as possible. */
const TRUST = 0.65;
/** Pixels a side of a cell of the finest grid: the colours beside an edge change slowly. */
const CELL_PX = 4;

/** Addresses of planes of cells, one vector per cell. */
interface Grid extends Size {
  readonly subject: number;
  readonly background: number;
}

/** Changes the alpha in place where the matte is uncertain. */
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

/** Fills in unknown cells from coarser grids, the coarsest of one cell, in place. */
function carryOn(borrow: Borrow, finest: Grid): void {
  const grids = [finest];
  for (let fine = finest; Math.max(fine.width, fine.height) > 1; ) {
    const coarse = borrowGrid(borrow, fine, 2);
    kernels.sumCells(fine.subject, fine.width, fine.height, coarse.subject);
    kernels.sumCells(fine.background, fine.width, fine.height, coarse.background);
    grids.unshift(coarse);
    fine = coarse;
  }
  let coarser = { subject: 0, background: 0 };
  for (const grid of grids) {
    const { width, height, subject, background } = grid;
    kernels.carryOn(subject, width, height, coarser.subject, COARSER_WEIGHT);
    kernels.carryOn(background, width, height, coarser.background, COARSER_WEIGHT);
    coarser = grid;
  }
}
