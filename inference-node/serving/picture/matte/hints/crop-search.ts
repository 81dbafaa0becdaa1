/**
 * Chooses the crops that a model sees for a hint, and finds the hint's object in their mattes.
 * Boxes are on the grid of the hints.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { type Cells, findGroups, type Stroke } from './grow-strokes.ts';
import { TOGETHER_FROM } from './shown-groups.ts';

/** Margins of a box's crops, relative to its longer side. */
const BOX_MARGINS = [0.1, 0.35];
/** A stroke's first crop, relative to its length. A smaller one cuts the object off. */
const STROKE_SCALE = 2.2;
/** Least length of a stroke, relative to the picture's long side: a dot has none. */
const LENGTH_SHARE_MIN = 1 / 6;
/** Growth of the next crop, if this one cut off little or much of the object. */
const GROWTH = { little: 1.4, much: 2 };
const MUCH_FROM = 0.25;
/** Crops for one stroke, before the whole picture. */
const CROPS_MAX = 3;
export const SHOWN_FROM = 128;
/** Least alpha of an object at a crop's side: hair is half transparent. */
const CUT_FROM = 64;
/** A matte may fade in a crop's last cell. */
const SIDE_INSET = 1;
/**
 * If an object covers more cells along the crop's sides, without those on the picture's border, it
 * is cut off.
 */
const CUT_CELLS_MAX = 1;
/** Least share of a stroke that its object covers. */
const COVERED_MIN = 0.4;
/** The same for a scribble (over legs), if its box and the object's agree by SCRIBBLED_BOX_MIN. */
const SCRIBBLED_MIN = 0.15;
const SCRIBBLED_BOX_MIN = 0.6;
/** People draw boxes tightly: a wider gap to one side makes an object doubtful. */
const GAP_SHARE_MAX = 0.1;
/** Least share of a box that its object covers. */
const BOX_FILLED_MIN = 0.03;
/** Least share of an object inside of the hint's box. */
const IN_BOX_MIN = 0.5;
/** Cells of an object's faint edge. */
const EDGE = 2;

/** A hint that the matte contradicts. Boxes are in cells. */
export interface Target<Hint = unknown> {
  readonly stroke: Hint;
  readonly kind: 'keep' | 'erase';
  readonly isBox: boolean;
  readonly cells: readonly number[];
  readonly box: Box;
}

export interface Crop {
  readonly box: Box;
  readonly attempt: number;
  /** Relative to the target's length; that of a box includes the margin. */
  readonly scale: number;
}

export interface Found {
  /** 1 for each cell of the object. */
  readonly mask: Uint8Array;
  readonly isFollowed: boolean;
  /** Share of the hint's box that the object's box covers. */
  readonly fit: number;
  /** Another crop may show more of the object. */
  readonly isDoubtful: boolean;
  /** Share of the crop's sides that the object covers, without those on the picture's border. */
  readonly cutOff: number;
}

export function boxOf({ left, top, right, bottom }: Stroke): Box {
  return { left, top, width: right - left + 1, height: bottom - top + 1 };
}

/**
 * Undefined: all crops were tried.
 * @param isFound an earlier crop showed an object, which the whole picture would not show better
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
 * Finds the object that touches the target.
 * @param matte the crop's matte on the grid, 0 outside
 */
export function findIn(
  matte: Uint8Array,
  { box: crop }: Crop,
  target: Target,
  cells: Cells,
): Found {
  const { width, height, alpha } = cells;
  const isIn = (cell: number) => matte[cell]! >= TOGETHER_FROM;
  const isHinted = new Uint8Array(matte.length);
  for (const cell of target.cells) isHinted[cell] = 1;
  const mask = new Uint8Array(matte.length);
  for (const group of findGroups(isIn, cells)) {
    if (
      !(target.isBox
        ? liesInBox(group, target.box, matte, width)
        : group.cells.some(cell => isHinted[cell] === 1 && matte[cell]! >= SHOWN_FROM))
    )
      continue;
    for (const cell of group.cells) mask[cell] = 1;
  }
  // A kept subject may continue outside of the crop if it is already shown there; a removed object
  // may not.
  const isCut = (cell: number) =>
    mask[cell] === 1 &&
    matte[cell]! >= CUT_FROM &&
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
  const shown = (cell: number) => mask[cell] === 1 && matte[cell]! >= SHOWN_FROM;
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

function liesInBox(group: Stroke, box: Box, matte: Uint8Array, width: number): boolean {
  let [inside, all] = [0, 0];
  for (const cell of group.cells) {
    const [x, y] = [cell % width, Math.floor(cell / width)];
    const isInside =
      x >= box.left && x < box.left + box.width && y >= box.top && y < box.top + box.height;
    all += matte[cell]!;
    if (isInside) inside += matte[cell]!;
  }
  return inside > IN_BOX_MIN * all;
}

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
