/**
 * Estimates the subject's own colour in soft pixels, which would otherwise keep the old background.
 * Coarse to fine (Germer et al. 2020): the picture on a small grid, then its own pixels in tiles
 * with a soft one.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  type Borrow,
  bytesAt,
  kernels,
  pixelsAt,
  VECTOR_BYTES,
  withMemory,
} from '../kernels/kernels.ts';
import { freePixels, type RgbaPicture } from '../rgba-picture.ts';
import { carryColours } from './carry-colours.ts';
import {
  borrowLevel,
  type ColourLevel,
  enlarge,
  relax,
  startWithMeans,
} from './foreground-level.ts';
import { cellOfRow, layGrid, type PictureGrid, rowsOfCell } from './picture-grid.ts';
import { carryVisible, layOver, type VisibleColours } from './visible-colours.ts';

/** A smaller picture is its own grid. More cells gain nothing (bench/MEASUREMENTS.md). */
const OWN_GRID_PIXELS_MAX = 512 * 512;
const GRID_PIXELS_MAX = 362 * 362;
/** A tile is solved with this margin on each side. */
const TILE_PX = 128;
const HALO_PX = 8;
/** Columns solved at once; bounds the kernels' memory. */
const PART_PX = 64 * TILE_PX;
/** Up to this side a level can have many rounds. */
const SMALL_SIDE_PX = 32;
const ROUNDS_SMALL = 10;
const ROUNDS = 2;
const ROUNDS_FINE = 2;
/** Nearly opaque pixels show their own colour, nearly transparent ones none. */
const CLEAR_TO = 5;
const OPAQUE_FROM = 250;
/**
 * Alpha is a model's guess: if it is too low, the colour overshoots and is unlike the certain
 * colours around. At these differences, relative to that of subject and background, the estimate
 * has half its weight. Chosen over composites with a known colour (bench/MEASUREMENTS.md).
 */
const LIKE_SUBJECT = 0.15;
const LIKE_GROUND = 0.1;
/** Added to that difference (0 to 255), for noise. */
const DIFFER_MIN = 20;
const CERTAIN = [CLEAR_TO, OPAQUE_FROM] as const;
const LIKENESS = [LIKE_SUBJECT, LIKE_GROUND, DIFFER_MIN] as const;
/** Weight of a coarser cell's mean, relative to one certain cell of the finer level. */
const COARSER_WEIGHT = 0.05;

export function estimateForeground(picture: RgbaPicture, alpha: Uint8Array): void {
  if (!hasSoft(alpha)) return;
  withMemory(borrow => {
    const grid = layGrid(borrow, picture, gridSize(picture));
    const beneath = carryVisible(borrow, picture, grid);
    const source = { picture, alpha, grid, beneath };
    solveTiles(borrow, source, solveGrid(borrow, source));
  });
}

interface GridColours {
  readonly estimated: ColourLevel;
  /** Addresses of certain colours, carried to all cells. */
  readonly subject: number;
  readonly ground: number;
}

interface Source {
  readonly picture: RgbaPicture;
  readonly alpha: Uint8Array;
  readonly grid: PictureGrid;
  /** Undefined: the picture is opaque. */
  readonly beneath: VisibleColours | undefined;
}

function solveTiles(borrow: Borrow, source: Source, onGrid: GridColours): void {
  const { width, height, rgba } = source.picture;
  const rows = TILE_PX + 2 * HALO_PX;
  // Original rows, since tiles read margins that other tiles have already overwritten.
  const strip = new Uint32Array(width * Math.min(height, rows));
  const tiles = new TileSolver(borrow, source, onGrid);
  let loadedTop = 0;
  let loadedBottom = 0;
  for (let top = 0; top < height; top += TILE_PX) {
    const bottom = Math.min(height, top + TILE_PX);
    const wantedTop = Math.max(0, top - HALO_PX);
    const wantedBottom = Math.min(height, bottom + HALO_PX);
    strip.copyWithin(0, (wantedTop - loadedTop) * width, (loadedBottom - loadedTop) * width);
    const fresh = rgba.subarray(loadedBottom * width, wantedBottom * width);
    strip.set(fresh, (loadedBottom - wantedTop) * width);
    loadedTop = wantedTop;
    loadedBottom = wantedBottom;
    for (let left = 0; left < width; left += PART_PX) {
      const inner = { left, top, right: Math.min(width, left + PART_PX), bottom };
      tiles.solveAll(strip, outside(inner, source.picture), inner);
    }
  }
  freePixels(strip);
}

