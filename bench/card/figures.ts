/** Percentiles and growth of what was measured, and how numbers are shown. Pure. */

/** The value that `share` of all do not exceed; NaN of none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const place = Math.ceil(share * sorted.length) - 1;
  return sorted[Math.max(0, place)] ?? Number.NaN;
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Three figures that count; whole numbers whole. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return '';
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

export interface Sample {
  /** Since the load began, ms. */
  readonly atMs: number;
  readonly value: number;
}

/** The share of what is sampled that its beginning, and its end, is the median of. */
const END_SHARE = 5;

/**
 * What something grew to after `settledMs`: the median of the last fifth of its samples to that of
 * the first fifth. NaN where there are less than two samples.
 */
export function growthAfter(samples: readonly Sample[], settledMs: number): number {
  const settled = samples.filter(({ atMs }) => atMs >= settledMs).map(({ value }) => value);
  if (settled.length < 2) return Number.NaN;
  const count = Math.max(1, Math.floor(settled.length / END_SHARE));
  const middle = (values: readonly number[]) => percentile(values, 0.5);
  return middle(settled.slice(-count)) / middle(settled.slice(0, count));
}
