/**
 * Encodes pixels as the contract's "Output" says, 100 megapixels well within a minute. Figures:
 * processor time, 2 cores of an AMD EPYC, a cut-out with soft edges; memory above an idle worker's.
 *
 *              0.25 MP          2 MP             12 MP            100 MP
 *   png        13 ms 205 KB     81 ms 1.3 MB     0.5 s  6.2 MB    4.7 s, peak 0.6 GB
 *   webp       64 ms  26 KB    252 ms 144 KB     0.9 s  1.1 MB   12   s, peak 2.4 GB
 *   avif       90 ms  28 KB    200 ms 209 KB     1.6 s  0.8 MB   13.5 s, peak 1.4 GB
 *   jxl        34 ms  22 KB    199 ms 114 KB     1.4 s  0.7 MB   23   s, peak 6.9 GB (cjxl)
 *   jpeg                                        0.1 s  0.7 MB    1.6 s, peak 1.7 GB
 *   zip                                         0.6 s  1.1 MB    4.3 s, peak 1.8 GB
 *
 * PNG's times are libvips': ours takes a fifth of them, with fewer bytes. AVIF at effort 1 takes
 * two to three times as long as at 0 for files 10 to 25 % smaller, at 2 four times for no more.
 */

import type { Size } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { zipSync } from 'fflate';
import { pixelsAt, withMemory } from '../kernels/kernels.ts';
import { layGrid } from '../matte/picture-grid.ts';
import { carryVisible, layOver } from '../matte/visible-colours.ts';
import { type RawPixels, viewAsBytes, viewAsPixels } from '../rgba-picture.ts';
import { encodeJxl } from './codec-jxl.ts';
import { openRaw } from './codec-sharp.ts';
import { encodeAvif, encodeAvifPlane } from './encode-avif.ts';
import { encodePng } from './encode-png.ts';
import { tagWebp } from './files/webp-file.ts';

/** @param quality of JPEG, WebP and AVIF with colours; undefined: the format's own */
export async function encodePixels(
  pixels: RawPixels,
  format: OutputFormat,
  quality?: number,
): Promise<Buffer> {
  switch (format) {
    case 'png':
      return encodePng(pixels);
    case 'webp':
      return await encodeWebp(pixels, quality);
    case 'avif':
      return await (pixels.channels === 1 ? encodeAvifPlane(pixels) : encodeAvif(pixels, quality));
    case 'jxl':
      return await encodeJxl(pixels);
    case 'jpeg':
      return await encodeJpeg(pixels, quality);
    case 'zip':
      return await encodeZip(pixels);
  }
}

const JPEG_QUALITY = 90;

/** Encodes colours in sRGB, as every JPEG without a profile. Alpha is left out. */
export async function encodeJpeg(pixels: RawPixels, quality = JPEG_QUALITY): Promise<Buffer> {
  const picture = openRaw(pixels);
  return await (pixels.channels === 1 ? picture : picture.removeAlpha())
    .jpeg({ quality, chromaSubsampling: '4:4:4' })
    .toBuffer();
}

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

/** The archive of one picture has the same bytes at any time: the earliest that the format knows. */
const MODIFIED_AT = new Date(1980, 0, 1);

/** Archives colours (color.jpg) and alpha (alpha.png), stored: neither gets smaller. */
async function encodeZip(pixels: RawPixels): Promise<Buffer> {
  const { width, height } = pixels;
  if (pixels.channels !== 4) throw new Error('an archive of colours without their alpha');
  const rgba = viewAsPixels(pixels.data);
  const alpha = Buffer.allocUnsafeSlow(rgba.length);
  for (let i = 0; i < rgba.length; i++) alpha[i] = rgba[i]! >>> 24;
  const alphaPng = encodePng({ data: alpha, width, height, channels: 1 });
  spreadColours(rgba, { width, height });
  const colourJpeg = await encodeJpeg({ ...pixels, data: viewAsBytes(rgba) });
  const files = { 'color.jpg': colourJpeg, 'alpha.png': alphaPng };
  const archive = zipSync(files, { level: 0, mtime: MODIFIED_AT });
  return Buffer.from(archive.buffer, archive.byteOffset, archive.byteLength);
}

/** Side of the blocks whose colours are extended; a larger picture has larger ones. */
const BLOCK_SIDE = 8;
const BLOCKS_MAX = 512 * 512;

/**
 * Gives transparent pixels the visible colours around them, in place, so that colours without alpha
 * have no edge to black. No alpha changes.
 */
function spreadColours(rgba: Uint32Array, { width, height }: Size): void {
  const side = Math.max(BLOCK_SIDE, Math.sqrt((width * height) / BLOCKS_MAX));
  withMemory(borrow => {
    const size = { width: Math.ceil(width / side), height: Math.ceil(height / side) };
    const picture = { rgba, width, height, translucent: true };
    const visible = carryVisible(borrow, picture, layGrid(borrow, picture, size));
    const row = borrow(4 * width);
    for (let y = 0; y < height && visible !== undefined; y++) {
      const pixels = rgba.subarray(y * width, (y + 1) * width);
      const laid = pixelsAt(row, width);
      laid.set(pixels);
      layOver(visible, row, y, 0, width);
      for (let x = 0; x < width; x++) if (pixels[x]! >>> 24 === 0) pixels[x] = laid[x]!;
    }
  });
}
