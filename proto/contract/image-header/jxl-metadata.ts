/**
 * Parts of a JPEG XL's ImageMetadata (ISO/IEC 18181-1, annex D.3) that several readers of headers
 * pass over or read.
 */
import type { BitReader } from './bit-reader.ts';

type Four<T> = readonly [T, T, T, T];
/** A number coded as one of four ranges: [bits, offset] each. */
export type Ranges = Four<readonly [bits: number, offset: number]>;

export const ENUM_RANGES: Ranges = [
  [0, 0],
  [0, 1],
  [4, 2],
  [6, 18],
];
export const CHANNEL_COUNT_RANGES: Ranges = [
  [0, 0],
  [0, 1],
  [4, 2],
  [12, 1],
];
const NAME_LENGTH_RANGES: Ranges = [
  [0, 0],
  [4, 0],
  [5, 16],
  [10, 48],
];
const DIM_SHIFT_RANGES: Ranges = [
  [0, 0],
  [0, 3],
  [0, 4],
  [3, 1],
];
const INTEGER_DEPTH_RANGES: Ranges = [
  [0, 8],
  [0, 10],
  [0, 12],
  [6, 1],
];
const FLOAT_DEPTH_RANGES: Ranges = [
  [0, 32],
  [0, 16],
  [0, 24],
  [6, 1],
];
const CFA_CHANNEL_RANGES: Ranges = [
  [0, 1],
  [2, 0],
  [4, 3],
  [8, 19],
];
const TICKS_RANGES: Ranges = [
  [0, 100],
  [0, 1000],
  [10, 1],
  [30, 1],
];
const TICKS_DIVISOR_RANGES: Ranges = [
  [0, 1],
  [0, 1001],
  [8, 1],
  [10, 1],
];

/** Types of extra channels. */
const ALPHA = 0;
const SPOT_COLOUR = 2;
const CFA = 5;

/** What the next two bits choose. */
export function oneOf<T>(bits: BitReader, choices: Four<T>): T {
  return choices[bits.bits(2) as 0 | 1 | 2 | 3];
}

export function ranged(bits: BitReader, ranges: Ranges): number {
  const [count, offset] = oneOf(bits, ranges);
  return offset + bits.bits(count);
}

export function skipBits(bits: BitReader, count: number): void {
  for (let left = count; left > 0; left -= 16) bits.bits(Math.min(16, left));
}

export function skipBitDepth(bits: BitReader): void {
  const isFloat = bits.bool();
  ranged(bits, isFloat ? FLOAT_DEPTH_RANGES : INTEGER_DEPTH_RANGES);
  if (isFloat) bits.bits(4);
}

/** Whether frames have time codes. */
export function readAnimation(bits: BitReader): boolean {
  ranged(bits, TICKS_RANGES);
  ranged(bits, TICKS_DIVISOR_RANGES);
  // The number of loops.
  skipBits(bits, oneOf(bits, [0, 3, 16, 32]));
  return bits.bool();
}

/** Whether an extra channel is alpha that the colours are multiplied by. */
export function readChannel(bits: BitReader): { isAlpha: boolean; isAssociated: boolean } {
  const allDefault = bits.bool();
  if (allDefault) return { isAlpha: true, isAssociated: false };
  const type = ranged(bits, ENUM_RANGES);
  skipBitDepth(bits);
  ranged(bits, DIM_SHIFT_RANGES);
  skipBits(bits, 8 * ranged(bits, NAME_LENGTH_RANGES));
  if (type === ALPHA) return { isAlpha: true, isAssociated: bits.bool() };
  if (type === SPOT_COLOUR) skipBits(bits, 64);
  if (type === CFA) ranged(bits, CFA_CHANNEL_RANGES);
  return { isAlpha: false, isAssociated: false };
}
