/**
 * Whether a region lies within an image and has a pixel in it, as far as the file's header tells. A
 * camera may have turned the picture, which the header's size does not show: refused is what is
 * wrong either way; the rest the node judges, who sees it.
 */
import type { Length, Region } from '#contract/finishing.ts';
import { RemovebgRefusal } from './removebg-refusal.ts';

/** @throws RemovebgRefusal roi_exceeds_bounds, roi_region_empty */
export function requireRegionIn(
  region: Region,
  { width, height }: { readonly width: number; readonly height: number },
): void {
  const across = [region.left, region.right] as const;
  const down = [region.top, region.bottom] as const;
  const exceeds = (x: number, y: number) =>
    across.some(edge => pixels(edge, x) > x) || down.some(edge => pixels(edge, y) > y);
  if (exceeds(width, height) && exceeds(height, width)) {
    const detail = `roi reaches beyond the image, which is ${width}x${height}`;
    throw new RemovebgRefusal('roi_exceeds_bounds', 'roi', detail);
  }
  const isEmpty = (x: number, y: number) => span(across, x) < 1 || span(down, y) < 1;
  if (isEmpty(width, height) && isEmpty(height, width)) throw regionEmpty();
}

export function regionEmpty(): RemovebgRefusal {
  return new RemovebgRefusal('roi_region_empty', 'roi', 'roi has no pixel of the image in it');
}

function pixels(edge: Length, side: number): number {
  return 'px' in edge ? edge.px : (edge.percent / 100) * side;
}

/** As nodes count it: whole pixels. */
function span([from, to]: readonly [Length, Length], side: number): number {
  return Math.round(pixels(to, side)) - Math.round(pixels(from, side));
}
