/** Finds the subject in a picture's matte. Pure. */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';

/*
 * Pixels that are at least EDGE opaque are gathered in cells, and cells that touch in parts. Beside
 * the largest part one that is small, or faint everywhere, is a speck: one in a corner would undo a
 * crop.
 *
 * Chosen on 30 photos with reference mattes: the edges of their boxes and of ours are 0.15 % of a
 * side apart in the mean of 28; of two the models see something else (bench/MEASUREMENTS.md). With an
 * EDGE of 13 haze widens boxes (of a bear by 1 %), with 51 the box loses twice as much. Specks of
 * haze beside a glass had 4 % of its alpha and no pixel above 60; true parts from 0.4 % on, and
 * opaque pixels.
 */

interface SeenSubject {
  readonly box: Box;
  /** The part of the picture's area that the subject covers, 0 to 1: the sum of its alpha. */
  readonly share: number;
  readonly unsure: boolean;
  readonly cutOff: boolean;
}

/**
 * These bounds decide what is a subject, unsure and cut off. They were chosen on close-ups,
 * compositions and pictures of nothing, each judged without its like (bench/quality-subject.ts,
 * bench/MEASUREMENTS.md).
 */
export const SUBJECT_RULES = {
  /** A pixel is solid from this alpha on, of 255. */
  solidFrom: 160,
  /**
   * If a smaller share of the cells has a solid pixel, there is no subject, but a ghost at most.
   */
  solidShareMin: 0.0003,
  /** A shown pixel (EDGE or more) is unsure below this alpha, of 255. */
  unsureBelow: 230,
  /** The subject is unsure from this share of unsure pixels among those that are shown. */
  unsureShareMin: 0.25,
  /** The subject is cut off if this share of the picture's border is solid. */
  borderShareMin: 0.01,
} as const;

export type SolidRules = Readonly<Record<'solidFrom' | 'solidShareMin', number>>;

/** A pixel is shown from this alpha on, of 255. */
const EDGE = 26;
/** Alpha of a part in all, relative to the largest part's: below it is a speck. */
const SPECK_SHARE = 0.004;
/** A part without a pixel of this alpha (of 255) is a speck, unless it is the largest. */
const SPECK_PEAK = 64;
/** Cells along the longer side. */
const CELLS_MAX = 512;

interface CellGrid extends Size {
  readonly sidePx: number;
  readonly sums: Float64Array;
  readonly peaks: Uint8Array;
}

interface Part {
  readonly sum: number;
  readonly peak: number;
}

/** Returns undefined if it sees no subject. */
export function findSubject(alpha: Uint8Array, size: Size): SeenSubject | undefined {
  const grid = sumCells(alpha, size);
  if (!hasSolid(grid)) return undefined;
  const { parts, partOf } = connectParts(grid);
  const largest = parts.reduce((most, { sum }) => Math.max(most, sum), 0);
  const isKept = parts.map(
    ({ sum, peak }) => sum === largest || (peak >= SPECK_PEAK && sum >= SPECK_SHARE * largest),
  );
  const kept = parts.reduce((all, { sum }, i) => (isKept[i] ? all + sum : all), 0);
  const share = kept / 255 / (size.width * size.height);
  const isSubject = (cell: number) => isKept[partOf[cell]! - 1] === true;
  return {
    box: boxOf(alpha, size, grid, isSubject),
    share,
    unsure: unsureOfShown(alpha, size, grid) >= SUBJECT_RULES.unsureShareMin,
    cutOff: isCutOff(alpha, size),
  };
}

/** Tells for each byte of alpha whether `is` holds: 0 or 1. A table is faster than comparisons. */
const bytesThat = (is: (alpha: number) => boolean) =>
  Uint8Array.from({ length: 256 }, (_none, alpha) => Number(is(alpha)));
const SHOWN = bytesThat(alpha => alpha >= EDGE);
const UNSURE = bytesThat(alpha => alpha >= EDGE && alpha < SUBJECT_RULES.unsureBelow);

/** @param rules those in use; a search for better ones passes its own. */
export function hasSolid(
  { peaks }: Pick<CellGrid, 'peaks'>,
  { solidFrom, solidShareMin }: SolidRules = SUBJECT_RULES,
): boolean {
  let solid = 0;
  for (const peak of peaks) if (peak >= solidFrom) solid += 1;
  return solid > 0 && solid >= solidShareMin * peaks.length;
}

/**
 * The share of the shown pixels that is unsure. It reads the middle row of each row of cells, which
 * takes 2 ms in place of 15 for 12 megapixels.
 */
