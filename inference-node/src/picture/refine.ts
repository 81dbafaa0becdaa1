/**
 * From the mattes of models to the alpha of the picture: pure arithmetic over typed arrays, each
 * step a function of its own.
 *
 *   mattes (models' sizes) -> merge, at the working size -> the alpha of the colours, there ->
 *   guided filter there, its functions applied to the picture's own pixels -> (foreground.ts) ->
 *   compose.ts
 *
 * Alpha is never rescaled per image: a model that is unsure gives a result that is unsure. What a
 * model is sure of stays as it is: the filter's answer counts by how unsure the matte is.
 */
import { applySideColours, findSideColours } from './colour-alpha.ts';
import { GuidedFilter, type LinearModels, type Region } from './guided-filter.ts';
import { mergeMattes, type RoleMatte } from './merge-mattes.ts';
import { createModelInput } from './model-input.ts';
import type { Size } from './picture-pool.ts';
import { resample } from './resample.ts';
import type { RgbaPicture } from './rgba-picture.ts';
import { overGrey } from './transparency.ts';

/** Up to here the matte is worked on in the picture's own pixels: edges come out sharper. */
const OWN_PIXELS_MAX = 2 * 1024 * 1024;
/** Above, at this many: the work stops growing. */
const WORKING_PIXELS_MAX = 1.5 * 1024 * 1024;
/** Pixels a side of what is filtered at once: 0.5 MB of planes, which stay in a core's cache. */
const TILE_PX = 96;
/**
 * Pixels: the filter's windows reach as far as a model's blur does, which is a few pixels of its
 * input and so a share of the picture. A wider window haloes the hard edges of a small picture; at
 * most 8: with 12 and 16 thin things get halos in large ones too.
 */
const RADIUS_SHARE = 1 / 128;
const RADIUS_MIN = 2;
const RADIUS_MAX = 8;
/** Nearer than this to 0 and 255 a matte is left as it is. */
const CERTAIN = 5;
/** The filter's answer counts in full from an alpha of 1 / BLEND to 1 - 1 / BLEND. */
const BLEND = 4;

/** One byte a pixel of the picture; the result is the caller's. */
export function refineMatte(mattes: readonly RoleMatte[], picture: RgbaPicture): Buffer {
  const size = workingSize(picture);
  const alpha = mergeMattes(mattes, size);
  const guide = createModelInput(picture, size);
  applySideColours(findSideColours(guide, alpha, size), guide, alpha, size);
  const filter = new GuidedFilter(TILE_PX + 2, filterRadius(size));
  const result = upsample(alpha, size, picture);
  const source = { guide, alpha, ...size };
  for (const tile of uncertainTiles(alpha, size)) {
    // One pixel more on each side: between the last function and the next is a part of the picture.
    const wanted = {
      left: tile.left - 1,
      top: tile.top - 1,
      width: tile.width + 2,
      height: tile.height + 2,
    };
    applyAtFullSize(filter.fit(source, wanted), size, picture, tile, result);
  }
  return result;
}

/** The merged matte, stretched and nothing more. */
export function stretchMatte(mattes: readonly RoleMatte[], picture: RgbaPicture): Buffer {
  const size = workingSize(picture);
  return upsample(mergeMattes(mattes, size), size, picture);
}

function workingSize({ width, height }: Size): Size {
  if (width * height <= OWN_PIXELS_MAX) return { width, height };
  const scale = Math.sqrt(WORKING_PIXELS_MAX / (width * height));
  const side = (pixels: number) => Math.max(1, Math.round(pixels * scale));
  return { width: side(width), height: side(height) };
}

function filterRadius({ width, height }: Size): number {
  const radius = Math.round(Math.max(width, height) * RADIUS_SHARE);
  return Math.min(RADIUS_MAX, Math.max(RADIUS_MIN, radius));
}

function upsample(alpha: Uint8Array, from: Size, { width, height }: Size): Buffer {
  if (from.width === width && from.height === height) return Buffer.from(alpha);
  const raster = { data: alpha, width: from.width, height: from.height, channels: 1 as const };
  return resample(raster, { width, height }, 'triangle');
}

