/**
 * Scales and composites pixels with straight alpha. Intermediate colours are premultiplied floats,
 * so transparent pixels add no colour and soft edges keep theirs.
 */
import { ofTaps, PIXEL, toBytes, toFloats } from './pixel';

const OPAQUE: f32 = 255;

/** Alpha stays 0 to 255. */
export function premultiply(pixels: usize, count: i32, out: usize): void {
  for (const end = out + <usize>count * PIXEL; out < end; out += PIXEL, pixels += 4) {
    const colour = toFloats(v128.load32_zero(pixels));
    const alpha = f32x4.extract_lane(colour, 3);
    const scaled = f32x4.mul(colour, f32x4.splat(alpha / OPAQUE));
    v128.store(out, f32x4.replace_lane(scaled, 3, alpha));
  }
}

export function alongVectors(
  row: usize,
  starts: usize,
  weights: usize,
  taps: i32,
  count: i32,
  out: usize,
): void {
  for (const end = out + <usize>count * PIXEL; out < end; out += PIXEL, starts += 4) {
    v128.store(out, ofTaps(row, starts, weights, taps));
    weights += 4 * <usize>taps;
  }
}

/**
 * Divides by alpha before it clamps: negative weights can raise alpha above 255, and edges would
 * get lighter or darker.
 */
export function acrossCutOut(rows: usize, weights: usize, taps: i32, count: i32, out: usize): void {
  const end = <usize>count * PIXEL;
  for (let at: usize = 0; at < end; at += PIXEL, out += 4) {
    let sum = f32x4.splat(0);
    for (let tap: usize = 0; tap < <usize>taps; tap++) {
      const weight = f32x4.splat(load<f32>(weights + 4 * tap));
      sum = f32x4.add(sum, f32x4.mul(v128.load(<usize>load<i32>(rows + 4 * tap) + at), weight));
    }
    store<u32>(out, straight(sum));
  }
}

function straight(vector: v128): u32 {
  const alpha = f32x4.extract_lane(vector, 3);
  if (alpha < 0.5) return 0;
  const colours = f32x4.mul(vector, f32x4.splat(OPAQUE / alpha));
  return <u32>i32x4.extract_lane(toBytes(f32x4.replace_lane(colours, 3, alpha)), 0);
}

export function layOnto(above: usize, count: i32, beneath: usize): void {
  for (const end = beneath + 4 * <usize>count; beneath < end; beneath += 4, above += 4) {
    const pixel = load<u32>(above);
    const opacity = pixel >>> 24;
    if (opacity === 0) continue;
    if (opacity === 255) {
      store<u32>(beneath, pixel);
      continue;
    }
    const one = toFloats(v128.load32_zero(above));
    const other = toFloats(v128.load32_zero(beneath));
    const alpha = f32x4.extract_lane(one, 3);
    const rest = (f32x4.extract_lane(other, 3) * (OPAQUE - alpha)) / OPAQUE;
    const sum = f32x4.add(
      f32x4.mul(one, f32x4.splat(alpha / OPAQUE)),
      f32x4.mul(other, f32x4.splat(rest / OPAQUE)),
    );
    store<u32>(beneath, straight(f32x4.replace_lane(sum, 3, alpha + rest)));
  }
}
