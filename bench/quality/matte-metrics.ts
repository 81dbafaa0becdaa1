/**
 * Errors of a matte against a reference, as the matting literature measures them (Rhemann et al.,
 * "A Perceptually Motivated Online Benchmark for Image Matting", CVPR 2009).
 */

import { at } from '../../test/support/at.ts';
import { connectivityError } from './connectivity.ts';
import { gradientError } from './gradient.ts';
import type { Plane } from './plane.ts';

/** Smaller is better, all of them. Alpha is in [0, 1]. */
export interface MatteErrors {
  /** Sum of absolute differences, in thousands. */
  readonly sad: number;
  readonly mse: number;
  /** Sum of squared differences of gradient magnitudes, in thousands. */
  readonly gradient: number;
  /** Sum of differences of connectedness, in thousands. */
  readonly connectivity: number;
  /** Mean absolute error. */
  readonly mae: number;
  /** The same where the reference is soft: 0.02 < alpha < 0.98. 0 where nothing is. */
  readonly softMae: number;
}

export const MATTE_ERROR_NAMES = [
  'sad',
  'mse',
  'gradient',
  'connectivity',
  'mae',
  'softMae',
] as const satisfies readonly (keyof MatteErrors)[];

const SOFT_MIN = 0.02 * 255;
const SOFT_MAX = 0.98 * 255;

export function measureMatte(matte: Plane, reference: Plane): MatteErrors {
  const connectivity = connectivityError(matte, reference);
  return { ...measureQuickly(matte, reference), connectivity };
}

/** Without the connectivity, which takes longer than all others. */
export function measureQuickly(matte: Plane, reference: Plane): Omit<MatteErrors, 'connectivity'> {
  const { data, width, height } = matte;
  if (width !== reference.width || height !== reference.height) throw new Error('sizes differ');
  let absolute = 0;
  let squared = 0;
  let soft = 0;
  let softPixels = 0;
  for (let i = 0; i < data.length; i++) {
    const truth = at(reference.data, i);
    const difference = Math.abs(at(data, i) - truth);
    absolute += difference;
    squared += difference * difference;
    if (truth > SOFT_MIN && truth < SOFT_MAX) {
      soft += difference;
      softPixels += 1;
    }
  }
  return {
    sad: absolute / 255 / 1000,
    mse: squared / 255 ** 2 / data.length,
    gradient: gradientError(matte, reference),
    mae: absolute / 255 / data.length,
    softMae: softPixels === 0 ? 0 : soft / 255 / softPixels,
  };
}
