/** Size of a picture or a plane, in pixels. */
export interface Size {
  readonly width: number;
  readonly height: number;
}
