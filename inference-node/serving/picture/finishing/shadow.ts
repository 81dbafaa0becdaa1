/**
 * A soft drop shadow from the matte alone. The blur works on a coarse grid in floats, and each row
 * of the frame interpolates it. Dithering by less than one step of alpha keeps wide, faint shadows
 * free of bands.
 */
import type { Box, Shadow, Size } from '@matting/proto/contract/finishing.ts';
import type { Layout } from './layout.ts';
import { scalePlane } from './scale-rows.ts';

/** Cells are finer than the blur, so that their edges do not show. */
const CELLS_PER_DEVIATION = 4;
/** Bounds the grid, also for a sharp shadow of a large picture. */
const GRID_PIXELS_MAX = 1_000_000;
/** The blur reaches this many deviations. */
const REACH = 3;
/** A blur is the sum of this many box means (Kovesi, "Fast Almost-Gaussian Filtering"). */
const PASSES = 3;

/** An 8 x 8 ordered dither (Bayer 1973) by rows. */
const DITHER_SIDE = 8;
/** The kernel reads four thresholds at once. */
const DITHER_ROW = DITHER_SIDE + 4;
const DITHER = Array.from({ length: DITHER_SIDE }, (_, y) =>
  Float32Array.from({ length: DITHER_ROW }, (_, x) => thresholdAt(x % DITHER_SIDE, y)),
);

function thresholdAt(x: number, y: number): number {
  let rank = 0;
  for (let bit = 0; bit < 3; bit++) {
    const [across, down] = [(x >> bit) & 1, (y >> bit) & 1];
    rank = 4 * rank + 2 * (across ^ down) + down;
  }
  return (rank + 0.5) / DITHER_SIDE ** 2;
}

interface Grid extends Size {
  readonly cells: Float32Array;
  /** Position of the first cell in the frame, and a cell's sides, in pixels. */
  readonly left: number;
  readonly top: number;
  readonly cellWidth: number;
  readonly cellHeight: number;
}

interface Cast {
  readonly layout: Layout;
  readonly subject: Box;
  readonly shadow: Shadow;
}

interface ShadowRow {
  readonly cells: Float32Array;
  readonly first: number;
  readonly count: number;
  /** Position of the first pixel, and distance between pixels, in cells. */
  readonly along: number;
  readonly step: number;
  /** Eight thresholds, which repeat, and the first four again. */
  readonly dither: Float32Array;
}

export interface CastShadow {
  /** Undefined: no shadow. Valid until the next row is read. */
  rowAt(y: number): ShadowRow | undefined;
}

/** @param subject its box in the input; the visible part casts the shadow */
export function castShadow(
  alpha: Uint8Array,
  input: Size,
  { layout, subject, shadow }: Cast,
): CastShadow {
  const { source, target } = layout;
  const scale = target.width / source.width;
  const unit = (Math.max(subject.width, subject.height) * scale) / 100;
  const deviationPx = (shadow.blur * unit) / 2;
  const grid = drawGrid(alpha, input, { layout, subject, deviationPx });
  const { width, height, cells, cellWidth, cellHeight } = grid;
  blur(cells, { width, height }, deviationPx / cellWidth, deviationPx / cellHeight);
  for (let at = 0; at < cells.length; at++) cells[at]! *= shadow.opacity / 100;
  const moved = {
    ...grid,
    left: grid.left + shadow.offsetX * unit,
    top: grid.top + shadow.offsetY * unit,
  };
  const between = new Float32Array(width + 1);
  return { rowAt: y => rowBetween(moved, between, layout.frame.width, y) };
}

