/**
 * JPEG XL (ISO/IEC 18181-1, annex D: SizeHeader, ImageMetadata; 18181-2: the container). The
 * codestream is bare, or in the boxes jxlc or jxlp.
 */
import { type ByteWindow, type ImageHeader, WINDOW_BYTES, windowOf } from './byte-window.ts';
import { boxes, StepBudget } from './iso-boxes.ts';

/**
 * The bits up to have_animation take under 30 bytes, those of a plain animation's first frame
 * fewer.
 */
const SIZE_HEAD_BYTES = 64;
const CONTAINER_SIGNATURE = Buffer.from([
  0x00, 0x00, 0x00, 0x0c, 0x4a, 0x58, 0x4c, 0x20, 0x0d, 0x0a, 0x87, 0x0a,
]);
/** Width over height, by the header's 3-bit ratio; 0: the width is explicit. */
const RATIOS = [undefined, [1, 1], [12, 10], [4, 3], [3, 2], [16, 9], [5, 4], [2, 1]] as const;

export function isJxlCodestream(start: Buffer): boolean {
  return start.length >= 2 && start[0] === 0xff && start[1] === 0x0a;
}

export function isJxlContainer(start: Buffer): boolean {
  return start.length >= 12 && start.subarray(0, 12).equals(CONTAINER_SIGNATURE);
}

export async function readJxl(window: ByteWindow): Promise<ImageHeader> {
  const unread = { format: 'jxl', width: undefined, height: undefined, animated: false } as const;
  const head = await readCodestreamHead(window, SIZE_HEAD_BYTES);
  if (!isJxlCodestream(head)) return unread;
  const bits = new BitReader(head.subarray(2));
  const size = readSize(bits);
  if (bits.overrun) return unread;
  const { isAnimated, hasPreview, ...metadata } = readMetadata(bits);
  const isSequence = hasPreview || (!hasOneFrame(bits, metadata) && !bits.overrun);
  return { format: 'jxl', ...size, animated: isAnimated && isSequence };
}

/**
 * The colours are multiplied by alpha; decoders return them unchanged. False also for an unreadable
 * header, which a decoder will report.
 */
export async function hasAssociatedAlpha(file: Buffer): Promise<boolean> {
  const head = await readCodestreamHead(windowOf(file), WINDOW_BYTES);
  if (!isJxlCodestream(head)) return false;
  const bits = new BitReader(head.subarray(2));
  readSize(bits);
  // The first is the picture's.
  const alpha = readMetadata(bits).channels?.find(({ isAlpha }) => isAlpha);
  return alpha?.isAssociated === true && !bits.overrun;
}

/** @param length at most WINDOW_BYTES */
async function readCodestreamHead(window: ByteWindow, length: number): Promise<Buffer> {
  const start = Buffer.from(await window.upTo(0, CONTAINER_SIGNATURE.length));
  if (!isJxlContainer(start)) return await window.upTo(0, length);
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const box of boxes(window, 0, window.sizeBytes, new StepBudget())) {
    if (box.type !== 'jxlc' && box.type !== 'jxlp') continue;
    // A jxlp box begins with its number. Decoders require the file's order.
    const start = box.type === 'jxlp' ? box.start + 4 : box.start;
    const part = Buffer.from(await window.upTo(start, Math.min(length - bytes, box.end - start)));
    parts.push(part);
    bytes += part.length;
    if (box.type === 'jxlc' || bytes === length) break;
  }
  return Buffer.concat(parts);
}

function readSize(bits: BitReader): { width: number; height: number } {
  const div8 = bits.bool();
  const side = (): number => (div8 ? 8 * (1 + bits.bits(5)) : ranged(bits, SIDES));
  const height = side();
  const ratio = RATIOS[bits.bits(3)];
  const width = ratio === undefined ? side() : Math.floor((height * ratio[0]) / ratio[1]);
  return { width, height };
}

function skipPreviewSize(bits: BitReader): void {
  const sides = bits.bool() ? PREVIEW_SIDES_DIV8 : PREVIEW_SIDES;
  ranged(bits, sides);
  if (bits.bits(3) === 0) ranged(bits, sides);
}

type Four<T> = readonly [T, T, T, T];
/** A number's four ranges: bits and first value of each. */
interface Ranges {
  readonly bits: Four<number>;
  readonly from: Four<number>;
}

