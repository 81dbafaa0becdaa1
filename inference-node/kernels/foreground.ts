/**
 * Estimates foreground and background colours that explain colour and alpha (colour = alpha *
 * foreground + (1 - alpha) * background) and are smooth, more so where alpha changes. Germer et
 * al., "Fast Multi-Level Foreground Estimation", ICPR 2020, section III.
 *
 * A level is three planes of vectors, row by row: `seen` (colour 0 to 255, alpha 0 to 1),
 * `foreground` and `background` (colours; the fourth lane is undefined).
 */
import { anyWithin } from './merge-mattes';
import { addRows, atLeastZero, least, PIXEL, toBytes, toFloats } from './pixel';

/**
 * Improves both colours in place, pixel by pixel, from the neighbours' newest values. Solves a 2x2
 * system for a pixel's foreground and background, with one matrix for all channels.
 * @param softOnly leaves fully opaque and fully transparent pixels unchanged
 * @param spans from loadRows; 0: whole rows
 * @param smoothness weight between neighbours of the same alpha
 * @param gradientWeight weight added for a step of alpha from 0 to 1
 */
export function relax(
  seen: usize,
  foreground: usize,
  background: usize,
  width: i32,
  height: i32,
  rounds: i32,
  softOnly: bool,
  spans: usize,
  smoothness: f32,
  gradientWeight: f32,
): void {
  const stride = <usize>width * PIXEL;
  for (let round = 0; round < rounds; round++) {
    for (let y = 0; y < height; y++) {
      const row = <usize>y * stride;
      const up = y > 0 ? row - stride : row;
      const down = y < height - 1 ? row + stride : row;
      const end = spans === 0 ? width : endOf(spans, y);
      for (let x = spans === 0 ? 0 : firstOf(spans, y); x < end; x++) {
        const at = row + <usize>x * PIXEL;
        const pixel = v128.load(seen + at);
        const a = f32x4.extract_lane(pixel, 3);
        if (softOnly && (a === 0 || a === 1)) continue;
        const left = x > 0 ? at - PIXEL : at;
        const right = x < width - 1 ? at + PIXEL : at;
        const above = up + <usize>x * PIXEL;
        const below = down + <usize>x * PIXEL;
        const wl = smoothness + gradientWeight * Mathf.abs(a - load<f32>(seen + left, 12));
        const wr = smoothness + gradientWeight * Mathf.abs(a - load<f32>(seen + right, 12));
        const wu = smoothness + gradientWeight * Mathf.abs(a - load<f32>(seen + above, 12));
        const wd = smoothness + gradientWeight * Mathf.abs(a - load<f32>(seen + below, 12));
        const sum = wl + wr + wu + wd;
        const b: f32 = 1 - a;
        const ff = a * a + sum;
        const fb = a * b;
        const bb = b * b + sum;
        const scale: f32 = 1 / (ff * bb - fb * fb);
        const own = f32x4.splat(bb * scale);
        const shared = f32x4.splat(fb * scale);
        const others = f32x4.splat(ff * scale);
        const weightRight = f32x4.splat(wr);
        const weightUp = f32x4.splat(wu);
        const weightDown = f32x4.splat(wd);
        let f = f32x4.mul(pixel, f32x4.splat(a));
        f = f32x4.add(f, f32x4.mul(weightRight, v128.load(foreground + right)));
        f = f32x4.add(f, f32x4.mul(weightUp, v128.load(foreground + above)));
        f = f32x4.add(f, f32x4.mul(weightDown, v128.load(foreground + below)));
        let g = f32x4.mul(pixel, f32x4.splat(b));
        g = f32x4.add(g, f32x4.mul(weightRight, v128.load(background + right)));
        g = f32x4.add(g, f32x4.mul(weightUp, v128.load(background + above)));
        g = f32x4.add(g, f32x4.mul(weightDown, v128.load(background + below)));
        // The left neighbour comes last: its values have only just been computed.
        const weightLeft = f32x4.splat(wl);
        const leftF = v128.load(foreground + left);
        const leftG = v128.load(background + left);
        const restF = f32x4.sub(f32x4.mul(own, f), f32x4.mul(shared, g));
        const restG = f32x4.sub(f32x4.mul(others, g), f32x4.mul(shared, f));
        const ownLeft = f32x4.mul(own, weightLeft);
        const sharedLeft = f32x4.mul(shared, weightLeft);
        const othersLeft = f32x4.mul(others, weightLeft);
        const fromLeftF = f32x4.sub(f32x4.mul(ownLeft, leftF), f32x4.mul(sharedLeft, leftG));
        const fromLeftG = f32x4.sub(f32x4.mul(othersLeft, leftG), f32x4.mul(sharedLeft, leftF));
        v128.store(foreground + at, clamped(f32x4.add(restF, fromLeftF)));
        v128.store(background + at, clamped(f32x4.add(restG, fromLeftG)));
      }
    }
  }
}

function clamped(colour: v128): v128 {
  return f32x4.min(f32x4.max(colour, f32x4.splat(0)), f32x4.splat(255));
}

