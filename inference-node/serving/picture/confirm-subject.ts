/**
 * If a framed matte was rejected, an area counts only if a second look or the opinion shows it too
 * (docs/adr/0047).
 */
import { FRAMED_RULES, keptShare, type SizedMatte, sideShares } from './framed-run.ts';
import { unsureShare } from './unsure-share.ts';

/** A value a tenth higher or lower decides the same (bench/MEASUREMENTS.md). */
const MOST = 0.9;

/**
 * If the opinion is sure of a subject that the first matte shows as a ghost, the opinion becomes
 * the subject. If no other matte shows the first matte's subject, the picture has no subject.
 * @param mattes of the picture as it is, the first run's first
 */
export function confirmSubject<Matte extends SizedMatte & { readonly alpha: Buffer }>(
  mattes: readonly Matte[],
): Matte[] {
  const [first, ...others] = mattes;
  const opinion = others.find(({ role }) => role === 'opinion');
  const again = others.filter(other => other !== opinion);
  if (first === undefined || opinion === undefined || again.length === 0) return [...mattes];
  if (isGhostOf(opinion, first)) {
    const second = [first, ...again].map(matte => ({ ...matte, role: 'secondLook' as const }));
    return [{ ...opinion, role: 'subject' }, ...second];
  }
  if (others.some(other => keptShare(other, first) >= 1 - MOST)) return [...mattes];
  return [{ ...first, alpha: Buffer.alloc(first.alpha.length) }];
}

/**
 * True if the opinion shows what the first matte shows as a ghost. An opinion that reaches all
 * sides takes a pattern or a web for the subject, so it does not count.
 */
function isGhostOf(opinion: SizedMatte, first: SizedMatte): boolean {
  const { unsureShareMin, sideShareMax } = FRAMED_RULES;
  if (unsureShare(first.alpha) < MOST || !opinion.alpha.some(value => value >= 128)) return false;
  if (Math.min(...sideShares(opinion)) >= sideShareMax) return false;
  return unsureShare(opinion.alpha) < unsureShareMin && keptShare(opinion, first) >= MOST;
}
