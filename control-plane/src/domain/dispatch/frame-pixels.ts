/** How many pixels a result has, as far as what is asked for says it. Pure. */
import type { Finishing } from '#contract/finishing.ts';
import { IMAGE_PIXELS_MAX } from '#contract/limits.ts';

/** The frame that a request names by both its sides; undefined: it follows from the input. */
export function frameAsked(finishing: Finishing): number | undefined {
  const { outputWidth, outputHeight } = finishing;
  if (outputWidth === undefined || outputHeight === undefined) return undefined;
  return scaledDown(outputWidth * outputHeight, finishing);
}

/**
 * Pixels of the frame for an input of that many: what a node must have room for beside the input.
 * Where only the picture shows it (a subject that is cropped, proportions that are kept), as if the
 * contents were the whole input, a square.
 */
export function framePixels(finishing: Finishing | null, inputPixels: number): number {
  if (finishing === null) return inputPixels;
  const asked = frameAsked(finishing);
  if (asked !== undefined) return asked;
  const side = finishing.outputWidth ?? finishing.outputHeight;
  if (side !== undefined) return scaledDown(side * side, finishing);
  const scale = finishing.crop === undefined ? 1 : (finishing.scalePercent ?? 100) / 100;
  return scaledDown(inputPixels / scale ** 2, finishing);
}

/** A node scales down what is over the limits of an image. */
function scaledDown(pixels: number, { sizeMaxMegapixels = Infinity }: Finishing): number {
  return Math.ceil(Math.min(pixels, sizeMaxMegapixels * 1e6, IMAGE_PIXELS_MAX));
}
