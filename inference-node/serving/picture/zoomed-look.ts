/**
 * A closer look at a small subject. In a large picture it has few of the model's pixels: the same
 * model looks once more at the part of the picture around it, which becomes the picture of all
 * that follows (matte/picture-part.ts). On the main thread. docs/adr/0051.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { type SizedAlpha, sideShares } from './framed-look.ts';
import { unsureShare } from './worth-running.ts';

/** Chosen over composites of every size (bench/MEASUREMENTS.md). */
export const ZOOM_RULES = {
  /** The box of a small subject has at most this share of the picture. */
  boxShareMax: 0.06,
  /** The part reaches so far beyond the box on each side, relative to the box's longer side. */
  marginShare: 0.5,
  /** A closer look that shows less than this share of what the first shows lost the subject. */
  keptShareMin: 0.5,
  /** What a closer look shows of this share of a side of the part goes on outside of it. */
  sideShareMax: 0.05,
};

export type ZoomRules = Readonly<Record<keyof typeof ZOOM_RULES, number>>;

/** The box has pixels from this alpha on: a second subject may be half seen, a ghost is less. */
const SHOWN_FROM = 64;
/** A column or row of the matte with fewer shown pixels has a speck of it at most. */
const LINE_MIN = 2;
/** The look reads a point in so many pixels each way: shares of areas need no more. */
const GRID_STEP = 4;
/** Odd, so that it runs through all columns. */
const SAMPLE_STEP = 7;

/**
 * Gives the part of the picture around a small subject, in the picture's pixels. Undefined: the
 * subject is not small, or the matte shows nothing surely.
 * @param first the matte of the whole picture
 */
export function partAround(
  first: SizedAlpha,
  picture: Size,
  { boxShareMax, marginShare }: ZoomRules = ZOOM_RULES,
): Box | undefined {
  const { size } = first;
  const boxMax = boxShareMax * size.width * size.height;
  const box = countSampled(first.alpha) * SAMPLE_STEP > boxMax ? undefined : shownBox(first);
  if (box === undefined || box.width * box.height > boxMax) return undefined;
  const [scaleX, scaleY] = [picture.width / size.width, picture.height / size.height];
  const margin = marginShare * Math.max(box.width * scaleX, box.height * scaleY);
  const left = Math.max(0, Math.floor(box.left * scaleX - margin));
  const top = Math.max(0, Math.floor(box.top * scaleY - margin));
  const right = Math.min(picture.width, Math.ceil((box.left + box.width) * scaleX + margin));
  const bottom = Math.min(picture.height, Math.ceil((box.top + box.height) * scaleY + margin));
  return { left, top, width: right - left, height: bottom - top };
}

/**
 * Not what is less sure than the first look, which sees plain things well. Not what has lost the
 * subject, or goes on where the part ends: the first look was wrong about where the subject is.
 * @param closer the matte of `part` of the picture
 */
export function isCloserBelieved(
  closer: SizedAlpha,
  first: SizedAlpha,
  part: Box,
  picture: Size,
  { keptShareMin, sideShareMax }: ZoomRules = ZOOM_RULES,
): boolean {
  if (unsureShare(closer.alpha) > unsureShare(first.alpha)) return false;
  const [above, below, left, right] = sideShares(closer);
  const shown = Math.max(
    part.top > 0 ? above : 0,
    part.top + part.height < picture.height ? below : 0,
    part.left > 0 ? left : 0,
    part.left + part.width < picture.width ? right : 0,
  );
  return shown < sideShareMax && keptShare(closer, first, part, picture) >= keptShareMin;
}

/** Gives the share of what `first` shows of the part that `closer` shows too; 1 of nothing. */
function keptShare(closer: SizedAlpha, first: SizedAlpha, part: Box, picture: Size): number {
  const { width, height } = closer.size;
  const columns = first.size.width / picture.width;
  const rows = first.size.height / picture.height;
  let [shown, kept] = [0, 0];
  for (let y = 0; y < height; y += GRID_STEP) {
    const firstY = Math.floor((part.top + ((y + 0.5) * part.height) / height) * rows);
    for (let x = 0; x < width; x += GRID_STEP) {
      const firstX = Math.floor((part.left + ((x + 0.5) * part.width) / width) * columns);
      // Inside: the part is inside of the picture, whose size `first` has in its own pixels.
      if (first.alpha[firstY * first.size.width + firstX]! < SHOWN_FROM) continue;
      shown += 1;
      if (closer.alpha[y * width + x]! >= SHOWN_FROM) kept += 1;
    }
  }
  return shown === 0 ? 1 : kept / shown;
}

/** Shown pixels of every seventh one: few tell that a subject is large. */
function countSampled(alpha: Uint8Array): number {
  let shown = 0;
  // Every index is below the length.
  for (let at = 0; at < alpha.length; at += SAMPLE_STEP) shown += alpha[at]! >>> 7;
  return shown;
}

function shownBox({ alpha, size: { width, height } }: SizedAlpha): Box | undefined {
  const columns = new Uint32Array(width);
  const rows = new Uint32Array(height);
  // `alpha` has width * height elements.
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (alpha[y * width + x]! < SHOWN_FROM) continue;
      columns[x]! += 1;
      rows[y]! += 1;
    }
  }
  const isShown = (count: number) => count >= LINE_MIN;
  const [left, top] = [columns.findIndex(isShown), rows.findIndex(isShown)];
  if (left < 0 || top < 0) return undefined;
  const [right, bottom] = [columns.findLastIndex(isShown), rows.findLastIndex(isShown)];
  return { left, top, width: right + 1 - left, height: bottom + 1 - top };
}
