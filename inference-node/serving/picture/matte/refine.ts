/**
 * Refines the models' mattes to the picture's alpha: they are merged at the working size and
 * corrected there by colours and haze, then a guided filter of that size is applied to the
 * picture's own pixels. Certain alpha does not change: the filter's weight grows with the matte's
 * uncertainty.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { withTrimap } from '../../models/trimap.ts';
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
import { clearHaze } from './clear-haze.ts';
import { applyColours } from './colour-alpha.ts';
import { expand, GuidedFilter, RADIUS_MAX, type Region } from './guided-filter.ts';
import { MERGE_RULES, mergeMattes, type RoleMatte } from './merge-mattes.ts';
import { createGuide, createModelInput, overGrey } from './model-input.ts';
import { greyRows, type PlaneAt } from './resample.ts';
import { createTrimap } from './trimap.ts';

/** Up to this size the working size is the picture's own: edges come out sharper. */
export const WORKING_PIXELS_MAX = 2 * 1024 * 1024;
const WORKING_PIXELS_OF_LARGER = 1.5 * 1024 * 1024;
/** The filter's sums and functions for a tile, 0.4 MB, fit a core's cache. */
const TILE_PX = 96;
/**
 * Relative to the long side: windows reach as far as a model's blur. Wider ones give halos to hard
 * edges of small pictures, and above RADIUS_MAX to thin things in large ones.
 */
const RADIUS_SHARE = 1 / 128;
const RADIUS_MIN = 2;
/** Alpha nearer than this to 0 or 255 does not change. */
const CERTAIN = 5;
/** The filter has full weight from an alpha of 1 / BLEND to 1 - 1 / BLEND. */
const BLEND = 4;

/** At the working size of its picture, one byte a pixel. */
export interface MergedMatte extends Size {
  readonly alpha: Uint8Array;
  readonly before?: BeforeHints | undefined;
}

export interface BeforeHints {
  readonly alpha: Uint8Array;
  /** Least alpha of a body's pixel. */
  readonly bodyFrom: number;
}

export function mergeToWorkingSize(
  mattes: readonly RoleMatte[],
  picture: Size,
  rules = MERGE_RULES,
): MergedMatte {
  const size = workingSize(picture);
  return { alpha: mergeMattes(mattes, size, rules), ...size };
}

export function refineMerged(
  { alpha: merged, before, ...size }: MergedMatte,
  picture: RgbaPicture,
): Buffer {
  return withMemory(borrow => {
    const filter = new GuidedFilter(borrow, TILE_PX + 2, filterRadius(size));
    const source = {
      guide: createGuide(borrow, picture, size),
      alpha: borrowCopy(borrow, merged),
      ...size,
    };
    const cleared = borrow(merged.length);
    applyColours(source, before?.alpha);
    bytesAt(cleared, merged.length).set(bytesAt(source.alpha, merged.length));
    clearHaze(cleared, size, before?.bodyFrom);
    return atSizeOf(picture, { at: cleared, ...size }, (top, from, strip) => {
      for (const tile of uncertainTiles(cleared, size, top)) {
        // Pixels between two tiles need the functions of both.
        const region = expand(tile, 1, size);
        const models = { region, at: filter.fit(source, region) };
        const alpha = strip - from * picture.width;
        withMemory(borrow => applyAtFullSize(borrow, models, size, picture, tile, alpha));
      }
    });
  });
}

export function stretchMerged(
  { alpha: merged, before, ...size }: MergedMatte,
  picture: Size,
): Buffer {
  return withMemory(borrow => {
    const alpha = borrowCopy(borrow, merged);
    clearHaze(alpha, size, before?.bodyFrom);
    return atSizeOf(picture, { at: alpha, ...size });
  });
}

/** @param change changes rows of the result from `from` on, which are the plane's from `top` on */
function atSizeOf(
  { width, height }: Size,
  plane: PlaneAt,
  change?: (top: number, from: number, at: number) => void,
): Buffer {
  const isSame = plane.width === width && plane.height === height;
  const result = Buffer.allocUnsafeSlow(width * height);
  const rowAtSize = (row: number) => Math.round(row * (height / plane.height));
  withMemory(borrow => {
    const write = greyRows(borrow, plane, { width, height });
    const rowsMax = isSame ? 0 : Math.ceil((TILE_PX * height) / plane.height) + 1;
    const rows = borrow(rowsMax * width);
    for (let top = 0; top < plane.height; top += TILE_PX) {
      const from = rowAtSize(top);
      const end = rowAtSize(Math.min(plane.height, top + TILE_PX));
      if (!isSame) write(from, end, rows);
      const at = isSame ? plane.at + from * width : rows;
      change?.(top, from, at);
      result.set(bytesAt(at, (end - from) * width), from * width);
    }
  });
  return result;
}

