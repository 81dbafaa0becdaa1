/** What stands under a transparent pixel of the input wherever a colour is needed there. */

/**
 * Middle grey. Colours hidden under a transparent pixel are arbitrary, and often the very
 * background that somebody cut away, so they are never shown. Grey stands out from dark and from
 * light subjects alike, and is the mean of what ISNet was trained on. A model's own mistakes there
 * cost nothing: the result's alpha is multiplied by the source's.
 */
export const UNDER_TRANSPARENCY = 128;

/** A pixel over grey, opaque. */
export function overGrey(pixel: number): number {
  const alpha = pixel >>> 24;
  const grey = UNDER_TRANSPARENCY * (255 - alpha);
  const red = ((pixel & 255) * alpha + grey + 127) / 255;
  const green = (((pixel >>> 8) & 255) * alpha + grey + 127) / 255;
  const blue = (((pixel >>> 16) & 255) * alpha + grey + 127) / 255;
  return red | (green << 8) | (blue << 16) | 0xff000000;
}
