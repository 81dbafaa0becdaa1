/**
 * JPEG XL (ISO/IEC 18181-1, annex D: SizeHeader, ImageMetadata; 18181-2: the container). The
 * codestream comes bare or in the boxes jxlc, or jxlp in parts.
 */
import { ByteWindow, type ImageHeader, WINDOW_BYTES } from './byte-window.ts';
import { boxes, StepBudget } from './iso-boxes.ts';

/**
 * The bits up to have_animation are under 30 bytes with every optional field present, those of a
 * plain animation up to its first frame's data fewer than that again.
 */
const SIZE_HEAD_BYTES = 64;
const CONTAINER_SIGNATURE = Buffer.from([
  0x00, 0x00, 0x00, 0x0c, 0x4a, 0x58, 0x4c, 0x20, 0x0d, 0x0a, 0x87, 0x0a,
]);
/** Width over height by the header's 3-bit ratio; 0 means the width is written out. */
const RATIOS = [undefined, [1, 1], [12, 10], [4, 3], [3, 2], [16, 9], [5, 4], [2, 1]] as const;

const SIZE_RANGES: Ranges = [
  [9, 1],
  [13, 1],
  [18, 1],
  [30, 1],
];
const PREVIEW_RANGES: Ranges = [
  [6, 1],
  [8, 65],
  [10, 321],
  [12, 1345],
];
const PREVIEW_DIV8_RANGES: Ranges = [
  [0, 16],
  [0, 32],
  [5, 1],
  [9, 33],
];

export function isJxlCodestream(start: Buffer): boolean {
  return start.length >= 2 && start[0] === 0xff && start[1] === 0x0a;
}

export function isJxlContainer(start: Buffer): boolean {
  return start.length >= 12 && start.subarray(0, 12).equals(CONTAINER_SIGNATURE);
}

function readSize(bits: BitReader): { width: number; height: number } {
  const div8 = bits.bool();
  const side = (): number => (div8 ? 8 * (1 + bits.bits(5)) : ranged(bits, SIZE_RANGES));
  const height = side();
  const ratio = RATIOS[bits.bits(3)];
  const width = ratio === undefined ? side() : Math.floor((height * ratio[0]) / ratio[1]);
  return { width, height };
}

function skipPreviewSize(bits: BitReader): void {
  const ranges = bits.bool() ? PREVIEW_DIV8_RANGES : PREVIEW_RANGES;
  ranged(bits, ranges);
  if (bits.bits(3) === 0) ranged(bits, ranges);
}

function readAnimated(bits: BitReader): boolean {
  const allDefault = bits.bool();
  if (allDefault) return false;
  const extraFields = bits.bool();
  if (!extraFields) return false;
  bits.bits(3); // orientation
  if (bits.bool()) readSize(bits); // intrinsic size
  const hasPreview = bits.bool();
  if (hasPreview) skipPreviewSize(bits);
  const isAnnounced = bits.bool();
  return isAnnounced && (hasPreview || !hasOneFrame(bits));
}

function readCodestream(head: Buffer): ImageHeader {
  const unread = { format: 'jxl', width: undefined, height: undefined, animated: false } as const;
  if (!isJxlCodestream(head)) return unread;
  const bits = new BitReader(head.subarray(2));
  const size = readSize(bits);
  if (bits.overrun) return unread;
  const animated = readAnimated(bits);
  return { format: 'jxl', ...size, animated: animated && !bits.overrun };
}

/**
 * The codestream's first bytes, as many as the file still has, put together from the boxes that hold
 * it, in the file's order.
 * @param length at most WINDOW_BYTES.
 */
async function headInBoxes(window: ByteWindow, length: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const box of boxes(window, 0, window.sizeBytes, new StepBudget())) {
    if (box.type !== 'jxlc' && box.type !== 'jxlp') continue;
    // A jxlp box begins with its number, which decoders require to be in the file's order.
    const start = box.type === 'jxlp' ? box.start + 4 : box.start;
    const wanted = Math.min(length - bytes, box.end - start);
    const part = wanted > 0 ? await window.upTo(start, wanted) : Buffer.alloc(0);
    parts.push(Buffer.from(part));
    bytes += part.length;
    if (box.type === 'jxlc' || bytes === length) break;
  }
  return Buffer.concat(parts);
}

