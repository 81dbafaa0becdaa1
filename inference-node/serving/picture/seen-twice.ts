/**
 * If the framed look is not believed, an area counts only if a second look or the opinion shows it
 * too. On the main thread. docs/adr/0047.
 */
import { FRAMED_RULES, keptShare, type SizedMatte, sideShares } from './framed-look.ts';
import { unsureShare } from './worth-running.ts';

/** Nearly all of what a look shows. Tenths more or less decide the same (bench/MEASUREMENTS.md). */
const MOST = 0.9;

/**
 * If the first look is a ghost of what the opinion surely shows, the opinion is the subject, and
 * the looks of the first model are heard like second looks. If no other look shows what the first
 * look shows, the picture has no subject. Else nothing changes.
 * @param mattes all looks of the picture as it is, the first look first
 */
export function seenTwice<Matte extends SizedMatte & { readonly alpha: Buffer }>(
  mattes: readonly Matte[],
): Matte[] {
  const [first, ...others] = mattes;
  const opinion = others.find(({ role }) => role === 'opinion');
  const again = others.filter(other => other !== opinion);
  if (first === undefined || opinion === undefined || again.length === 0) return [...mattes];
  if (isGhostOf(opinion, first)) {
    const heard = [first, ...again].map(look => ({ ...look, role: 'secondLook' as const }));
    return [{ ...opinion, role: 'subject' }, ...heard];
  }
  if (others.some(other => keptShare(other, first) >= 1 - MOST)) return [...mattes];
  return [{ ...first, alpha: Buffer.alloc(first.alpha.length) }];
}

/** An opinion that shows the picture itself takes a pattern or a web for the subject. */
function isGhostOf(opinion: SizedMatte, first: SizedMatte): boolean {
  const { unsureShareMin, sideShareMax } = FRAMED_RULES;
  if (unsureShare(first.alpha) < MOST || !opinion.alpha.some(value => value >= 128)) return false;
  if (Math.min(...sideShares(opinion)) >= sideShareMax) return false;
  return unsureShare(opinion.alpha) < unsureShareMin && keptShare(opinion, first) >= MOST;
}