/** The picture with the merged mattes' trimap, four bytes a pixel. Undefined: nothing is unsure. */
export function createRefineInput(
  picture: RgbaPicture,
  mattes: readonly RoleMatte[],
  size: Size,
): Buffer | undefined {
  const working = workingSize(picture);
  const trimap = createTrimap(mergeMattes(mattes, working), working);
  if (trimap === undefined) return undefined;
  // Takes nearest values: interpolation would make others.
  const column = Int32Array.from({ length: size.width }, (_, x) =>
    Math.floor(((x + 0.5) * working.width) / size.width),
  );
  const sized = new Uint8Array(size.width * size.height);
  for (let y = 0, at = 0; y < size.height; y++) {
    const row = Math.floor(((y + 0.5) * working.height) / size.height) * working.width;
    for (let x = 0; x < size.width; x++) sized[at++] = trimap[row + column[x]!]!;
  }
  return withTrimap(createModelInput(picture, size), sized);
}

export function workingSize({ width, height }: Size): Size {
  if (width * height <= WORKING_PIXELS_MAX) return { width, height };
  const scale = Math.sqrt(WORKING_PIXELS_OF_LARGER / (width * height));
  const side = (pixels: number) => Math.max(1, Math.round(pixels * scale));
  return { width: side(width), height: side(height) };
}

function filterRadius({ width, height }: Size): number {
  const radius = Math.round(Math.max(width, height) * RADIUS_SHARE);
  return Math.min(RADIUS_MAX, Math.max(RADIUS_MIN, radius));
}

function* uncertainTiles(
  alpha: number,
  { width, height: end }: Size,
  top: number,
): Generator<Region> {
  const height = Math.min(TILE_PX, end - top);
  for (let left = 0; left < width; left += TILE_PX) {
    const tile = { left, top, width: Math.min(TILE_PX, width - left), height };
    if (hasUncertain(alpha + top * width + left, width, tile)) yield tile;
  }
}

function hasUncertain(at: number, stride: number, { width, height }: Size): boolean {
  return kernels.anyWithin(at, stride, width, height, CERTAIN + 1, 254 - CERTAIN) !== 0;
}

/** @param scale from working pixels to the picture's */
function locateBetween(
  tileStart: number,
  tileLength: number,
  regionStart: number,
  regionLength: number,
  scale: number,
) {
  const from = Math.round(tileStart * scale);
  const length = Math.round((tileStart + tileLength) * scale) - from;
  const firsts = new Int32Array(length);
  const seconds = new Int32Array(length);
  const shares = new Float32Array(length);
  for (let i = 0; i < length; i++) {
    const position = (from + i + 0.5) / scale - 0.5 - regionStart;
    const first = Math.min(regionLength - 1, Math.max(0, Math.floor(position)));
    firsts[i] = first;
    seconds[i] = Math.min(regionLength - 1, first + 1);
    shares[i] = Math.min(1, Math.max(0, position - first));
  }
  return { from, firsts, seconds, shares };
}

function applyAtFullSize(
  borrow: Borrow,
  { region, at: models }: { readonly region: Region; readonly at: number },
  working: Size,
  picture: RgbaPicture,
  tile: Region,
  firstAlpha: number,
): void {
  const { rgba, width, height, translucent } = picture;
  const scaleX = width / working.width;
  const scaleY = height / working.height;
  const across = locateBetween(tile.left, tile.width, region.left, region.width, scaleX);
  const down = locateBetween(tile.top, tile.height, region.top, region.height, scaleY);
  const count = across.firsts.length;
  const between = [
    borrowCopy(borrow, across.firsts),
    borrowCopy(borrow, across.seconds),
    borrowCopy(borrow, across.shares),
  ] as const;
  const rowBytes = region.width * VECTOR_BYTES;
  const pixelsAddress = borrow(4 * count);
  const pixels = pixelsAt(pixelsAddress, count);
  for (let y = 0; y < down.firsts.length; y++) {
    const from = (down.from + y) * width + across.from;
    const alpha = firstAlpha + from;
    if (!hasUncertain(alpha, width, { width: count, height: 1 })) continue;
    const own = rgba.subarray(from, from + count);
    pixels.set(translucent ? own.map(overGrey) : own);
    const first = models + down.firsts[y]! * rowBytes;
    const second = models + down.seconds[y]! * rowBytes;
    const around = [first, second, down.shares[y]!, ...between] as const;
    kernels.answerRow(...around, pixelsAddress, alpha, count, CERTAIN, BLEND);
  }
}
