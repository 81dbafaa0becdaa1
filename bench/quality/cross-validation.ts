/** Constants chosen without the photo that they are judged on. Pure. */
import { at } from '../../test/support/at.ts';

export interface Fold {
  readonly group: string;
  /** Index of the candidate with the least loss on all other groups; the first of equals. */
  readonly chosen: number;
}

/**
 * Leaves each group out once.
 * @param groups of the samples, one each: variants of a photo are one group.
 * @param losses for each candidate one loss a sample.
 */
export function leaveOneOut(
  groups: readonly string[],
  losses: readonly (readonly number[])[],
): Fold[] {
  return [...new Set(groups)].map(group => ({
    group,
    chosen: leastLoss(losses, index => groups[index] !== group),
  }));
}

export function leastLoss(
  losses: readonly (readonly number[])[],
  counts: (sample: number) => boolean,
): number {
  const sums = losses.map(row =>
    row.reduce((sum, loss, index) => (counts(index) ? sum + loss : sum), 0),
  );
  let best = 0;
  for (const [index, sum] of sums.entries()) if (sum < at(sums, best) - 1e-12) best = index;
  return best;
}
