/** The background that a request asks for, as pixels to lay a subject on. */
import type { Background } from '#contract/finishing.ts';
import type { OutputFormat } from '#contract/formats.ts';
import { kernels, pixelsAt, withMemory } from '../kernels/kernels.ts';
import type { RgbaPicture } from '../rgba-picture.ts';
import type { Backdrop } from './frame.ts';

const WHITE = 0xffffffff;

/**
 * Undefined: none, the result stays transparent.
 * @param picture the file of the background, where it is one; its pixels may be overwritten.
 */
export function backdropOf(
  background: Background | undefined,
  picture: RgbaPicture | undefined,
  outputFormat: OutputFormat,
): Backdrop | undefined {
  switch (background?.kind) {
    case undefined:
      return undefined;
    case 'colour':
      return { kind: 'colour', pixel: pixelOfRgba(background.rgba) };
    case 'picture':
      if (picture === undefined) throw new Error('a background picture without its pixels');
      // A picture may turn out to be transparent, a JPEG cannot.
      if (outputFormat === 'jpeg' && picture.translucent) layOnWhite(picture);
      return { kind: 'picture', picture };
  }
}

/** As pixels have it: red in the lowest byte. No colour where alpha is 0. */
function pixelOfRgba(rgba: number): number {
  if ((rgba & 255) === 0) return 0;
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(rgba);
  return bytes.readUInt32LE();
}

function layOnWhite({ rgba, width, height }: RgbaPicture): void {
  withMemory(borrow => {
    const above = borrow(4 * width);
    const beneath = borrow(4 * width);
    for (let y = 0; y < height; y++) {
      const row = rgba.subarray(y * width, (y + 1) * width);
      pixelsAt(above, width).set(row);
      const white = pixelsAt(beneath, width).fill(WHITE);
      kernels.layOnto(above, width, beneath);
      row.set(white);
    }
  });
}
