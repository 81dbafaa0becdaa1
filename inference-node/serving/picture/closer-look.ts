/**
 * A closer look: the model runs again on the part around each small subject, which has few of its
 * pixels in a large picture (docs/adr/0051). The mattes of the parts replace that of the picture.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { sideShares } from './framed-run.ts';
import type { SizedAlpha } from './run-input.ts';
import { unsureShare } from './unsure-share.ts';

/** Chosen over composites of every size (bench/MEASUREMENTS.md). */
export const ZOOM_RULES = {
  /** Largest box of a small subject, relative to the picture. */
  boxShareMax: 0.06,
  /** On each side of the box, relative to its longer side. */
  marginShare: 0.5,
  /** If the closer matte keeps less than this share of the first, it lost the subject. */
  keptShareMin: 0.5,
  /** A subject that covers this share of a side of the part continues outside of it. */
  sideShareMax: 0.05,
};

type ZoomRules = Readonly<Record<keyof typeof ZOOM_RULES, number>>;

/** Least alpha of a shown pixel: a second subject may be half transparent, a ghost is fainter. */
const SHOWN_FROM = 64;
/** Fewer shown pixels in a column or row are at most a speck. */
const LINE_MIN = 2;
/** Every fourth pixel each way is enough for shares of areas. */
const GRID_STEP = 4;
/** Odd, so that the samples visit all columns. */
const SAMPLE_STEP = 7;
/** Most separate subjects; each gets its own run. */
const PARTS_MAX = 3;
/** Gap that cuts a box in two, relative to the matte's side. */
const GAP_SHARE_MIN = 1 / 64;
/** Three subjects need two cuts, and specks more. */
const CUTS_MAX = 4;

/**
 * Gives the parts around small subjects, in the picture's pixels: one around all, or one each if
 * they lie apart. Empty if a subject is not small, if they are too many, or if nothing is surely
 * shown.
 * @param first the matte of the whole picture
 */
export function partsAround(
  first: SizedAlpha,
  picture: Size,
  { boxShareMax, marginShare }: ZoomRules = ZOOM_RULES,
): Box[] {
  const { size } = first;
  const boxMax = boxShareMax * size.width * size.height;
  if (countSampled(first.alpha) * SAMPLE_STEP > PARTS_MAX * boxMax) return [];
  const isSmall = ({ width, height }: Box) => width * height <= boxMax;
  const [whole] = shownBoxes(first, { left: 0, top: 0, ...size }, 0);
  if (whole === undefined) return [];
  const around = (box: Box, margin = marginShare) => boxInPicture(box, margin, size, picture);
  if (isSmall(whole)) return [around(whole)];
  const isNear = (one: Box, other: Box) => meet(around(one), around(other, 0));
  const boxes = joinNear(shownBoxes(first, whole, CUTS_MAX), isNear);
  const isSeveral = boxes.length > 1 && boxes.length <= PARTS_MAX;
  return isSeveral && boxes.every(isSmall) ? boxes.map(box => around(box)) : [];
}

function boxInPicture(box: Box, marginShare: number, size: Size, picture: Size): Box {
  const [scaleX, scaleY] = [picture.width / size.width, picture.height / size.height];
  const margin = marginShare * Math.max(box.width * scaleX, box.height * scaleY);
  const left = Math.max(0, Math.floor(box.left * scaleX - margin));
  const top = Math.max(0, Math.floor(box.top * scaleY - margin));
  const right = Math.min(picture.width, Math.ceil((box.left + box.width) * scaleX + margin));
  const bottom = Math.min(picture.height, Math.ceil((box.top + box.height) * scaleY + margin));
  return { left, top, width: right - left, height: bottom - top };
}

function joinNear(boxes: readonly Box[], isNear: (one: Box, other: Box) => boolean): Box[] {
  const apart: Box[] = [];
  for (let box of boxes) {
    for (let at = 0; at < apart.length; at++) {
      const other = apart[at]!;
      if (!isNear(box, other) && !isNear(other, box)) continue;
      box = boxAround([box, other]);
      apart.splice(at, 1);
      // The larger box may be near earlier ones.
      at = -1;
    }
    apart.push(box);
  }
  return apart;
}

