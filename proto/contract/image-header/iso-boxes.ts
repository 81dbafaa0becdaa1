/** Boxes of the ISO base media file format (ISO/IEC 14496-12), used by AVIF and JPEG XL. */
import type { ByteWindow } from './byte-window.ts';

export interface Box {
  readonly type: string;
  readonly start: number;
  /** Never beyond the parent's end. */
  readonly end: number;
}

/** Boxes and list entries read of one file. A HEIF of 1000 tiles takes 3100, with extents 5100. */
const STEPS_MAX = 8192;

export class StepBudget {
  #left: number;

  constructor(stepsMax = STEPS_MAX) {
    this.#left = stepsMax;
  }

  /** False: the budget is spent. */
  take(steps = 1): boolean {
    this.#left -= steps;
    return this.#left >= 0;
  }
}

const HEAD_BYTES = 8;
const LARGE_HEAD_BYTES = 16;

/**
 * undefined: no valid box at `offset`.
 * @param end the parent's
 * @param head 16 bytes at `offset`, or fewer at the file's end
 */
export function parseBox(head: Buffer, offset: number, end: number): Box | undefined {
  if (head.length < HEAD_BYTES || offset + HEAD_BYTES > end) return undefined;
  const type = head.toString('latin1', 4, 8);
  const shortSize = head.readUInt32BE(0);
  if (shortSize === 0) return { type, start: offset + HEAD_BYTES, end };
  const isLarge = shortSize === 1;
  const headBytes = isLarge ? LARGE_HEAD_BYTES : HEAD_BYTES;
  if (head.length < headBytes) return undefined;
  const size = isLarge ? head.readUInt32BE(8) * 2 ** 32 + head.readUInt32BE(12) : shortSize;
  if (size < headBytes) return undefined;
  return { type, start: offset + headBytes, end: Math.min(end, offset + size) };
}

/** Ends at an invalid box or without budget. */
export async function* boxes(
  window: ByteWindow,
  start: number,
  end: number,
  budget: StepBudget,
): AsyncGenerator<Box> {
  let offset = start;
  while (offset < end && budget.take()) {
    const box = parseBox(await window.upTo(offset, LARGE_HEAD_BYTES), offset, end);
    if (box === undefined) return;
    yield box;
    offset = box.end;
  }
}
