/**
 * A small WebP of a result, for lists of jobs. Reading a sample of the pixels makes 100 megapixels
 * cost no more than one.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { THUMBNAIL_BYTES_MAX, THUMBNAIL_SIDE_PX_MAX } from '@matting/proto/contract/limits.ts';
import { borrowCopy, bytesAt, kernels, withMemory } from '../kernels/kernels.ts';
import type { RawPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';

/** Samples along each side for one pixel of the thumbnail. */
const SAMPLES_MAX = 3;

/** The first quality that is small enough is used. At the best a photo takes 6 to 8 KB and 4 ms. */
const QUALITIES = [
  { quality: 75, alphaQuality: 80 },
  { quality: 50, alphaQuality: 40 },
  { quality: 15, alphaQuality: 10 },
] as const;
/** libwebp's effort, 0 to 6. 1 takes a fifth more bytes than 4, in half the time. */
const EFFORT = 1;

/** Undefined: even the lowest quality takes too many bytes, as only noise does. */
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

function thumbnailSize({ width, height }: Size): Size {
  const scale = Math.min(1, THUMBNAIL_SIDE_PX_MAX / Math.max(width, height));
  const scaled = (side: number) => Math.max(1, Math.round(side * scale));
  return { width: scaled(width), height: scaled(height) };
}

/** Weights colours by their alpha. */
function shrink({ data, width, height, channels }: RawPixels, to: Size): RawPixels {
  const columns = samplesOf(width, to.width);
  const rows = samplesOf(height, to.height);
  const [across, down] = [columns.length / to.width, rows.length / to.height];
  const result = Buffer.allocUnsafe(to.width * to.height * channels);
  const [fromBytes, toBytes] = [width * channels, to.width * channels];
  withMemory(borrow => {
    const at = borrowCopy(borrow, columns);
    const [taken, out] = [borrow(fromBytes * down), borrow(toBytes)];
    const strip = bytesAt(taken, fromBytes * down);
    const made = bytesAt(out, toBytes);
    for (let y = 0; y < to.height; y++) {
      for (const [i, row] of rows.subarray(y * down, (y + 1) * down).entries()) {
        strip.set(data.subarray(row * fromBytes, (row + 1) * fromBytes), i * fromBytes);
      }
      kernels.meansOfSamples(taken, width, down, at, across, to.width, channels, out);
      result.set(made, y * toBytes);
    }
  });
  return { data: result, ...to, channels };
}

/** Positions of the sampled pixels along a side: the middles of equal parts. */
function samplesOf(side: number, to: number): Int32Array {
  const count = to * Math.min(SAMPLES_MAX, Math.ceil(side / to));
  return Int32Array.from({ length: count }, (_, i) => Math.floor(((i + 0.5) * side) / count));
}
