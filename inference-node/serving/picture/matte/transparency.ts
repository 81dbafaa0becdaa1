/** The colour under a transparent pixel of the input wherever one is needed. */

/**
 * Middle grey. Colours hidden under transparent pixels are arbitrary, often the very background
 * that was cut away, so they are never used. Grey contrasts with dark and with light subjects, and
 * is the mean of what ISNet was trained on. A model's mistakes there do no harm: the result's alpha
 * is multiplied by the source's.
 */
export const UNDER_TRANSPARENCY = 128;

/** Composites a pixel over grey. */
export function overGrey(pixel: number): number {
  const alpha = pixel >>> 24;
  const grey = UNDER_TRANSPARENCY * (255 - alpha);
  const red = ((pixel & 255) * alpha + grey + 127) / 255;
  const green = (((pixel >>> 8) & 255) * alpha + grey + 127) / 255;
  const blue = (((pixel >>> 16) & 255) * alpha + grey + 127) / 255;
  return red | (green << 8) | (blue << 16) | 0xff000000;
}