export async function readJxlCodestream(window: ByteWindow): Promise<ImageHeader> {
  return readCodestream(await window.upTo(0, SIZE_HEAD_BYTES));
}

export async function readJxlContainer(window: ByteWindow): Promise<ImageHeader> {
  return readCodestream(await headInBoxes(window, SIZE_HEAD_BYTES));
}

/** Reads a bare codestream or that of a container. @param length at most WINDOW_BYTES. */
async function readCodestreamHead(window: ByteWindow, length: number): Promise<Buffer> {
  const start = Buffer.from(await window.upTo(0, CONTAINER_SIGNATURE.length));
  if (isJxlContainer(start)) return await headInBoxes(window, length);
  return await window.upTo(0, length);
}

/*
 * Whether a JPEG XL that announces an animation has more than one frame (ISO/IEC 18181-1, annexes D
 * and F): its first frame says whether it is the last. Read as far as plain files go; whatever
 * needs more (an ICC profile, own colours, a frame that is cropped or blended) is taken for an
 * animation, as it is announced.
 */

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
function hasOneFrame(bits: BitReader): boolean {
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

/*
 * Parts of a JPEG XL's ImageMetadata (ISO/IEC 18181-1, annex D.3) that several readers of headers
 * pass over or read.
 */

type Four<T> = readonly [T, T, T, T];
/** A number coded as one of four ranges: [bits, offset] each. */
type Ranges = Four<readonly [bits: number, offset: number]>;

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

/** Types of extra channels. */
const ALPHA = 0;
const SPOT_COLOUR = 2;
const CFA = 5;

function oneOf<T>(bits: BitReader, choices: Four<T>): T {
  return choices[bits.bits(2) as 0 | 1 | 2 | 3];
}

function ranged(bits: BitReader, ranges: Ranges): number {
  const [count, offset] = oneOf(bits, ranges);
  return offset + bits.bits(count);
}

function skipBits(bits: BitReader, count: number): void {
  for (let left = count; left > 0; left -= 16) bits.bits(Math.min(16, left));
}

function skipBitDepth(bits: BitReader): void {
  const isFloat = bits.bool();
  ranged(bits, isFloat ? FLOAT_DEPTH_RANGES : INTEGER_DEPTH_RANGES);
  if (isFloat) bits.bits(4);
}

function readAnimation(bits: BitReader): boolean {
  ranged(bits, TICKS_RANGES);
  ranged(bits, TICKS_DIVISOR_RANGES);
  skipBits(bits, oneOf(bits, [0, 3, 16, 32]));
  return bits.bool();
}

/** Whether an extra channel is alpha that the colours are multiplied by. */
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

/*
 * Whether a JPEG XL's colours are multiplied by its alpha ("associated"): a bit of the alpha channel
 * in ImageMetadata (ISO/IEC 18181-1, annex D.3). Decoders hand such colours out as they are.
 */

function skipExtraFields(bits: BitReader): void {
  bits.bits(3);
  if (bits.bool()) readSize(bits);
  if (bits.bool()) skipPreviewSize(bits);
  if (bits.bool()) readAnimation(bits);
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

/** Bits of a byte string, least significant first, as JPEG XL writes them. */
export class BitReader {
  readonly #bytes: Uint8Array;
  #position = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** More bits were asked for than there are: what was read since is made of zeros. */
  get overrun(): boolean {
    return this.#position > this.#bytes.length * 8;
  }

  /** An unsigned number of up to 30 bits. */
  bits(count: number): number {
    let value = 0;
    for (let i = 0; i < count; i += 1) {
      const byte = this.#bytes[this.#position >>> 3] ?? 0;
      value |= ((byte >>> (this.#position & 7)) & 1) << i;
      this.#position += 1;
    }
    return value;
  }

  skipToByte(): void {
    this.#position = (this.#position + 7) & ~7;
  }

  bool(): boolean {
    return this.bits(1) === 1;
  }
}
