/**
 * Whether a picture is worth the further runs of its plan, by how unsure the subject's matte is. It
 * samples, as it runs on the main thread. Pure.
 */
import type { MatteRole } from '../models/prepared-model.ts';

/** The subject is uncertain between these values of alpha (0 to 255). */
export const CERTAIN_BELOW = 5;
export const CERTAIN_ABOVE = 250;

/**
 * Uncertain share of what is not certain background, from which a run is worth its time. A sharp
 * thing has 0.03 to 0.08, a portrait or fur 0.04 to 0.2, glass and smoke nearly 1. Chosen by
 * cross-validation (bench/quality-choose.ts, docs/performance.md): beside a sharp edge an opinion gains nothing.
 */
export const UNSURE_SHARE_MIN = { opinion: 0.085, secondLook: 0.13 } as const;
/** Odd, so that it runs through all columns. */
const SAMPLE_STEP = 7;

/** @param subject the matte of the plan's first subject, one byte a pixel. */
export function isWorthRunning(role: MatteRole, subject: Uint8Array): boolean {
  return role === 'subject' || unsureShare(subject) >= UNSURE_SHARE_MIN[role];
}

/** Uncertain share of what the matte shows; 0 where it shows nothing. */
export function unsureShare(alpha: Uint8Array): number {
  let unsure = 0;
  let shown = 0;
  for (let at = 0; at < alpha.length; at += SAMPLE_STEP) {
    const value = alpha[at] ?? 0;
    if (value <= CERTAIN_BELOW) continue;
    shown += 1;
    if (value < CERTAIN_ABOVE) unsure += 1;
  }
  return shown === 0 ? 0 : unsure / shown;
}
