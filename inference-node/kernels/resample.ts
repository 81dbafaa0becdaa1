/**
 * Separable kernels: first along each row of bytes, then across rows. For each output pixel an axis
 * has the first input pixel (`starts`) and `taps` weights.
 */
import { alongVectors } from './cut-out';
import { addRows, least, ofTaps, PIXEL, toBytes, toFloats, toSixteen } from './pixel';

/**
 * Averages a row of boxes to four bytes each; the fourth is undefined. A box has at most 256
 * pixels: sums have 16 bits.
 * @param width pixels of a row
 * @param columns, rows of a box; the last box may be narrower
 * @param sums scratch memory, eight bytes for each of `width` pixels and three more
 */
export function averageBoxes(
  pixels: usize,
  width: i32,
  columns: i32,
  rows: i32,
  sums: usize,
  out: usize,
): void {
  addRows(pixels, 4 * <usize>width, rows, sums);
  for (let left = 0; left < width; left += columns, out += 4) {
    const count = least(columns, width - left);
    const share = f32x4.splat(1 / <f32>(count * rows));
    v128.store32_lane(out, toBytes(f32x4.mul(sumOfBox(sums, count), share)), 0);
    sums += 8 * <usize>columns;
  }
}

function sumOfBox(sums: usize, columns: i32): v128 {
  let sum = i16x8.splat(0);
  const end = sums + 8 * <usize>columns;
  for (; sums + 16 <= end; sums += 16) sum = i16x8.add(sum, v128.load(sums));
  if (sums < end) sum = i16x8.add(sum, v128.load64_zero(sums));
  const four = i32x4.add(i32x4.extend_low_i16x8_u(sum), i32x4.extend_high_i16x8_u(sum));
  return f32x4.convert_i32x4_s(four);
}

