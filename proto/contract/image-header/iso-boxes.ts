/** Boxes of the ISO base media file format (ISO/IEC 14496-12): the frame of AVIF and JPEG XL. */
import type { ByteWindow } from './byte-window.ts';

export interface Box {
  readonly type: string;
  readonly start: number;
  /** Offset behind its content: never beyond its parent's. */
  readonly end: number;
}

/**
 * Boxes and list entries read of one file, all levels together. A HEIF of 1000 tiles takes about
 * 3100: of each an infe box, a reference and an ipma entry; with what lies where, 5100.
 */
const STEPS_MAX = 8192;

export class StepBudget {
  #left: number;

  constructor(stepsMax = STEPS_MAX) {
    this.#left = stepsMax;
  }

  /** False: there are not so many left. */
  take(steps = 1): boolean {
    this.#left -= steps;
    return this.#left >= 0;
  }
}

/** The box at `offset` inside a parent that ends at `end`; undefined where none can be read. */
async function readBox(window: ByteWindow, offset: number, end: number): Promise<Box | undefined> {
  const head = await window.at(offset, 8);
  if (head === undefined || offset + 8 > end) return undefined;
  const type = head.toString('latin1', 4, 8);
  const shortSize = head.readUInt32BE(0);
  if (shortSize === 0) return { type, start: offset + 8, end };
  if (shortSize !== 1) {
    if (shortSize < 8) return undefined;
    return { type, start: offset + 8, end: Math.min(end, offset + shortSize) };
  }
  const large = await window.at(offset + 8, 8);
  if (large === undefined) return undefined;
  const size = large.readUInt32BE(0) * 2 ** 32 + large.readUInt32BE(4);
  if (size < 16) return undefined;
  return { type, start: offset + 16, end: Math.min(end, offset + size) };
}

/** The boxes in [start, end), in order, until one cannot be read or the budget is spent. */
export async function* boxes(
  window: ByteWindow,
  start: number,
  end: number,
  budget: StepBudget,
): AsyncGenerator<Box> {
  let offset = start;
  while (offset < end && budget.take()) {
    const box = await readBox(window, offset, end);
    if (box === undefined) return;
    yield box;
    offset = box.end;
  }
}
