/**
 * A part of a picture in place of the whole: models look at it, the matte is refined and colours
 * are estimated in it, and nothing outside of it is in the result. Pure arithmetic.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { RgbaPicture } from '../rgba-picture.ts';

/** The matte fades so far inside of the part's sides, relative to the side across. */
const FADE_SHARE = 1 / 64;

/** A copy of the part's pixels. @param part inside of the picture, in its pixels */
export function cutPart({ rgba, width, translucent }: RgbaPicture, part: Box): RgbaPicture {
  const pixels = new Uint32Array(part.width * part.height);
  for (let y = 0; y < part.height; y++) {
    const from = (part.top + y) * width + part.left;
    pixels.set(rgba.subarray(from, from + part.width), y * part.width);
  }
  return { rgba: pixels, width: part.width, height: part.height, translucent };
}

/** Puts the part's pixels back in place. */
export function pastePart(cut: RgbaPicture, { rgba, width }: RgbaPicture, part: Box): void {
  for (let y = 0; y < part.height; y++) {
    const row = cut.rgba.subarray(y * part.width, (y + 1) * part.width);
    rgba.set(row, (part.top + y) * width + part.left);
  }
}

/**
 * Gives the alpha of the whole picture, of `size`: the part's inside, `whole` or 0 outside. It fades
 * along those sides of the part that are not the picture's, so that nothing ends in a line.
 * @param alpha of the part, one byte a pixel
 * @param whole of the picture; it is overwritten
 */
export function spreadAlpha(
  alpha: Uint8Array,
  part: Box,
  size: Size,
  whole = Buffer.alloc(size.width * size.height),
): Buffer {
  const across = fades(part.left, part.width, size.width);
  const down = fades(part.top, part.height, size.height);
  // `alpha`, `across` and `down` have as many elements as the part has pixels, columns and rows.
  for (let y = 0; y < part.height; y++) {
    const from = y * part.width;
    const to = (part.top + y) * size.width + part.left;
    for (let x = 0; x < part.width; x++) {
      const weight = Math.min(across[x]!, down[y]!);
      const around = whole[to + x]!;
      whole[to + x] = Math.round(around + (alpha[from + x]! - around) * weight);
    }
  }
  return whole;
}

/** Gives the weights along a side: 1, but less near an end that is inside of the picture. */
function fades(start: number, length: number, whole: number): Float32Array {
  const reach = Math.max(1, Math.round(length * FADE_SHARE));
  return Float32Array.from({ length }, (_none, at) => {
    const before = start === 0 ? reach : at + 0.5;
    const after = start + length === whole ? reach : length - at - 0.5;
    return Math.min(1, before / reach, after / reach);
  });
}
