/** Measures how uncertain a matte is around each of its pixels. */
import { atLeastZero, least } from './pixel';

function countUncertain(
  counts: usize,
  alpha: usize,
  width: i32,
  below: i32,
  above: i32,
  sign: i32,
): void {
  for (let end = alpha + <usize>width; alpha < end; alpha++, counts += 4) {
    const value = <i32>load<u8>(alpha);
    const uncertain = value > below && value < above;
    store<i32>(counts, load<i32>(counts) + (uncertain ? sign : 0));
  }
}

/**
 * Computes for each pixel the share of its window, clipped at the border, whose alpha lies between
 * `below` and `above`.
 * @param reach of a window to each side, pixels.
 * @param counts scratch memory, four bytes per column.
 * @param out one float per pixel.
 */
export function uncertainShares(
  alpha: usize,
  width: i32,
  height: i32,
  reach: i32,
  below: i32,
  above: i32,
  counts: usize,
  out: usize,
): void {
  memory.fill(counts, 0, 4 * <usize>width);
  for (let y = 0; y < height + reach; y++) {
    const stride = <usize>width;
    if (y < height) countUncertain(counts, alpha + <usize>y * stride, width, below, above, 1);
    const middle = y - reach;
    if (middle < 0) continue;
    const gone = middle - reach - 1;
    if (gone >= 0) countUncertain(counts, alpha + <usize>gone * stride, width, below, above, -1);
    const rows = least(height - 1, y) - atLeastZero(middle - reach) + 1;
    let sum = 0;
    for (let x = 0; x < width + reach; x++) {
      if (x < width) sum += load<i32>(counts + 4 * <usize>x);
      const centre = x - reach;
      if (centre < 0) continue;
      const left = centre - reach - 1;
      if (left >= 0) sum -= load<i32>(counts + 4 * <usize>left);
      const columns = least(width - 1, x) - atLeastZero(centre - reach) + 1;
      store<f32>(out, <f32>sum / <f32>(rows * columns));
      out += 4;
    }
  }
}
