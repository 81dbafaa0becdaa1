/**
 * A run with a frame around a close-up (docs/adr/0047). Models take a subject that fills the
 * picture for the background; in a frame they recognise it again, or take the whole picture for it.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { MatteRole } from '../models/prepared-model.ts';
import type { SizedAlpha } from './run-input.ts';
import { unsureShare } from './unsure-share.ts';

/** Stricter than cross-validation chose (bench/MEASUREMENTS.md). */
export const FRAMED_RULES = {
  /** From this unsure share of the first matte on, a run gets a frame. */
  unsureShareMin: 0.3,
  /** The border cuts the subject off if the framed matte shows this share of a side. */
  cutOffShareMin: 0.05,
  /** The framed matte shows the picture itself if it shows this share of every side. */
  sideShareMax: 0.2,
  /** From this unsure share on the framed matte shows nothing clearly. */
  unsureShareMax: 0.6,
  /** If the framed matte keeps less than this share of the first, it shows another subject. */
  keptShareMin: 0.95,
  /** Most agreement with the opinion that the framed matte may lose against the first. */
  agreementLossMax: 0.05,
  /** From this agreement with the opinion on, the matte is believed, whatever its sides show. */
  agreementMin: 0.8,
};

export type FramedRules = Readonly<Record<keyof typeof FRAMED_RULES, number>>;

/**
 * Only for the plan's first model: others were not measured with a frame.
 * @param subject the matte of the plan's first subject, one byte a pixel
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
 * Makes the framed matte the subject, and the first one a second look. Undefined: it is not
 * believed.
 * @param framed cut to the picture itself
 */
export function withFramedRun<Matte extends SizedMatte>(
  mattes: readonly Matte[],
  framed: SizedAlpha & { readonly alpha: Buffer },
  rules: FramedRules = FRAMED_RULES,
): (Matte | FramedSubject)[] | undefined {
  if (!isBelieved(framed, mattes, rules)) return undefined;
  const { alpha, size } = framed;
  const [first, ...others] = mattes;
  const second = first === undefined ? [] : [{ ...first, role: 'secondLook' as const }];
  return [{ alpha, size, role: 'subject' }, ...second, ...others];
}

/** @param mattes of the picture without a frame, the first run's first */
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

/** Share of the shown pixels of `other` that `own` shows too. */
export function keptShare(own: SizedAlpha, other: SizedAlpha): number {
  const { both, others } = countShown(own, other);
  return others === 0 ? 1 : both / others;
}

/** Intersection over union; 0 if neither shows anything. */
function agreementOf(own: SizedAlpha, other: SizedAlpha): number {
  const { both, owns, others } = countShown(own, other);
  return both === 0 ? 0 : both / (owns + others - both);
}

/** Every second pixel each way is enough for shares of areas. */
const GRID_STEP = 2;

function countShown(own: SizedAlpha, other: SizedAlpha) {
  const { width, height } = own.size;
  const [columns, rows] = [other.size.width / width, other.size.height / height];
  let [both, owns, others] = [0, 0, 0];
  for (let y = 0; y < height; y += GRID_STEP) {
    const row = y * width;
    const otherRow = Math.floor((y + 0.5) * rows) * other.size.width;
    for (let x = 0; x < width; x += GRID_STEP) {
      const isOwn = own.alpha[row + x]! >>> 7;
      const isOther = other.alpha[otherRow + Math.floor((x + 0.5) * columns)]! >>> 7;
      owns += isOwn;
      others += isOther;
      both += isOwn & isOther;
    }
  }
  return { both, owns, others };
}

/** Depth at which sides are read, relative to the length across: a framed matte fades there. */
const SIDE_INSET = 1 / 128;

/** Shares of the upper, lower, left and right side that are at least half opaque. */
export function sideShares({ alpha, size: { width, height } }: SizedAlpha) {
  const shareOf = (start: number, step: number, length: number) => {
    let shown = 0;
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
