/** How large a result can get, before the picture is known: for the memory it is admitted with. */
import type { Finishing, Length } from '#contract/finishing.ts';
import { IMAGE_PIXELS_MAX, IMAGE_SIDE_PX_MAX } from '#contract/limits.ts';
import type { Size } from './size.ts';

/** @param declared of the input, oriented or not; undefined: not known. */
export function framePixelsMax(finishing: Finishing, declared: Size | undefined): number {
  const { sizeMaxMegapixels = Number.POSITIVE_INFINITY } = finishing;
  return Math.min(IMAGE_PIXELS_MAX, sizeMaxMegapixels * 1e6, askedPixelsMax(finishing, declared));
}

function askedPixelsMax(finishing: Finishing, declared: Size | undefined): number {
  const { outputWidth, outputHeight, crop, scalePercent = 100 } = finishing;
  if (outputWidth !== undefined || outputHeight !== undefined) {
    return (outputWidth ?? IMAGE_SIDE_PX_MAX) * (outputHeight ?? IMAGE_SIDE_PX_MAX);
  }
  if (declared === undefined) return IMAGE_PIXELS_MAX;
  const { width, height } = declared;
  if (crop === undefined) return width * height;
  const croppedPixels = (wide: number, high: number) =>
    (wide + marginPx(crop.left, wide) + marginPx(crop.right, wide)) *
    (high + marginPx(crop.top, high) + marginPx(crop.bottom, high));
  const contents = Math.max(croppedPixels(width, height), croppedPixels(height, width));
  // Rounded up: sides are whole.
  return Math.ceil((contents * 1.01) / (scalePercent / 100) ** 2) + IMAGE_SIDE_PX_MAX;
}

function marginPx(length: Length, side: number): number {
  return 'px' in length ? length.px : (length.percent / 100) * side;
}
