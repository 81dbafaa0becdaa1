/** Whether two providers made the same matte of the same picture. Pure. */

export interface AlphaDifference {
  /** In levels of 255. */
  readonly mean: number;
  readonly max: number;
}

/**
 * Levels of 255. Other rounding and half precision move a matte by well under one level in the
 * mean; a backend that computes wrongly moves it by tens.
 */
export const PARITY_MEAN_DIFFERENCE_MAX = 2;

export function compareAlphas(one: Uint8Array, other: Uint8Array): AlphaDifference {
  if (one.length !== other.length) throw new Error('alphas of different sizes');
  let sum = 0;
  let max = 0;
  for (let i = 0; i < one.length; i++) {
    // Without checks: both have the same length.
    const difference = Math.abs(one[i]! - other[i]!);
    sum += difference;
    if (difference > max) max = difference;
  }
  return { mean: sum / one.length, max };
}
