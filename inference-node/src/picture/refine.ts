/**
 * From the matte of a model to the alpha of the picture: pure arithmetic over typed arrays, each
 * step a function of its own.
 *
 *   matte (model's size) -> bring to the picture's size -> (edge-aware refinement, guided by the
 *   picture) -> (foreground estimation, in the picture's own pixels) -> compose.ts
 *
 * The steps in brackets have their place here and are not built. Alpha is never rescaled per image:
 * a model that is unsure gives a result that is unsure.
 */
import type { Size } from './picture-pool.ts';
import { resample } from './resample.ts';
import type { RgbaPicture } from './rgba-picture.ts';

export interface Matte extends Size {
  /** One byte a pixel, 255 opaque. */
  readonly alpha: Uint8Array;
}

/** One byte a pixel of the picture; the result is the caller's. */
export function refineMatte(matte: Matte, picture: RgbaPicture): Buffer {
  return upsampleMatte(matte, picture);
}

/** Bicubic (Catmull-Rom) to `size`; averaging where the picture is smaller than the matte. */
export function upsampleMatte({ alpha, width, height }: Matte, size: Size): Buffer {
  if (width === size.width && height === size.height) return Buffer.from(alpha);
  return resample({ data: alpha, width, height, channels: 1 }, size, 'cubic');
}
