/** Planes of alpha have one byte a pixel. Up to 15 bytes after a plane may be overwritten. */
import { atLeastZero, least } from './pixel';

const BYTES: usize = 16;

function highBits(at: usize): i32 {
  return i8x16.bitmask(v128.load(at));
}

export function countBoth(one: usize, other: usize, count: i32): i32 {
  let both = 0;
  const end = one + <usize>count;
  for (; one + BYTES <= end; one += BYTES, other += BYTES) {
    both += popcnt(highBits(one) & highBits(other));
  }
  const left = (1 << (<i32>(end - one))) - 1;
  return both + popcnt(highBits(one) & highBits(other) & left);
}

function within(at: usize, from: v128, to: v128): v128 {
  const bytes = v128.load(at);
  return v128.and(i8x16.ge_u(bytes, from), i8x16.le_u(bytes, to));
}

/** @param stride bytes between a window's rows */
export function anyWithin(
  bytes: usize,
  stride: i32,
  width: i32,
  height: i32,
  from: i32,
  to: i32,
): bool {
  const least = i8x16.splat(<i8>from);
  const most = i8x16.splat(<i8>to);
  for (let y = 0; y < height; y++, bytes += stride) {
    const end = bytes + <usize>width;
    let at = bytes;
    for (; at + BYTES <= end; at += BYTES) {
      if (v128.any_true(within(at, least, most))) return true;
    }
    const rest = (1 << (<i32>(end - at))) - 1;
    if (at < end && (i8x16.bitmask(within(at, least, most)) & rest) !== 0) return true;
  }
  return false;
}

function countUncertain(
  counts: usize,
  alpha: usize,
  width: i32,
  below: i32,
  above: i32,
  sign: i32,
): void {
  const from = i8x16.splat(<i8>(below + 1));
  const to = i8x16.splat(<i8>(above - 1));
  const signs = i16x8.splat(<i16>-sign);
  const end = alpha + <usize>width;
  for (; alpha + BYTES <= end; alpha += BYTES, counts += 2 * BYTES) {
    const mask = within(alpha, from, to);
    if (!v128.any_true(mask)) continue;
    const low = i16x8.mul(i16x8.extend_low_i8x16_s(mask), signs);
    const high = i16x8.mul(i16x8.extend_high_i8x16_s(mask), signs);
    v128.store(counts, i16x8.add(v128.load(counts), low));
    v128.store(counts, i16x8.add(v128.load(counts, 16), high), 16);
  }
  for (; alpha < end; alpha++, counts += 2) {
    const value = <i32>load<u8>(alpha);
    if (value > below && value < above) store<u16>(counts, <u16>(load<u16>(counts) + sign));
  }
}

/**
 * Share of each pixel's window, clipped at the border, with alpha between `below` and `above`.
 * @param reach of a window to each side
 * @param counts scratch memory, four bytes per column
 * @param out one float per pixel
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
  memory.fill(out, 0, 4 * <usize>width * <usize>height);
  const stride = <usize>width;
  for (let y = 0; y < height + reach; y++) {
    if (y < height) countUncertain(counts, alpha + <usize>y * stride, width, below, above, 1);
    const middle = y - reach;
    if (middle < 0) continue;
    const gone = middle - reach - 1;
    if (gone >= 0) countUncertain(counts, alpha + <usize>gone * stride, width, below, above, -1);
    const rows = least(height - 1, y) - atLeastZero(middle - reach) + 1;
    sharesOfRow(counts, width, reach, rows, out + 4 * <usize>middle * stride);
  }
}

/** Writes a row of shares, but no zeros: the caller has zeroed `out`. */
function sharesOfRow(counts: usize, width: i32, reach: i32, rows: i32, out: usize): void {
  let sum = 0;
  for (let x = 0; x < width + reach; x++) {
    while (sum === 0 && x + 8 <= width && !v128.any_true(v128.load(counts + 2 * <usize>x))) x += 8;
    if (x < width) sum += load<u16>(counts + 2 * <usize>x);
    const centre = x - reach;
    const left = centre - reach - 1;
    if (left >= 0) sum -= load<u16>(counts + 2 * <usize>left);
    if (sum === 0 || centre < 0 || centre >= width) continue;
    const columns = least(width - 1, x) - atLeastZero(centre - reach) + 1;
    store<f32>(out + 4 * <usize>centre, <f32>sum / <f32>(rows * columns));
  }
}

function softness(share: f32, from: f64, full: f64): f64 {
  return <f64>(<f32>Math.min(1, (<f64>share - from) / (full - from)));
}

/** Whether one of four shares may be larger than `from`. */
function anyAbove(shares: usize, from: f64): bool {
  return v128.any_true(f32x4.ge(v128.load(shares), f32x4.splat(<f32>from)));
}