/**
 * Averages at most 257 rows to cells; alpha becomes 0 to 1.
 * @param starts first column of each cell, and the end
 * @param sums, alphaSums scratch memory, eight and two bytes for each of `width` pixels and 15 more
 */
export function meansOfCells(
  pixels: usize,
  alpha: usize,
  width: i32,
  rows: i32,
  starts: usize,
  cells: i32,
  sums: usize,
  alphaSums: usize,
  seen: usize,
): void {
  addRows(pixels, 4 * <usize>width, rows, sums);
  addRows(alpha, <usize>width, rows, alphaSums);
  const units = f32x4.replace_lane(f32x4.splat(1), 3, 1 / 255);
  for (let cell = 0; cell < cells; cell++, starts += 4, seen += PIXEL) {
    const first = load<i32>(starts);
    const end = load<i32>(starts, 4);
    let colour = i32x4.splat(0);
    let opacity = 0;
    for (let x = <usize>first; x < <usize>end; x++) {
      colour = i32x4.add(colour, v128.load16x4_u(sums + 8 * x));
      opacity += load<u16>(alphaSums + 2 * x);
    }
    const sum = f32x4.convert_i32x4_s(i32x4.replace_lane(colour, 3, opacity));
    const share = f32x4.div(units, f32x4.splat(<f32>((end - first) * rows)));
    v128.store(seen, f32x4.mul(sum, share));
  }
}

/** Averages to half the size, rounded up. */
export function halve(fine: usize, width: i32, height: i32, coarse: usize): void {
  const quarter = f32x4.splat(0.25);
  const stride = <usize>width * PIXEL;
  for (let y = 0; y < height; y += 2) {
    const first = fine + <usize>y * stride;
    const second = y + 1 < height ? first + stride : first;
    for (let x = 0; x < width; x += 2, coarse += PIXEL) {
      const near = <usize>x * PIXEL;
      const far = x + 1 < width ? near + PIXEL : near;
      const upper = f32x4.add(v128.load(first + near), v128.load(first + far));
      const lower = f32x4.add(v128.load(second + near), v128.load(second + far));
      v128.store(coarse, f32x4.mul(f32x4.add(upper, lower), quarter));
    }
  }
}

export function enlarge(coarse: usize, fine: usize, width: i32, height: i32): void {
  const stride = <usize>((width + 1) >> 1) * PIXEL;
  for (let y = 0; y < height; y++) {
    const row = coarse + <usize>(y >> 1) * stride;
    for (let x = 0; x < width; x++, fine += PIXEL) {
      v128.store(fine, v128.load(row + <usize>(x >> 1) * PIXEL));
    }
  }
}

/** A row's first soft pixel, and the end of its last (int32). */
const SPAN: usize = 8;

function firstOf(spans: usize, row: i32): i32 {
  return load<i32>(spans + SPAN * <usize>row);
}

function endOf(spans: usize, row: i32): i32 {
  return load<i32>(spans + SPAN * <usize>row, 4);
}

function findSpan(alpha: usize, width: i32, clearTo: i32, opaqueFrom: i32, span: usize): void {
  let first = 0;
  while (first + 16 <= width && !anySoft(alpha + <usize>first, clearTo, opaqueFrom)) first += 16;
  while (first < width && !isSoft(alpha + <usize>first, clearTo, opaqueFrom)) first++;
  let end = width;
  while (end >= first + 16 && !anySoft(alpha + <usize>end - 16, clearTo, opaqueFrom)) end -= 16;
  while (end > first && !isSoft(alpha + <usize>end - 1, clearTo, opaqueFrom)) end--;
  store<i32>(span, first);
  store<i32>(span, first === width ? 0 : end, 4);
}

function anySoft(alpha: usize, clearTo: i32, opaqueFrom: i32): bool {
  return anyWithin(alpha, 0, 16, 1, clearTo + 1, opaqueFrom - 1);
}

function isSoft(alpha: usize, clearTo: i32, opaqueFrom: i32): bool {
  const opacity = <i32>load<u8>(alpha);
  return opacity > clearTo && opacity < opaqueFrom;
}

/**
 * Loads soft pixels and their neighbours. A certain pixel starts with its own colour, others with
 * the grid's.
 * @param stride of `pixels` and `alpha`
 * @param cells for each column its cell in the grid's rows
 * @param cellRows for each row the grid row's offset, in bytes
 * @param clearTo, opaqueFrom alpha (0 to 255) up to or from here is certain
 */
