/**
 * Estimates the subject's own colour in soft pixels: without it a soft edge carries the old
 * background along. Coarse to fine (Germer et al. 2020): the picture on a small grid, then its own
 * pixels in tiles that have a soft one. Memory: the grid, and one strip. Where the file is
 * transparent the visible colours around are used in proportion.
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
import type { RgbaPicture } from '../rgba-picture.ts';
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

/** A smaller picture is its own grid. For others more cells gain nothing (bench/MEASUREMENTS.md). */
const OWN_GRID_PIXELS_MAX = 512 * 512;
const GRID_PIXELS_MAX = 362 * 362;
/** Side of a tile of the picture itself, and the margin that is solved with it on each side. */
const TILE_PX = 128;
const HALO_PX = 8;
/** Levels up to this side are small enough for many rounds. */
const SMALL_SIDE_PX = 32;
const ROUNDS_SMALL = 10;
const ROUNDS = 2;
const ROUNDS_FINE = 2;
/** Alpha: a nearly opaque pixel shows its own colour, a nearly transparent one none. */
const CLEAR_TO = 5;
const OPAQUE_FROM = 250;
/**
 * Alpha is a model's guess: where it is too low the colour overshoots, and is unlike what is
 * certain around. Differences from that, relative to that of subject and ground, at which the
 * estimate has half its weight. Chosen over composites with a known colour: bench/MEASUREMENTS.md.
 */
const LIKE_SUBJECT = 0.15;
const LIKE_GROUND = 0.1;
/** Added to the difference of subject and ground, 0 to 255: noise. */
const DIFFER_MIN = 20;
/** Weight of a coarser cell's certain colour relative to one certain cell of the finer level. */
const COARSER_WEIGHT = 0.05;

export function estimateForeground(picture: RgbaPicture, alpha: Uint8Array): void {
  if (!hasSoft(alpha, 0, alpha.length)) return;
  withMemory(borrow => {
    const grid = layGrid(borrow, picture, gridSize(picture));
    const beneath = carryVisible(borrow, picture, grid);
    const source = { picture, alpha, grid, beneath };
    solveTiles(borrow, source, solveGrid(borrow, source));
  });
}

interface GridColours {
  readonly estimated: ColourLevel;
  /** Addresses of planes: colours where alpha is certain, carried to all cells. */
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
  const { picture, alpha } = source;
  const { width, height, rgba } = picture;
  const rows = TILE_PX + 2 * HALO_PX;
  // The picture's original rows: tiles read margins that others have already overwritten.
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
    if (!hasSoft(alpha, top * width, bottom * width)) continue;
    for (let left = 0; left < width; left += TILE_PX) {
      const inner = { left, top, right: Math.min(width, left + TILE_PX), bottom };
      if (!tileHasSoft(alpha, width, inner)) continue;
      const outer = {
        left: Math.max(0, left - HALO_PX),
        top: wantedTop,
        right: Math.min(width, inner.right + HALO_PX),
        bottom: wantedBottom,
      };
      tiles.solve(strip, outer, inner);
    }
  }
}

/** The bounds are pixels of the picture; right and bottom are exclusive. */
interface Tile {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
}

function isSoft(alpha: number): boolean {
  return alpha > CLEAR_TO && alpha < OPAQUE_FROM;
}

function hasSoft(alpha: Uint8Array, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (isSoft(alpha[i]!)) return true;
  return false;
}

function tileHasSoft(
  alpha: Uint8Array,
  width: number,
  { left, top, right, bottom }: Tile,
): boolean {
  for (let y = top; y < bottom; y++) {
    if (hasSoft(alpha, y * width + left, y * width + right)) return true;
  }
  return false;
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
      relax(level, small ? ROUNDS_SMALL : ROUNDS, false);
    }
  });
  return { estimated: finest, ...certain };
}

function takeCertain(borrow: Borrow, { seen, width, height }: ColourLevel) {
  const bytes = width * height * VECTOR_BYTES;
  const subject = borrow(bytes);
  const ground = borrow(bytes);
  kernels.takeCertain(seen, width * height, CLEAR_TO, OPAQUE_FROM, subject, ground);
  for (const at of [subject, ground]) carryColours({ at, width, height }, COARSER_WEIGHT);
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
  readonly #pixels: number;
  readonly #opacities: number;

  constructor(borrow: Borrow, source: Source, onGrid: GridColours) {
    this.#source = source;
    this.#onGrid = onGrid;
    const side = TILE_PX + 2 * HALO_PX;
    this.#level = borrowLevel(borrow, { width: side, height: side });
    this.#pixels = borrow(4 * side);
    this.#opacities = borrow(side);
  }

  /** @param strip rows of the picture from the first row of `outer` on. */
  solve(strip: Uint32Array, outer: Tile, inner: Tile): void {
    const level = {
      ...this.#level,
      width: outer.right - outer.left,
      height: outer.bottom - outer.top,
    };
    this.#load(level, strip, outer);
    relax(level, ROUNDS_FINE, true);
    this.#store(level, outer, inner);
  }

  #load(
    { width: count, seen, foreground, background }: ColourLevel,
    strip: Uint32Array,
    box: Tile,
  ) {
    const { picture, alpha, grid, beneath } = this.#source;
    const { estimated } = this.#onGrid;
    const { width } = picture;
    const pixels = pixelsAt(this.#pixels, count);
    const opacities = bytesAt(this.#opacities, count);
    for (let y = box.top; y < box.bottom; y++) {
      const inStrip = (y - box.top) * width + box.left;
      const inPicture = y * width + box.left;
      pixels.set(strip.subarray(inStrip, inStrip + count));
      opacities.set(alpha.subarray(inPicture, inPicture + count));
      if (beneath !== undefined) layOver(beneath, this.#pixels, y, box.left, count);
      const gridRow = cellOfRow(grid, y) * grid.width * VECTOR_BYTES;
      const at = (y - box.top) * count * VECTOR_BYTES;
      kernels.loadRow(
        this.#pixels,
        this.#opacities,
        count,
        grid.cells + 4 * box.left,
        estimated.foreground + gridRow,
        estimated.background + gridRow,
        CLEAR_TO,
        OPAQUE_FROM,
        seen + at,
        foreground + at,
        background + at,
      );
    }
  }

  #store(level: ColourLevel, outer: Tile, inner: Tile): void {
    const { picture, alpha, grid } = this.#source;
    const { subject, ground } = this.#onGrid;
    const { rgba, width } = picture;
    const count = inner.right - inner.left;
    const pixels = pixelsAt(this.#pixels, count);
    const opacities = bytesAt(this.#opacities, count);
    for (let y = inner.top; y < inner.bottom; y++) {
      const at = y * width + inner.left;
      pixels.set(rgba.subarray(at, at + count));
      opacities.set(alpha.subarray(at, at + count));
      const from = ((y - outer.top) * level.width + inner.left - outer.left) * VECTOR_BYTES;
      const gridRow = cellOfRow(grid, y) * grid.width * VECTOR_BYTES;
      kernels.storeRow(
        this.#pixels,
        this.#opacities,
        count,
        level.foreground + from,
        level.background + from,
        CLEAR_TO,
        OPAQUE_FROM,
        grid.cells + 4 * inner.left,
        subject + gridRow,
        ground + gridRow,
        LIKE_SUBJECT,
        LIKE_GROUND,
        DIFFER_MIN,
      );
      rgba.set(pixels, at);
    }
  }
}