function* uncertainTiles(alpha: Uint8Array, { width, height }: Size): Generator<Region> {
  for (let top = 0; top < height; top += TILE_PX) {
    for (let left = 0; left < width; left += TILE_PX) {
      const tile = {
        left,
        top,
        width: Math.min(TILE_PX, width - left),
        height: Math.min(TILE_PX, height - top),
      };
      if (isUncertain(alpha, width, tile)) yield tile;
    }
  }
}

function isUncertain(alpha: Uint8Array, stride: number, tile: Region): boolean {
  for (let y = tile.top; y < tile.top + tile.height; y++) {
    const row = y * stride;
    for (let at = row + tile.left; at < row + tile.left + tile.width; at++) {
      if (alpha[at] > CERTAIN && alpha[at] < 255 - CERTAIN) return true;
    }
  }
  return false;
}

/** @param answer of the filter, in [0, 1]; it may lie outside. */
function blend(value: number, answer: number): number {
  const share = Math.min(255, BLEND * Math.min(value, 255 - value)) / 255;
  return value + share * (Math.min(1, Math.max(0, answer)) * 255 - value) + 0.5;
}

/** For each of a line's pixels the two models it lies between, and the second one's share. */
interface Between {
  readonly from: number;
  readonly firsts: Int32Array;
  readonly seconds: Int32Array;
  readonly shares: Float32Array;
}

/**
 * @param tileStart of the tile, in pixels of the working size, as `regionStart`.
 * @param scale pixels of the picture for each of the working size.
 */
function placeBetween(
  tileStart: number,
  tileLength: number,
  regionStart: number,
  regionLength: number,
  scale: number,
): Between {
  const from = Math.round(tileStart * scale);
  const length = Math.round((tileStart + tileLength) * scale) - from;
  const firsts = new Int32Array(length);
  const seconds = new Int32Array(length);
  const shares = new Float32Array(length);
  for (let i = 0; i < length; i++) {
    const place = (from + i + 0.5) / scale - 0.5 - regionStart;
    const first = Math.min(regionLength - 1, Math.max(0, Math.floor(place)));
    firsts[i] = first;
    seconds[i] = Math.min(regionLength - 1, first + 1);
    shares[i] = Math.min(1, Math.max(0, place - first));
  }
  return { from, firsts, seconds, shares };
}

/** In place, over the part of the picture that the tile stands for. */
function applyAtFullSize(
  models: LinearModels,
  working: Size,
  picture: RgbaPicture,
  tile: Region,
  alpha: Uint8Array,
): void {
  const { region } = models;
  const { rgba, width, height, translucent } = picture;
  const across = placeBetween(
    tile.left,
    tile.width,
    region.left,
    region.width,
    width / working.width,
  );
  const down = placeBetween(
    tile.top,
    tile.height,
    region.top,
    region.height,
    height / working.height,
  );
  const planes = [models.red, models.green, models.blue, models.offset];
  const rows = planes.map(() => new Float32Array(region.width));
  const [red, green, blue, offset] = rows;
  for (let y = 0; y < down.firsts.length; y++) {
    for (const [index, plane] of planes.entries())
      mixModelRows(plane, region, down, y, rows[index]);
    let at = (down.from + y) * width + across.from;
    for (let x = 0; x < across.firsts.length; x++, at++) {
      const value = alpha[at];
      if (value <= CERTAIN || value >= 255 - CERTAIN) continue;
      const i = across.firsts[x];
      const j = across.seconds[x];
      const share = across.shares[x];
      const colour = translucent ? overGrey(rgba[at]) : rgba[at];
      const r = (red[i] + (red[j] - red[i]) * share) * (colour & 255);
      const g = (green[i] + (green[j] - green[i]) * share) * ((colour >>> 8) & 255);
      const b = (blue[i] + (blue[j] - blue[i]) * share) * ((colour >>> 16) & 255);
      const o = offset[i] + (offset[j] - offset[i]) * share;
      alpha[at] = blend(value, (r + g + b) / 255 + o);
    }
  }
}

function mixModelRows(
  plane: Float32Array,
  { width }: Region,
  { firsts, seconds, shares }: Between,
  y: number,
  out: Float32Array,
): void {
  const first = firsts[y] * width;
  const second = seconds[y] * width;
  const share = shares[y];
  for (let x = 0; x < width; x++) {
    out[x] = plane[first + x] + (plane[second + x] - plane[first + x]) * share;
  }
}
