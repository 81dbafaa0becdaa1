/**
 * Whether a JPEG XL that announces an animation has more than one frame (ISO/IEC 18181-1, annexes D
 * and F): its first frame says whether it is the last. Read as far as plain files go; whatever
 * needs more (an ICC profile, own colours, a frame that is cropped or blended) is taken for an
 * animation, as it is announced.
 */
import type { BitReader } from './bit-reader.ts';
import {
  CHANNEL_COUNT_RANGES,
  ENUM_RANGES,
  oneOf,
  type Ranges,
  ranged,
  readAnimation,
  readChannel,
  skipBitDepth,
  skipBits,
} from './jxl-metadata.ts';

const PASSES: Ranges = [
  [0, 1],
  [0, 2],
  [0, 3],
  [3, 4],
];
const DOWNSAMPLES: Ranges = [
  [0, 0],
  [0, 1],
  [0, 2],
  [1, 3],
];
const LAST_PASS: Ranges = [
  [0, 0],
  [0, 1],
  [0, 2],
  [3, 0],
];
/** Sizes in bits of a duration, by its selector. */
const DURATION_BITS = [0, 0, 8, 32] as const;
const TIMECODE_BITS = 32;
const TONE_MAPPING_BITS = 49;
/** More is no picture that anybody animates. */
const EXTRA_CHANNELS_MAX = 4;
const [RGB, GREY] = [0, 1];
/** Bits of a white point and of primaries. */
const CUSTOM = 2;

interface Metadata {
  readonly isXyb: boolean;
  readonly extraChannels: number;
  readonly hasTimecodes: boolean;
}

/** @param bits right behind the flag of animation; no preview comes between. */
export function hasOneFrame(bits: BitReader): boolean {
  const metadata = readMetadata(bits);
  if (metadata === undefined) return false;
  bits.skipToByte();
  return isLastFrame(bits, metadata) && !bits.overrun;
}

/** Undefined: it says more than is read here. */
function readMetadata(bits: BitReader): Metadata | undefined {
  const hasTimecodes = readAnimation(bits);
  skipBitDepth(bits);
  bits.bool(); // Whether 16 bits are enough to decode with.
  const extraChannels = ranged(bits, CHANNEL_COUNT_RANGES);
  if (extraChannels > EXTRA_CHANNELS_MAX) return undefined;
  for (let channel = 0; channel < extraChannels; channel += 1) readChannel(bits);
  const isXyb = bits.bool();
  if (!skipColours(bits)) return undefined;
  const hasDefaultTones = bits.bool();
  if (!hasDefaultTones) skipBits(bits, TONE_MAPPING_BITS);
  // No extensions of the metadata, and no transform of its own.
  const isPlain = bits.bits(2) === 0 && bits.bool();
  return isPlain ? { isXyb, extraChannels, hasTimecodes } : undefined;
}

/** False: a profile, or points of its own. */
function skipColours(bits: BitReader): boolean {
  const isDefault = bits.bool();
  if (isDefault) return true;
  const hasProfile = bits.bool();
  const space = ranged(bits, ENUM_RANGES);
  if (hasProfile || (space !== RGB && space !== GREY)) return false;
  if (ranged(bits, ENUM_RANGES) === CUSTOM) return false;
  if (space === RGB && ranged(bits, ENUM_RANGES) === CUSTOM) return false;
  const hasGamma = bits.bool();
  if (hasGamma) skipBits(bits, 24);
  else ranged(bits, ENUM_RANGES);
  ranged(bits, ENUM_RANGES); // The rendering intent.
  return true;
}

/** False also for a first frame that is not the whole picture by itself. */
function isLastFrame(bits: BitReader, { isXyb, extraChannels, hasTimecodes }: Metadata): boolean {
  const isDefault = bits.bool();
  if (isDefault) return true;
  const isRegular = bits.bits(2) === 0;
  const isModular = bits.bool();
  // Noise, patches and splines.
  const hasFlags = bits.bits(2) !== 0;
  const isYcc = !isXyb && bits.bool();
  if (!isRegular || hasFlags || isYcc) return false;
  skipBits(bits, 2 + 2 * extraChannels); // How far each is enlarged.
  if (isModular) bits.bits(2);
  else if (isXyb) bits.bits(6);
  skipPasses(bits);
  const isCropped = bits.bool();
  if (isCropped) return false;
  for (let channel = 0; channel <= extraChannels; channel += 1) {
    const isBlended = bits.bits(2) !== 0;
    if (isBlended) return false;
  }
  skipBits(bits, oneOf(bits, DURATION_BITS));
  if (hasTimecodes) skipBits(bits, TIMECODE_BITS);
  return bits.bool();
}

function skipPasses(bits: BitReader): void {
  const passes = ranged(bits, PASSES);
  if (passes === 1) return;
  const downsamples = ranged(bits, DOWNSAMPLES);
  skipBits(bits, 2 * (passes - 1) + 2 * downsamples);
  for (let i = 0; i < downsamples; i += 1) ranged(bits, LAST_PASS);
}
