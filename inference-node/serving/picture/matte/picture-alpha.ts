import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { RgbaPicture } from '../rgba-picture.ts';

/** a * b / 255, rounded, without a division. */
function multiply(a: number, b: number): number {
  const product = a * b + 128;
  return (product + (product >>> 8)) >>> 8;
}

export function multiplySourceAlpha(alpha: Uint8Array, { rgba, translucent }: RgbaPicture): void {
  if (!translucent) return;
  for (let i = 0; i < rgba.length; i++) alpha[i] = multiply(alpha[i]!, rgba[i]! >>> 24);
}

export function clearOutside(alpha: Uint8Array, { width, height }: Size, box: Box): void {
  const right = box.left + box.width;
  const bottom = box.top + box.height;
  alpha.fill(0, 0, box.top * width);
  for (let y = box.top; y < bottom; y++) {
    alpha.fill(0, y * width, y * width + box.left);
    alpha.fill(0, y * width + right, (y + 1) * width);
  }
  alpha.fill(0, bottom * width, height * width);
}

/** Clears colours where alpha is 0, so that a cut-out keeps no background. */
export function applyAlpha({ rgba }: RgbaPicture, alpha: Uint8Array): void {
  for (let i = 0; i < rgba.length; i++) {
    const opacity = alpha[i]!;
    rgba[i] = opacity === 0 ? 0 : (rgba[i]! & 0xffffff) | (opacity << 24);
  }
}
