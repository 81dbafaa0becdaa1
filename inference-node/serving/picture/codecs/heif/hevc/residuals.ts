/** Coefficients of a transform block of HEVC (ITU-T H.265, 7.3.8.11): read, and forgotten. */
import type { ArithmeticDecoder } from './arithmetic-decoder.ts';
import { CONTEXTS } from './contexts.ts';
import { DamagedCoding } from './outcomes.ts';

/** 0: diagonal, 1: horizontal, 2: vertical. */
export type Scan = 0 | 1 | 2;

interface ResidualBlock {
  readonly log2Size: number;
  readonly isLuma: boolean;
  readonly scan: Scan;
  readonly maySkipTransform: boolean;
  /** Signs are never hidden where the samples are coded without loss. */
  readonly mayHideSign: boolean;
}

/** Gives the positions of a square of so many a side in the order of a scan, x + y * side. */
function scanOrder(side: number, scan: Scan): Uint8Array {
  const order: number[] = [];
  if (scan === 1) for (let i = 0; i < side * side; i++) order.push(i);
  if (scan === 2) {
    for (let i = 0; i < side * side; i++) order.push((i % side) * side + Math.floor(i / side));
  }
  if (scan === 0) {
    for (let sum = 0; sum <= 2 * (side - 1); sum++) {
      for (let x = Math.max(0, sum - side + 1); x <= Math.min(sum, side - 1); x++) {
        order.push(x + (sum - x) * side);
      }
    }
  }
  return Uint8Array.from(order);
}

/**
 * The index is the scan, then the logarithm of the side. A block of 8 is scanned in quarters, by
 * rows or columns.
 */
const ORDERS = ([0, 1, 2] as const).map(scan =>
  [0, 1, 2, 3].map(log2 => scanOrder(1 << log2, scan)),
);
/** The place of a position in its order. */
const PLACES = ORDERS.map(orders =>
  orders.map(order => Uint8Array.from(order, (_, position) => order.indexOf(position))),
);

const SMALL_CONTEXTS = [0, 1, 4, 5, 2, 3, 4, 5, 6, 6, 8, 8, 7, 7, 8, 8];

/** sigCtx (9.3.4.2.5) of a place in a square of four by four. */
function significanceContext(
  log2Size: number,
  isLuma: boolean,
  isDiagonal: boolean,
  neighbours: number,
  isFirst: boolean,
  position: number,
): number {
  const base = isLuma ? 0 : 27;
  const [x, y] = [position & 3, position >> 2];
  if (log2Size === 2) return base + SMALL_CONTEXTS[position]!;
  if (isFirst && position === 0) return base;
  const near = [
    x + y === 0 ? 2 : x + y < 3 ? 1 : 0,
    y === 0 ? 2 : y === 1 ? 1 : 0,
    x === 0 ? 2 : x === 1 ? 1 : 0,
    2,
  ];
  const context = near[neighbours]!;
  if (!isLuma) return base + context + (log2Size === 3 ? 9 : 12);
  const later = isFirst ? 0 : 3;
  return context + later + (log2Size === 3 ? (isDiagonal ? 9 : 15) : 21);
}

/** The index is `significanceRow`, with sixteen values each. */
const SIGNIFICANCE = new Uint8Array(4 * 2 * 2 * 4 * 2 * 16);

function significanceRow(
  log2Size: number,
  isLuma: boolean,
  isDiagonal: boolean,
  neighbours: number,
  isFirst: boolean,
): number {
  const kind = (log2Size - 2) * 4 + (isLuma ? 2 : 0) + (isDiagonal ? 1 : 0);
  return (kind * 8 + neighbours * 2 + (isFirst ? 1 : 0)) * 16;
}

for (const log2Size of [2, 3, 4, 5]) {
  for (const isLuma of [false, true]) {
    for (const isDiagonal of [false, true]) {
      for (let neighbours = 0; neighbours < 4; neighbours++) {
        for (const isFirst of [false, true]) {
          const row = significanceRow(log2Size, isLuma, isDiagonal, neighbours, isFirst);
          for (let at = 0; at < 16; at++) {
            const kind = [log2Size, isLuma, isDiagonal, neighbours, isFirst, at] as const;
            SIGNIFICANCE[row + at] = CONTEXTS.significance + significanceContext(...kind);
          }
        }
      }
    }
  }
}

/** last_sig_coeff_x_prefix or y_prefix (9.3.4.2.3). */
function readLastPrefix(decoder: ArithmeticDecoder, first: number, block: ResidualBlock): number {
  const { log2Size, isLuma } = block;
  const offset = isLuma ? 3 * (log2Size - 2) + ((log2Size - 1) >> 2) : 15;
  const shift = isLuma ? (log2Size + 1) >> 2 : log2Size - 2;
  const max = 2 * log2Size - 1;
  let prefix = 0;
  while (prefix < max && decoder.bin(first + offset + (prefix >> shift)) === 1) prefix += 1;
  return prefix;
}

function readLastSuffix(decoder: ArithmeticDecoder, prefix: number): number {
  if (prefix <= 3) return prefix;
  const bits = (prefix >> 1) - 1;
  return ((2 + (prefix & 1)) << bits) + decoder.bypasses(bits);
}

/** Which quarters around a square of four by four have coefficients: 1 right of it, 2 below. */
const coded = new Uint8Array(64);

/** Places of a square's coefficients in its order, the last first. */
const places = new Uint8Array(16);

