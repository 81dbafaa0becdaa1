/**
 * JPEG XL (ISO/IEC 18181-1, annex D: SizeHeader, ImageMetadata; 18181-2: the container). The
 * codestream comes bare or in the boxes jxlc, or jxlp in parts.
 */
import { BitReader } from './bit-reader.ts';
import type { ByteWindow } from './byte-window.ts';
import type { ImageHeader } from './header.ts';
import { boxes, StepBudget } from './iso-boxes.ts';
import { hasOneFrame } from './jxl-frames.ts';
import { type Ranges, ranged } from './jxl-metadata.ts';

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

export function readSize(bits: BitReader): { width: number; height: number } {
  const div8 = bits.bool();
  const side = (): number => (div8 ? 8 * (1 + bits.bits(5)) : ranged(bits, SIZE_RANGES));
  const height = side();
  const ratio = RATIOS[bits.bits(3)];
  const width = ratio === undefined ? side() : Math.floor((height * ratio[0]) / ratio[1]);
  return { width, height };
}

export function skipPreviewSize(bits: BitReader): void {
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
export async function readCodestreamHead(window: ByteWindow, length: number): Promise<Buffer> {
  const start = Buffer.from(await window.upTo(0, CONTAINER_SIGNATURE.length));
  if (isJxlContainer(start)) return await headInBoxes(window, length);
  return await window.upTo(0, length);
}
