/**
 * A small WebP of a result, for lists of jobs: made of its pixels before they are encoded. Of a
 * large picture only some pixels are read, so that 100 megapixels cost no more than one.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { THUMBNAIL_BYTES_MAX, THUMBNAIL_SIDE_PX_MAX } from '@matting/proto/contract/limits.ts';
import { type RawPixels, viewAsPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';

/** Pixels that are read for one of the thumbnail, along each side; fewer of a small picture. */
const SAMPLES_MAX = 3;

/** The first that is small enough counts: a photo takes 6 to 8 KB of the best, in about 4 ms. */
const QUALITIES = [
  { quality: 75, alphaQuality: 80 },
  { quality: 50, alphaQuality: 40 },
  { quality: 15, alphaQuality: 10 },
] as const;
/** libwebp's, 0 to 6: a fifth more bytes than 4, in half the time. */
const EFFORT = 1;

/** Returns undefined if even the lowest quality takes too many bytes, as only noise does. */
export async function encodeThumbnail(pixels: RawPixels): Promise<Buffer | undefined> {
  const small = shrink(pixels, thumbnailSize(pixels));
  for (const quality of QUALITIES) {
    const webp = await openRaw(small)
      .webp({ ...quality, effort: EFFORT })
      .toBuffer();
    if (webp.length <= THUMBNAIL_BYTES_MAX) return webp;
  }
  return undefined;
}

/** The size has the picture's proportions, as far as whole pixels have them; it is never larger. */
function thumbnailSize({ width, height }: Size): Size {
  const scale = Math.min(1, THUMBNAIL_SIDE_PX_MAX / Math.max(width, height));
  const scaled = (side: number) => Math.max(1, Math.round(side * scale));
  return { width: scaled(width), height: scaled(height) };
}

/** The mean of some pixels for each; colours count by their alpha. */
function shrink({ data, width, height, channels }: RawPixels, to: Size): RawPixels {
  const columns = samplesOf(width, to.width);
  const rows = samplesOf(height, to.height).map(row => row * width);
  const result = Buffer.alloc(to.width * to.height * channels);
  if (channels === 1) meansOfGrey(data, result, columns, rows, to);
  else meansOfColours(viewAsPixels(data), viewAsPixels(result), columns, rows, to);
  return { data: result, ...to, channels };
}

/**
 * Gives the pixels of a side that are read, as many for each of the result: in the middle of equal
 * parts.
 */
function samplesOf(side: number, to: number): Uint32Array {
  const count = to * Math.min(SAMPLES_MAX, Math.ceil(side / to));
  return Uint32Array.from({ length: count }, (_, i) => Math.floor(((i + 0.5) * side) / count));
}

// Every index of what follows is within the picture and the result.

function meansOfGrey(
  plane: Uint8Array,
  result: Uint8Array,
  columns: Uint32Array,
  rows: Uint32Array,
  { width, height }: Size,
): void {
  const [across, down] = [columns.length / width, rows.length / height];
  for (let y = 0, out = 0; y < height; y++) {
    for (let x = 0; x < width; x++, out++) {
      let sum = 0;
      for (let row = y * down; row < (y + 1) * down; row++) {
        for (let column = x * across; column < (x + 1) * across; column++) {
          sum += plane[rows[row]! + columns[column]!]!;
        }
      }
      result[out] = Math.round(sum / (across * down));
    }
  }
}

function meansOfColours(
  pixels: Uint32Array,
  result: Uint32Array,
  columns: Uint32Array,
  rows: Uint32Array,
  { width, height }: Size,
): void {
  const [across, down] = [columns.length / width, rows.length / height];
  for (let y = 0, out = 0; y < height; y++) {
    for (let x = 0; x < width; x++, out++) {
      let [red, green, blue, sum] = [0, 0, 0, 0];
      for (let row = y * down; row < (y + 1) * down; row++) {
        for (let column = x * across; column < (x + 1) * across; column++) {
          const pixel = pixels[rows[row]! + columns[column]!]!;
          const alpha = pixel >>> 24;
          red += (pixel & 255) * alpha;
          green += ((pixel >>> 8) & 255) * alpha;
          blue += ((pixel >>> 16) & 255) * alpha;
          sum += alpha;
        }
      }
      if (sum === 0) continue;
      const alpha = Math.round(sum / (across * down));
      const colour = (red / sum + 0.5) | ((green / sum + 0.5) << 8) | ((blue / sum + 0.5) << 16);
      result[out] = colour | (alpha << 24);
    }
  }
}