export function boxAround(boxes: readonly Box[]): Box {
  const left = Math.min(...boxes.map(box => box.left));
  const top = Math.min(...boxes.map(box => box.top));
  const right = Math.max(...boxes.map(box => box.left + box.width));
  const bottom = Math.max(...boxes.map(box => box.top + box.height));
  return { left, top, width: right - left, height: bottom - top };
}

function meet(one: Box, other: Box): boolean {
  const across = one.left < other.left + other.width && other.left < one.left + one.width;
  return across && one.top < other.top + other.height && other.top < one.top + one.height;
}

/**
 * Rejects a matte that is less sure than the first, lost the subject, or shows it cut off by the
 * part.
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

/** Share of the part's pixels in `first` that `closer` shows too; 1 if there are none. */
function keptShare(closer: SizedAlpha, first: SizedAlpha, part: Box, picture: Size): number {
  const { width, height } = closer.size;
  const columns = first.size.width / picture.width;
  const rows = first.size.height / picture.height;
  let [shown, kept] = [0, 0];
  for (let y = 0; y < height; y += GRID_STEP) {
    const firstY = Math.floor((part.top + ((y + 0.5) * part.height) / height) * rows);
    for (let x = 0; x < width; x += GRID_STEP) {
      const firstX = Math.floor((part.left + ((x + 0.5) * part.width) / width) * columns);
      if (first.alpha[firstY * first.size.width + firstX]! < SHOWN_FROM) continue;
      shown += 1;
      if (closer.alpha[y * width + x]! >= SHOWN_FROM) kept += 1;
    }
  }
  return shown === 0 ? 1 : kept / shown;
}

function countSampled(alpha: Uint8Array): number {
  let shown = 0;
  for (let at = 0; at < alpha.length; at += SAMPLE_STEP) shown += alpha[at]! >>> 7;
  return shown;
}

/** Gives the box of the shown pixels, or its pieces, each cut again at its widest gap. */
function shownBoxes(matte: SizedAlpha, within: Box, cuts: number): Box[] {
  const { alpha, size } = matte;
  const columns = new Uint32Array(within.width);
  const rows = new Uint32Array(within.height);
  for (let y = 0; y < within.height; y++) {
    const row = (within.top + y) * size.width + within.left;
    for (let x = 0; x < within.width; x++) {
      if (alpha[row + x]! < SHOWN_FROM) continue;
      columns[x]! += 1;
      rows[y]! += 1;
    }
  }
  const [across, down] = [spanOf(columns, within.left), spanOf(rows, within.top)];
  if (across === undefined || down === undefined) return [];
  const box = { left: across.start, top: down.start, width: across.length, height: down.length };
  const [gapAcross, gapDown] = [across.gap / size.width, down.gap / size.height];
  if (cuts === 0 || Math.max(gapAcross, gapDown) < GAP_SHARE_MIN) return [box];
  const halves =
    gapAcross >= gapDown
      ? cutBox(box, 'left', 'width', across.gapEnd)
      : cutBox(box, 'top', 'height', down.gapEnd);
  return halves.flatMap(half => shownBoxes(matte, half, cuts - 1));
}

function cutBox(box: Box, side: 'left' | 'top', length: 'width' | 'height', at: number): Box[] {
  const before = at - box[side];
  return [
    { ...box, [length]: before },
    { ...box, [side]: at, [length]: box[length] - before },
  ];
}

function spanOf(counts: Uint32Array, from: number) {
  const isShown = (count: number) => count >= LINE_MIN;
  const first = counts.findIndex(isShown);
  if (first < 0) return undefined;
  let [last, gap, gapEnd] = [first, 0, first];
  for (let at = first + 1; at < counts.length; at++) {
    if (!isShown(counts[at]!)) continue;
    if (at - last - 1 > gap) [gap, gapEnd] = [at - last - 1, at];
    last = at;
  }
  return { start: from + first, length: last + 1 - first, gap, gapEnd: from + gapEnd };
}
