/**
 * Which crops of the picture the model looks at for a hint, and whether what it shows there is what
 * the hint means. Pure: works on the grid of the hints.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { type Cells, findGroups, type Stroke } from './grow-strokes.ts';
import { TOGETHER_FROM } from './shown-groups.ts';

/** A crop for a box is the box and this share of its longer side around it. */
const BOX_MARGINS = [0.1, 0.35];
/** The first crop for a stroke is so many times its length. A smaller one cuts the object off. */
const STROKE_SCALE = 2.2;
/** A dot says nothing of the length: a stroke counts as this share of the picture's long side. */
const LENGTH_SHARE_MIN = 1 / 6;
/** The next crop is so much larger, if the crop cut off little or much of the object. */
const GROWTH = { little: 1.4, much: 2 };
const MUCH_FROM = 0.25;
/** Crops of one hint, before the whole picture. */
const CROPS_MAX = 3;
/** From this alpha on, of 255, a matte shows something. */
export const SHOWN_FROM = 128;
/** From this alpha on an object is cut off: its hair is half transparent. */
const CUT_FROM = 64;
/** A matte may fade in the last cell of a crop. */
const SIDE_INSET = 1;
/** The object may have so many cells on the crop's sides that are inside of the picture. */
const CUT_CELLS_MAX = 1;
/** The object covers at least this share of what a stroke covers, */
const COVERED_MIN = 0.4;
/** or this share, and its box this share of the stroke's: a scribble over legs. */
const SCRIBBLED_MIN = 0.15;
const SCRIBBLED_BOX_MIN = 0.6;
/** People draw boxes close: a found object with a wider gap to one side of it is doubtful. */
const GAP_SHARE_MAX = 0.1;
/** Of a box, what is found covers at least this share. */
const BOX_FILLED_MIN = 0.03;
/** A thing belongs to a box if more than this share of it is inside. */
const IN_BOX_MIN = 0.5;
/** A grid of a crop has so many cells more around what is found: its faint edge. */
const EDGE = 2;

/** A hint that the matte does not follow. Boxes are in cells. */
export interface Target<Hint = unknown> {
  readonly stroke: Hint;
  readonly kind: 'keep' | 'erase';
  readonly isBox: boolean;
  /** The cells of it that the matte does not follow. */
  readonly cells: readonly number[];
  readonly box: Box;
}

/** A crop, in cells. */
export interface Crop {
  readonly box: Box;
  /** Counts from 0. */
  readonly attempt: number;
  /** Times the target's length; of a box its margin. */
  readonly scale: number;
}

/** What a crop shows of a target: shares of 0 to 1. */
export interface Found {
  /** 1 for each cell of the grid that belongs to it. */
  readonly mask: Uint8Array;
  readonly isFollowed: boolean;
  /** Share of the hint's box that the box of what is found covers. */
  readonly fit: number;
  /** Another crop may show more of what the hint means. */
  readonly isDoubtful: boolean;
  /** Share of the crop's inner sides that it covers. */
  readonly cutOff: number;
}

export function boxOf({ left, top, right, bottom }: Stroke): Box {
  return { left, top, width: right - left + 1, height: bottom - top + 1 };
}

/**
 * The first crop, or the one after `last`. Undefined: all were tried.
 * @param isFound a crop before has shown something: the whole picture would not show it better
 */
export function nextCrop(
  { isBox, box }: Target,
  grid: Size,
  last: (Crop & { readonly cutOff: number }) | undefined,
  isFound = false,
): Crop | undefined {
  const attempt = last === undefined ? 0 : last.attempt + 1;
  const isWhole = (crop: Box) => crop.width === grid.width && crop.height === grid.height;
  if (last !== undefined && isWhole(last.box)) return undefined;
  if (attempt > (isBox ? BOX_MARGINS.length : CROPS_MAX)) return undefined;
  if (attempt === (isBox ? BOX_MARGINS.length : CROPS_MAX)) {
    if (isFound) return undefined;
    return { box: { left: 0, top: 0, ...grid }, attempt, scale: 0 };
  }
  const longer = Math.max(box.width, box.height);
  if (isBox) {
    const margin = BOX_MARGINS[attempt]!;
    const [x, y] = [margin * longer + box.width / 2, margin * longer + box.height / 2];
    return { box: around(box, x, y, grid), attempt, scale: margin };
  }
  const growth = (last?.cutOff ?? 0) >= MUCH_FROM ? GROWTH.much : GROWTH.little;
  const scale = last === undefined ? STROKE_SCALE : growth * last.scale;
  const length = Math.max(longer, LENGTH_SHARE_MIN * Math.max(grid.width, grid.height));
  const half = (scale * length) / 2;
  return { box: around(box, half, half, grid), attempt, scale };
}

