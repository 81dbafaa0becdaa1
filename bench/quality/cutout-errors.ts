/** The errors of one matte and its cut-out of one photo. */

import { estimateForeground } from '../../inference-node/serving/picture/matte/foreground.ts';
import type { RoleMatte } from '../../inference-node/serving/picture/matte/merge-mattes.ts';
import { applyAlpha } from '../../inference-node/serving/picture/matte/picture-alpha.ts';
import { resample } from '../../inference-node/serving/picture/matte/resample.ts';
import type { RgbaPicture } from '../../inference-node/serving/picture/rgba-picture.ts';
import { foregroundError } from './foreground-error.ts';
import { HOLE_ERROR_NAMES, type HoleErrors, measureHoles } from './holes.ts';
import { MATTE_ERROR_NAMES, type MatteErrors, measureMatte } from './matte-metrics.ts';
import type { Photo } from './photos.ts';

/** `foreground` is 0 where the true colours are not known. */
export type CutoutErrors = MatteErrors & HoleErrors & { readonly foreground: number };

export const CUTOUT_ERROR_NAMES = [
  ...MATTE_ERROR_NAMES,
  'foreground',
  ...HOLE_ERROR_NAMES,
] as const;
export type CutoutErrorName = (typeof CUTOUT_ERROR_NAMES)[number];

/** A model's matte, only stretched. */
export function plainMatte({ alpha, width, height }: RoleMatte, picture: RgbaPicture): Buffer {
  if (width === picture.width && height === picture.height) return Buffer.from(alpha);
  return resample({ data: alpha, width, height }, picture);
}

export function cutOut(picture: RgbaPicture, alpha: Uint8Array, estimate: boolean): RgbaPicture {
  const copy = { ...picture, rgba: picture.rgba.slice() };
  if (estimate) estimateForeground(copy, alpha);
  applyAlpha(copy, alpha);
  return copy;
}

export function measureCutout(photo: Photo, alpha: Uint8Array, cutout: RgbaPicture): CutoutErrors {
  const { width, height } = photo.picture;
  const matte = { data: alpha, width, height };
  const reference = { data: photo.alpha, width, height };
  return {
    ...measureMatte(matte, reference),
    ...measureHoles(matte, reference),
    foreground: colourError(photo, alpha, cutout),
  };
}

export function colourError(
  { foreground, alpha: truth }: Photo,
  alpha: Uint8Array,
  { rgba }: RgbaPicture,
): number {
  return foreground === undefined ? 0 : foregroundError(rgba, alpha, foreground, truth);
}
