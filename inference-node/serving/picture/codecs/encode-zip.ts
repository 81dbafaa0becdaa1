/** A ZIP archive of colours (color.jpg) and alpha (alpha.png), stored: neither gets smaller. */

import type { Size } from '@matting/proto/contract/finishing.ts';
import { zipSync } from 'fflate';
import { pixelsAt, withMemory } from '../kernels/kernels.ts';
import { layGrid } from '../matte/picture-grid.ts';
import { carryVisible, layOver } from '../matte/visible-colours.ts';
import { type RawPixels, viewAsBytes, viewAsPixels } from '../rgba-picture.ts';
import { encodeJpeg } from './encode-jpeg.ts';
import { encodePng } from './encode-png.ts';

/** The archive of one picture has the same bytes at any time: the earliest that the format knows. */
const MODIFIED_AT = new Date(1980, 0, 1);

export async function encodeZip(pixels: RawPixels): Promise<Buffer> {
  const { width, height } = pixels;
  if (pixels.channels !== 4) throw new Error('an archive of colours without their alpha');
  const rgba = viewAsPixels(pixels.data);
  const alpha = Buffer.allocUnsafeSlow(rgba.length);
  for (let i = 0; i < rgba.length; i++) alpha[i] = rgba[i]! >>> 24;
  const alphaPng = await encodePng({ data: alpha, width, height, channels: 1 });
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
