import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import {
  borrowCopy,
  bytesAt,
  doublesAt,
  kernels,
  pixelsAt,
  withMemory,
} from '../kernels/kernels.ts';
import { gridSize } from '../matte/fill-areas.ts';

/*
 * Finds the subject in a matte. Pixels at least EDGE opaque form cells, and touching cells parts. A
 * small or everywhere faint part is a speck, unless it is the largest: in a corner it would spoil a
 * crop. Judged on 30 photos with reference mattes (bench/MEASUREMENTS.md): specks of haze beside a
 * glass had 4 % of its alpha and no pixel above 60; true parts had from 0.4 % on, and opaque
 * pixels.
 */

interface SeenSubject {
  readonly box: Box;
  /** Sum of its alpha, relative to the picture's area. */
  readonly share: number;
  readonly unsure: boolean;
  readonly cutOff: boolean;
}

/**
 * Chosen on close-ups, compositions and pictures without a subject, each judged without similar
 * ones (bench/quality-subject.ts, bench/MEASUREMENTS.md).
 */
export const SUBJECT_RULES = {
  /** Least alpha (of 255) of a solid pixel. */
  solidFrom: 160,
  /** If fewer cells have a solid pixel, there is at most a ghost. */
  solidShareMin: 0.0003,
  /** Least alpha (of 255) of a shown pixel that is sure. */
  unsureBelow: 230,
  /** From this share of unsure shown pixels on, the subject is unsure. */
  unsureShareMin: 0.25,
  /** From this share of faint pixels far from solid ones on, the subject is unsure. */
  hazeShareMin: 0.02,
  /** Share of solid pixels on the picture's border. */
  borderShareMin: 0.01,
} as const;

type SolidRules = Readonly<Record<'solidFrom' | 'solidShareMin', number>>;

/**
 * Least alpha of a part's pixel. With 13 haze widens boxes (of a bear by 1 %); with 51 boxes lose
 * twice as much.
 */
const EDGE = 26;
/** Least alpha of a part, relative to the largest. */
const SPECK_SHARE = 0.004;
/** Least alpha of a part's most opaque pixel. */
const SPECK_PEAK = 64;
/** Along the longer side. */
const CELLS_MAX = 512;

/** Numbers of a run (int32) and a part (float64): inference-node/kernels/subject-parts.ts. */
const RUN_NUMBERS = 3;
const PART_NUMBERS = 7;
/** The kernel overruns columns up to a multiple of this. */
const COLUMNS_STEP = 16;