/** As Math.round, for numbers from 0 on. */
function rounded(value: f64): u8 {
  return <u8>Math.floor(value + 0.5);
}

/**
 * Averages in place. The softer the edge, the more the other runs count, at most as much as
 * `merged`.
 * @param others addresses of `otherCount` planes
 * @param shares of uncertain pixels in each pixel's window
 * @param from, full shares at which other runs begin to count, and count fully
 */
export function averageLooks(
  others: usize,
  otherCount: i32,
  shares: usize,
  merged: usize,
  count: i32,
  from: f64,
  full: f64,
): void {
  for (let i: usize = 0; i < <usize>count; i++) {
    if ((i & 3) === 0 && !anyAbove(shares + 4 * i, from)) {
      i += 3;
      continue;
    }
    const share = load<f32>(shares + 4 * i);
    if (<f64>share <= from) continue;
    const soft = softness(share, from, full);
    let sum = 0;
    for (let other = 0; other < otherCount; other++) {
      sum += load<u8>(<usize>load<i32>(others + 4 * <usize>other) + i);
    }
    const own = <f64>load<u8>(merged + i);
    store<u8>(merged + i, rounded((own + soft * <f64>sum) / (1 + soft * <f64>otherCount)));
  }
}

/**
 * Mixes a second matte in, in place. The softer the edge, the more the surer of the two counts. If
 * both are sure of opposites, the subject's value stays: a mean would be half transparent.
 * @param unsure weight of a half opaque matte; a certain one has 1 + `unsure`
 */
export function hearOpinion(
  opinion: usize,
  shares: usize,
  merged: usize,
  count: i32,
  from: f64,
  full: f64,
  unsure: f64,
): void {
  for (let i: usize = 0; i < <usize>count; i++) {
    if ((i & 3) === 0 && !anyAbove(shares + 4 * i, from)) {
      i += 3;
      continue;
    }
    const share = load<f32>(shares + 4 * i);
    if (<f64>share <= from) continue;
    const own = <f64>load<u8>(merged + i);
    const other = <f64>load<u8>(opinion + i);
    const sureness = (2 * own) / 255 - 1;
    const otherSureness = (2 * other) / 255 - 1;
    // 1, down to 0 where both are sure of opposites.
    const compatible = 1 - (Math.abs(sureness) * Math.abs(own - other)) / 255;
    const ownWeight = sureness * sureness + unsure;
    const otherWeight =
      softness(share, from, full) * (otherSureness * otherSureness + unsure) * compatible;
    const sum = ownWeight * own + otherWeight * other;
    store<u8>(merged + i, rounded(sum / (ownWeight + otherWeight)));
  }
}

/** one * other / 255, rounded. */
function products(one: v128, other: v128): v128 {
  const low = dividedBy255(i16x8.extmul_low_i8x16_u(one, other));
  return i8x16.narrow_i16x8_u(low, dividedBy255(i16x8.extmul_high_i8x16_u(one, other)));
}

function dividedBy255(products: v128): v128 {
  const sum = i16x8.add(products, i16x8.splat(128));
  return i16x8.shr_u(i16x8.add(sum, i16x8.shr_u(sum, 8)), 8);
}

export function scaleBytes(bytes: usize, shares: usize, count: i32): void {
  for (const end = bytes + <usize>count; bytes < end; bytes += BYTES, shares += BYTES) {
    v128.store(bytes, products(v128.load(bytes), v128.load(shares)));
  }
}

/** Raises `merged`, in place, to `matte` times its share (of 255). */
export function raise(merged: usize, matte: usize, shares: usize, count: i32): void {
  for (const end = merged + <usize>count; merged < end; merged += BYTES) {
    const wanted = products(v128.load(matte), v128.load(shares));
    v128.store(merged, i8x16.max_u(v128.load(merged), wanted));
    matte += BYTES;
    shares += BYTES;
  }
}

export function raiseTo(merged: usize, bytes: usize, count: i32): void {
  for (const end = merged + <usize>count; merged < end; merged += BYTES, bytes += BYTES) {
    v128.store(merged, i8x16.max_u(v128.load(merged), v128.load(bytes)));
  }
}

/** Lowers `merged`, in place, towards a smaller `matte` by its share (of 255). */
export function lower(merged: usize, matte: usize, shares: usize, count: i32): void {
  for (const end = merged + <usize>count; merged < end; merged += BYTES) {
    const own = v128.load(merged);
    const above = i8x16.sub_sat_u(own, v128.load(matte));
    v128.store(merged, i8x16.sub(own, products(above, v128.load(shares))));
    matte += BYTES;
    shares += BYTES;
  }
}

/**
 * Gives each cell the greatest of its bytes.
 * @param starts first column of each cell, and the end
 * @param line scratch memory, a row of bytes
 */
