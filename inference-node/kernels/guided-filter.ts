/**
 * The guided filter with a colour guide (He, Sun and Tang, "Guided Image Filtering", TPAMI 2013,
 * section 3.4). Each window has the linear function of colour that fits alpha best; a pixel's
 * function is the mean over all windows that contain it. Subtracting 128 from bytes keeps every
 * product's sum over 17 x 17 pixels below 2^24, so running sums in single precision are exact.
 */
import { atLeastZero, least, mixed, PIXEL, toFloats } from './pixel';

/** Bytes of a window's sums: R G B a, Ra Ga Ba aa, RR GG BB aa, RG GB BR aa. */
const SUMS: usize = 4 * PIXEL;
const MIDDLE: f32 = 128;

function colourAndAlpha(guide: usize, alpha: usize): v128 {
  const bytes = i8x16.replace_lane(v128.load32_zero(guide), 3, load<i8>(alpha));
  return f32x4.sub(toFloats(bytes), f32x4.splat(MIDDLE));
}

/** @param sign -1 subtracts the row */
function countRow(sums: usize, guide: usize, alpha: usize, count: i32, sign: f32): void {
  const signs = f32x4.splat(sign);
  for (let end = alpha + count; alpha < end; alpha++, guide += 4, sums += SUMS) {
    const one = colourAndAlpha(guide, alpha);
    const signed = f32x4.mul(one, signs);
    const alphas = v128.shuffle<f32>(one, one, 3, 3, 3, 3);
    const turned = v128.shuffle<f32>(one, one, 1, 2, 0, 3);
    v128.store(sums, f32x4.add(v128.load(sums), signed));
    v128.store(sums, f32x4.add(v128.load(sums, 16), f32x4.mul(signed, alphas)), 16);
    v128.store(sums, f32x4.add(v128.load(sums, 32), f32x4.mul(signed, one)), 32);
    v128.store(sums, f32x4.add(v128.load(sums, 48), f32x4.mul(signed, turned)), 48);
  }
}

/**
 * @param sums the columns' sums from column `columnsLeft` on
 * @param rows in each sum
 */
function meansOfRow(
  sums: usize,
  means: usize,
  left: i32,
  right: i32,
  columnsLeft: i32,
  width: i32,
  radius: i32,
  rows: i32,
): void {
  let s0 = f32x4.splat(0);
  let s1 = f32x4.splat(0);
  let s2 = f32x4.splat(0);
  let s3 = f32x4.splat(0);
  const begin = atLeastZero(left - radius);
  for (let x = begin; x < right + radius; x++) {
    if (x < width) {
      const at = sums + <usize>(x - columnsLeft) * SUMS;
      s0 = f32x4.add(s0, v128.load(at));
      s1 = f32x4.add(s1, v128.load(at, 16));
      s2 = f32x4.add(s2, v128.load(at, 32));
      s3 = f32x4.add(s3, v128.load(at, 48));
    }
    const middle = x - radius;
    if (middle < left) continue;
    const leaves = middle - radius - 1;
    if (leaves >= begin) {
      const at = sums + <usize>(leaves - columnsLeft) * SUMS;
      s0 = f32x4.sub(s0, v128.load(at));
      s1 = f32x4.sub(s1, v128.load(at, 16));
      s2 = f32x4.sub(s2, v128.load(at, 32));
      s3 = f32x4.sub(s3, v128.load(at, 48));
    }
    const columns = least(width - 1, x) - atLeastZero(middle - radius) + 1;
    const share = f32x4.splat(1 / <f32>(columns * rows));
    v128.store(means, f32x4.mul(s0, share));
    v128.store(means, f32x4.mul(s1, share), 16);
    v128.store(means, f32x4.mul(s2, share), 32);
    v128.store(means, f32x4.mul(s3, share), 48);
    means += SUMS;
  }
}