const SIDES: Ranges = { bits: [9, 13, 18, 30], from: [1, 1, 1, 1] };
const PREVIEW_SIDES: Ranges = { bits: [6, 8, 10, 12], from: [1, 65, 321, 1345] };
const PREVIEW_SIDES_DIV8: Ranges = { bits: [0, 0, 5, 9], from: [16, 32, 1, 33] };
const ENUMS: Ranges = { bits: [0, 0, 4, 6], from: [0, 1, 2, 18] };
const CHANNELS: Ranges = { bits: [0, 0, 4, 12], from: [0, 1, 2, 1] };
const NAME_LENGTHS: Ranges = { bits: [0, 4, 5, 10], from: [0, 0, 16, 48] };
const DIM_SHIFTS: Ranges = { bits: [0, 0, 0, 3], from: [0, 3, 4, 1] };
const INTEGER_DEPTHS: Ranges = { bits: [0, 0, 0, 6], from: [8, 10, 12, 1] };
const FLOAT_DEPTHS: Ranges = { bits: [0, 0, 0, 6], from: [32, 16, 24, 1] };
const CFA_CHANNELS: Ranges = { bits: [0, 2, 4, 8], from: [1, 0, 3, 19] };
const TICKS: Ranges = { bits: [0, 0, 10, 30], from: [100, 1000, 1, 1] };
const TICKS_DIVISORS: Ranges = { bits: [0, 0, 8, 10], from: [1, 1001, 1, 1] };
const PASSES: Ranges = { bits: [0, 0, 0, 3], from: [1, 2, 3, 4] };
const DOWNSAMPLES: Ranges = { bits: [0, 0, 0, 1], from: [0, 1, 2, 3] };
/** Sizes in bits, by selector. */
const LOOP_COUNT_BITS = [0, 3, 16, 32] as const;
const LAST_PASS_BITS = [0, 0, 0, 3] as const;
const DURATION_BITS = [0, 0, 8, 32] as const;
const TIMECODE_BITS = 32;
const TONE_MAPPING_BITS = 49;

function oneOf<T>(bits: BitReader, choices: Four<T>): T {
  return choices[bits.bits(2) as 0 | 1 | 2 | 3];
}

function ranged(bits: BitReader, { bits: counts, from }: Ranges): number {
  const selector = bits.bits(2) as 0 | 1 | 2 | 3;
  return from[selector] + bits.bits(counts[selector]);
}

const ALPHA = 0;
const SPOT_COLOUR = 2;
const CFA = 5;
/** Nobody animates such a picture, and the service does not read it. */
const EXTRA_CHANNELS_MAX = 4;

interface Channel {
  readonly isAlpha: boolean;
  readonly isAssociated: boolean;
}

/** ImageMetadata (ISO/IEC 18181-1, annex D.3) up to its extra channels. */
interface Metadata {
  readonly isAnimated: boolean;
  readonly hasTimecodes: boolean;
  readonly hasPreview: boolean;
  /** undefined: more than EXTRA_CHANNELS_MAX. */
  readonly channels: readonly Channel[] | undefined;
}

function readMetadata(bits: BitReader): Metadata {
  let [isAnimated, hasTimecodes, hasPreview] = [false, false, false];
  const allDefault = bits.bool();
  if (allDefault) return { isAnimated, hasTimecodes, hasPreview, channels: [] };
  const extraFields = bits.bool();
  if (extraFields) {
    bits.bits(3); // orientation
    if (bits.bool()) readSize(bits); // intrinsic size
    hasPreview = bits.bool();
    if (hasPreview) skipPreviewSize(bits);
    isAnimated = bits.bool() && !bits.overrun;
    hasTimecodes = isAnimated && readAnimation(bits);
  }
  skipBitDepth(bits);
  bits.bool(); // Whether 16 bits are enough to decode with.
  const count = ranged(bits, CHANNELS);
  const channels =
    count > EXTRA_CHANNELS_MAX ? undefined : Array.from({ length: count }, () => readChannel(bits));
  return { isAnimated, hasTimecodes, hasPreview, channels };
}

/** Returns whether frames have timecodes. */
function readAnimation(bits: BitReader): boolean {
  ranged(bits, TICKS);
  ranged(bits, TICKS_DIVISORS);
  bits.skip(oneOf(bits, LOOP_COUNT_BITS));
  return bits.bool();
}

function skipBitDepth(bits: BitReader): void {
  const isFloat = bits.bool();
  ranged(bits, isFloat ? FLOAT_DEPTHS : INTEGER_DEPTHS);
  if (isFloat) bits.bits(4);
}

