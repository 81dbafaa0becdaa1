export const PIXEL: usize = 16;

export function toFloats(bytes: v128): v128 {
  const words = i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(bytes));
  return f32x4.convert_i32x4_u(words);
}

/** 1.5 * 2^23: the sum with a number up to 2^22 has no bits for a fraction. */
const ROUNDER: f32 = 12_582_912;

/** To the nearest integer, halves to the even one. Takes half of the time of a conversion. */
function rounded(floats: v128): v128 {
  const rounder = f32x4.splat(ROUNDER);
  return i32x4.sub(f32x4.add(floats, rounder), rounder);
}

export function toBytes(floats: v128): v128 {
  const words = rounded(floats);
  const halves = i16x8.narrow_i32x4_s(words, words);
  return i8x16.narrow_i16x8_u(halves, halves);
}

export function toSixteen(one: v128, two: v128, three: v128, four: v128): v128 {
  const first = i16x8.narrow_i32x4_s(rounded(one), rounded(two));
  return i8x16.narrow_i16x8_u(first, i16x8.narrow_i32x4_s(rounded(three), rounded(four)));
}

export function atLeastZero(value: i32): i32 {
  return value < 0 ? 0 : value;
}

export function least(one: i32, other: i32): i32 {
  return one < other ? one : other;
}

/** Sums columns of bytes in 16 bits each. @param length bytes of a row */
export function addRows(bytes: usize, length: usize, rows: i32, sums: usize): void {
  for (const end = bytes + length; bytes < end; bytes += 16, sums += 32) {
    let low = i16x8.splat(0);
    let high = low;
    let at = bytes;
    for (let y = 0; y < rows; y++, at += length) {
      const sixteen = v128.load(at);
      low = i16x8.add(low, i16x8.extend_low_i8x16_u(sixteen));
      high = i16x8.add(high, i16x8.extend_high_i8x16_u(sixteen));
    }
    v128.store(sums, low);
    v128.store(sums, high, 16);
  }
}

export function ofTaps(rows: usize, starts: usize, weights: usize, taps: i32): v128 {
  let from = rows + PIXEL * <usize>load<i32>(starts);
  let sum = f32x4.mul(v128.load(from), v128.load32_splat(weights));
  for (let tap = 1; tap < taps; tap++) {
    from += PIXEL;
    weights += 4;
    sum = f32x4.add(sum, f32x4.mul(v128.load(from), v128.load32_splat(weights)));
  }
  return sum;
}

export function mixed(one: v128, other: v128, share: v128): v128 {
  return f32x4.add(one, f32x4.mul(f32x4.sub(other, one), share));
}
