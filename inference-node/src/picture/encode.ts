/**
 * Pixels to a file, as the contract's "Output" says. Effort follows size, so that 100 megapixels
 * stay well within a minute. Figures: one thread, 2 cores of an AMD EPYC, a photo cut out with soft
 * edges.
 *
 *              0.25 MP          2 MP             12 MP            100 MP
 *   png        13 ms 205 KB     81 ms 1.3 MB     0.45 s 6.2 MB    3.3 s, peak 0.5 GB
 *   webp       64 ms  26 KB    252 ms 144 KB     0.90 s 1.6 MB    9.3 s, peak 2.5 GB
 *   avif       64 ms  28 KB    134 ms 209 KB     0.85 s 0.9 MB   10.2 s, peak 3.9 GB
 *   jxl        34 ms  22 KB    199 ms 114 KB     1.6 s  0.5 MB   (40 MP: 10 s, peak 1.2 GB)
 *
 * PNG without filters takes half the time and twice the bytes (12 MP: 0.19 s, 11.9 MB). AVIF at
 * effort 1 takes twice to three times as long as at 0 for files that are 10 to 25 % smaller, at 2
 * four times as long for no more.
 */
import type { OutputFormat } from '#contract/formats.ts';
import { encodeJxl } from './codec-jxl.ts';
import { openRaw, type RawPixels } from './codec-sharp.ts';
import { encodeAvif } from './encode-avif.ts';
import { tagPng, tagWebp } from './srgb-tag.ts';

const PNG_LEVEL = 2;
const WEBP_QUALITY = 90;

/** Efforts of libwebp (0 to 6) by pixels: up to `pixelsMax`, the first row that fits. */
const WEBP_EFFORTS = [
  { pixelsMax: 1_000_000, effort: 4 },
  { pixelsMax: 4_000_000, effort: 2 },
  { pixelsMax: 40_000_000, effort: 0 },
] as const;
/**
 * The lowest effort at which libwebp bounds its first partition. Below it, a large picture may end
 * in "partition is bigger than 512k": all of 75 MP and more did.
 */
const WEBP_SAFE_EFFORT = 2;

export async function encodePixels(pixels: RawPixels, format: OutputFormat): Promise<Buffer> {
  switch (format) {
    case 'png':
      return await encodePng(pixels);
    case 'webp':
      return await encodeWebp(pixels);
    case 'avif':
      return await (pixels.channels === 1 ? encodeAvifPlane(pixels) : encodeAvif(pixels));
    case 'jxl':
      return await encodeJxl(pixels);
  }
}

async function encodePng(pixels: RawPixels): Promise<Buffer> {
  const png = await openRaw(pixels)
    .png({ compressionLevel: PNG_LEVEL, adaptiveFiltering: true, palette: false })
    .toBuffer();
  return pixels.channels === 1 ? png : tagPng(png);
}

async function encodeWebp(pixels: RawPixels): Promise<Buffer> {
  // A plane is a matte, and a matte has no loss.
  if (pixels.channels === 1) {
    return await openRaw(pixels).webp({ lossless: true, effort: 0 }).toBuffer();
  }
  const count = pixels.width * pixels.height;
  const row = WEBP_EFFORTS.find(({ pixelsMax }) => count <= pixelsMax);
  const effort = row?.effort ?? WEBP_SAFE_EFFORT;
  const encode = (chosen: number) =>
    openRaw(pixels).webp({ quality: WEBP_QUALITY, alphaQuality: 100, effort: chosen }).toBuffer();
  const webp =
    effort >= WEBP_SAFE_EFFORT
      ? await encode(effort)
      : await encode(effort).catch(() => encode(WEBP_SAFE_EFFORT));
  return tagWebp(webp, pixels.width, pixels.height);
}

/** Without loss. */
function encodeAvifPlane(pixels: RawPixels): Promise<Buffer> {
  return openRaw(pixels).avif({ lossless: true, effort: 0, bitdepth: 8 }).toBuffer();
}
