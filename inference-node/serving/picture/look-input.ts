/**
 * What a model is given to look at in place of the picture as it is: the picture mirrored, in a
 * frame, or continued beyond some of its sides. matte/look-pixels.ts paints it. Pure.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';

/** Upper, lower, left, right. */
export type OfSides<Value> = readonly [Value, Value, Value, Value];

export type LookInput =
  | { readonly kind: 'mirrored' }
  /** In the middle of its own colours, without their shapes. */
  | { readonly kind: 'framed' }
  /** Continued by the colours of its edges, so far relative to its own length that way. */
  | { readonly kind: 'edges'; readonly beyond: OfSides<number> };

/** The sides of a framed input are 1.5 times those of the picture. */
const FRAME_BEYOND: OfSides<number> = [0.25, 0.25, 0.25, 0.25];

/** The plane has one byte a pixel, rows first. */
export interface SizedAlpha {
  readonly alpha: Uint8Array;
  readonly size: Size;
}

/** Gives the box of the picture in an input of `size`. */
export function boxInInput({ width, height }: Size, input: LookInput): Box {
  const [above, below, before, after] = 'beyond' in input ? input.beyond : FRAME_BEYOND;
  const along = (side: number, one: number, other: number) => {
    const own = side / (1 + one + other);
    const length = Math.max(1, Math.round(own));
    return { start: Math.min(side - length, Math.round(one * own)), length };
  };
  const [x, y] = [along(width, before, after), along(height, above, below)];
  return { left: x.start, top: y.start, width: x.length, height: y.length };
}

/** What a look shows of the picture itself, the right way round. */
export function ofPicture<Look extends SizedAlpha>(
  look: Look,
  input: LookInput | undefined,
): Look | { readonly alpha: Buffer; readonly size: Size } {
  if (input === undefined) return look;
  const { alpha, size } = look;
  if (input.kind === 'mirrored') {
    const mirrored = Buffer.from(alpha);
    for (let y = 0; y < size.height; y++) {
      mirrored.subarray(y * size.width, (y + 1) * size.width).reverse();
    }
    return { alpha: mirrored, size };
  }
  const { left, top, width, height } = boxInInput(size, input);
  const cut = Buffer.allocUnsafeSlow(width * height);
  for (let y = 0; y < height; y++) {
    const from = (top + y) * size.width + left;
    cut.set(alpha.subarray(from, from + width), y * width);
  }
  return { alpha: cut, size: { width, height } };
}