interface Part {
  readonly sum: number;
  readonly peak: number;
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

interface Cells {
  readonly count: number;
  /** Numbers of cells by their greatest alpha. */
  readonly ofPeak: Uint32Array;
  readonly parts: readonly Part[];
  /** Counted in the middle row of each row of cells. */
  readonly shown: number;
  readonly unsure: number;
}

export function findSubject(alpha: Uint8Array, size: Size): SeenSubject | undefined {
  const cells = gatherCells(alpha, size);
  if (!hasSolid(cells)) return undefined;
  const { parts } = cells;
  const largest = parts.reduce((most, { sum }) => Math.max(most, sum), 0);
  const kept = parts.filter(
    ({ sum, peak }) => sum === largest || (peak >= SPECK_PEAK && sum >= SPECK_SHARE * largest),
  );
  return {
    box: boxAround(kept),
    share: kept.reduce((all, { sum }) => all + sum, 0) / 255 / (size.width * size.height),
    unsure: isUnsure(cells, alpha, size),
    cutOff: isCutOff(alpha, size),
  };
}

export function hasSolid(
  { ofPeak, count }: Pick<Cells, 'ofPeak' | 'count'>,
  { solidFrom, solidShareMin }: SolidRules = SUBJECT_RULES,
): boolean {
  const solid = ofPeak.subarray(solidFrom).reduce((all, cells) => all + cells, 0);
  return solid > 0 && solid >= solidShareMin * count;
}

export function unsureOfShown({ shown, unsure }: Pick<Cells, 'shown' | 'unsure'>): number {
  return shown === 0 ? 0 : unsure / shown;
}

function isUnsure(cells: Cells, alpha: Uint8Array, size: Size): boolean {
  return unsureOfShown(cells) >= SUBJECT_RULES.unsureShareMin || isHazy(alpha, size);
}

/** In cells of the matte's grid. */
const NEAR_CELLS = 2;

function isHazy(alpha: Uint8Array, { width, height }: Size): boolean {
  const grid = gridSize({ width, height });
  const read = new Uint8Array(grid.width * grid.height);
  let faint = 0;
  for (let row = 0, cell = 0; row < grid.height; row++) {
    const from = width * Math.floor(((row + 0.5) * height) / grid.height);
    for (let column = 0; column < grid.width; column++, cell++) {
      const value = alpha[from + Math.floor(((column + 0.5) * width) / grid.width)]!;
      read[cell] = value;
      if (value > 0 && value < EDGE) faint += 1;
    }
  }
  const least = SUBJECT_RULES.hazeShareMin * read.length;
  if (faint < least) return false;
  const solid = read.map(value => (value >= SUBJECT_RULES.solidFrom ? 1 : 0));
  const near = withMemory(borrow => {
    const [scratch, out] = [borrow(solid.length), borrow(solid.length)];
    kernels.widen(borrowCopy(borrow, solid), grid.width, grid.height, NEAR_CELLS, scratch, out);
    return bytesAt(out, solid.length).slice();
  });
  return read.filter((value, at) => value > 0 && value < EDGE && near[at] === 0).length >= least;
}

function isCutOff(alpha: Uint8Array, { width, height }: Size): boolean {
  const { solidFrom, borderShareMin } = SUBJECT_RULES;
  let solid = 0;
  const count = (at: number) => {
    if (alpha[at]! >= solidFrom) solid += 1;
  };
  for (let x = 0; x < width; x++) {
    count(x);
    count((height - 1) * width + x);
  }
  for (let y = 0; y < height; y++) {
    count(y * width);
    count(y * width + width - 1);
  }
  return solid >= borderShareMin * 2 * (width + height);
}

/**
 * The kernel's memory holds the runs of the row above and the parts so far. For 512x512 pixels,
 * each a cell, it takes a twentieth of JavaScript's time, and a tenth in a new process.
 */
export function gatherCells(alpha: Uint8Array, { width, height }: Size): Cells {
  const sidePx = Math.ceil(Math.max(width, height) / CELLS_MAX);
  const [columns, rows] = [Math.ceil(width / sidePx), Math.ceil(height / sidePx)];
  return withMemory(borrow => {
    const pixels = borrow(width * sidePx);
    const padded = Math.ceil(width / COLUMNS_STEP) * COLUMNS_STEP;
    const [sums, peaks] = [borrow(2 * padded), borrow(padded)];
    const runBytes = 4 * (RUN_NUMBERS * Math.ceil(columns / 2) + RUN_NUMBERS);
    let [above, runs] = [borrow(runBytes), borrow(runBytes)];
    const ofPeak = borrow(4 * 256);
    // Two cells that begin parts never lie in one square of four.
    const partsMax = Math.ceil(columns / 2) * Math.ceil(rows / 2);
    const parts = borrow(8 * PART_NUMBERS * partsMax);
    bytesAt(above, runBytes).fill(0);
    pixelsAt(ofPeak, 256).fill(0);
    const strip = bytesAt(pixels, width * sidePx);
    let [count, shown, unsure] = [0, 0, 0];
    for (let top = 0; top < height; top += sidePx) {
      const stripPx = Math.min(sidePx, height - top);
      strip.set(alpha.subarray(top * width, (top + stripPx) * width));
      const lines = [sums, peaks, above, runs] as const;
      const read = [pixels, width, stripPx, top, sidePx, EDGE] as const;
      count = kernels.joinCells(...read, ...lines, ofPeak, parts, count);
      [above, runs] = [runs, above];
      const middle = top === 0 ? Math.min(stripPx - 1, sidePx >> 1) : sidePx >> 1;
      if (middle >= stripPx) continue;
      const from = (least: number) => kernels.countFrom(pixels + middle * width, width, least);
      const shownInRow = from(EDGE);
      shown += shownInRow;
      unsure += shownInRow - from(SUBJECT_RULES.unsureBelow);
    }
    return {
      count: columns * rows,
      ofPeak: pixelsAt(ofPeak, 256).slice(),
      parts: readParts(doublesAt(parts, PART_NUMBERS * count)),
      shown,
      unsure,
    };
  });
}

function readParts(numbers: Float64Array): Part[] {
  const parts: Part[] = [];
  for (let at = 0; at < numbers.length; at += PART_NUMBERS) {
    if (numbers[at] !== at / PART_NUMBERS) continue;
    const [, sum, peak, left, top, right, bottom] = numbers.subarray(at, at + PART_NUMBERS);
    parts.push({ sum: sum!, peak: peak!, left: left!, top: top!, right: right!, bottom: bottom! });
  }
  return parts;
}

function boxAround(parts: readonly Part[]): Box {
  let [left, top, right, bottom] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 0, 0];
  for (const part of parts) {
    left = Math.min(left, part.left);
    top = Math.min(top, part.top);
    right = Math.max(right, part.right);
    bottom = Math.max(bottom, part.bottom);
  }
  return { left, top, width: right - left, height: bottom - top };
}
