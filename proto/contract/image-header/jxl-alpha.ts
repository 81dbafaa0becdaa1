/**
 * Whether a JPEG XL's colours are multiplied by its alpha ("associated"): a bit of the alpha channel
 * in ImageMetadata (ISO/IEC 18181-1, annex D.3). Decoders hand such colours out as they are.
 */
import { BitReader } from './bit-reader.ts';
import { ByteWindow, WINDOW_BYTES } from './byte-window.ts';
import {
  isJxlCodestream,
  type Ranges,
  ranged,
  readCodestreamHead,
  readSize,
  skipPreviewSize,
} from './jxl.ts';

const ENUM_RANGES: Ranges = [
  [0, 0],
  [0, 1],
  [4, 2],
  [6, 18],
];
const CHANNEL_COUNT_RANGES: Ranges = [
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

/** Of an extra channel's type. */
const ALPHA = 0;
const SPOT_COLOUR = 2;
const CFA = 5;

function skipBits(bits: BitReader, count: number): void {
  for (let left = count; left > 0; left -= 16) bits.bits(Math.min(16, left));
}

function skipBitDepth(bits: BitReader): void {
  const isFloat = bits.bool();
  ranged(bits, isFloat ? FLOAT_DEPTH_RANGES : INTEGER_DEPTH_RANGES);
  if (isFloat) bits.bits(4);
}

function skipAnimation(bits: BitReader): void {
  ranged(bits, TICKS_RANGES);
  ranged(bits, TICKS_DIVISOR_RANGES);
  // The number of loops.
  skipBits(bits, [0, 3, 16, 32][bits.bits(2)]);
  bits.bool();
}

/** Orientation, intrinsic size, preview and animation. */
function skipExtraFields(bits: BitReader): void {
  bits.bits(3);
  if (bits.bool()) readSize(bits);
  if (bits.bool()) skipPreviewSize(bits);
  if (bits.bool()) skipAnimation(bits);
}

/** Of one extra channel: whether it is alpha that the colours are multiplied by. */
function readChannel(bits: BitReader): { isAlpha: boolean; isAssociated: boolean } {
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

/** False too where the header cannot be read: a decoder will say what is wrong with the file. */
export async function hasAssociatedAlpha(file: Buffer): Promise<boolean> {
  const window = new ByteWindow(
    (offset, length) => file.subarray(offset, offset + length),
    file.length,
  );
  const head = await readCodestreamHead(window, WINDOW_BYTES);
  if (!isJxlCodestream(head)) return false;
  const bits = new BitReader(head.subarray(2));
  readSize(bits);
  const allDefault = bits.bool();
  if (allDefault) return false;
  if (bits.bool()) skipExtraFields(bits);
  skipBitDepth(bits);
  // Whether 16 bits are enough to decode with.
  bits.bool();
  const channels = ranged(bits, CHANNEL_COUNT_RANGES);
  for (let channel = 0; channel < channels && !bits.overrun; channel += 1) {
    const { isAlpha, isAssociated } = readChannel(bits);
    // The first is the picture's.
    if (isAlpha) return isAssociated && !bits.overrun;
  }
  return false;
}