export function peaksOfCells(
  bytes: usize,
  width: i32,
  height: i32,
  starts: usize,
  columns: i32,
  rows: i32,
  line: usize,
  out: usize,
): void {
  let y = 0;
  for (let row = 0; row < rows; row++) {
    memory.fill(line, 0, <usize>width);
    for (; y < height && (y * rows) / height === row; y++, bytes += <usize>width) {
      raiseTo(line, bytes, width);
    }
    for (let column: usize = 0; column < <usize>columns; column++, out++) {
      let peak: u8 = 0;
      const end = line + <usize>load<i32>(starts + 4 * column, 4);
      for (let at = line + <usize>load<i32>(starts + 4 * column); at < end; at++) {
        peak = max(peak, load<u8>(at));
      }
      store<u8>(out, peak);
    }
  }
}

/**
 * Multiplies bytes of cells with a lower peak by their fractions of 255. Rounds down, since 1 of
 * 255 is haze, too.
 */
export function fadeCells(
  bytes: usize,
  width: i32,
  height: i32,
  starts: usize,
  columns: i32,
  rows: i32,
  peaks: usize,
  below: i32,
  shares: usize,
): void {
  for (let y = 0; y < height; y++, bytes += <usize>width, shares += <usize>width) {
    const cells = peaks + <usize>(((y * rows) / height) * columns);
    for (let column: usize = 0; column < <usize>columns; column++) {
      const peak = <i32>load<u8>(cells + column);
      if (peak === 0 || peak >= below) continue;
      const end = <usize>load<i32>(starts + 4 * column, 4);
      for (let x = <usize>load<i32>(starts + 4 * column); x < end; x++) {
        const product = <u32>load<u8>(bytes + x) * <u32>load<u8>(shares + x);
        store<u8>(bytes + x, product / 255);
      }
    }
  }
}

/**
 * Each cell becomes the maximum of the square that extends `reach` cells to each side.
 * @param scratch as many bytes as cells
 */
export function widen(
  cells: usize,
  width: i32,
  height: i32,
  reach: i32,
  scratch: usize,
  out: usize,
): void {
  widenLines(cells, width, height, 1, width, reach, scratch);
  widenLines(scratch, height, width, width, 1, reach, out);
}

function widenLines(
  cells: usize,
  length: i32,
  lines: i32,
  step: usize,
  stride: usize,
  reach: i32,
  out: usize,
): void {
  for (let line: usize = 0; line < <usize>lines; line++) {
    for (let at = 0; at < length; at++) {
      let most: u8 = 0;
      const last = least(length - 1, at + reach);
      for (let near = atLeastZero(at - reach); near <= last; near++) {
        most = max(most, load<u8>(cells + line * stride + <usize>near * step));
      }
      store<u8>(out + line * stride + <usize>at * step, most);
    }
  }
}

/**
 * Gives each cell the least value along the best path to a shown cell, 0 if there is none (grey
 * reconstruction). Sweeps both ways until nothing changes.
 */
export function joinShown(cells: usize, width: i32, height: i32, shownFrom: i32, out: usize): void {
  const count = width * height;
  for (let cell: usize = 0; cell < <usize>count; cell++) {
    const value = load<u8>(cells + cell);
    store<u8>(out + cell, <i32>value >= shownFrom ? value : 0);
  }
  for (let changed = true; changed; ) {
    changed = false;
    for (let at = 0; at < count; at++) {
      if ((at + 1) % width !== 0 && join(cells, out, at, at + 1)) changed = true;
      if (at + width < count && join(cells, out, at, at + width)) changed = true;
    }
    for (let at = count - 1; at >= 0; at--) {
      if (at % width !== 0 && join(cells, out, at, at - 1)) changed = true;
      if (at >= width && join(cells, out, at, at - width)) changed = true;
    }
  }
}

function join(cells: usize, joined: usize, from: i32, to: i32): bool {
  const wanted = min(load<u8>(cells + to), load<u8>(joined + from));
  if (wanted <= load<u8>(joined + to)) return false;
  store<u8>(joined + to, wanted);
  return true;
}

/**
 * Writes `joined` as fractions (of 255) of `cells`. Returns whether some cells are kept and some
 * reduced.
 */
export function keptShares(cells: usize, joined: usize, count: i32, out: usize): bool {
  let shown = false;
  let faded = false;
  for (let cell: usize = 0; cell < <usize>count; cell++) {
    const value = load<u8>(cells + cell);
    const kept = load<u8>(joined + cell);
    if (kept > 0) shown = true;
    if (kept !== value) faded = true;
    store<u8>(out + cell, kept === value ? 255 : rounded((255 * <f64>kept) / <f64>value));
  }
  return shown && faded;
}
