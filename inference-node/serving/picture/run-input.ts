/** The inputs that a model may get in place of the picture. */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';

/** Upper, lower, left, right. */
export type OfSides<Value> = readonly [Value, Value, Value, Value];

export type RunInput =
  | { readonly kind: 'mirrored' }
  /** The picture, surrounded by its own colours without their shapes. */
  | { readonly kind: 'framed' }
  /** The picture, continued by the colours of its edges, by these shares of its own length. */
  | { readonly kind: 'edges'; readonly beyond: OfSides<number> };

/** The sides become 1.5 times the picture's. */
const FRAME_BEYOND: OfSides<number> = [0.25, 0.25, 0.25, 0.25];

/** One byte a pixel, rows first. */
export interface SizedAlpha {
  readonly alpha: Uint8Array;
  readonly size: Size;
}

/** Box of the picture in an input of `size`. */
export function boxInInput({ width, height }: Size, input: RunInput): Box {
  const [above, below, before, after] = 'beyond' in input ? input.beyond : FRAME_BEYOND;
  const along = (side: number, one: number, other: number) => {
    const own = side / (1 + one + other);
    const length = Math.max(1, Math.round(own));
    return { start: Math.min(side - length, Math.round(one * own)), length };
  };
  const [x, y] = [along(width, before, after), along(height, above, below)];
  return { left: x.start, top: y.start, width: x.length, height: y.length };
}

/** Cuts the picture's own matte out of a run's, and undoes mirroring. */
export function matteOfPicture<Matte extends SizedAlpha>(
  matte: Matte,
  input: RunInput | undefined,
): Matte | { readonly alpha: Buffer; readonly size: Size } {
  if (input === undefined) return matte;
  const { alpha, size } = matte;
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
