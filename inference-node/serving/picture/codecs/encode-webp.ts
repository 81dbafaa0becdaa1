/**
 * WebP with lossless alpha. libwebp can encode both parts, but needs 25 bytes a pixel for that, so
 * in large pictures the alpha plane is coded here (webp-alpha.ts) and libwebp gets only the
 * colours.
 */
import { viewAsPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';
import type { RawPixels } from './raw-pixels.ts';
import { tagWebp } from './srgb-tag.ts';
import { encodeAlphaPlane, fillEdges } from './webp-alpha.ts';

const QUALITY = 90;
/** libwebp's effort (0 to 6) by size: the first row whose `pixelsMax` is not exceeded. */
const EFFORTS = [
  { pixelsMax: 1_000_000, effort: 4 },
  { pixelsMax: 4_000_000, effort: 2 },
  { pixelsMax: 40_000_000, effort: 0 },
] as const;
/**
 * The lowest effort at which libwebp bounds its first partition. Below it, a large picture may fail
 * with "partition is bigger than 512k": all of 75 MP and more did.
 */
const SAFE_EFFORT = 2;
/** Above this size alpha is coded apart (docs/adr/0018). */
const TOGETHER_PIXELS_MAX = 24_000_000;

/** @param pixels with alpha: their memory is changed. */
export async function encodeWebp(
  pixels: RawPixels,
  togetherPixelsMax = TOGETHER_PIXELS_MAX,
): Promise<Buffer> {
  const { data, width, height, channels } = pixels;
  // A plane is a matte, and mattes are lossless.
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