// These four transpose four vectors.
function lowHalves(one: v128, other: v128): v128 {
  return v128.shuffle<f32>(one, other, 0, 4, 1, 5);
}
function highHalves(one: v128, other: v128): v128 {
  return v128.shuffle<f32>(one, other, 2, 6, 3, 7);
}
function firstOf(one: v128, other: v128): v128 {
  return v128.shuffle<f32>(one, other, 0, 1, 4, 5);
}
function secondOf(one: v128, other: v128): v128 {
  return v128.shuffle<f32>(one, other, 2, 3, 6, 7);
}

/**
 * Four pixels at once: (covariance of the colours + epsilon) times (red, green, blue) = their
 * covariance with alpha.
 */
function solveRow(means: usize, models: usize, count: i32, epsilon: f32): void {
  const zero = f32x4.splat(0);
  const noise = f32x4.splat(epsilon);
  const middle = f32x4.splat(MIDDLE);
  for (let i = 0; i < count; i += 4, means += 4 * SUMS, models += 4 * PIXEL) {
    let low = lowHalves(v128.load(means), v128.load(means, 64));
    let low2 = lowHalves(v128.load(means, 128), v128.load(means, 192));
    let high = highHalves(v128.load(means), v128.load(means, 64));
    let high2 = highHalves(v128.load(means, 128), v128.load(means, 192));
    const r = firstOf(low, low2);
    const g = secondOf(low, low2);
    const b = firstOf(high, high2);
    const a = secondOf(high, high2);
    low = lowHalves(v128.load(means, 16), v128.load(means, 80));
    low2 = lowHalves(v128.load(means, 144), v128.load(means, 208));
    high = highHalves(v128.load(means, 16), v128.load(means, 80));
    high2 = highHalves(v128.load(means, 144), v128.load(means, 208));
    const ra = f32x4.sub(firstOf(low, low2), f32x4.mul(r, a));
    const ga = f32x4.sub(secondOf(low, low2), f32x4.mul(g, a));
    const ba = f32x4.sub(firstOf(high, high2), f32x4.mul(b, a));
    low = lowHalves(v128.load(means, 32), v128.load(means, 96));
    low2 = lowHalves(v128.load(means, 160), v128.load(means, 224));
    high = highHalves(v128.load(means, 32), v128.load(means, 96));
    high2 = highHalves(v128.load(means, 160), v128.load(means, 224));
    const rr = f32x4.add(f32x4.max(zero, f32x4.sub(firstOf(low, low2), f32x4.mul(r, r))), noise);
    const gg = f32x4.add(f32x4.max(zero, f32x4.sub(secondOf(low, low2), f32x4.mul(g, g))), noise);
    const bb = f32x4.add(f32x4.max(zero, f32x4.sub(firstOf(high, high2), f32x4.mul(b, b))), noise);
    low = lowHalves(v128.load(means, 48), v128.load(means, 112));
    low2 = lowHalves(v128.load(means, 176), v128.load(means, 240));
    high = highHalves(v128.load(means, 48), v128.load(means, 112));
    high2 = highHalves(v128.load(means, 176), v128.load(means, 240));
    const rg = f32x4.sub(firstOf(low, low2), f32x4.mul(r, g));
    const gb = f32x4.sub(secondOf(low, low2), f32x4.mul(g, b));
    const rb = f32x4.sub(firstOf(high, high2), f32x4.mul(r, b));
    // L D L': with only two colours the matrix is nearly singular, and cofactors in single
    // precision would lose a tenth of the answer.
    const d1 = f32x4.div(f32x4.splat(1), rr);
    const l2 = f32x4.mul(rg, d1);
    const l3 = f32x4.mul(rb, d1);
    const d2 = f32x4.div(f32x4.splat(1), f32x4.max(noise, f32x4.sub(gg, f32x4.mul(l2, rg))));
    const rest = f32x4.sub(gb, f32x4.mul(l3, rg));
    const l4 = f32x4.mul(rest, d2);
    const last = f32x4.sub(f32x4.sub(bb, f32x4.mul(l3, rb)), f32x4.mul(l4, rest));
    const d3 = f32x4.div(f32x4.splat(1), f32x4.max(noise, last));
    const y2 = f32x4.sub(ga, f32x4.mul(l2, ra));
    const y3 = f32x4.sub(f32x4.sub(ba, f32x4.mul(l3, ra)), f32x4.mul(l4, y2));
    const wb = f32x4.mul(y3, d3);
    const wg = f32x4.sub(f32x4.mul(y2, d2), f32x4.mul(l4, wb));
    const known = f32x4.add(f32x4.mul(l2, wg), f32x4.mul(l3, wb));
    const wr = f32x4.sub(f32x4.mul(ra, d1), known);
    const atMeans = sumOf(
      f32x4.mul(wr, f32x4.add(r, middle)),
      f32x4.mul(wg, f32x4.add(g, middle)),
      f32x4.mul(wb, f32x4.add(b, middle)),
    );
    const offset = f32x4.sub(f32x4.add(a, middle), atMeans);
    low = lowHalves(wr, wg);
    low2 = lowHalves(wb, offset);
    high = highHalves(wr, wg);
    high2 = highHalves(wb, offset);
    v128.store(models, firstOf(low, low2));
    v128.store(models, secondOf(low, low2), 16);
    v128.store(models, firstOf(high, high2), 32);
    v128.store(models, secondOf(high, high2), 48);
  }
}

