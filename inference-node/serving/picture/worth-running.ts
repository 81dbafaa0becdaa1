/**
 * Decides whether a picture is worth further runs, by how unsure its matte is. It runs on the main
 * thread.
 */
import type { MatteRole } from '../models/prepared-model.ts';

/** The subject is uncertain between these values of alpha (0 to 255). */
export const CERTAIN_BELOW = 5;
export const CERTAIN_ABOVE = 250;

/**
 * A sharp thing has 0.03 to 0.08, a portrait or fur 0.04 to 0.2, glass and smoke nearly 1. Chosen
 * by cross-validation (bench/quality-choose.ts, bench/MEASUREMENTS.md).
 */
export const UNSURE_SHARE_MIN = { opinion: 0.085, secondLook: 0.13, surerLook: 0.13 } as const;
type UnsureShares = Readonly<Record<keyof typeof UNSURE_SHARE_MIN, number>>;
/** Odd, so that it runs through all columns. */
const SAMPLE_STEP = 7;

/** Tells for each byte of alpha whether it shows something, and whether it is unsure: 0 or 1. */
const SHOWN = Uint8Array.from({ length: 256 }, (_none, alpha) => Number(alpha > CERTAIN_BELOW));
const UNSURE = Uint8Array.from({ length: 256 }, (_none, alpha) =>
  Number(alpha > CERTAIN_BELOW && alpha < CERTAIN_ABOVE),
);

/**
 * A refining model always runs: matte/trimap.ts looks for the unsure band that it decides in.
 * @param subject the matte of the plan's first subject, one byte a pixel.
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
 * The share of what a matte shows that is unsure, of every seventh pixel. It is counted at every
 * call: mattes lie in buffers that are used again, so nothing may be kept by their identity.
 * Tables in place of branches: a matte of 1 MP takes 0.2 ms in place of 0.6.
 */
export function unsureShare(alpha: Uint8Array): number {
  let unsure = 0;
  let shown = 0;
  for (let at = 0; at < alpha.length; at += SAMPLE_STEP) {
    // Every index is below its length: the tables have all 256 bytes.
    const value = alpha[at]!;
    shown += SHOWN[value]!;
    unsure += UNSURE[value]!;
  }
  return shown === 0 ? 0 : unsure / shown;
}