export function loadRows(
  pixels: usize,
  alpha: usize,
  stride: i32,
  width: i32,
  height: i32,
  cells: usize,
  cellRows: usize,
  gridForeground: usize,
  gridBackground: usize,
  clearTo: i32,
  opaqueFrom: i32,
  spans: usize,
  seen: usize,
  foreground: usize,
  background: usize,
): void {
  for (let y = 0; y < height; y++) {
    const row = alpha + <usize>(y * stride);
    findSpan(row, width, clearTo, opaqueFrom, spans + SPAN * <usize>y);
  }
  for (let y = 0; y < height; y++) {
    const above = atLeastZero(y - 1);
    const below = least(height - 1, y + 1);
    const first = least(firstOf(spans, y), least(firstOf(spans, above), firstOf(spans, below))) - 1;
    const last = max(endOf(spans, y), max(endOf(spans, above), endOf(spans, below)));
    const cellRow = <usize>load<i32>(cellRows + 4 * <usize>y);
    for (let x = atLeastZero(first); x < least(width, last + 1); x++) {
      const from = <usize>(y * stride + x);
      const colour = toFloats(v128.load32_zero(pixels + 4 * from));
      const opacity = <i32>load<u8>(alpha + from);
      const cell = cellRow + <usize>load<i32>(cells + 4 * <usize>x) * PIXEL;
      const clear = opacity <= clearTo;
      const opaque = opacity >= opaqueFrom;
      const a: f32 = clear ? 0 : opaque ? 1 : <f32>opacity / 255;
      const to = <usize>(y * width + x) * PIXEL;
      v128.store(seen + to, f32x4.replace_lane(colour, 3, a));
      v128.store(foreground + to, opaque ? colour : v128.load(gridForeground + cell));
      v128.store(background + to, clear ? colour : v128.load(gridBackground + cell));
    }
  }
}

/**
 * Copies certain cells with weight 1; others get weight 0.
 * @param clearTo, opaqueFrom alpha (0 to 255) up to or from here is certain
 */
export function takeCertain(
  seen: usize,
  count: i32,
  clearTo: f32,
  opaqueFrom: f32,
  subject: usize,
  ground: usize,
): void {
  const none = f32x4.splat(0);
  const end = seen + <usize>count * PIXEL;
  for (; seen < end; seen += PIXEL, subject += PIXEL, ground += PIXEL) {
    const cell = v128.load(seen);
    const alpha = <f32>255 * f32x4.extract_lane(cell, 3);
    const known = f32x4.replace_lane(cell, 3, 1);
    v128.store(subject, alpha >= opaqueFrom ? known : none);
    v128.store(ground, alpha <= clearTo ? known : none);
  }
}

/**
 * Mixes the estimate into soft pixels that are opaque in the file. Its weight is alpha, and rises
 * towards 1 the better both estimated colours agree with the certain ones around: with a wrong
 * alpha one of them is unlike its surroundings. Returns the number of changes.
 * @param cells, cellRows as of loadRows
 * @param subject, ground certain colours; weight 0: unknown
 * @param likeSubject, likeGround difference at which the agreement is half, relative to the
 * difference of both estimates
 * @param differMin added to the latter difference, for noise
 * @param changes index and colour of each changed pixel
 */
export function storeRows(
  pixels: usize,
  alpha: usize,
  stride: i32,
  width: i32,
  height: i32,
  foreground: usize,
  background: usize,
  levelStride: i32,
  clearTo: i32,
  opaqueFrom: i32,
  cells: usize,
  cellRows: usize,
  subject: usize,
  ground: usize,
  likeSubject: f32,
  likeGround: f32,
  differMin: f32,
  changes: usize,
): usize {
  let end = changes;
  for (let y = 0; y < height; y++) {
    const cellRow = <usize>load<i32>(cellRows + 4 * <usize>y);
    for (let x = 0; x < width; x++) {
      const row = alpha + <usize>(y * stride);
      while (x + 16 <= width && !anySoft(row + <usize>x, clearTo, opaqueFrom)) x += 16;
      if (x === width || !isSoft(row + <usize>x, clearTo, opaqueFrom)) continue;
      const to = <usize>(y * stride + x);
      const pixel = load<u32>(pixels + 4 * to);
      if (pixel >>> 24 !== 255) continue;
      const colour = toFloats(i32x4.splat(pixel));
      const from = <usize>(y * levelStride + x) * PIXEL;
      const front = v128.load(foreground + from);
      const rear = v128.load(background + from);
      const cell = cellRow + <usize>load<i32>(cells + 4 * <usize>x) * PIXEL;
      const differ = differMin + difference(front, rear);
      const agreed =
        agreement(front, v128.load(subject + cell), differ * likeSubject) *
        agreement(rear, v128.load(ground + cell), differ * likeGround);
      const share: f32 = <f32>load<u8>(alpha + to) / 255;
      const trust = f32x4.splat(share + (1 - share) * agreed);
      const mixed = f32x4.add(colour, f32x4.mul(f32x4.sub(front, colour), trust));
      store<u32>(end, to);
      store<u32>(end, i32x4.extract_lane(toBytes(mixed), 0) | 0xff000000, 4);
      end += 8;
    }
  }
  return (end - changes) / 8;
}

/** Half at a difference of `half`; 1 if the certain colour is unknown. */
function agreement(estimate: v128, known: v128, half: f32): f32 {
  if (f32x4.extract_lane(known, 3) === 0) return 1;
  const ratio: f32 = difference(estimate, known) / half;
  return 1 / (1 + ratio * ratio);
}

function difference(one: v128, other: v128): f32 {
  const apart = f32x4.abs(f32x4.sub(one, other));
  const sum: f32 =
    f32x4.extract_lane(apart, 0) + f32x4.extract_lane(apart, 1) + f32x4.extract_lane(apart, 2);
  return sum / 3;
}
