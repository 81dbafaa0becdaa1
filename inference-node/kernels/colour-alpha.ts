/**
 * Estimates alpha from the picture's own colours. The colours of subject and background are
 * extended from certain to uncertain pixels, from coarse to fine (pull-push: Gortler et al., "The
 * Lumigraph", SIGGRAPH 1996, section 3.4). A pixel's alpha is its position on the line between the
 * two.
 *
 * Each of the two is a plane of cells, one vector per cell: red, green, blue, weight.
 */
import { atLeastZero, least, mixed, PIXEL, toFloats } from './pixel';

/**
 * @param guide four bytes a pixel; the fourth is ignored
 * @param sure alpha nearer than this to 0 or 255 is certain
 * @param cellPx side of a cell
 */
export function sumKnown(
  guide: usize,
  alpha: usize,
  width: i32,
  height: i32,
  sure: i32,
  cellPx: i32,
  subject: usize,
  background: usize,
): void {
  const cells = (width + cellPx - 1) / cellPx;
  for (let y = 0; y < height; y++) {
    let cell = <usize>(y / cellPx) * <usize>cells * PIXEL;
    for (let left = 0; left < width; left += cellPx, cell += PIXEL) {
      const four = load<u32>(alpha);
      if (cellPx === 4 && left + 4 <= width && (four === 0 || four === 0xffffffff)) {
        addFour(guide, (four === 0 ? background : subject) + cell);
        guide += 16;
        alpha += 4;
        continue;
      }
      let ofSubject = v128.load(subject + cell);
      let ofBackground = v128.load(background + cell);
      for (let x = left; x < least(width, left + cellPx); x++, guide += 4, alpha++) {
        const value = <i32>load<u8>(alpha);
        if (value >= sure && value <= 255 - sure) continue;
        const colour = f32x4.replace_lane(toFloats(v128.load32_zero(guide)), 3, 1);
        if (value < sure) ofBackground = f32x4.add(ofBackground, colour);
        else ofSubject = f32x4.add(ofSubject, colour);
      }
      v128.store(subject + cell, ofSubject);
      v128.store(background + cell, ofBackground);
    }
  }
}

function addFour(guide: usize, cell: usize): void {
  const bytes = v128.load(guide);
  const pairs = i16x8.add(i16x8.extend_low_i8x16_u(bytes), i16x8.extend_high_i8x16_u(bytes));
  const sum = i32x4.add(i32x4.extend_low_i16x8_u(pairs), i32x4.extend_high_i16x8_u(pairs));
  const colour = f32x4.replace_lane(f32x4.convert_i32x4_u(sum), 3, 4);
  v128.store(cell, f32x4.add(v128.load(cell), colour));
}

export function sumCells(fine: usize, width: i32, height: i32, coarse: usize): void {
  const stride = <usize>width * PIXEL;
  for (let y = 0; y < height; y += 2) {
    for (let x = 0; x < width; x += 2, coarse += PIXEL) {
      const at = fine + <usize>y * stride + <usize>x * PIXEL;
      const right = x + 1 < width;
      let sum = v128.load(at);
      if (right) sum = f32x4.add(sum, v128.load(at + PIXEL));
      if (y + 1 < height) {
        sum = f32x4.add(sum, v128.load(at + stride));
        if (right) sum = f32x4.add(sum, v128.load(at + stride + PIXEL));
      }
      v128.store(coarse, sum);
    }
  }
}

/**
 * Divides sums by their weights, in place, so that a mean has weight 1. First adds the mean of the
 * coarser cells. A cell without any weight stays 0.
 * @param coarser cells of half the sides, rounded up; 0: none
 * @param coarserWeight of a coarser mean, relative to one known pixel
 * @param seen colours with alpha as the fourth: fully opaque and transparent cells do not change;
 * 0: none
 */
export function carryOn(
  cells: usize,
  width: i32,
  height: i32,
  coarser: usize,
  coarserWeight: f32,
  seen: usize,
): void {
  const coarseWidth = (width + 1) >> 1;
  const coarseHeight = (height + 1) >> 1;
  const weights = f32x4.splat(coarserWeight);
  const wanted = seen === 0;
  const stride = <usize>coarseWidth * PIXEL;
  for (let y = 0; y < height; y++) {
    const upper = coarser + stride * <usize>firstCoarse(y);
    const lower = coarser + stride * <usize>least(coarseHeight - 1, (y + 1) >> 1);
    for (let x = 0; x < width; x++, cells += PIXEL, seen += PIXEL) {
      const alpha: f32 = wanted ? 0.5 : load<f32>(seen, 12);
      if (alpha === 0 || alpha === 1) continue;
      let carried = f32x4.splat(0);
      if (coarser !== 0) {
        const left = <usize>firstCoarse(x) * PIXEL;
        const right = <usize>least(coarseWidth - 1, (x + 1) >> 1) * PIXEL;
        const above = mixed(v128.load(upper + left), v128.load(upper + right), shareOfSecond(x));
        const below = mixed(v128.load(lower + left), v128.load(lower + right), shareOfSecond(x));
        carried = f32x4.mul(mixed(above, below, shareOfSecond(y)), weights);
      }
      const sum = f32x4.add(v128.load(cells), carried);
      const weight = f32x4.extract_lane(sum, 3);
      if (weight !== 0) v128.store(cells, f32x4.mul(sum, f32x4.splat(1 / weight)));
    }
  }
}