function sumOf(one: v128, other: v128, third: v128): v128 {
  return f32x4.add(f32x4.add(one, other), third);
}

function countModels(sums: usize, models: usize, count: i32, sign: f32): void {
  const signs = f32x4.splat(sign);
  for (let end = sums + <usize>count * PIXEL; sums < end; sums += PIXEL, models += PIXEL) {
    v128.store(sums, f32x4.add(v128.load(sums), f32x4.mul(v128.load(models), signs)));
  }
}

/** Rounds up to whole groups of four, as solveRow writes. */
function padded(count: i32): usize {
  return <usize>((count + 3) & ~3);
}

/** @param side longest of a region */
export function fitBytes(side: i32, radius: i32): usize {
  const fitted = side + 2 * radius;
  const columns = <usize>(side + 4 * radius) * SUMS;
  return columns + padded(fitted) * SUMS + <usize>fitted * padded(fitted) * PIXEL;
}

/**
 * Computes the functions of a region's windows: red, green, blue and offset, for colours and alpha
 * of 0 to 255. Leaves them in `scratch` for averageModels.
 * @param guide four bytes a pixel, the fourth ignored
 * @param left, top, right, bottom of the region; right and bottom exclusive
 * @param radius at most 8
 * @param epsilon variance of colour, in bytes, below which it is noise
 */
export function fitModels(
  guide: usize,
  alpha: usize,
  width: i32,
  height: i32,
  left: i32,
  top: i32,
  right: i32,
  bottom: i32,
  radius: i32,
  epsilon: f32,
  scratch: usize,
): void {
  // A pixel's function depends on windows up to one radius away, and they on pixels up to two.
  const fitLeft = atLeastZero(left - radius);
  const fitRight = least(width, right + radius);
  const fitTop = atLeastZero(top - radius);
  const fitBottom = least(height, bottom + radius);
  const seenLeft = atLeastZero(fitLeft - radius);
  const columns = least(width, fitRight + radius) - seenLeft;
  const fitted = fitRight - fitLeft;
  const means = scratch + <usize>columns * SUMS;
  const models = means + padded(fitted) * SUMS;
  const stride = padded(fitted) * PIXEL;

  memory.fill(scratch, 0, <usize>columns * SUMS);
  const begin = atLeastZero(fitTop - radius);
  for (let y = begin; y < fitBottom + radius; y++) {
    if (y < height) {
      const at = <usize>(y * width + seenLeft);
      countRow(scratch, guide + 4 * at, alpha + at, columns, 1);
    }
    const middle = y - radius;
    if (middle < fitTop) continue;
    const leaves = middle - radius - 1;
    if (leaves >= begin) {
      const at = <usize>(leaves * width + seenLeft);
      countRow(scratch, guide + 4 * at, alpha + at, columns, -1);
    }
    const rows = least(height - 1, y) - atLeastZero(middle - radius) + 1;
    meansOfRow(scratch, means, fitLeft, fitRight, seenLeft, width, radius, rows);
    solveRow(means, models + <usize>(middle - fitTop) * stride, fitted, epsilon);
  }
}

