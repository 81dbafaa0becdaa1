/** Size of a picture or a plane, in pixels. */
export interface Size {
  readonly width: number;
  readonly height: number;
}

/** The one of more pixels. */
export function largerOf(one: Size, other: Size): Size {
  return one.width * one.height > other.width * other.height ? one : other;
}