/** residual_coding(). @throws DamagedCoding */
export function readResidual(
  decoder: ArithmeticDecoder,
  block: ResidualBlock,
  hidesSigns: boolean,
): void {
  const { log2Size, isLuma, scan } = block;
  if (block.maySkipTransform) decoder.bin(CONTEXTS.transformSkip + (isLuma ? 0 : 1));
  const prefixX = readLastPrefix(decoder, CONTEXTS.lastX, block);
  const prefixY = readLastPrefix(decoder, CONTEXTS.lastY, block);
  let lastX = readLastSuffix(decoder, prefixX);
  let lastY = readLastSuffix(decoder, prefixY);
  if (scan === 2) [lastX, lastY] = [lastY, lastX];
  const log2Side = log2Size - 2;
  const side = 1 << log2Side;
  // Every index lies inside: a position is below the block's side, a square below its squares.
  const squares = ORDERS[scan]![log2Side]!;
  const lastSquare = PLACES[scan]![log2Side]![(lastX >> 2) + (lastY >> 2) * side]!;
  const lastPlace = PLACES[scan]![2]![(lastX & 3) + (lastY & 3) * 4]!;
  coded.fill(0, 0, side * side);
  const mayHide = hidesSigns && block.mayHideSign;
  let greater = 1;
  for (let index = lastSquare; index >= 0; index--) {
    const square = squares[index]!;
    const isLast = index === lastSquare;
    const count = readPlaces(decoder, block, square, index, isLast ? lastPlace : -1);
    if (count === 0) continue;
    const set = (index === 0 || !isLuma ? 0 : 2) + (greater === 0 ? 1 : 0);
    greater = readLevels(decoder, isLuma, set, count, mayHide);
  }
}

/**
 * Which coefficients of a square of four by four are not 0.
 * @param last the place of the block's last coefficient, or -1 where it is in a later square
 * @returns their number
 */
function readPlaces(
  decoder: ArithmeticDecoder,
  { log2Size, isLuma, scan }: ResidualBlock,
  square: number,
  index: number,
  last: number,
): number {
  const log2Side = log2Size - 2;
  const neighbours = coded[square]!;
  const isLast = last >= 0;
  let mayInfer = false;
  if (!isLast && index > 0) {
    const context = CONTEXTS.squareCoded + (isLuma ? 0 : 2) + (neighbours === 0 ? 0 : 1);
    if (decoder.bin(context) === 0) return 0;
    mayInfer = true;
  }
  const [x, y] = [square & ((1 << log2Side) - 1), square >> log2Side];
  if (x > 0) coded[square - 1]! |= 1;
  if (y > 0) coded[square - (1 << log2Side)]! |= 2;
  const row = significanceRow(log2Size, isLuma, scan === 0, neighbours, square === 0);
  const order = ORDERS[scan]![2]!;
  let count = 0;
  if (isLast) places[count++] = last;
  for (let place = isLast ? last - 1 : 15; place > 0; place--) {
    if (decoder.bin(SIGNIFICANCE[row + order[place]!]!) === 0) continue;
    places[count++] = place;
    mayInfer = false;
  }
  if (last !== 0 && (mayInfer || decoder.bin(SIGNIFICANCE[row]!) === 1)) places[count++] = 0;
  return count;
}

/** A square has so many flags that a level is greater than 1. */
const FLAGS_MAX = 8;
const RICE_MAX = 4;
const PREFIX_MAX = 32;
const SIGN_HIDDEN_DISTANCE = 4;

const levels = new Uint8Array(16);

/** @returns the context of the last flag, which decides on the next square's */
function readLevels(
  decoder: ArithmeticDecoder,
  isLuma: boolean,
  set: number,
  count: number,
  mayHide: boolean,
): number {
  const flags = CONTEXTS.greater1 + (isLuma ? 0 : 16) + set * 4;
  let greater = 1;
  let firstGreater = -1;
  for (let i = 0; i < count; i++) levels[i] = 1;
  for (let i = 0; i < count && i < FLAGS_MAX; i++) {
    if (decoder.bin(flags + greater) === 1) {
      levels[i] = 2;
      greater = 0;
      if (firstGreater < 0) firstGreater = i;
    } else if (greater > 0 && greater < 3) greater += 1;
  }
  if (firstGreater >= 0) {
    levels[firstGreater]! += decoder.bin(CONTEXTS.greater2 + (isLuma ? 0 : 4) + set);
  }
  const isHidden = mayHide && places[0]! - places[count - 1]! >= SIGN_HIDDEN_DISTANCE;
  decoder.bypasses(isHidden ? count - 1 : count);
  let rice = 0;
  for (let i = 0; i < count; i++) {
    // The flags can express this level at most; the rest follows only then.
    const most = i >= FLAGS_MAX ? 1 : firstGreater < 0 || i <= firstGreater ? 3 : 2;
    if (levels[i] !== most) continue;
    const level = most + readRemaining(decoder, rice);
    if (level > 3 << rice) rice = Math.min(rice + 1, RICE_MAX);
  }
  return greater;
}

/** coeff_abs_level_remaining (9.3.3.11). */
function readRemaining(decoder: ArithmeticDecoder, rice: number): number {
  let prefix = 0;
  while (decoder.bypass() === 1) {
    prefix += 1;
    if (prefix > PREFIX_MAX) throw new DamagedCoding('a coefficient has no end');
  }
  if (prefix <= 3) return (prefix << rice) + decoder.bypasses(rice);
  const bits = prefix - 3;
  // Values above 2^31 are out of any range; that they are large is enough here.
  const value = decoder.bypasses(bits + rice);
  return bits > 20 ? 2 ** 20 : (((1 << bits) + 2) << rice) + value;
}
