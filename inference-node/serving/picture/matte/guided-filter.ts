/** A guided filter over the few regions with an edge (inference-node/kernels/guided-filter.ts). */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { type Borrow, kernels, VECTOR_BYTES } from '../kernels/kernels.ts';

export interface Region extends Size {
  readonly left: number;
  readonly top: number;
}

export interface Guided extends Size {
  /** Four bytes a pixel; the last is ignored. */
  readonly guide: number;
  readonly alpha: number;
}

export const RADIUS_MAX = 8;
/** A smaller variance of colour is noise. Four times this was worse, 0.4 times gains little. */
const EPSILON = 2.5e-5 * 255 * 255;

export class GuidedFilter {
  readonly #radius: number;
  readonly #scratch: number;
  readonly #models: number;

  /**
   * @param side largest of a region, pixels
   * @param radius at most RADIUS_MAX
   */
  constructor(borrow: Borrow, side: number, radius: number) {
    this.#radius = radius;
    this.#scratch = borrow(kernels.fitBytes(side, radius));
    this.#models = borrow(side * side * VECTOR_BYTES);
  }

  /**
   * Answers the address of the region's functions, valid until the next call: alpha = red * R +
   * green * G + blue * B + offset (0 to 255), four floats a pixel.
   */
  fit({ guide, alpha, width, height }: Guided, region: Region): number {
    const { left, top } = region;
    const edges = [left, top, left + region.width, top + region.height] as const;
    const where = [width, height, ...edges, this.#radius] as const;
    kernels.fitModels(guide, alpha, ...where, EPSILON, this.#scratch);
    kernels.averageModels(...where, this.#scratch, this.#models);
    return this.#models;
  }
}

export function expand({ left, top, width, height }: Region, by: number, bounds: Size): Region {
  const x = Math.max(0, left - by);
  const y = Math.max(0, top - by);
  return {
    left: x,
    top: y,
    width: Math.min(bounds.width, left + width + by) - x,
    height: Math.min(bounds.height, top + height + by) - y,
  };
}
