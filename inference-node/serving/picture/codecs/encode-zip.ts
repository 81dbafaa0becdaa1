/**
 * A ZIP archive of the colours (color.jpg) and the alpha (alpha.png) of a cut-out. The two are
 * stored: neither gets smaller.
 */
import { zipSync } from 'fflate';
import { viewAsBytes, viewAsPixels } from '../rgba-picture.ts';
import { encodeJpeg } from './encode-jpeg.ts';
import type { RawPixels } from './raw-pixels.ts';
import { spreadColours } from './spread-colours.ts';

/** The archive of one picture has the same bytes at any time: the earliest that the format knows. */
const MODIFIED_AT = new Date(1980, 0, 1);

/**
 * @param pixels with alpha: their memory is changed.
 * @param encodePlane writes a grey plane as PNG.
 */
export async function encodeZip(
  pixels: RawPixels,
  encodePlane: (plane: RawPixels) => Promise<Buffer>,
): Promise<Buffer> {
  const { width, height } = pixels;
  if (pixels.channels !== 4) throw new Error('an archive of colours without their alpha');
  const rgba = viewAsPixels(pixels.data);
  const alpha = Buffer.allocUnsafeSlow(rgba.length);
  for (let i = 0; i < rgba.length; i++) alpha[i] = rgba[i]! >>> 24;
  const alphaPng = await encodePlane({ data: alpha, width, height, channels: 1 });
  spreadColours(rgba, width, height);
  const colourJpeg = await encodeJpeg({ ...pixels, data: viewAsBytes(rgba) });
  const files = { 'color.jpg': colourJpeg, 'alpha.png': alphaPng };
  const archive = zipSync(files, { level: 0, mtime: MODIFIED_AT });
  return Buffer.from(archive.buffer, archive.byteOffset, archive.byteLength);
}
