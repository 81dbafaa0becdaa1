/** How far a figure would move on other photos: intervals by resampling the photos at hand. */
import { at } from '../../test/support/at.ts';

const ROUNDS = 1000;
/** Share of rounds left out on each side: a 95 % interval remains. */
const TAIL = 0.025;

export interface Interval {
  readonly value: number;
  readonly low: number;
  readonly high: number;
}

/**
 * @param figure of a list of samples, such as the ratio of two of their means.
 * @param groupOf samples of one group are drawn together, as variants of one photo are no news.
 */
export function bootstrap<T>(
  samples: readonly T[],
  groupOf: (sample: T) => string,
  figure: (samples: readonly T[]) => number,
): Interval {
  const groups = [...Map.groupBy(samples, groupOf).values()];
  let state = 1;
  const draw = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return at(groups, Math.floor((state / 2 ** 32) * groups.length));
  };
  const figures = Array.from({ length: ROUNDS }, () => figure(groups.flatMap(draw)));
  figures.sort((a, b) => a - b);
  return {
    value: figure(samples),
    low: at(figures, Math.floor(ROUNDS * TAIL)),
    high: at(figures, Math.ceil(ROUNDS * (1 - TAIL)) - 1),
  };
}

export function mean<T>(samples: readonly T[], pick: (sample: T) => number): number {
  return samples.reduce((sum, sample) => sum + pick(sample), 0) / samples.length;
}