/** Right and bottom are exclusive. */
interface Tile {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

function outside({ left, top, right, bottom }: Tile, { width, height }: Size): Tile {
  return {
    left: Math.max(0, left - HALO_PX),
    top: Math.max(0, top - HALO_PX),
    right: Math.min(width, right + HALO_PX),
    bottom: Math.min(height, bottom + HALO_PX),
  };
}

function hasSoft(alpha: Uint8Array): boolean {
  for (let i = 0; i < alpha.length; i++) {
    if (alpha[i]! > CLEAR_TO && alpha[i]! < OPAQUE_FROM) return true;
  }
  return false;
}

/**
 * @param at address of the first alpha
 * @param stride between rows
 */
function hasSoftAt(at: number, stride: number, width: number, height: number): boolean {
  return kernels.anyWithin(at, stride, width, height, CLEAR_TO + 1, OPAQUE_FROM - 1) !== 0;
}

function gridSize({ width, height }: Size): Size {
  if (width * height <= OWN_GRID_PIXELS_MAX) return { width, height };
  const scale = Math.sqrt(GRID_PIXELS_MAX / (width * height));
  const side = (pixels: number) => Math.max(1, Math.floor(pixels * scale));
  return { width: side(width), height: side(height) };
}

function solveGrid(borrow: Borrow, source: Source): GridColours {
  const { width, height } = source.grid;
  const finest = borrowLevel(borrow, { width, height });
  withMemory(borrow => averageTo(borrow, source, finest.seen));
  const certain = takeCertain(borrow, finest);
  withMemory(borrow => {
    const levels = [finest];
    for (let fine = finest; Math.max(fine.width, fine.height) > 2; ) {
      const half = { width: Math.ceil(fine.width / 2), height: Math.ceil(fine.height / 2) };
      const coarse = borrowLevel(borrow, half);
      kernels.halve(fine.seen, fine.width, fine.height, coarse.seen);
      levels.unshift(coarse);
      fine = coarse;
    }
    let coarser: ColourLevel | undefined;
    for (const level of levels) {
      if (coarser === undefined) startWithMeans(level);
      else enlarge(coarser, level);
      coarser = level;
      const small = Math.max(level.width, level.height) <= SMALL_SIDE_PX;
      relax(level, small ? ROUNDS_SMALL : ROUNDS, level === finest);
    }
  });
  return { estimated: finest, ...certain };
}

function takeCertain(borrow: Borrow, { seen, width, height }: ColourLevel) {
  const bytes = width * height * VECTOR_BYTES;
  const subject = borrow(bytes);
  const ground = borrow(bytes);
  kernels.takeCertain(seen, width * height, CLEAR_TO, OPAQUE_FROM, subject, ground);
  for (const at of [subject, ground]) carryColours({ at, width, height }, COARSER_WEIGHT, seen);
  return { subject, ground };
}

function averageTo(borrow: Borrow, { picture, alpha, grid, beneath }: Source, seen: number): void {
  const { rgba, width } = picture;
  const pixelsAddress = borrow(4 * width);
  const alphaAddress = borrow(width);
  const pixels = pixelsAt(pixelsAddress, width);
  const opacities = bytesAt(alphaAddress, width);
  for (let row = 0; row < grid.height; row++) {
    const [top, bottom] = rowsOfCell(grid, row);
    const cells = seen + row * grid.width * VECTOR_BYTES;
    bytesAt(cells, grid.width * VECTOR_BYTES).fill(0);
    for (let y = top; y < bottom; y++) {
      pixels.set(rgba.subarray(y * width, (y + 1) * width));
      opacities.set(alpha.subarray(y * width, (y + 1) * width));
      if (beneath !== undefined) layOver(beneath, pixelsAddress, y, 0, width);
      kernels.addToCells(pixelsAddress, alphaAddress, grid.starts, grid.width, cells);
    }
    kernels.meanOfCells(grid.starts, grid.width, bottom - top, cells);
  }
}

class TileSolver {
  readonly #source: Source;
  readonly #onGrid: GridColours;
  readonly #level: ColourLevel;
  /** Addresses of a part of a strip: what tiles read, and what they write. */
  readonly #seen: number;
  readonly #made: number;
  readonly #opacities: number;

