/** How far a cut-out's colour is from the subject's own where the subject is soft. */
import { at } from '../../test/support/at.ts';

/** The true alpha counts between these, of 255: outside, a colour is known or not to be seen. */
const SOFT_MIN = 0.05 * 255;
const SOFT_MAX = 0.95 * 255;

/**
 * Mean absolute error of 0 to 255, weighted by the true alpha, where the result has any.
 * @param rgba of the result, one pixel an element, red lowest.
 * @param truth RGB, interleaved.
 */
export function foregroundError(
  rgba: Uint32Array,
  alpha: Uint8Array,
  truth: Uint8Array,
  trueAlpha: Uint8Array,
): number {
  let sum = 0;
  let weights = 0;
  for (let i = 0; i < alpha.length; i++) {
    const weight = at(trueAlpha, i);
    if (weight <= SOFT_MIN || weight >= SOFT_MAX || alpha[i] === 0) continue;
    let difference = 0;
    for (let channel = 0; channel < 3; channel++) {
      const value = (at(rgba, i) >>> (8 * channel)) & 255;
      difference += Math.abs(value - at(truth, 3 * i + channel));
    }
    sum += (weight * difference) / 3;
    weights += weight;
  }
  return weights === 0 ? 0 : sum / weights;
}
