/** Puts a picture and its alpha together: pure arithmetic, in the memory of its arguments. */
import type { RgbaPicture } from '../rgba-picture.ts';

/** a * b / 255, rounded, for values of 0 to 255 without a division. */
function multiply(a: number, b: number): number {
  const product = a * b + 128;
  return (product + (product >>> 8)) >>> 8;
}

/**
 * Multiplies the picture's own alpha into `alpha`, in place: what was transparent stays
 * transparent.
 * @param alpha one byte a pixel of the picture.
 */
export function multiplySourceAlpha(alpha: Uint8Array, { rgba, translucent }: RgbaPicture): void {
  if (!translucent) return;
  for (let i = 0; i < rgba.length; i++) alpha[i] = multiply(alpha[i], rgba[i] >>> 24);
}

/**
 * Makes the picture a cut-out, in place: straight alpha, and no colour where nothing is to be seen,
 * so that a cut-out does not carry the background it was cut from.
 */
export function applyAlpha({ rgba }: RgbaPicture, alpha: Uint8Array): void {
  for (let i = 0; i < rgba.length; i++) {
    const opacity = alpha[i];
    rgba[i] = opacity === 0 ? 0 : (rgba[i] & 0xffffff) | (opacity << 24);
  }
}
