/** Pixels as an encoder takes them. */
export interface RawPixels {
  readonly data: Buffer;
  readonly width: number;
  readonly height: number;
  /** 4: sRGB with straight alpha. 1: a grey plane. */
  readonly channels: 1 | 4;
}
