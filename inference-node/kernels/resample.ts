/**
 * Resampling with separable kernels: first along each row of bytes, then across rows. For each
 * output pixel an axis has the first input pixel (`starts`) and `taps` weights.
 */
import { least, PIXEL, toBytes, toFloats, toSixteen } from './pixel';

/**
 * Averages a row of boxes of the picture to four bytes each; the fourth is undefined. Sums of two
 * neighbouring pixels are kept in 16 bits: a box has at most 256 pixels.
 * @param stride pixels from one row of the picture to the next.
 * @param columns, rows size of a box; the last box of a row may be narrower.
 */
export function averageBoxes(
  pixels: usize,
  stride: i32,
  width: i32,
  columns: i32,
  rows: i32,
  out: usize,
): void {
  for (let left = 0; left < width; left += columns, out += 4) {
    const count = least(columns, width - left);
    let sums = i16x8.splat(0);
    for (let y = 0; y < rows; y++) {
      let at = pixels + 4 * <usize>(y * stride + left);
      const end = at + 4 * <usize>count;
      for (; at + 8 <= end; at += 8) {
        sums = i16x8.add(sums, i16x8.extend_low_i8x16_u(v128.load64_zero(at)));
      }
      if (at < end) sums = i16x8.add(sums, i16x8.extend_low_i8x16_u(v128.load32_zero(at)));
    }
    const sum = i32x4.add(i32x4.extend_low_i16x8_u(sums), i32x4.extend_high_i16x8_u(sums));
    const share = f32x4.splat(1 / <f32>(count * rows));
    v128.store32_lane(out, toBytes(f32x4.mul(f32x4.convert_i32x4_s(sum), share)), 0);
  }
}

/** The same for a picture with transparency, composited over a grey. */
export function averageBoxesOver(
  pixels: usize,
  stride: i32,
  width: i32,
  columns: i32,
  rows: i32,
  grey: f32,
  out: usize,
): void {
  const under = f32x4.splat(grey);
  for (let left = 0; left < width; left += columns, out += 4) {
    const right = least(width, left + columns);
    let sum = f32x4.splat(0);
    for (let y = 0; y < rows; y++) {
      const row = pixels + 4 * <usize>(y * stride);
      for (let at = row + 4 * <usize>left; at < row + 4 * <usize>right; at += 4) {
        const colour = toFloats(v128.load32_zero(at));
        const opacity = v128.shuffle<f32>(colour, colour, 3, 3, 3, 3);
        sum = f32x4.add(sum, f32x4.mul(opacity, f32x4.sub(colour, under)));
      }
    }
    const share = f32x4.splat(1 / (255 * <f32>((right - left) * rows)));
    v128.store32_lane(out, toBytes(f32x4.add(under, f32x4.mul(sum, share))), 0);
  }
}

/** Four bytes a pixel to vectors. */
export function alongColour(
  row: usize,
  starts: usize,
  weights: usize,
  taps: i32,
  count: i32,
  out: usize,
): void {
  for (let end = out + <usize>count * PIXEL; out < end; out += PIXEL, starts += 4) {
    let sum = f32x4.splat(0);
    let from = row + 4 * <usize>load<i32>(starts);
    for (let tap = 0; tap < taps; tap++, from += 4, weights += 4) {
      const weight = f32x4.splat(load<f32>(weights));
      sum = f32x4.add(sum, f32x4.mul(toFloats(v128.load32_zero(from)), weight));
    }
    v128.store(out, sum);
  }
}

/** One byte a pixel to floats. */
export function alongGrey(
  row: usize,
  starts: usize,
  weights: usize,
  taps: i32,
  count: i32,
  out: usize,
): void {
  for (let end = out + 4 * <usize>count; out < end; out += 4, starts += 4) {
    let sum: f32 = 0;
    let from = row + <usize>load<i32>(starts);
    for (let tap = 0; tap < taps; tap++, from++, weights += 4) {
      sum += <f32>load<u8>(from) * load<f32>(weights);
    }
    store<f32>(out, sum);
  }
}

/** Weighted sum of rows at an offset: four floats. @param rows the addresses of the rows. */
function mixed(rows: usize, weights: usize, taps: i32, at: usize): v128 {
  let sum = f32x4.mul(v128.load(<usize>load<i32>(rows) + at), f32x4.splat(load<f32>(weights)));
  for (let tap: usize = 1; tap < <usize>taps; tap++) {
    const weight = f32x4.splat(load<f32>(weights + 4 * tap));
    sum = f32x4.add(sum, f32x4.mul(v128.load(<usize>load<i32>(rows + 4 * tap) + at), weight));
  }
  return sum;
}

/** Rows of floats to bytes; up to three bytes behind `count` are overwritten. */
export function acrossGrey(rows: usize, weights: usize, taps: i32, count: i32, out: usize): void {
  for (let at: usize = 0; at < 4 * <usize>count; at += 16, out += 4) {
    v128.store32_lane(out, toBytes(mixed(rows, weights, taps, at)), 0);
  }
}

/**
 * Rows of vectors to pixels of `bytes` bytes: 3, or 4 with the fourth undefined. Up to four bytes
 * behind them are overwritten.
 */
export function acrossColour(
  rows: usize,
  weights: usize,
  taps: i32,
  count: i32,
  bytes: i32,
  out: usize,
): void {
  const end = <usize>count * PIXEL;
  let at: usize = 0;
  for (; at + 4 * PIXEL <= end; at += 4 * PIXEL, out += 4 * bytes) {
    let four: v128;
    if (taps === 2) {
      // Every enlargement, and most calls: no table is read per pixel.
      const first = <usize>load<i32>(rows) + at;
      const second = <usize>load<i32>(rows, 4) + at;
      const one = f32x4.splat(load<f32>(weights));
      const other = f32x4.splat(load<f32>(weights, 4));
      four = toSixteen(
        f32x4.add(f32x4.mul(v128.load(first), one), f32x4.mul(v128.load(second), other)),
        f32x4.add(f32x4.mul(v128.load(first, 16), one), f32x4.mul(v128.load(second, 16), other)),
        f32x4.add(f32x4.mul(v128.load(first, 32), one), f32x4.mul(v128.load(second, 32), other)),
        f32x4.add(f32x4.mul(v128.load(first, 48), one), f32x4.mul(v128.load(second, 48), other)),
      );
    } else {
      four = toSixteen(
        mixed(rows, weights, taps, at),
        mixed(rows, weights, taps, at + PIXEL),
        mixed(rows, weights, taps, at + 2 * PIXEL),
        mixed(rows, weights, taps, at + 3 * PIXEL),
      );
    }
    v128.store(out, bytes === 3 ? withoutFourths(four) : four);
  }
  for (; at < end; at += PIXEL, out += bytes) {
    v128.store32_lane(out, toBytes(mixed(rows, weights, taps, at)), 0);
  }
}

/** Sixteen bytes without every fourth one, then four bytes of arbitrary content. */
function withoutFourths(bytes: v128): v128 {
  return v128.shuffle<u8>(bytes, bytes, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
}

/** Pixels of four bytes to three each; up to four bytes behind them are overwritten. */
export function dropFourth(pixels: usize, count: i32, out: usize): void {
  const end = pixels + 4 * <usize>count;
  for (; pixels + 16 <= end; pixels += 16, out += 12) {
    v128.store(out, withoutFourths(v128.load(pixels)));
  }
  for (; pixels < end; pixels += 4, out += 3) store<u32>(out, load<u32>(pixels));
}