function readChannel(bits: BitReader): Channel {
  const allDefault = bits.bool();
  if (allDefault) return { isAlpha: true, isAssociated: false };
  const type = ranged(bits, ENUMS);
  skipBitDepth(bits);
  ranged(bits, DIM_SHIFTS);
  bits.skip(8 * ranged(bits, NAME_LENGTHS));
  if (type === ALPHA) return { isAlpha: true, isAssociated: bits.bool() };
  if (type === SPOT_COLOUR) bits.skip(64);
  if (type === CFA) ranged(bits, CFA_CHANNELS);
  return { isAlpha: false, isAssociated: false };
}

/*
 * - Decides whether an announced animation has more than one frame (ISO/IEC 18181-1, annexes D and
 * F) by the first frame's last flag. Anything uncommon (an ICC profile, own colours, a cropped or
 * blended frame) counts as an animation.
 */

const [RGB, GREY] = [0, 1];
/** For a white point and primaries. */
const CUSTOM = 2;

type FrameFacts = Pick<Metadata, 'channels' | 'hasTimecodes'>;

/** @param bits after the extra channels; without a preview */
function hasOneFrame(bits: BitReader, { channels, hasTimecodes }: FrameFacts): boolean {
  if (channels === undefined) return false;
  const isXyb = bits.bool();
  if (!skipColours(bits)) return false;
  const hasDefaultTones = bits.bool();
  if (!hasDefaultTones) bits.skip(TONE_MAPPING_BITS);
  // No extensions, and no transform of its own.
  const isPlain = bits.bits(2) === 0 && bits.bool();
  if (!isPlain) return false;
  bits.skipToByte();
  return isLastFrame(bits, isXyb, channels.length, hasTimecodes) && !bits.overrun;
}

/** False: a profile or custom points. */
function skipColours(bits: BitReader): boolean {
  const isDefault = bits.bool();
  if (isDefault) return true;
  const hasProfile = bits.bool();
  const space = ranged(bits, ENUMS);
  if (hasProfile || (space !== RGB && space !== GREY)) return false;
  if (ranged(bits, ENUMS) === CUSTOM) return false;
  if (space === RGB && ranged(bits, ENUMS) === CUSTOM) return false;
  const hasGamma = bits.bool();
  if (hasGamma) bits.skip(24);
  else ranged(bits, ENUMS);
  ranged(bits, ENUMS); // The rendering intent.
  return true;
}

/** False also if the first frame is not the whole picture. */
function isLastFrame(
  bits: BitReader,
  isXyb: boolean,
  extraChannels: number,
  hasTimecodes: boolean,
): boolean {
  const isDefault = bits.bool();
  if (isDefault) return true;
  const isRegular = bits.bits(2) === 0;
  const isModular = bits.bool();
  const hasFlags = bits.bits(2) !== 0;
  const isYcc = !isXyb && bits.bool();
  if (!isRegular || hasFlags || isYcc) return false;
  bits.skip(2 + 2 * extraChannels); // How far each is enlarged.
  if (isModular) bits.bits(2);
  else if (isXyb) bits.bits(6);
  skipPasses(bits);
  const isCropped = bits.bool();
  if (isCropped) return false;
  for (let channel = 0; channel <= extraChannels; channel += 1) {
    const isBlended = bits.bits(2) !== 0;
    if (isBlended) return false;
  }
  bits.skip(oneOf(bits, DURATION_BITS));
  if (hasTimecodes) bits.skip(TIMECODE_BITS);
  return bits.bool();
}

function skipPasses(bits: BitReader): void {
  const passes = ranged(bits, PASSES);
  if (passes === 1) return;
  const downsamples = ranged(bits, DOWNSAMPLES);
  bits.skip(2 * (passes - 1) + 2 * downsamples);
  for (let i = 0; i < downsamples; i += 1) bits.skip(oneOf(bits, LAST_PASS_BITS));
}

/** Least significant bit first, as in JPEG XL. */
export class BitReader {
  readonly #bytes: Uint8Array;
  #position = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** True: the last numbers are made of zeros beyond the end. */
  get overrun(): boolean {
    return this.#position > this.#bytes.length * 8;
  }

  /** Unsigned, up to 30 bits. */
  bits(count: number): number {
    let value = 0;
    for (let i = 0; i < count; i += 1) {
      const byte = this.#bytes[this.#position >>> 3] ?? 0;
      value |= ((byte >>> (this.#position & 7)) & 1) << i;
      this.#position += 1;
    }
    return value;
  }

  skip(count: number): void {
    this.#position += count;
  }

  skipToByte(): void {
    this.#position = (this.#position + 7) & ~7;
  }

  bool(): boolean {
    return this.bits(1) === 1;
  }
}
