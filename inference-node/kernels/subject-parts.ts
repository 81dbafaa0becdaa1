import { least } from './pixel';

const LANES: usize = 16;

/** A run of adjacent cells, in int32: first column of pixels, end, part. */
const RUN: usize = 12;
const END: usize = 4;
const OWNER: usize = 8;

/**
 * A part, in float64: the part that it was joined to, or itself; the sum of its alpha, its greatest
 * alpha, and its box. ../serving/picture/finishing/subject.ts reads it.
 */
const PART: usize = 56;
const SUM: usize = 8;
const PEAK: usize = 16;
const LEFT: usize = 24;
const TOP: usize = 32;
const RIGHT: usize = 40;
const BOTTOM: usize = 48;

export function countFrom(bytes: usize, count: i32, from: i32): i32 {
  const bound = i8x16.splat(<i8>from);
  const end = bytes + <usize>count;
  let found = 0;
  for (; bytes + LANES <= end; bytes += LANES) {
    found += popcnt(i8x16.bitmask(i8x16.ge_u(v128.load(bytes), bound)));
  }
  for (; bytes < end; bytes++) found += <i32>(<i32>load<u8>(bytes) >= from);
  return found;
}

/**
 * Joins touching cells (also at a corner) to parts, one row of cells per call: connected-component
 * labelling by runs and union-find.
 * @param pixels `rows` rows of the matte, at most 257
 * @param top number of the first row
 * @param edge least alpha of a shown pixel
 * @param sums, peaks scratch memory: 2 and 1 bytes a column, for a multiple of 16 columns
 * @param above, runs of the row of cells above and of this one; 0 ends each
 * @param cellsOfPeak int32 numbers of cells by greatest alpha, which grow
 * @param count of parts so far; the new count is returned
 */
export function joinCells(
  pixels: usize,
  width: i32,
  rows: i32,
  top: i32,
  cellPx: i32,
  edge: i32,
  sums: usize,
  peaks: usize,
  above: usize,
  runs: usize,
  cellsOfPeak: usize,
  parts: usize,
  count: i32,
): i32 {
  sumColumns(pixels, width, rows, edge, sums, peaks);
  for (let left = 0; left < width; ) {
    let sum = 0;
    let peak = 0;
    let right = left;
    while (right < width) {
      const end = least(width, right + cellPx);
      let cellPeak = 0;
      for (let x = right; x < end; x++) {
        sum += <i32>load<u16>(sums + 2 * <usize>x);
        cellPeak = max(cellPeak, <i32>load<u8>(peaks + <usize>x));
      }
      if (cellPeak === 0) break;
      const cells = cellsOfPeak + 4 * <usize>cellPeak;
      store<i32>(cells, load<i32>(cells) + 1);
      peak = max(peak, cellPeak);
      right = end;
    }
    if (peak === 0) {
      left += cellPx;
      continue;
    }
    while (load<i32>(above, END) !== 0 && load<i32>(above, END) < left) above += RUN;
    let part: usize = 0;
    for (let run = above; load<i32>(run, END) !== 0 && load<i32>(run) <= right; run += RUN) {
      const other = rootOf(parts, load<i32>(run, OWNER));
      part = part === 0 || part === other ? other : joined(part, other);
    }
    if (part === 0) part = created(parts, count++, width, top + rows);
    store<f64>(part, load<f64>(part, SUM) + <f64>sum, SUM);
    store<f64>(part, max(load<f64>(part, PEAK), <f64>peak), PEAK);
    widen(part, peaks, left, right);
    heighten(part, pixels + <usize>left, right - left, width, rows, top, edge);
    store<i32>(runs, left);
    store<i32>(runs, right, END);
    store<i32>(runs, <i32>load<f64>(part), OWNER);
    runs += RUN;
    left = right;
  }
  store<i32>(runs, 0, END);
  return count;
}

function widen(part: usize, peaks: usize, left: i32, right: i32): void {
  while (load<u8>(peaks + <usize>left) === 0) left++;
  while (load<u8>(peaks + <usize>right - 1) === 0) right--;
  store<f64>(part, min(load<f64>(part, LEFT), <f64>left), LEFT);
  store<f64>(part, max(load<f64>(part, RIGHT), <f64>right), RIGHT);
}

function heighten(
  part: usize,
  from: usize,
  count: i32,
  stride: i32,
  rows: i32,
  top: i32,
  edge: i32,
): void {
  if (<f64>top < load<f64>(part, TOP)) {
    let y = 0;
    while (countFrom(from + <usize>(y * stride), count, edge) === 0) y++;
    store<f64>(part, <f64>(top + y), TOP);
  }
  for (let y = rows; <f64>(top + y) > load<f64>(part, BOTTOM); y--) {
    if (countFrom(from + <usize>((y - 1) * stride), count, edge) === 0) continue;
    store<f64>(part, <f64>(top + y), BOTTOM);
  }
}

function sumColumns(
  pixels: usize,
  width: i32,
  rows: i32,
  edge: i32,
  sums: usize,
  peaks: usize,
): void {
  const bound = i8x16.splat(<i8>edge);
  for (let x: usize = 0; x < <usize>width; x += LANES) {
    let low = i16x8.splat(0);
    let high = low;
    let peak = low;
    let at = pixels + x;
    for (let y = 0; y < rows; y++, at += <usize>width) {
      const alpha = v128.load(at);
      const shown = v128.and(alpha, i8x16.ge_u(alpha, bound));
      low = i16x8.add(low, i16x8.extend_low_i8x16_u(shown));
      high = i16x8.add(high, i16x8.extend_high_i8x16_u(shown));
      peak = i8x16.max_u(peak, shown);
    }
    v128.store(sums + 2 * x, low);
    v128.store(sums + 2 * x, high, LANES);
    v128.store(peaks + x, peak);
  }
}

function created(parts: usize, number: i32, width: i32, height: i32): usize {
  const part = parts + PART * <usize>number;
  memory.fill(part, 0, PART);
  store<f64>(part, <f64>number);
  store<f64>(part, <f64>width, LEFT);
  store<f64>(part, <f64>height, TOP);
  return part;
}

function rootOf(parts: usize, number: i32): usize {
  let part = parts + PART * <usize>number;
  for (let owner = load<f64>(part); owner !== <f64>number; owner = load<f64>(part)) {
    const next = load<f64>(parts + PART * <usize>owner);
    store<f64>(part, next);
    number = <i32>next;
    part = parts + PART * <usize>number;
  }
  return part;
}

function joined(part: usize, other: usize): usize {
  store<f64>(other, load<f64>(part));
  store<f64>(part, load<f64>(part, SUM) + load<f64>(other, SUM), SUM);
  for (let at = PEAK; at < PART; at += 8) {
    const one = load<f64>(part + at);
    const two = load<f64>(other + at);
    store<f64>(part + at, at === LEFT || at === TOP ? min(one, two) : max(one, two));
  }
  return part;
}
