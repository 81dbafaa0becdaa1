/**
 * The alpha that the picture's own colours speak for: where a pixel lies between the subject's colour
 * around it and the background's, its place on the line from one to the other. A model blurs an
 * edge over several pixels, the photo does not. Both colours are carried on from the pixels that
 * the matte is sure of into those it is not, from coarse to fine (pull-push: Gortler et al., "The
 * Lumigraph", SIGGRAPH 1996, section 3.4), and are believed as far as they differ and explain the pixel.
 */
import type { Size } from './picture-pool.ts';

/** Nearer than this to 0 and 255 a pixel shows one of the two alone. */
const SURE = 4;
/** Of what is carried on from a coarser level, beside one known pixel in the finer one. */
const COARSER_WEIGHT = 0.05;
/** Distance of the two colours, of 255, at which the answer counts half. */
const DISTANCE_HALF = 20;
/** Distance of a pixel from the line between the two at which the answer counts 1 / e. */
const OFF_LINE = 20;
/** Of the answer where the colours are as clear as can be. */
const TRUST = 0.65;
/** Red, green, blue, weight. */
const CHANNELS = 4;

/** Pixels a side of a cell of the finest grid: the colours beside an edge change slowly. */
const CELL_PX = 4;

/** A grid of cells: for each side interleaved sums at first, in the end means of weight 1. */
interface Grid extends Size {
  readonly subject: Float32Array;
  readonly background: Float32Array;
}

type Side = 'subject' | 'background';

/** Colours of both sides; of weight 0 where the picture has none at all. */
export type SideColours = Grid;

/**
 * @param guide RGB bytes, interleaved, of `size` as `alpha`.
 * @param alpha one byte a pixel.
 */
export function findSideColours(guide: Uint8Array, alpha: Uint8Array, size: Size): SideColours {
  const finest = sumKnown(guide, alpha, size);
  const grids = [finest];
  while (Math.max(grids[0].width, grids[0].height) > 1) grids.unshift(halve(grids[0]));
  for (const [index, grid] of grids.entries()) {
    carryOn(grid, grids[index - 1], 'subject');
    carryOn(grid, grids[index - 1], 'background');
  }
  return finest;
}

function createGrid({ width, height }: Size, cellPx: number): Grid {
  const size = { width: Math.ceil(width / cellPx), height: Math.ceil(height / cellPx) };
  const values = size.width * size.height * CHANNELS;
  return { ...size, subject: new Float32Array(values), background: new Float32Array(values) };
}

function sumKnown(guide: Uint8Array, alpha: Uint8Array, size: Size): Grid {
  const grid = createGrid(size, CELL_PX);
  const { subject, background } = grid;
  for (let y = 0, from = 0; y < size.height; y++) {
    const row = Math.floor(y / CELL_PX) * grid.width;
    for (let x = 0; x < size.width; x++, from++) {
      const value = alpha[from];
      if (value >= SURE && value <= 255 - SURE) continue;
      const side = value < SURE ? background : subject;
      const to = CHANNELS * (row + Math.floor(x / CELL_PX));
      side[to] += guide[3 * from];
      side[to + 1] += guide[3 * from + 1];
      side[to + 2] += guide[3 * from + 2];
      side[to + 3] += 1;
    }
  }
  return grid;
}

function halve(fine: Grid): Grid {
  const coarse = createGrid(fine, 2);
  for (let y = 0, from = 0; y < fine.height; y++) {
    const row = (y >> 1) * coarse.width;
    for (let x = 0; x < fine.width; x++) {
      const to = CHANNELS * (row + (x >> 1));
      for (let channel = 0; channel < CHANNELS; channel++, from++) {
        coarse.subject[to + channel] += fine.subject[from];
        coarse.background[to + channel] += fine.background[from];
      }
    }
  }
  return coarse;
}

/** In place: from sums to means, from the coarser grid where little or nothing is known. */
function carryOn(grid: Grid, coarser: Grid | undefined, side: Side): void {
  const colours = grid[side];
  const mixed = new Float32Array(CHANNELS);
  for (let y = 0, at = 0; y < grid.height; y++) {
    for (let x = 0; x < grid.width; x++, at += CHANNELS) {
      if (coarser !== undefined) interpolate(coarser, side, (x + 0.5) / 2, (y + 0.5) / 2, mixed);
      const weight = colours[at + 3] + COARSER_WEIGHT * mixed[3];
      if (weight === 0) continue;
      for (let channel = 0; channel < 3; channel++) {
        colours[at + channel] = (colours[at + channel] + COARSER_WEIGHT * mixed[channel]) / weight;
      }
      colours[at + 3] = 1;
    }
  }
}

/** Between the four cells whose middles are nearest. @param x in cells, from the grid's edge. */
function interpolate(grid: Grid, side: Side, x: number, y: number, out: Float32Array): void {
  const { width, height } = grid;
  const colours = grid[side];
  const across = Math.min(width - 1, Math.max(0, x - 0.5));
  const down = Math.min(height - 1, Math.max(0, y - 0.5));
  const left = Math.floor(across);
  const top = Math.floor(down);
  const right = Math.min(width - 1, left + 1);
  const bottom = Math.min(height - 1, top + 1);
  const shareX = across - left;
  const shareY = down - top;
  const topLeft = CHANNELS * (top * width + left);
  const topRight = CHANNELS * (top * width + right);
  const bottomLeft = CHANNELS * (bottom * width + left);
  const bottomRight = CHANNELS * (bottom * width + right);
  for (let channel = 0; channel < CHANNELS; channel++) {
    const upper = colours[topLeft + channel] * (1 - shareX) + colours[topRight + channel] * shareX;
    const lower =
      colours[bottomLeft + channel] * (1 - shareX) + colours[bottomRight + channel] * shareX;
    out[channel] = upper * (1 - shareY) + lower * shareY;
  }
}

/** In place, where the matte is not sure. */
export function applySideColours(
  colours: SideColours,
  guide: Uint8Array,
  alpha: Uint8Array,
  { width }: Size,
): void {
  const subject = new Float32Array(CHANNELS);
  const background = new Float32Array(CHANNELS);
  for (let at = 0; at < alpha.length; at++) {
    const value = alpha[at];
    if (value < SURE || value > 255 - SURE) continue;
    const x = at % width;
    const y = (at - x) / width;
    const cellX = (x + 0.5) / CELL_PX;
    const cellY = (y + 0.5) / CELL_PX;
    interpolate(colours, 'subject', cellX, cellY, subject);
    interpolate(colours, 'background', cellX, cellY, background);
    if (subject[3] === 0 || background[3] === 0) return;
    let distance = 0;
    let along = 0;
    for (let channel = 0; channel < 3; channel++) {
      const line = subject[channel] - background[channel];
      distance += line * line;
      along += line * (guide[3 * at + channel] - background[channel]);
    }
    const answer = distance === 0 ? 0 : Math.min(1, Math.max(0, along / distance));
    let off = 0;
    for (let channel = 0; channel < 3; channel++) {
      const line = subject[channel] - background[channel];
      const miss = guide[3 * at + channel] - background[channel] - answer * line;
      off += miss * miss;
    }
    const belief =
      ((TRUST * distance) / (distance + DISTANCE_HALF * DISTANCE_HALF)) *
      Math.exp(-off / (OFF_LINE * OFF_LINE));
    const share = belief * Math.min(1, (4 * Math.min(value, 255 - value)) / 255);
    alpha[at] = Math.round(value + share * (255 * answer - value));
  }
}
