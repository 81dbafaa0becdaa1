/**
 * A look at a close-up in a frame. Models take what fills the picture for its ground; with a frame
 * around it they see a subject again, or take the whole picture for one. On the main thread.
 * docs/adr/0047.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { MatteRole } from '../models/prepared-model.ts';
import type { SizedAlpha } from './look-input.ts';
import { unsureShare } from './worth-running.ts';

/**
 * Judged by cross-validation, and surer than what that chooses (bench/quality-framed.ts,
 * bench/MEASUREMENTS.md).
 */
export const FRAMED_RULES = {
  /** Unsure share of the first look, from which on a further one is taken in a frame. */
  unsureShareMin: 0.3,
  /** If the framed look shows this share of one of the picture's sides, the subject is cut off. */
  cutOffShareMin: 0.05,
  /** If it shows this share of each of the four sides, it shows the picture itself. */
  sideShareMax: 0.2,
  /** Unsure share of the framed look, from which on it saw nothing clearly. */
  unsureShareMax: 0.6,
  /** A framed look that shows less than this share of what the first shows saw another subject. */
  keptShareMin: 0.95,
  /** The opinion may agree with the framed look by so much less than with the first look. */
  agreementLossMax: 0.05,
  /** From this agreement with the opinion on, two models see the same, whatever its sides say. */
  agreementMin: 0.8,
};

export type FramedRules = Readonly<Record<keyof typeof FRAMED_RULES, number>>;

/**
 * Only of a further look by the plan's first model: how others take a frame was not measured.
 * @param subject the matte of the plan's first subject, one byte a pixel.
 */
export function isWorthFraming(
  run: { readonly role: MatteRole; readonly model: string },
  firstModel: string | undefined,
  subject: Uint8Array,
  rules: FramedRules = FRAMED_RULES,
): boolean {
  const decides = run.role === 'secondLook' || run.role === 'subject';
  if (!decides || run.model !== firstModel) return false;
  return unsureShare(subject) >= rules.unsureShareMin;
}

export interface SizedMatte extends SizedAlpha {
  readonly role: MatteRole;
}

interface FramedSubject {
  readonly alpha: Buffer;
  readonly size: Size;
  readonly role: 'subject';
}

/**
 * The framed look as the subject: the first one is heard like a second. Undefined: it is not
 * believed.
 * @param framed what the framed look shows of the picture.
 */
export function withFramedLook<Matte extends SizedMatte>(
  mattes: readonly Matte[],
  framed: SizedAlpha & { readonly alpha: Buffer },
  rules: FramedRules = FRAMED_RULES,
): (Matte | FramedSubject)[] | undefined {
  if (!isBelieved(framed, mattes, rules)) return undefined;
  const { alpha, size } = framed;
  const [first, ...others] = mattes;
  const heard = first === undefined ? [] : [{ ...first, role: 'secondLook' as const }];
  return [{ alpha, size, role: 'subject' }, ...heard, ...others];
}

/**
 * Not what shows nothing clearly, what contradicts the first look, or what shows the picture
 * itself or is not cut off, unless the opinion sees it too.
 * @param mattes of the picture without a frame, the first look first.
 */
function isBelieved(
  framed: SizedAlpha,
  [first, ...others]: readonly SizedMatte[],
  rules: FramedRules,
): boolean {
  if (unsureShare(framed.alpha) >= rules.unsureShareMax) return false;
  if (first !== undefined && keptShare(framed, first) < rules.keptShareMin) return false;
  const opinion = others.find(({ role }) => role === 'opinion');
  if (first !== undefined && opinion !== undefined) {
    const agreement = agreementOf(framed, opinion);
    if (agreement < agreementOf(first, opinion) - rules.agreementLossMax) return false;
    if (agreement >= rules.agreementMin) return true;
  }
  const sides = sideShares(framed);
  if (Math.max(...sides) < rules.cutOffShareMin) return false;
  return Math.min(...sides) < rules.sideShareMax;
}

/** Gives the share of what `other` shows that `own` shows too. */
export function keptShare(own: SizedAlpha, other: SizedAlpha): number {
  const { both, others } = countShown(own, other);
  return others === 0 ? 1 : both / others;
}

/** Divides what both show by what either shows; 0 if neither shows anything. */
function agreementOf(own: SizedAlpha, other: SizedAlpha): number {
  const { both, owns, others } = countShown(own, other);
  return both === 0 ? 0 : both / (owns + others - both);
}

/** The look reads a point in so many pixels each way: shares of areas need no more. */
const GRID_STEP = 2;

/** Points of one grid over the picture at which both, and each, are at least half opaque. */
function countShown(own: SizedAlpha, other: SizedAlpha) {
  const { width, height } = own.size;
  const [columns, rows] = [other.size.width / width, other.size.height / height];
  let [both, owns, others] = [0, 0, 0];
  for (let y = 0; y < height; y += GRID_STEP) {
    const row = y * width;
    const otherRow = Math.floor((y + 0.5) * rows) * other.size.width;
    for (let x = 0; x < width; x += GRID_STEP) {
      // Inside: both have width * height elements, and a column's middle is below the width.
      const isOwn = own.alpha[row + x]! >>> 7;
      const isOther = other.alpha[otherRow + Math.floor((x + 0.5) * columns)]! >>> 7;
      owns += isOwn;
      others += isOther;
      both += isOwn & isOther;
    }
  }
  return { both, owns, others };
}

/** The look reads so far from a side, relative to the length across: a framed matte fades there. */
const SIDE_INSET = 1 / 128;

/**
 * Gives the share of the pixels along the upper, lower, left and right side that are at least half
 * opaque.
 */
export function sideShares({ alpha, size: { width, height } }: SizedAlpha) {
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
  ] as const;
}
