/** A region of a picture, as nodes count its whole pixels. Pure. */
import type { Length, Region, Size } from '../finishing.ts';
import { lengthPx } from './frame.ts';

export function isWholeRegion({ left, top, right, bottom }: Region): boolean {
  const isZero = (edge: Length) => 'px' in edge && edge.px === 0;
  const isWhole = (edge: Length) => 'percent' in edge && edge.percent === 100;
  return isZero(left) && isZero(top) && isWhole(right) && isWhole(bottom);
}

/**
 * Judges a region by the size in the file's header. A camera may have turned the picture, which the
 * header does not show: only what is wrong either way is a fault. A node, which sees it, judges the
 * rest.
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
