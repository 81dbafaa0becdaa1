import type { MatteRole } from '../models/prepared-model.ts';

/** Alpha below CERTAIN_BELOW and above CERTAIN_ABOVE is certain. */
export const CERTAIN_BELOW = 5;
export const CERTAIN_ABOVE = 250;

/**
 * Sharp things have 0.03 to 0.08, portraits and fur 0.04 to 0.2, glass and smoke nearly 1. Chosen
 * by cross-validation (bench/quality-choose.ts, bench/MEASUREMENTS.md).
 */
export const UNSURE_SHARE_MIN = { opinion: 0.085, secondLook: 0.13, surerLook: 0.13 } as const;
type UnsureShares = Readonly<Record<keyof typeof UNSURE_SHARE_MIN, number>>;
/** Odd, so that the samples visit all columns. */
const SAMPLE_STEP = 7;

/** Tables by alpha, 0 or 1. */
const SHOWN = Uint8Array.from({ length: 256 }, (_none, alpha) => Number(alpha > CERTAIN_BELOW));
const UNSURE = Uint8Array.from({ length: 256 }, (_none, alpha) =>
  Number(alpha > CERTAIN_BELOW && alpha < CERTAIN_ABOVE),
);

/**
 * A refining model always runs: matte/trimap.ts looks for its unsure band.
 * @param subject the matte of the plan's first subject
 */
export function isWorthRunning(
  role: MatteRole,
  subject: Uint8Array,
  least: UnsureShares = UNSURE_SHARE_MIN,
): boolean {
  if (role === 'subject' || role === 'refine') return true;
  return unsureShare(subject) >= least[role];
}

/**
 * Unsure share of the shown pixels, sampled. Never cached: mattes lie in reused buffers. Tables
 * instead of branches: 0.2 ms for a matte of 1 MP, instead of 0.6.
 */
export function unsureShare(alpha: Uint8Array): number {
  let unsure = 0;
  let shown = 0;
  for (let at = 0; at < alpha.length; at += SAMPLE_STEP) {
    const value = alpha[at]!;
    shown += SHOWN[value]!;
    unsure += UNSURE[value]!;
  }
  return shown === 0 ? 0 : unsure / shown;
}
