/** Hand-made mattes of one size. */
export const GRID = { width: 128, height: 128 };

/** A square of `value` on the ground. */
export function square(left: number, top: number, side: number, value: number): Uint8Array {
  return paint(new Uint8Array(GRID.width * GRID.height), left, top, side, side, value);
}

/** In place; returns the plane. */
export function paint(
  plane: Uint8Array,
  left: number,
  top: number,
  width: number,
  height: number,
  value: number,
): Uint8Array {
  for (let y = top; y < top + height; y++) {
    plane.fill(value, y * GRID.width + left, y * GRID.width + left + width);
  }
  return plane;
}