function firstCoarse(at: i32): i32 {
  return atLeastZero((at - 1) >> 1);
}

function shareOfSecond(at: i32): v128 {
  return f32x4.splat((at & 1) === 1 ? 0.25 : 0.75);
}

/** @param x, y in cells, from the plane's edge */
function between(cells: usize, width: i32, height: i32, x: f32, y: f32): v128 {
  const across = <f32>Math.min(<f32>(width - 1), Math.max(0, x - 0.5));
  const down = <f32>Math.min(<f32>(height - 1), Math.max(0, y - 0.5));
  const left = <i32>across;
  const top = <i32>down;
  const shareX = f32x4.splat(across - <f32>left);
  const shareY = f32x4.splat(down - <f32>top);
  const right = <usize>(least(width - 1, left + 1) - left) * PIXEL;
  const below = <usize>(least(height - 1, top + 1) - top) * <usize>width * PIXEL;
  const at = cells + <usize>(top * width + left) * PIXEL;
  const upper = mixed(v128.load(at), v128.load(at + right), shareX);
  const lower = mixed(v128.load(at + below), v128.load(at + below + right), shareX);
  return mixed(upper, lower, shareY);
}

function anySoftOfSixteen(alpha: usize, sure: i32): bool {
  const bytes = v128.load(alpha);
  const above = i8x16.ge_u(bytes, i8x16.splat(<i8>sure));
  return v128.any_true(v128.and(above, i8x16.le_u(bytes, i8x16.splat(<i8>(255 - sure)))));
}

function dot(one: v128, other: v128): f32 {
  const products = f32x4.mul(one, other);
  return (
    f32x4.extract_lane(products, 0) +
    f32x4.extract_lane(products, 1) +
    f32x4.extract_lane(products, 2)
  );
}

/**
 * Moves uncertain alpha towards the estimate, in place.
 * @param distanceHalf distance of the two colours (0 to 255) at which the estimate has half its
 * weight
 * @param offLine distance of a pixel from the line at which the weight falls to 1 / e
 * @param trust weight of the estimate for the most distinct colours
 */
export function applySides(
  guide: usize,
  alpha: usize,
  width: i32,
  height: i32,
  sure: i32,
  cellPx: i32,
  subject: usize,
  background: usize,
  distanceHalf: f32,
  offLine: f32,
  trust: f32,
): void {
  const gridWidth = (width + cellPx - 1) / cellPx;
  const gridHeight = (height + cellPx - 1) / cellPx;
  const scale: f32 = 1 / <f32>cellPx;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++, guide += 4, alpha++) {
      while (x + 16 <= width && !anySoftOfSixteen(alpha, sure)) {
        x += 16;
        guide += 64;
        alpha += 16;
      }
      if (x === width) break;
      const value = <i32>load<u8>(alpha);
      if (value < sure || value > 255 - sure) continue;
      const across: f32 = (<f32>x + 0.5) * scale;
      const down: f32 = (<f32>y + 0.5) * scale;
      const ofSubject = between(subject, gridWidth, gridHeight, across, down);
      const ofBackground = between(background, gridWidth, gridHeight, across, down);
      // Subject or background is known nowhere in the picture.
      const known = f32x4.extract_lane(ofSubject, 3) * f32x4.extract_lane(ofBackground, 3);
      if (known === 0) return;
      const line = f32x4.sub(ofSubject, ofBackground);
      const seen = f32x4.sub(toFloats(v128.load32_zero(guide)), ofBackground);
      const distance = dot(line, line);
      const position: f32 = distance === 0 ? 0 : dot(line, seen) / distance;
      const answer = <f32>Math.min(1, Math.max(0, position));
      const miss = f32x4.sub(seen, f32x4.mul(line, f32x4.splat(answer)));
      const clear = distance / (distance + distanceHalf * distanceHalf);
      const belief = trust * clear * Mathf.exp(-dot(miss, miss) / (offLine * offLine));
      const soft = <f32>least(255, 4 * least(value, 255 - value)) / 255;
      const own = <f32>value;
      store<u8>(alpha, <u8>(own + belief * soft * (255 * answer - own) + 0.5));
    }
  }
}
