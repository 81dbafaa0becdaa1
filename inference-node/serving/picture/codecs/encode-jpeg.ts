/** JPEG without alpha: what lies behind the subject is in the pixels already. */
import { openRaw } from './codec-sharp.ts';
import type { RawPixels } from './raw-pixels.ts';

const QUALITY = 90;

/** sRGB, as every JPEG without a profile. Alpha is left out. */
export async function encodeJpeg(pixels: RawPixels): Promise<Buffer> {
  const picture = openRaw(pixels);
  return await (pixels.channels === 1 ? picture : picture.removeAlpha())
    .jpeg({ quality: QUALITY, chromaSubsampling: '4:4:4' })
    .toBuffer();
}
