/** Encodes colours as JPEG: sRGB, as every JPEG without a profile. Alpha is left out. */

import type { RawPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';

const JPEG_QUALITY = 90;

export async function encodeJpeg(pixels: RawPixels, quality = JPEG_QUALITY): Promise<Buffer> {
  const picture = openRaw(pixels);
  return await (pixels.channels === 1 ? picture : picture.removeAlpha())
    .jpeg({ quality, chromaSubsampling: '4:4:4' })
    .toBuffer();
}
