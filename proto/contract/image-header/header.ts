import type { InputFormat } from '../formats.ts';

export interface ImageHeader {
  readonly format: InputFormat;
  /** Pixels as stored (before EXIF or irot); undefined where the header does not show them. */
  readonly width: number | undefined;
  readonly height: number | undefined;
  /** More than one frame: refused by the contract. An AVIF grid is not an animation. */
  readonly animated: boolean;
}