function drawGrid(
  alpha: Uint8Array,
  input: Size,
  { layout, subject, deviationPx }: Omit<Cast, 'shadow'> & { readonly deviationPx: number },
): Grid {
  const { source, target } = layout;
  const [scaleX, scaleY] = [target.width / source.width, target.height / source.height];
  const window = within(subject, source);
  const shownPx = { width: window.width * scaleX, height: window.height * scaleY };
  const cellPx = Math.max(
    1,
    deviationPx / CELLS_PER_DEVIATION,
    Math.sqrt((shownPx.width * shownPx.height) / GRID_PIXELS_MAX),
  );
  const shown = {
    width: Math.max(1, Math.round(shownPx.width / cellPx)),
    height: Math.max(1, Math.round(shownPx.height / cellPx)),
  };
  const [cellWidth, cellHeight] = [shownPx.width / shown.width, shownPx.height / shown.height];
  const roomX = 1 + Math.ceil((REACH * deviationPx) / cellWidth);
  const roomY = 1 + Math.ceil((REACH * deviationPx) / cellHeight);
  const [width, height] = [shown.width + 2 * roomX, shown.height + 2 * roomY];
  const cells = new Float32Array(width * height);
  scalePlane(alpha, input, window, shown, (y, row) => {
    cells.set(row, (y + roomY) * width + roomX);
  });
  const left = target.left + (window.left - source.left) * scaleX - roomX * cellWidth;
  const top = target.top + (window.top - source.top) * scaleY - roomY * cellHeight;
  return { cells, width, height, left, top, cellWidth, cellHeight };
}

function within(box: Box, source: Box): Box {
  const left = Math.max(box.left, source.left);
  const top = Math.max(box.top, source.top);
  const right = Math.min(box.left + box.width, source.left + source.width);
  const bottom = Math.min(box.top + box.height, source.top + source.height);
  return { left, top, width: Math.max(1, right - left), height: Math.max(1, bottom - top) };
}

/** @param across the deviation along a row, in cells */
function blur(cells: Float32Array, { width, height }: Size, across: number, down: number): void {
  const line = new Float32Array(Math.max(width, height));
  for (let pass = 0; pass < PASSES; pass++) {
    const x = boxRadius(across, pass);
    for (let y = 0; y < height && x > 0; y++) meanAlong(cells, y * width, 1, width, x, line);
    const y = boxRadius(down, pass);
    for (let x = 0; x < width && y > 0; x++) meanAlong(cells, x, width, height, y, line);
  }
}

/** Radius of the box of a pass, so that all passes together blur by this deviation. */
function boxRadius(deviation: number, pass: number): number {
  const ideal = Math.sqrt((12 * deviation ** 2) / PASSES + 1);
  const least = 2 * Math.floor((ideal - 1) / 2) + 1;
  const excess = 12 * deviation ** 2 - PASSES * (least ** 2 + 4 * least + 3);
  const small = Math.round(excess / (-4 * least - 4));
  return ((pass < small ? least : least + 2) - 1) / 2;
}

/** Cells beyond the line's ends are empty. */
function meanAlong(
  cells: Float32Array,
  from: number,
  step: number,
  count: number,
  radius: number,
  line: Float32Array,
): void {
  let sum = 0;
  for (let at = 0; at < count; at++) line[at] = cells[from + at * step]!;
  for (let at = 0; at < Math.min(radius, count); at++) sum += line[at]!;
  const share = 1 / (2 * radius + 1);
  for (let at = 0; at < count; at++) {
    if (at + radius < count) sum += line[at + radius]!;
    cells[from + at * step] = Math.max(0, sum * share);
    if (at - radius >= 0) sum -= line[at - radius]!;
  }
}

function rowBetween(
  { cells, width, height, left, top, cellWidth, cellHeight }: Grid,
  between: Float32Array,
  frameWidth: number,
  y: number,
): ShadowRow | undefined {
  const down = (y + 0.5 - top) / cellHeight - 0.5;
  const above = Math.floor(down);
  const first = Math.max(0, Math.ceil(left + cellWidth / 2));
  const count = Math.min(frameWidth, Math.floor(left + (width - 0.5) * cellWidth)) - first;
  if (above < 0 || above + 1 >= height || count <= 0) return undefined;
  const share = down - above;
  for (let x = 0, at = above * width; x < width; x++, at++) {
    between[x] = cells[at]! * (1 - share) + cells[at + width]! * share;
  }
  const along = (first + 0.5 - left) / cellWidth - 0.5;
  const dither = DITHER[y % DITHER_SIDE]!;
  return { cells: between, first, count, along, step: 1 / cellWidth, dither };
}
