/**
 * A small WebP of a result, for lists of jobs: made of its pixels before they are encoded. Of a
 * large picture only some pixels are read, so that 100 megapixels cost no more than one.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { THUMBNAIL_BYTES_MAX, THUMBNAIL_SIDE_PX_MAX } from '@matting/proto/contract/limits.ts';
import { type RawPixels, viewAsBytes, viewAsPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';

/** Pixels that are read for one of the thumbnail, along each side. */
const SAMPLES = 3;

/** The first that is small enough counts: a photo takes 6 to 8 KB of the best, in about 5 ms. */
const QUALITIES = [
  { quality: 75, alphaQuality: 80 },
  { quality: 50, alphaQuality: 40 },
  { quality: 15, alphaQuality: 10 },
] as const;
/** libwebp's, 0 to 6: a fifth more bytes than 4, in half the time. */
const EFFORT = 1;

/** Undefined: even the lowest quality takes too many bytes, which only noise does. */
export async function encodeThumbnail(pixels: RawPixels): Promise<Buffer | undefined> {
  const size = thumbnailSize(pixels);
  const { width, height } = size;
  const small = openRaw(sample(pixels, size));
  small.resize({ width, height, fit: 'fill', kernel: 'cubic' });
  for (const quality of QUALITIES) {
    const webp = await small
      .clone()
      .webp({ ...quality, effort: EFFORT })
      .toBuffer();
    if (webp.length <= THUMBNAIL_BYTES_MAX) return webp;
  }
  return undefined;
}

/** Of the picture's proportions, as far as whole pixels have them; never larger than it. */
function thumbnailSize({ width, height }: Size): Size {
  const scale = Math.min(1, THUMBNAIL_SIDE_PX_MAX / Math.max(width, height));
  const scaled = (side: number) => Math.max(1, Math.round(side * scale));
  return { width: scaled(width), height: scaled(height) };
}

function sample(pixels: RawPixels, to: Size): RawPixels {
  const columns = sampled(pixels.width, to.width);
  const rows = sampled(pixels.height, to.height);
  const size = { width: columns.length, height: rows.length };
  if (size.width === pixels.width && size.height === pixels.height) return pixels;
  const { data, channels } = pixels;
  if (channels === 1) {
    const plane = Buffer.allocUnsafe(size.width * size.height);
    copy(data, plane, pixels.width, columns, rows);
    return { data: plane, ...size, channels };
  }
  const rgba = new Uint32Array(size.width * size.height);
  copy(viewAsPixels(data), rgba, pixels.width, columns, rows);
  return { data: viewAsBytes(rgba), ...size, channels };
}

/** Which pixels of a side are read: those in the middle of as many equal parts. */
function sampled(side: number, to: number): Uint32Array {
  const count = Math.min(side, to * SAMPLES);
  return Uint32Array.from({ length: count }, (_, i) => Math.floor(((i + 0.5) * side) / count));
}

function copy(
  from: Uint8Array | Uint32Array,
  to: Uint8Array | Uint32Array,
  width: number,
  columns: Uint32Array,
  rows: Uint32Array,
): void {
  let out = 0;
  // Every index is within the picture.
  for (const row of rows) for (const column of columns) to[out++] = from[row * width + column]!;
}
