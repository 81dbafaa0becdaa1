/** Extends known colours to a whole plane (pull-push: inference-node/kernels/colour-alpha.ts). */

import type { Size } from '@matting/proto/contract/finishing.ts';
import { kernels, VECTOR_BYTES, withMemory } from '../kernels/kernels.ts';

/** Address of a vector per cell: red, green, blue, weight. */
interface ColourPlane extends Size {
  readonly at: number;
}

/**
 * Gives each cell a mean colour, in place, with weight 1, or 0 if the whole plane is unknown.
 * @param coarserWeight of a coarser cell's mean, relative to the sums of a finer cell
 * @param seen address of colours with alpha; cells without a soft pixel are omitted
 */
export function carryColours(finest: ColourPlane, coarserWeight: number, seen = 0): void {
  withMemory(borrow => {
    const planes = [finest];
    for (let fine = finest; Math.max(fine.width, fine.height) > 1; ) {
      const half = { width: Math.ceil(fine.width / 2), height: Math.ceil(fine.height / 2) };
      const coarse = { ...half, at: borrow(half.width * half.height * VECTOR_BYTES) };
      kernels.sumCells(fine.at, fine.width, fine.height, coarse.at);
      planes.unshift(coarse);
      fine = coarse;
    }
    let coarser = 0;
    for (const plane of planes) {
      const { at, width, height } = plane;
      kernels.carryOn(at, width, height, coarser, coarserWeight, plane === finest ? seen : 0);
      coarser = at;
    }
  });
}