  constructor(borrow: Borrow, source: Source, onGrid: GridColours) {
    this.#source = source;
    this.#onGrid = onGrid;
    const side = TILE_PX + 2 * HALO_PX;
    this.#level = borrowLevel(borrow, { width: side, height: side });
    const pixels = side * (Math.min(source.picture.width, PART_PX) + 2 * HALO_PX);
    this.#seen = borrow(4 * pixels);
    this.#made = borrow(4 * pixels);
    this.#opacities = borrow(pixels);
  }

  /** @param strip rows from the first of `outer` on */
  solveAll(strip: Uint32Array, outer: Tile, inner: Tile): void {
    const { picture, alpha } = this.#source;
    const { width, rgba } = picture;
    const stride = outer.right - outer.left;
    const count = stride * (outer.bottom - outer.top);
    const from = outer.top * width;
    copyRows(alpha.subarray(from), width, outer.left, bytesAt(this.#opacities, count), stride);
    const innerAt = (inner.top - outer.top) * stride + inner.left - outer.left;
    const innerSize = [inner.right - inner.left, inner.bottom - inner.top] as const;
    if (!hasSoftAt(this.#opacities + innerAt, stride, ...innerSize)) return;
    const made = pixelsAt(this.#made, count);
    copyRows(strip, width, outer.left, made, stride);
    pixelsAt(this.#seen, count).set(made);
    this.#hide(outer, stride);
    for (let left = inner.left; left < inner.right; left += TILE_PX) {
      const tile = { ...inner, left, right: Math.min(inner.right, left + TILE_PX) };
      this.#solve(tile, outer, stride);
    }
    for (let y = inner.top; y < inner.bottom; y++) {
      const at = (y - outer.top) * stride + inner.left - outer.left;
      rgba.set(made.subarray(at, at + innerSize[0]), y * width + inner.left);
    }
  }

  #hide({ left, top, bottom }: Tile, stride: number): void {
    const { beneath } = this.#source;
    if (beneath === undefined) return;
    for (let y = top; y < bottom; y++) {
      layOver(beneath, this.#seen + 4 * (y - top) * stride, y, left, stride);
    }
  }

  #solve(inner: Tile, part: Tile, stride: number): void {
    const { picture, grid } = this.#source;
    const { estimated, subject, ground } = this.#onGrid;
    const offset = (x: number, y: number) => (y - part.top) * stride + x - part.left;
    const innerAt = this.#opacities + offset(inner.left, inner.top);
    const count = inner.right - inner.left;
    if (!hasSoftAt(innerAt, stride, count, inner.bottom - inner.top)) return;
    const outer = outside(inner, picture);
    const width = outer.right - outer.left;
    const level = { ...this.#level, width, height: outer.bottom - outer.top };
    for (let y = outer.top; y < outer.bottom; y++) {
      const from = offset(outer.left, y);
      const gridRow = cellOfRow(grid, y) * grid.width * VECTOR_BYTES;
      const at = (y - outer.top) * width * VECTOR_BYTES;
      kernels.loadRow(
        this.#seen + 4 * from,
        this.#opacities + from,
        width,
        grid.cells + 4 * outer.left,
        estimated.foreground + gridRow,
        estimated.background + gridRow,
        ...CERTAIN,
        level.seen + at,
        level.foreground + at,
        level.background + at,
      );
    }
    relax(level, ROUNDS_FINE, true);
    for (let y = inner.top; y < inner.bottom; y++) {
      const to = offset(inner.left, y);
      const at = ((y - outer.top) * width + inner.left - outer.left) * VECTOR_BYTES;
      const gridRow = cellOfRow(grid, y) * grid.width * VECTOR_BYTES;
      kernels.storeRow(
        this.#made + 4 * to,
        this.#opacities + to,
        count,
        level.foreground + at,
        level.background + at,
        ...CERTAIN,
        grid.cells + 4 * inner.left,
        subject + gridRow,
        ground + gridRow,
        ...LIKENESS,
      );
    }
  }
}

function copyRows<T extends Uint32Array | Uint8Array>(
  from: T,
  width: number,
  left: number,
  to: T,
  stride: number,
): void {
  if (stride === width) {
    to.set(from.subarray(0, to.length));
    return;
  }
  for (let at = 0, row = left; at < to.length; at += stride, row += width) {
    to.set(from.subarray(row, row + stride), at);
  }
}
