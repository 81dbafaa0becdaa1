export const PIXEL: usize = 16;

export function toFloats(bytes: v128): v128 {
  const words = i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(bytes));
  return f32x4.convert_i32x4_u(words);
}

export function toBytes(floats: v128): v128 {
  const words = i32x4.trunc_sat_f32x4_s(f32x4.nearest(floats));
  const halves = i16x8.narrow_i32x4_s(words, words);
  return i8x16.narrow_i16x8_u(halves, halves);
}

export function toSixteen(one: v128, two: v128, three: v128, four: v128): v128 {
  const a = i32x4.trunc_sat_f32x4_s(f32x4.nearest(one));
  const b = i32x4.trunc_sat_f32x4_s(f32x4.nearest(two));
  const c = i32x4.trunc_sat_f32x4_s(f32x4.nearest(three));
  const d = i32x4.trunc_sat_f32x4_s(f32x4.nearest(four));
  return i8x16.narrow_i16x8_u(i16x8.narrow_i32x4_s(a, b), i16x8.narrow_i32x4_s(c, d));
}

export function atLeastZero(value: i32): i32 {
  return value < 0 ? 0 : value;
}

export function least(one: i32, other: i32): i32 {
  return one < other ? one : other;
}