export function unsureOfShown(
  alpha: Uint8Array,
  { width, height }: Size,
  { sidePx: stepPx }: Pick<CellGrid, 'sidePx'>,
): number {
  let [shown, unsure] = [0, 0];
  for (let y = Math.min(height - 1, stepPx >> 1); y < height; y += stepPx) {
    for (let i = y * width; i < (y + 1) * width; i++) {
      // The tables have all 256 bytes.
      const value = alpha[i]!;
      shown += SHOWN[value]!;
      unsure += UNSURE[value]!;
    }
  }
  return shown === 0 ? 0 : unsure / shown;
}

function isCutOff(alpha: Uint8Array, { width, height }: Size): boolean {
  const { solidFrom, borderShareMin } = SUBJECT_RULES;
  let solid = 0;
  const look = (at: number) => {
    if (alpha[at]! >= solidFrom) solid += 1;
  };
  for (let x = 0; x < width; x++) {
    look(x);
    look((height - 1) * width + x);
  }
  for (let y = 0; y < height; y++) {
    look(y * width);
    look(y * width + width - 1);
  }
  return solid >= borderShareMin * 2 * (width + height);
}

export function sumCells(alpha: Uint8Array, { width, height }: Size): CellGrid {
  const sidePx = Math.ceil(Math.max(width, height) / CELLS_MAX);
  const columns = Math.ceil(width / sidePx);
  const rows = Math.ceil(height / sidePx);
  const sums = new Float64Array(columns * rows);
  const peaks = new Uint8Array(columns * rows);
  // Every index is within the picture and its cells.
  for (let y = 0; y < height; y++) {
    const cells = Math.floor(y / sidePx) * columns;
    for (let column = 0, from = 0; from < width; column++, from += sidePx) {
      const end = y * width + Math.min(width, from + sidePx);
      let sum = 0;
      let peak = 0;
      for (let i = y * width + from; i < end; i++) {
        const value = alpha[i]!;
        if (value < EDGE) continue;
        sum += value;
        if (value > peak) peak = value;
      }
      sums[cells + column]! += sum;
      if (peak > peaks[cells + column]!) peaks[cells + column] = peak;
    }
  }
  return { width: columns, height: rows, sidePx, sums, peaks };
}

/** The parts, and of each cell the number of its part, from 1; 0: empty. */
function connectParts({ width, height, sums, peaks }: CellGrid) {
  const partOf = new Int32Array(sums.length);
  const parts: Part[] = [];
  const open = new Int32Array(sums.length);
  for (let first = 0; first < sums.length; first++) {
    if (sums[first] === 0 || partOf[first] !== 0) continue;
    const part = parts.length + 1;
    partOf[first] = part;
    open[0] = first;
    let [sum, peak] = [0, 0];
    for (let count = 1; count > 0; ) {
      const cell = open[--count]!;
      sum += sums[cell]!;
      peak = Math.max(peak, peaks[cell]!);
      const [column, row] = [cell % width, Math.floor(cell / width)];
      for (let y = Math.max(0, row - 1); y <= Math.min(height - 1, row + 1); y++) {
        for (let x = Math.max(0, column - 1); x <= Math.min(width - 1, column + 1); x++) {
          const next = y * width + x;
          if (sums[next] === 0 || partOf[next] !== 0) continue;
          partOf[next] = part;
          open[count++] = next;
        }
      }
    }
    parts.push({ sum, peak });
  }
  return { parts, partOf };
}

function boxOf(
  alpha: Uint8Array,
  { width, height }: Size,
  grid: CellGrid,
  isSubject: (cell: number) => boolean,
): Box {
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let cell = 0; cell < grid.sums.length; cell++) {
    if (!isSubject(cell)) continue;
    const fromX = (cell % grid.width) * grid.sidePx;
    const fromY = Math.floor(cell / grid.width) * grid.sidePx;
    const toX = Math.min(width, fromX + grid.sidePx);
    const toY = Math.min(height, fromY + grid.sidePx);
    // Its pixels are looked at only where they could widen the box.
    if (fromX >= left && toX <= right && fromY >= top && toY <= bottom) continue;
    for (let y = fromY; y < toY; y++) {
      for (let x = fromX; x < toX; x++) {
        if (alpha[y * width + x]! < EDGE) continue;
        left = Math.min(left, x);
        right = Math.max(right, x + 1);
        top = Math.min(top, y);
        bottom = Math.max(bottom, y + 1);
      }
    }
  }
  return { left, top, width: right - left, height: bottom - top };
}
