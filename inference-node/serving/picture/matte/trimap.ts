/**
 * The unsure band of a merged matte, where a refining model decides: everything but the inside of
 * the sure subject and of the sure background.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { TRIMAP } from '../../models/trimap.ts';
import { borrowCopy, floatsAt, kernels, withMemory } from '../kernels/kernels.ts';
import { CERTAIN_ABOVE, CERTAIN_BELOW } from '../unsure-share.ts';

/**
 * Margin around unsure pixels, relative to the picture's long side. The band of the plan `standard`
 * then holds 0.97 of its error in 15 % of a picture; with twice the margin 0.98 in 22 %
 * (bench/MEASUREMENTS.md).
 */
const BAND_REACH = 1 / 100;

/** Undefined: nothing is unsure. */
export function createTrimap(
  matte: Uint8Array,
  size: Size,
  share = BAND_REACH,
): Uint8Array | undefined {
  const reach = reachOf(size, share);
  const trimap = withMemory(borrow => {
    const at = borrowCopy(borrow, matte);
    const counts = borrow(4 * size.width);
    const shares = borrow(4 * matte.length);
    const lacks = (above: number, below: number) => {
      kernels.uncertainShares(at, size.width, size.height, reach, above, below, counts, shares);
      return floatsAt(shares, matte.length);
    };
    const made = new Uint8Array(matte.length).fill(TRIMAP.unsure);
    lacks(-1, CERTAIN_ABOVE).forEach((lacking, i) => {
      if (lacking === 0) made[i] = TRIMAP.subject;
    });
    lacks(CERTAIN_BELOW, 256).forEach((lacking, i) => {
      if (lacking === 0) made[i] = TRIMAP.background;
    });
    return made;
  });
  return trimap.includes(TRIMAP.unsure) ? trimap : undefined;
}

/**
 * In place: `refined` replaces unsure pixels, and fades out over the margin, so that no edge of the
 * band shows.
 */
export function replaceUnsure(
  refined: Uint8Array,
  matte: Uint8Array,
  size: Size,
  share = BAND_REACH,
): void {
  const trimap = createTrimap(matte, size, share);
  if (trimap === undefined) return;
  const reach = Math.max(1, Math.floor(reachOf(size, share) / 2));
  withMemory(borrow => {
    const at = borrowCopy(borrow, trimap);
    const counts = borrow(4 * size.width);
    const out = borrow(4 * matte.length);
    const { background, subject } = TRIMAP;
    const { width, height } = size;
    kernels.uncertainShares(at, width, height, reach, background, subject, counts, out);
    const shares = floatsAt(out, matte.length);
    // The weight is 0 at the band's edge, where the band fills half a window.
    for (let i = 0; i < matte.length; i++) {
      if (trimap[i] !== TRIMAP.unsure) continue;
      const weight = Math.max(0, 2 * shares[i]! - 1);
      matte[i] = Math.round(matte[i]! + weight * (refined[i]! - matte[i]!));
    }
  });
}

function reachOf({ width, height }: Size, share: number): number {
  return Math.max(1, Math.round(Math.max(width, height) * share));
}