function around({ left, top, width, height }: Box, x: number, y: number, grid: Size): Box {
  const [centreX, centreY] = [left + width / 2, top + height / 2];
  const from = { x: Math.max(0, Math.floor(centreX - x)), y: Math.max(0, Math.floor(centreY - y)) };
  const to = {
    x: Math.min(grid.width, Math.ceil(centreX + x)),
    y: Math.min(grid.height, Math.ceil(centreY + y)),
  };
  return { left: from.x, top: from.y, width: to.x - from.x, height: to.y - from.y };
}

/**
 * Finds in a look what touches the target.
 * @param look the model's matte on the grid, 0 outside of the crop
 */
export function findIn(look: Uint8Array, { box: crop }: Crop, target: Target, cells: Cells): Found {
  const { width, height, alpha } = cells;
  const isIn = (cell: number) => look[cell]! >= TOGETHER_FROM;
  const isHinted = new Uint8Array(look.length);
  for (const cell of target.cells) isHinted[cell] = 1;
  const mask = new Uint8Array(look.length);
  for (const group of findGroups(isIn, cells)) {
    if (
      !(target.isBox
        ? liesInBox(group, target.box, look, width)
        : group.cells.some(cell => isHinted[cell] === 1 && look[cell]! >= SHOWN_FROM))
    )
      continue;
    for (const cell of group.cells) mask[cell] = 1;
  }
  // The crop may cut off what a kept subject shows already, never an object that leaves.
  const isCut = (cell: number) =>
    mask[cell] === 1 &&
    look[cell]! >= CUT_FROM &&
    (target.kind === 'erase' || alpha[cell]! < SHOWN_FROM);
  let [cut, sides] = [0, 0];
  const note = (x: number, y: number) => {
    sides += 1;
    if (isCut(y * width + x)) cut += 1;
  };
  const [right, bottom] = [crop.left + crop.width, crop.top + crop.height];
  for (let y = crop.top; y < bottom; y++) {
    if (crop.left > 0) note(crop.left + SIDE_INSET, y);
    if (right < width) note(right - 1 - SIDE_INSET, y);
  }
  for (let x = crop.left; x < right; x++) {
    if (crop.top > 0) note(x, crop.top + SIDE_INSET);
    if (bottom < height) note(x, bottom - 1 - SIDE_INSET);
  }
  const cutOff = sides === 0 ? 0 : cut / sides;
  const shown = (cell: number) => mask[cell] === 1 && look[cell]! >= SHOWN_FROM;
  const covered = target.cells.filter(shown).length;
  const { fit, gap } = fitOf(shown, target.box, cells);
  const isScribbled = covered >= SCRIBBLED_MIN * target.cells.length && fit >= SCRIBBLED_BOX_MIN;
  const isCovered = target.isBox
    ? covered >= BOX_FILLED_MIN * target.box.width * target.box.height
    : covered >= COVERED_MIN * target.cells.length || isScribbled;
  return {
    mask: widen(mask, cells),
    isFollowed: isCovered && cut <= CUT_CELLS_MAX,
    fit,
    isDoubtful: target.isBox && gap > GAP_SHARE_MAX,
    cutOff,
  };
}

/** How the box of what is found fits into a hint's box. The gap is relative to the box's side. */
function fitOf(isIn: (cell: number) => boolean, box: Box, { width }: Size) {
  let [left, top, right, bottom] = [box.left + box.width, box.top + box.height, box.left, box.top];
  for (let y = box.top; y < box.top + box.height; y++) {
    for (let x = box.left; x < box.left + box.width; x++) {
      if (!isIn(y * width + x)) continue;
      [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
      [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
    }
  }
  const [across, down] = [Math.max(0, right - left), Math.max(0, bottom - top)];
  const gaps = [
    (left - box.left) / box.width,
    (box.left + box.width - right) / box.width,
    (top - box.top) / box.height,
    (box.top + box.height - bottom) / box.height,
  ];
  return { fit: (across * down) / (box.width * box.height), gap: Math.max(...gaps) };
}

function liesInBox(group: Stroke, box: Box, look: Uint8Array, width: number): boolean {
  let [inside, all] = [0, 0];
  for (const cell of group.cells) {
    const [x, y] = [cell % width, Math.floor(cell / width)];
    const isInside =
      x >= box.left && x < box.left + box.width && y >= box.top && y < box.top + box.height;
    all += look[cell]!;
    if (isInside) inside += look[cell]!;
  }
  return inside > IN_BOX_MIN * all;
}

/** The mask with the cells around it. */
export function widen(mask: Uint8Array, { width, height }: Size): Uint8Array {
  const wide = mask.slice();
  for (let cell = 0; cell < mask.length; cell++) {
    if (mask[cell] === 0) continue;
    const [x, y] = [cell % width, Math.floor(cell / width)];
    for (let row = Math.max(0, y - EDGE); row <= Math.min(height - 1, y + EDGE); row++) {
      const from = row * width + Math.max(0, x - EDGE);
      wide.fill(1, from, row * width + Math.min(width, x + EDGE + 1));
    }
  }
  return wide;
}
