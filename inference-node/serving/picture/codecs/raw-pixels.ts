import type { Size } from '#contract/finishing.ts';

/** Pixels as an encoder takes them. */
export interface RawPixels extends Size {
  readonly data: Buffer;
  /** 4: sRGB with straight alpha. 1: a grey plane. */
  readonly channels: 1 | 4;
}
