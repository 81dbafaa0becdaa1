/** One byte a pixel, 255 opaque. */
export interface Plane {
  readonly data: Uint8Array;
  readonly width: number;
  readonly height: number;
}
