/**
 * Estimates the subject's own colour in soft pixels, which would otherwise keep the old background.
 * Coarse to fine (Germer et al. 2020): the picture on a small grid, then its own pixels in tiles
 * with a soft one.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  type Borrow,
  borrowCopy,
  bytesAt,
  kernels,
  pixelsAt,
  VECTOR_BYTES,
  withMemory,
} from '../kernels/kernels.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import { carryColours } from './carry-colours.ts';
import { borrowLevel, type ColourLevel, relax, startWithMeans } from './foreground-level.ts';
import { cellOfRow, layGrid, type PictureGrid, rowsOfCell } from './picture-grid.ts';
import { carryVisible, layOver, type VisibleColours } from './visible-colours.ts';

/** A smaller picture is its own grid. More cells gain nothing (bench/MEASUREMENTS.md). */
const OWN_GRID_PIXELS_MAX = 512 * 512;
const GRID_PIXELS_MAX = 362 * 362;
/** A tile is solved with this margin on each side. */
const TILE_PX = 128;
const HALO_PX = 8;
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
  const { width, height } = source.picture;
  const tiles = new TileSolver(borrow, source, onGrid);
  for (let top = 0; top < height; top += TILE_PX) {
    const bottom = Math.min(height, top + TILE_PX);
    tiles.solveAll({ left: 0, top, right: width, bottom });
  }
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
      else {
        const { foreground, background, width, height } = level;
        kernels.enlarge(coarser.foreground, foreground, width, height);
        kernels.enlarge(coarser.background, background, width, height);
      }
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
  const { rgba, width, height } = picture;
  const rowsMax = Math.ceil(height / grid.height);
  const pixels = borrow(4 * width * rowsMax);
  const opacities = borrow(width * rowsMax);
  const sums = [borrow(8 * (width + 15)), borrow(2 * (width + 15))] as const;
  for (let row = 0; row < grid.height; row++) {
    const [top, bottom] = rowsOfCell(grid, row);
    const [from, end] = [top * width, bottom * width];
    pixelsAt(pixels, end - from).set(rgba.subarray(from, end));
    bytesAt(opacities, end - from).set(alpha.subarray(from, end));
    if (beneath !== undefined) layOver(beneath, pixels, top, bottom);
    const cells = [grid.starts, grid.width, ...sums] as const;
    const at = seen + row * grid.width * VECTOR_BYTES;
    kernels.meansOfCells(pixels, opacities, width, bottom - top, ...cells, at);
  }
}

class TileSolver {
  readonly #source: Source;
  readonly #onGrid: GridColours;
  readonly #level: ColourLevel;
  /** Addresses of a strip of original rows. */
  readonly #seen: number;
  readonly #opacities: number;
  readonly #changes: number;
  readonly #spans: number;
  readonly #cellRows: number;
  /** The original margin above a strip. */
  #above: Uint32Array;
  #nextAbove: Uint32Array;

  constructor(borrow: Borrow, source: Source, onGrid: GridColours) {
    this.#source = source;
    this.#onGrid = onGrid;
    const { grid, picture } = source;
    const side = TILE_PX + 2 * HALO_PX;
    this.#level = borrowLevel(borrow, { width: side, height: side });
    this.#seen = borrow(4 * side * picture.width);
    this.#opacities = borrow(side * picture.width);
    this.#changes = borrow(2 * 4 * TILE_PX * TILE_PX);
    this.#spans = borrow(2 * 4 * side);
    const cellRows = new Int32Array(picture.height);
    for (let y = 0; y < cellRows.length; y++) {
      cellRows[y] = cellOfRow(grid, y) * grid.width * VECTOR_BYTES;
    }
    this.#cellRows = borrowCopy(borrow, cellRows);
    this.#above = new Uint32Array(HALO_PX * picture.width);
    this.#nextAbove = new Uint32Array(HALO_PX * picture.width);
  }

  solveAll(strip: Tile): void {
    const { picture, alpha, beneath } = this.#source;
    const { width, rgba } = picture;
    const { top, bottom } = outside(strip, picture);
    const [from, to] = [top * width, bottom * width];
    const kept = Math.max(0, strip.bottom - HALO_PX) * width;
    this.#nextAbove.set(rgba.subarray(kept, strip.bottom * width));
    bytesAt(this.#opacities, to - from).set(alpha.subarray(from, to));
    const tiles = this.#softTiles(strip, top);
    if (tiles.length > 0) {
      const seen = pixelsAt(this.#seen, to - from);
      const margin = (strip.top - top) * width;
      seen.set(this.#above.subarray(0, margin));
      seen.set(rgba.subarray(strip.top * width, to), margin);
      if (beneath !== undefined) layOver(beneath, this.#seen, top, bottom);
    }
    for (const tile of tiles) this.#solve(tile, top);
    [this.#above, this.#nextAbove] = [this.#nextAbove, this.#above];
  }

  #softTiles(strip: Tile, top: number): Tile[] {
    const { width } = this.#source.picture;
    const tiles: Tile[] = [];
    for (let left = 0; left < width; left += TILE_PX) {
      const right = Math.min(width, left + TILE_PX);
      const at = this.#opacities + (strip.top - top) * width + left;
      const size = [right - left, strip.bottom - strip.top] as const;
      const isSoft = kernels.anyWithin(at, width, ...size, CLEAR_TO + 1, OPAQUE_FROM - 1) !== 0;
      if (isSoft) tiles.push({ ...strip, left, right });
    }
    return tiles;
  }

  #solve(inner: Tile, stripTop: number): void {
    const { picture, grid } = this.#source;
    const stride = picture.width;
    const { estimated, subject, ground } = this.#onGrid;
    const offset = ({ left, top }: Tile) => (top - stripTop) * stride + left;
    const outer = outside(inner, picture);
    const outerAt = offset(outer);
    const width = outer.right - outer.left;
    const level = { ...this.#level, width, height: outer.bottom - outer.top };
    const read = [this.#seen + 4 * outerAt, this.#opacities + outerAt, stride] as const;
    const onGrid = [estimated.foreground, estimated.background, ...CERTAIN] as const;
    const made = [this.#spans, level.seen, level.foreground, level.background] as const;
    const cells = ({ left, top }: Tile) =>
      [grid.cells + 4 * left, this.#cellRows + 4 * top] as const;
    kernels.loadRows(...read, width, level.height, ...cells(outer), ...onGrid, ...made);
    relax(level, ROUNDS_FINE, true, this.#spans);
    const at = ((inner.top - outer.top) * width + inner.left - outer.left) * VECTOR_BYTES;
    const innerAt = offset(inner);
    const soft = [this.#seen + 4 * innerAt, this.#opacities + innerAt, stride] as const;
    const size = [inner.right - inner.left, inner.bottom - inner.top] as const;
    const mixed = [level.foreground + at, level.background + at, width, ...CERTAIN] as const;
    const known = [...cells(inner), subject, ground, ...LIKENESS] as const;
    const count = kernels.storeRows(...soft, ...size, ...mixed, ...known, this.#changes);
    const changes = pixelsAt(this.#changes, 2 * count);
    const from = inner.top * stride + inner.left;
    for (let i = 0; i < changes.length; i += 2) picture.rgba[from + changes[i]!] = changes[i + 1]!;
  }
}