/** Averages to the functions of the region's pixels. @param sums `scratch` of fitModels */
export function averageModels(
  width: i32,
  height: i32,
  left: i32,
  top: i32,
  right: i32,
  bottom: i32,
  radius: i32,
  sums: usize,
  out: usize,
): void {
  const fitLeft = atLeastZero(left - radius);
  const fitTop = atLeastZero(top - radius);
  const columns = least(width, right + radius) - fitLeft;
  const stride = padded(columns) * PIXEL;
  const seen = least(width, least(width, right + radius) + radius) - atLeastZero(fitLeft - radius);
  const models = sums + <usize>seen * SUMS + padded(columns) * SUMS;
  memory.fill(sums, 0, <usize>columns * PIXEL);
  const begin = atLeastZero(top - radius);
  for (let y = begin; y < bottom + radius; y++) {
    if (y < height) countModels(sums, models + <usize>(y - fitTop) * stride, columns, 1);
    const middle = y - radius;
    if (middle < top) continue;
    const leaves = middle - radius - 1;
    if (leaves >= begin) countModels(sums, models + <usize>(leaves - fitTop) * stride, columns, -1);
    const rows = least(height - 1, y) - atLeastZero(middle - radius) + 1;
    let sum = f32x4.splat(0);
    const start = atLeastZero(left - radius);
    for (let x = start; x < right + radius; x++) {
      if (x < width) sum = f32x4.add(sum, v128.load(sums + <usize>(x - fitLeft) * PIXEL));
      const centre = x - radius;
      if (centre < left) continue;
      const gone = centre - radius - 1;
      if (gone >= start) sum = f32x4.sub(sum, v128.load(sums + <usize>(gone - fitLeft) * PIXEL));
      const count = (least(width - 1, x) - atLeastZero(centre - radius) + 1) * rows;
      v128.store(out, f32x4.mul(sum, f32x4.splat(1 / <f32>count)));
      out += PIXEL;
    }
  }
}

/**
 * Changes a row of the picture's alpha in place, except where it is nearly certain. The filter has
 * its full weight from alpha 255 / blend to 255 - 255 / blend.
 * @param upper, lower the rows of functions around it
 * @param firsts, seconds for each pixel the indexes of the two functions around it
 * @param shares for each pixel the share of the second
 */
export function answerRow(
  upper: usize,
  lower: usize,
  shareOfLower: f32,
  firsts: usize,
  seconds: usize,
  shares: usize,
  pixels: usize,
  alpha: usize,
  count: i32,
  certain: i32,
  blend: f32,
): void {
  const down = f32x4.splat(shareOfLower);
  for (let x: usize = 0; x < <usize>count; x++) {
    const value = <i32>load<u8>(alpha + x);
    if (value <= certain || value >= 255 - certain) continue;
    const one = <usize>load<i32>(firsts + 4 * x) * PIXEL;
    const other = <usize>load<i32>(seconds + 4 * x) * PIXEL;
    const first = mixed(v128.load(upper + one), v128.load(lower + one), down);
    const second = mixed(v128.load(upper + other), v128.load(lower + other), down);
    const model = mixed(first, second, v128.load32_splat(shares + 4 * x));
    const colour = toFloats(v128.load32_zero(pixels + 4 * x));
    const terms = f32x4.mul(model, f32x4.replace_lane(colour, 3, 1));
    const halves = f32x4.add(terms, v128.shuffle<f32>(terms, terms, 2, 3, 0, 1));
    const sum = f32x4.extract_lane(halves, 0) + f32x4.extract_lane(halves, 1);
    const answer = <f32>Math.min(255, Math.max(0, sum));
    const own = <f32>value;
    const weight = <f32>Math.min(1, (blend * <f32>least(value, 255 - value)) / 255);
    store<u8>(alpha + x, <u8>(own + weight * (answer - own) + 0.5));
  }
}
