import type { Length, Region, Size } from '../finishing.ts';
import { lengthPx } from './frame.ts';

export function isWholeRegion({ left, top, right, bottom }: Region): boolean {
  const isZero = (edge: Length) => 'px' in edge && edge.px === 0;
  const isWhole = (edge: Length) => 'percent' in edge && edge.percent === 100;
  return isZero(left) && isZero(top) && isWhole(right) && isWhole(bottom);
}

/**
 * Checks a region against the size in the header. The picture may be rotated, so only errors in
 * both orientations count. The node checks the rest.
 */
export function regionFault(
  { left, top, right, bottom }: Region,
  { width, height }: Size,
): 'exceeds' | 'empty' | undefined {
  const exceeds = (x: number, y: number) =>
    [left, right].some(edge => lengthPx(edge, x) > x) ||
    [top, bottom].some(edge => lengthPx(edge, y) > y);
  if (exceeds(width, height) && exceeds(height, width)) return 'exceeds';
  const isEmpty = (x: number, y: number) => span(left, right, x) < 1 || span(top, bottom, y) < 1;
  return isEmpty(width, height) && isEmpty(height, width) ? 'empty' : undefined;
}

function span(from: Length, to: Length, side: number): number {
  return Math.round(lengthPx(to, side)) - Math.round(lengthPx(from, side));
}
