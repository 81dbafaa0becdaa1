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

/**
 * Clears colours where alpha is 0, so that a cut-out keeps no background.
 * @param alpha with the source's multiplied in
 */
export function applyAlpha({ rgba }: RgbaPicture, alpha: Uint8Array): void {
  const groups = alpha.byteOffset % 4 === 0 ? alpha.length >> 2 : 0;
  const fours = new Int32Array(alpha.buffer, alpha.byteOffset, groups);
  for (let group = 0, at = 0; group < groups; group++, at += 4) {
    const four = fours[group]!;
    if (four === OPAQUE) continue;
    if (four === 0) rgba[at] = rgba[at + 1] = rgba[at + 2] = rgba[at + 3] = 0;
    else applyRange(rgba, alpha, at, at + 4);
  }
  applyRange(rgba, alpha, 4 * groups, alpha.length);
}

/** Four bytes of 255. Such pixels are opaque in the source, too. */
const OPAQUE = -1;

function applyRange(rgba: Uint32Array, alpha: Uint8Array, from: number, to: number): void {
  for (let i = from; i < to; i++) {
    const opacity = alpha[i]!;
    rgba[i] = opacity === 0 ? 0 : (rgba[i]! & 0xffffff) | (opacity << 24);
  }
}
