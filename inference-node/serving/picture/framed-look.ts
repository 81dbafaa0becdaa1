/**
 * A look at a close-up in a frame. Models take what fills the picture for its ground; with a frame
 * around it they see a subject again, or take the whole picture for one. On the main thread;
 * matte/framed-input.ts paints the frame. docs/adr/0047.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { MatteRole } from '../models/prepared-model.ts';
import { unsureShare } from './worth-running.ts';

/** Of the input's sides to the picture's in it. */
const FRAME_SCALE = 1.5;

/**
 * Judged by cross-validation, and surer than what that chooses (bench/quality-subject.ts,
 * bench/MEASUREMENTS.md).
 */
export const FRAMED_RULES: FramedRules = {
  /** Unsure share of the first look, from which on a further one is taken in a frame. */
  unsureShareMin: 0.3,
  /** Of a side of the picture what the framed look shows, on one of the four: it is cut off. */
  cutOffShareMin: 0.05,
  /** The same, on each of the four: from it on it shows the picture itself. */
  sideShareMax: 0.2,
  /** Unsure share of the framed look, from which on it saw nothing clearly. */
  unsureShareMax: 0.65,
};

export type FramedRules = Readonly<
  Record<'unsureShareMin' | 'cutOffShareMin' | 'sideShareMax' | 'unsureShareMax', number>
>;

/**
 * Only of a further look by the plan's first model: how others take a frame was not measured.
 * @param subject the matte of the plan's first subject, one byte a pixel.
 */
export function isWorthFraming(
  run: { readonly role: MatteRole; readonly model: string },
  firstModel: string | undefined,
  subject: Uint8Array,
  rules = FRAMED_RULES,
): boolean {
  const decides = run.role === 'secondLook' || run.role === 'subject';
  if (!decides || run.model !== firstModel) return false;
  return unsureShare(subject) >= rules.unsureShareMin;
}

/** Where the picture lies in an input of `size`. */
export function boxInFrame({ width, height }: Size): Box {
  const along = (side: number) => {
    const length = Math.max(1, Math.round(side / FRAME_SCALE));
    return { start: (side - length) >> 1, length };
  };
  const [x, y] = [along(width), along(height)];
  return { left: x.start, top: y.start, width: x.length, height: y.length };
}

interface FramedSubject {
  readonly alpha: Buffer;
  readonly size: Size;
  readonly role: 'subject';
}

/**
 * The framed look as the subject: the first one is heard like a second. Undefined: it is not
 * believed.
 * @param framed the matte of a framed input, of `size`.
 */
export function withFramedLook<Matte extends { readonly role: MatteRole }>(
  [first, ...others]: readonly Matte[],
  { alpha: framed, size: inputSize }: { readonly alpha: Uint8Array; readonly size: Size },
  rules = FRAMED_RULES,
): (Matte | FramedSubject)[] | undefined {
  const { left, top, width, height } = boxInFrame(inputSize);
  const alpha = cutOut(framed, inputSize.width, { left, top, width, height });
  const size = { width, height };
  if (!isBelieved(alpha, size, rules)) return undefined;
  const heard = first === undefined ? [] : [{ ...first, role: 'secondLook' as const }];
  return [{ alpha, size, role: 'subject' }, ...heard, ...others];
}

/** Not what shows the picture itself, what is not cut off, or nothing clearly. */
export function isBelieved(
  alpha: Uint8Array,
  size: Size,
  { cutOffShareMin, sideShareMax, unsureShareMax }: FramedRules,
): boolean {
  const sides = sideShares(alpha, size);
  if (Math.max(...sides) < cutOffShareMin) return false;
  if (Math.min(...sides) >= sideShareMax) return false;
  return unsureShare(alpha) < unsureShareMax;
}

function cutOut(alpha: Uint8Array, width: number, box: Box): Buffer {
  const cut = Buffer.allocUnsafeSlow(box.width * box.height);
  for (let y = 0; y < box.height; y++) {
    const from = (box.top + y) * width + box.left;
    cut.set(alpha.subarray(from, from + box.width), y * box.width);
  }
  return cut;
}

/** From a side, relative to the length across: the matte of a thing in a frame fades at its edge. */
const SIDE_INSET = 1 / 128;

/** Of the pixels along each side those that are at least half opaque. */
function sideShares(alpha: Uint8Array, { width, height }: Size): readonly number[] {
  const shareOf = (start: number, step: number, length: number) => {
    let shown = 0;
    // Inside: alpha has width * height elements.
    for (let i = 0; i < length; i++) shown += alpha[start + i * step]! >>> 7;
    return shown / length;
  };
  const inset = (length: number) => Math.floor(length * SIDE_INSET);
  const [x, y] = [inset(width), inset(height)];
  return [
    shareOf(y * width, 1, width),
    shareOf((height - 1 - y) * width, 1, width),
    shareOf(x, width, height),
    shareOf(width - 1 - x, width, height),
  ];
}
