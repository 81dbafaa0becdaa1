/**
 * Several models' mattes to one, at one size: pure arithmetic. What a plan calls its subject decides
 * what is cut out (several are averaged); an opinion is listened to only where the subject's edge
 * is soft, and only when both mean the same thing: elsewhere it has nothing to add, or what is
 * wrong.
 */
import type { MatteRole } from '../../models/prepared-model.ts';
import { CERTAIN_ABOVE, CERTAIN_BELOW } from '../second-look.ts';
import type { Size } from '../size.ts';
import { borrowCopy, floatsAt, kernels, withMemory } from './kernels.ts';
import { resample } from './resample.ts';

export interface RoleMatte extends Size {
  /** One byte a pixel, 255 opaque. */
  readonly alpha: Uint8Array;
  readonly role: MatteRole;
}

/**
 * Overlap of the two (intersection over union at half opacity) from which they mean the same thing.
 * 0.85 and 0.95 were measured and make no difference.
 */
const AGREEMENT_MIN = 0.9;
/** Radius of the window in which the subject's edge is looked at, of the picture's long side. */
const WINDOW_REACH = 1 / 150;
/**
 * Share of a pixel's window in which the subject is uncertain: up to the first an opinion is not
 * heard, from the second on in full. A sharp edge is a thin line in its window and needs no help,
 * fur and hair fill theirs. Of 0.1 to 0.4, 0.2 to 0.7 and 0.3 to 0.9 these have the least SAD on
 * either half of 30 photos, by little; without them an opinion blurs what is nearly perfect.
 */
const UNCERTAIN_SHARE_MIN = 0.2;
const UNCERTAIN_SHARE_FULL = 0.7;
/** What a matte at half opacity weighs, where one that is sure weighs 1.05. */
const UNSURE_WEIGHT = 0.05;

/**
 * One byte a pixel of `size`; the result is the caller's.
 * @param mattes the first is a subject.
 */
export function mergeMattes(mattes: readonly RoleMatte[], size: Size): Uint8Array {
  const [merged, ...others] = mattes.map(matte => bringTo(matte, size));
  if (mattes[0]?.role !== 'subject') throw new Error('a plan without a subject');
  if (others.length === 0) return merged;
  const needs = needsOf(merged, size);
  const roles = mattes.slice(1).map(({ role }) => role);
  const looks = others.filter((_, index) => roles[index] !== 'opinion');
  const opinions = others.filter((_, index) => roles[index] === 'opinion');
  if (looks.length > 0) average(looks, merged, needs);
  for (const opinion of opinions) hear(opinion, merged, needs);
  return merged;
}

function bringTo(matte: RoleMatte, size: Size): Uint8Array {
  const { alpha, width, height } = matte;
  if (width === size.width && height === size.height) return Uint8Array.from(alpha);
  return resample({ data: alpha, width, height }, size);
}

/** In place: the softer the first look's edge, the more the others count, at most as much as it. */
function average(looks: readonly Uint8Array[], merged: Uint8Array, needs: Float32Array): void {
  for (let i = 0; i < merged.length; i++) {
    const need = needs[i];
    if (need <= 0) continue;
    let sum = 0;
    for (const look of looks) sum += look[i];
    merged[i] = Math.round((merged[i] + need * sum) / (1 + need * looks.length));
  }
}

/**
 * In place: the softer the subject's edge, the more the surer of the two has the say; where both
 * are sure of the opposite the subject's stands, since half of each would be a hole that nobody meant.
 */
function hear(opinion: Uint8Array, merged: Uint8Array, needs: Float32Array): void {
  if (agreement(opinion, merged) < AGREEMENT_MIN) return;
  for (let i = 0; i < merged.length; i++) {
    const need = needs[i];
    if (need <= 0) continue;
    const own = weight(merged[i]);
    const other = need * weight(opinion[i]) * hearing(merged[i], opinion[i]);
    merged[i] = Math.round((own * merged[i] + other * opinion[i]) / (own + other));
  }
}
/** 1, down to 0 where the subject is sure and the opinion is of the opposite. */
function hearing(own: number, other: number): number {
  const sureness = Math.abs((2 * own) / 255 - 1);
  return 1 - (sureness * Math.abs(own - other)) / 255;
}

function weight(value: number): number {
  const sureness = (2 * value) / 255 - 1;
  return sureness * sureness + UNSURE_WEIGHT;
}

/** 0 where there is nothing in either. */
function agreement(one: Uint8Array, other: Uint8Array): number {
  let both = 0;
  let either = 0;
  for (let i = 0; i < one.length; i++) {
    const here = one[i] >>> 7;
    const there = other[i] >>> 7;
    both += here & there;
    either += here | there;
  }
  return either === 0 ? 0 : both / either;
}

/** Of each pixel, by the share of its window in which the matte is uncertain; 1 at most. */
function needsOf(alpha: Uint8Array, { width, height }: Size): Float32Array {
  const reach = Math.max(1, Math.round(Math.max(width, height) * WINDOW_REACH));
  const span = UNCERTAIN_SHARE_FULL - UNCERTAIN_SHARE_MIN;
  return withMemory(borrow => {
    const counts = borrow(4 * width);
    const shares = borrow(4 * alpha.length);
    const at = borrowCopy(borrow, alpha);
    kernels.uncertainShares(at, width, height, reach, CERTAIN_BELOW, CERTAIN_ABOVE, counts, shares);
    const needs = floatsAt(shares, alpha.length).slice();
    for (let i = 0; i < needs.length; i++) {
      needs[i] = Math.min(1, (needs[i] - UNCERTAIN_SHARE_MIN) / span);
    }
    return needs;
  });
}
