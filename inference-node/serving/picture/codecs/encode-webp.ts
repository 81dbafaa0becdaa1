/** Encodes a cut-out or a matte as WebP, by libwebp. */

import type { RawPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';
import { tagWebp } from './files/webp-file.ts';

const WEBP_QUALITY = 90;
/** libwebp's effort (0 to 6) by size: the first row whose `pixelsMax` is not exceeded. */
const EFFORTS = [
  { pixelsMax: 4_000_000, effort: 2 },
  { pixelsMax: 40_000_000, effort: 0 },
] as const;
/** The lowest that bounds its first partition: below it all of 75 MP and more failed. */
const SAFE_EFFORT = 2;

/** Colours are lossy, alpha is lossless. libwebp codes both. */
export async function encodeWebp(pixels: RawPixels, quality = WEBP_QUALITY): Promise<Buffer> {
  const { width, height, channels } = pixels;
  // A plane is a matte, and mattes are lossless.
  if (channels === 1) return await openRaw(pixels).webp({ lossless: true, effort: 0 }).toBuffer();
  const count = width * height;
  const encode = (effort: number) =>
    openRaw(pixels).webp({ quality, alphaQuality: 100, effort }).toBuffer();
  const effort = EFFORTS.find(({ pixelsMax }) => count <= pixelsMax)?.effort ?? SAFE_EFFORT;
  const webp =
    effort >= SAFE_EFFORT
      ? await encode(effort)
      : await encode(effort).catch(() => encode(SAFE_EFFORT));
  return tagWebp(webp, width, height);
}
