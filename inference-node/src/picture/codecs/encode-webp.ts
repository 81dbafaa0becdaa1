/**
 * WebP with the matte in it exactly. libwebp does both parts of it, but of a large picture takes 25
 * bytes a pixel for that, so there the alpha plane is coded here (webp-alpha.ts) and libwebp sees
 * the colours alone.
 */

import { viewAsPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';
import type { RawPixels } from './raw-pixels.ts';
import { tagWebp } from './srgb-tag.ts';
import { encodeAlphaPlane, fillEdges } from './webp-alpha.ts';

const QUALITY = 90;
/** Efforts of libwebp (0 to 6) by pixels: up to `pixelsMax`, the first row that fits. */
const EFFORTS = [
  { pixelsMax: 1_000_000, effort: 4 },
  { pixelsMax: 4_000_000, effort: 2 },
  { pixelsMax: 40_000_000, effort: 0 },
] as const;
/**
 * The lowest effort at which libwebp bounds its first partition. Below it, a large picture may end
 * in "partition is bigger than 512k": all of 75 MP and more did.
 */
const SAFE_EFFORT = 2;
/** Above it alpha is coded apart: its files are larger by a few percent, so small ones are not. */
const TOGETHER_PIXELS_MAX = 24_000_000;

/** @param pixels where they have alpha, their memory is changed. */
export async function encodeWebp(
  pixels: RawPixels,
  togetherPixelsMax = TOGETHER_PIXELS_MAX,
): Promise<Buffer> {
  const { data, width, height, channels } = pixels;
  // A plane is a matte, and a matte has no loss.
  if (channels === 1) return await openRaw(pixels).webp({ lossless: true, effort: 0 }).toBuffer();
  const count = width * height;
  const isApart = count > togetherPixelsMax;
  const alphaPlane = isApart ? takeAlpha(pixels) : undefined;
  const encode = (effort: number) => {
    const picture = openRaw({ ...pixels, data });
    const seen = isApart ? picture.removeAlpha() : picture;
    return seen.webp({ quality: QUALITY, alphaQuality: 100, effort }).toBuffer();
  };
  const effort = EFFORTS.find(({ pixelsMax }) => count <= pixelsMax)?.effort ?? SAFE_EFFORT;
  const webp =
    effort >= SAFE_EFFORT
      ? await encode(effort)
      : await encode(effort).catch(() => encode(SAFE_EFFORT));
  return tagWebp(webp, width, height, alphaPlane);
}

function takeAlpha({ data, width, height }: RawPixels): Buffer {
  const pixels = viewAsPixels(data);
  const plane = encodeAlphaPlane(pixels, width);
  fillEdges(pixels, width, height);
  return plane;
}
