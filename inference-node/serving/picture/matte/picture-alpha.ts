import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { RgbaPicture } from '../rgba-picture.ts';

export function multiplySourceAlpha(alpha: Uint8Array, { rgba, translucent }: RgbaPicture): void {
  if (!translucent) return;
  for (let i = 0; i < rgba.length; i++) {
    // Divided by 255 and rounded.
    const product = alpha[i]! * (rgba[i]! >>> 24) + 128;
    alpha[i] = (product + (product >>> 8)) >>> 8;
  }
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

/**
 * Clears colours where alpha is 0, so that a cut-out keeps no background.
 * @param alpha includes the picture's own
 */
export function applyAlpha({ rgba }: RgbaPicture, alpha: Uint8Array): void {
  const fours = new Int32Array(alpha.buffer, alpha.byteOffset, alpha.length >> 2);
  for (let i = 0; i < fours.length; ) {
    const from = i++;
    if (fours[from] === 0) {
      while (i < fours.length && fours[i] === 0) i++;
      rgba.fill(0, 4 * from, 4 * i);
    } else if (fours[from] !== -1) applyTo(rgba, alpha, 4 * from, 4 * i);
  }
  applyTo(rgba, alpha, 4 * fours.length, alpha.length);
}

function applyTo(rgba: Uint32Array, alpha: Uint8Array, from: number, end: number): void {
  for (let i = from; i < end; i++) {
    const opacity = alpha[i]!;
    rgba[i] = opacity === 0 ? 0 : (rgba[i]! & 0xffffff) | (opacity << 24);
  }
}
