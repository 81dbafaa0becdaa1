/**
 * A part in place of the picture: models, refinement and colours see only the part, and the result
 * has nothing outside of it.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { RgbaPicture } from '../rgba-picture.ts';

/** Depth of the fade along a part's sides, relative to the length across. */
const FADE_SHARE = 1 / 64;

export function cutPart({ rgba, width, translucent }: RgbaPicture, part: Box): RgbaPicture {
  const pixels = new Uint32Array(part.width * part.height);
  for (let y = 0; y < part.height; y++) {
    const from = (part.top + y) * width + part.left;
    pixels.set(rgba.subarray(from, from + part.width), y * part.width);
  }
  return { rgba: pixels, width: part.width, height: part.height, translucent };
}

export function pastePart(cut: RgbaPicture, { rgba, width }: RgbaPicture, part: Box): void {
  for (let y = 0; y < part.height; y++) {
    const row = cut.rgba.subarray(y * part.width, (y + 1) * part.width);
    rgba.set(row, (part.top + y) * width + part.left);
  }
}

/**
 * Spreads a part's alpha over a picture of `size`. It fades along sides inside of the picture, so
 * that nothing ends in a line.
 * @param whole the picture's alpha; overwritten
 */
export function spreadAlpha(
  alpha: Uint8Array,
  part: Box,
  size: Size,
  whole = Buffer.alloc(size.width * size.height),
): Buffer {
  const across = fades(part.left, part.width, size.width);
  const down = fades(part.top, part.height, size.height);
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

function fades(start: number, length: number, whole: number): Float32Array {
  const reach = Math.max(1, Math.round(length * FADE_SHARE));
  return Float32Array.from({ length }, (_none, at) => {
    const before = start === 0 ? reach : at + 0.5;
    const after = start + length === whole ? reach : length - at - 0.5;
    return Math.min(1, before / reach, after / reach);
  });
}