export function averageBoxesOver(
  pixels: usize,
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
      const row = pixels + 4 * <usize>(y * width);
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

/**
 * Averages samples; alpha weights their colours.
 * @param width pixels of a row
 * @param columns address of the samples' columns, `across` for each mean
 * @param bytes of a pixel: 4, or 1 of grey
 */
export function meansOfSamples(
  pixels: usize,
  width: i32,
  rows: i32,
  columns: usize,
  across: i32,
  count: i32,
  bytes: i32,
  out: usize,
): void {
  const samples = <u32>(across * rows);
  for (let i = 0; i < count; i++, columns += 4 * <usize>across, out += bytes) {
    let sum: u32 = 0;
    let red: u32 = 0;
    let green: u32 = 0;
    let blue: u32 = 0;
    for (let row = 0; row < rows; row++) {
      for (let sample = 0; sample < across; sample++) {
        const column = load<i32>(columns + 4 * <usize>sample);
        const at = pixels + <usize>bytes * <usize>(row * width + column);
        const alpha = <u32>load<u8>(at + <usize>(bytes - 1));
        sum += alpha;
        if (bytes === 1) continue;
        red += alpha * load<u8>(at);
        green += alpha * load<u8>(at, 1);
        blue += alpha * load<u8>(at, 2);
      }
    }
    const mean = (2 * sum + samples) / (2 * samples);
    if (bytes === 1) {
      store<u8>(out, <u8>mean);
      continue;
    }
    // Integer division that rounds; 0 if all samples are transparent.
    const twice = max(1, 2 * sum);
    red = (2 * red + sum) / twice;
    green = (2 * green + sum) / twice;
    blue = (2 * blue + sum) / twice;
    store<u32>(out, red | (green << 8) | (blue << 16) | (mean << 24));
  }
}

/** @param vectors scratch memory, one for each of `width` pixels */
export function alongColour(
  row: usize,
  width: i32,
  vectors: usize,
  starts: usize,
  weights: usize,
  taps: i32,
  count: i32,
  out: usize,
): void {
  for (let x: usize = 0; x < <usize>width; x += 4) {
    storeAsVectors(v128.load(row + 4 * x), vectors + x * PIXEL);
  }
  alongVectors(vectors, starts, weights, taps, count, out);
}

function storeAsVectors(bytes: v128, out: usize): void {
  const low = i16x8.extend_low_i8x16_u(bytes);
  const high = i16x8.extend_high_i8x16_u(bytes);
  v128.store(out, f32x4.convert_i32x4_u(i32x4.extend_low_i16x8_u(low)));
  v128.store(out, f32x4.convert_i32x4_u(i32x4.extend_high_i16x8_u(low)), 16);
  v128.store(out, f32x4.convert_i32x4_u(i32x4.extend_low_i16x8_u(high)), 32);
  v128.store(out, f32x4.convert_i32x4_u(i32x4.extend_high_i16x8_u(high)), 48);
}

function mixFour(rows: usize, weights: usize, taps: i32, at: usize): v128 {
  let a = f32x4.splat(0);
  let b = a;
  let c = a;
  let d = a;
  for (const end = weights + 4 * <usize>taps; weights < end; weights += 4, rows += 4) {
    const from = <usize>load<i32>(rows) + at;
    const weight = v128.load32_splat(weights);
    a = f32x4.add(a, f32x4.mul(v128.load(from), weight));
    b = f32x4.add(b, f32x4.mul(v128.load(from, 16), weight));
    c = f32x4.add(c, f32x4.mul(v128.load(from, 32), weight));
    d = f32x4.add(d, f32x4.mul(v128.load(from, 48), weight));
  }
  return toSixteen(a, b, c, d);
}

const ROWS = 4;

/**
 * Resamples a plane of bytes to rows `from` to `to` of the result. Overwrites up to 15 bytes
 * after them.
 * @param starts, weights, taps along the rows, for a multiple of four pixels
 * @param rowStarts, rowWeights, rowTaps across them
 * @param scratch `greyBytes` of memory
 */
export function resampleGrey(
  source: usize,
  width: i32,
  height: i32,
  starts: usize,
  weights: usize,
  taps: i32,
  count: i32,
  rowStarts: usize,
  rowWeights: usize,
  rowTaps: i32,
  scratch: usize,
  from: i32,
  to: i32,
  out: usize,
): void {
  const rowsAt = scratch + interleavedBytes(width);
  const ring = rowsAt + aligned(4 * <usize>rowTaps);
  const pitch = aligned(4 * <usize>count);
  const ringRows = ROWS * ringBlocks(rowTaps);
  let block = load<i32>(rowStarts + 4 * <usize>from) / ROWS;
  for (let y = from; y < to; y++, out += count) {
    const first = load<i32>(rowStarts + 4 * <usize>y);
    for (; ROWS * block < first + rowTaps; block++) {
      interleave(source, width, height, ROWS * block, scratch);
      const row = ring + <usize>((ROWS * block) % ringRows) * pitch;
      alongRows(scratch, starts, weights, taps, count, row, pitch);
    }
    for (let tap = 0; tap < rowTaps; tap++) {
      const row = ring + <usize>((first + tap) % ringRows) * pitch;
      store<i32>(rowsAt + 4 * <usize>tap, <i32>row);
    }
    acrossColour(rowsAt, rowWeights + 4 * <usize>(y * rowTaps), rowTaps, (count + 3) >> 2, 4, out);
  }
}

export function greyBytes(width: i32, count: i32, rowTaps: i32): usize {
  const rows = <usize>(ROWS * ringBlocks(rowTaps)) * aligned(4 * <usize>count);
  return interleavedBytes(width) + aligned(4 * <usize>rowTaps) + rows + 3 * PIXEL;
}

function aligned(bytes: usize): usize {
  return (bytes + 15) & ~15;
}

function interleavedBytes(width: i32): usize {
  return PIXEL * aligned(<usize>width);
}

function ringBlocks(taps: i32): i32 {
  return (taps + 2) / ROWS + 1;
}

function interleave(source: usize, width: i32, height: i32, top: i32, out: usize): void {
  const row0 = source + <usize>(least(height - 1, top) * width);
  const row1 = source + <usize>(least(height - 1, top + 1) * width);
  const row2 = source + <usize>(least(height - 1, top + 2) * width);
  const row3 = source + <usize>(least(height - 1, top + 3) * width);
  for (let x: usize = 0; x < <usize>width; x += 16, out += 256) {
    const a = v128.load(row0 + x);
    const b = v128.load(row1 + x);
    const c = v128.load(row2 + x);
    const d = v128.load(row3 + x);
    const low = lowBytes(a, b);
    const low2 = lowBytes(c, d);
    const high = highBytes(a, b);
    const high2 = highBytes(c, d);
    storeAsVectors(v128.shuffle<u16>(low, low2, 0, 8, 1, 9, 2, 10, 3, 11), out);
    storeAsVectors(v128.shuffle<u16>(low, low2, 4, 12, 5, 13, 6, 14, 7, 15), out + 64);
    storeAsVectors(v128.shuffle<u16>(high, high2, 0, 8, 1, 9, 2, 10, 3, 11), out + 128);
    storeAsVectors(v128.shuffle<u16>(high, high2, 4, 12, 5, 13, 6, 14, 7, 15), out + 192);
  }
}

function lowBytes(one: v128, other: v128): v128 {
  return v128.shuffle<u8>(one, other, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

function highBytes(one: v128, other: v128): v128 {
  return v128.shuffle<u8>(one, other, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

function alongRows(
  rows: usize,
  starts: usize,
  weights: usize,
  taps: i32,
  count: i32,
  out: usize,
  pitch: usize,
): void {
  const step: usize = 4 * <usize>taps;
  for (const end = out + 4 * <usize>count; out < end; out += 16, starts += 16) {
    const a = ofTaps(rows, starts, weights, taps);
    const b = ofTaps(rows, starts + 4, weights + step, taps);
    const c = ofTaps(rows, starts + 8, weights + 2 * step, taps);
    const d = ofTaps(rows, starts + 12, weights + 3 * step, taps);
    weights += 4 * step;
    const low = v128.shuffle<f32>(a, b, 0, 4, 1, 5);
    const low2 = v128.shuffle<f32>(c, d, 0, 4, 1, 5);
    const high = v128.shuffle<f32>(a, b, 2, 6, 3, 7);
    const high2 = v128.shuffle<f32>(c, d, 2, 6, 3, 7);
    v128.store(out, v128.shuffle<f32>(low, low2, 0, 1, 4, 5));
    v128.store(out + pitch, v128.shuffle<f32>(low, low2, 2, 3, 6, 7));
    v128.store(out + 2 * pitch, v128.shuffle<f32>(high, high2, 0, 1, 4, 5));
    v128.store(out + 3 * pitch, v128.shuffle<f32>(high, high2, 2, 3, 6, 7));
  }
}

/**
 * Reads three vectors after each row, and overwrites up to 15 bytes after the last pixel.
 * @param bytes of a pixel: 3, or 4 with the fourth undefined
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
  for (let at: usize = 0; at < end; at += 4 * PIXEL, out += 4 * bytes) {
    const four = mixFour(rows, weights, taps, at);
    v128.store(out, bytes === 3 ? withoutFourths(four) : four);
  }
}

/** Moves every fourth byte to the end. */
function withoutFourths(bytes: v128): v128 {
  return v128.shuffle<u8>(bytes, bytes, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
}

/** Overwrites up to four bytes after the pixels. */
export function dropFourth(pixels: usize, count: i32, out: usize): void {
  const end = pixels + 4 * <usize>count;
  for (; pixels + 16 <= end; pixels += 16, out += 12) {
    v128.store(out, withoutFourths(v128.load(pixels)));
  }
  for (; pixels < end; pixels += 4, out += 3) store<u32>(out, load<u32>(pixels));
}
