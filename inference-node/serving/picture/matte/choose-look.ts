/**
 * Chooses the look that leads where a picture was looked at again. Each look loses another part of
 * a body: the one that is nearest to the others and surest replaces the subject; their mean would
 * not do. Pure. docs/adr/0064.
 */
import type { Choice } from '../extra-runs.ts';
import { FRAMED_RULES, sideShares } from '../framed-look.ts';
import { mergeMattes, type RoleMatte } from './merge-mattes.ts';
import { resample } from './resample.ts';

/** Chosen by cross-validation over composites (bench/MEASUREMENTS.md). */
const CHOICE_RULES = {
  /** A matte of at most this unsure share needs no further look. */
  sureUnsureMax: 0.1,
  /** A first further look that is so near to the matte says that what is half seen is so. */
  confirmedMax: 0.065,
  /** Weight of a look's unsure share beside its distance from the others. */
  unsureWeight: 1.8,
  /** A look is better by this much than the matte that it replaces. */
  gainMin: 0.35,
  /** A look that shows less than this of what the matte surely shows saw another subject. */
  shownAgainMin: 0.7,
  /** An opinion outvotes looks that are so far apart, if it is this sure and shows this of them. */
  apartMin: 0.16,
  opinionUnsureMax: 0.12,
  opinionShownMin: 0.9,
};

/** Looks are compared on a square grid. */
const GRID = { width: 256, height: 256 };
/** A cell is shown, half seen, unsure or surely shown from or between these (0 to 255). */
const SHOWN_ABOVE = 12;
const HALF_ABOVE = 38;
const HALF_BELOW = 217;
const UNSURE_ABOVE = 25;
const UNSURE_BELOW = 230;
const SURE_ABOVE = 199;
/** Keep logarithms of nothing finite, and differences of nearly nothing small. */
const DISTANCE_FLOOR = 0.03;
const UNSURE_FLOOR = 0.05;

/** What a matte shows on the grid. */
interface Cells {
  readonly alpha: Uint8Array;
  readonly sum: number;
  /** Of the cells that it shows. */
  readonly unsureShare: number;
}

interface Seen {
  /** Its place among the mattes. */
  readonly at: number;
  readonly role: RoleMatte['role'];
  readonly cells: Cells;
}

/**
 * @param mattes the looks of the plan, a subject first, then the further looks at the same picture
 * @param further how many of them are further ones
 * @param isLast no further look follows
 */
export function chooseLook(mattes: readonly RoleMatte[], further: number, isLast: boolean): Choice {
  const small = mattes.map(({ alpha: data, width, height, role }) => {
    return { alpha: resample({ data, width, height }, GRID), ...GRID, role };
  });
  const before = mattes.length - further;
  const merged = countCells(mergeMattes(small.slice(0, before), GRID));
  const all = small.map(({ alpha, role }, at) => ({ at, role, cells: countCells(alpha) }));
  const asBefore = all.slice(0, before).map(({ at, role }) => ({ at, role }));
  if (isSure(merged) || further === 0) return { mattes: asBefore, settled: isSure(merged) };
  // The looks are in their order, so the only further one is the last.
  const isConfirmed =
    further === 1 && distance(all.at(-1)!.cells, merged) <= CHOICE_RULES.confirmedMax;
  if (isConfirmed) return { mattes: asBefore, settled: true };
  const looks = all.filter(({ role }) => role !== 'opinion');
  const opinion = all.find(({ role }) => role === 'opinion');
  /** Those of the plan are heard beside a look that leads. */
  const heard = looks.filter(({ at }) => at < before);
  const leads = surest(looks, merged);
  if (leads !== undefined && isSure(leads.cells)) {
    return { mattes: ledBy(leads, heard, opinion), settled: true };
  }
  const isOutvoted =
    isLast &&
    opinion !== undefined &&
    outvotes(opinion.cells, looks) &&
    // One that shows the picture itself takes a pattern or a web for the subject.
    Math.min(...sideShares({ alpha: opinion.cells.alpha, size: GRID })) < FRAMED_RULES.sideShareMax;
  if (isOutvoted) return { mattes: ledBy(opinion, heard, undefined), settled: true };
  const chosen = leads === undefined ? asBefore : ledBy(leads, heard, opinion);
  return { mattes: chosen, settled: false };
}

function isSure({ unsureShare }: Cells): boolean {
  return unsureShare <= CHOICE_RULES.sureUnsureMax;
}

/** A first look leads by itself: what was heard beside it made it worse. */
function ledBy(leads: Seen, heard: readonly Seen[], opinion: Seen | undefined): Choice['mattes'] {
  const others = leads.at === 0 ? [] : heard.filter(({ at }) => at !== leads.at);
  return [
    { at: leads.at, role: 'subject' },
    ...others.map(({ at }) => ({ at, role: 'secondLook' as const })),
    ...(opinion === undefined ? [] : [{ at: opinion.at, role: opinion.role }]),
  ];
}

/** The look that is better than what is merged, by its distances and its sureness. */
function surest(looks: readonly Seen[], merged: Cells): Seen | undefined {
  const costOf = (cells: Cells) => {
    const others = looks.filter(look => look.cells !== cells);
    const logs = others.map(one => Math.log(distance(cells, one.cells) + DISTANCE_FLOOR));
    const near = logs.reduce((sum, log) => sum + log, 0) / logs.length;
    return near + CHOICE_RULES.unsureWeight * Math.log(cells.unsureShare + UNSURE_FLOOR);
  };
  const limit = costOf(merged) - CHOICE_RULES.gainMin;
  const [best] = looks
    .map(look => ({ look, cost: costOf(look.cells) }))
    .filter(({ look: { cells }, cost }) => cost < limit && isBelieved(cells, looks, merged))
    .toSorted((one, other) => one.cost - other.cost);
  return best?.look;
}

/**
 * Where a look decides what is half seen, the others must be as sure at least as often as they half
 * see it: else it may be glass or smoke.
 */
function isBelieved(own: Cells, looks: readonly Seen[], merged: Cells): boolean {
  if (sureShownShare(merged, own) < CHOICE_RULES.shownAgainMin) return false;
  const others = looks.filter(({ cells }) => cells !== own);
  let backed = 0;
  for (let i = 0; i < merged.alpha.length; i++) {
    // All have the cells of the grid.
    const value = own.alpha[i]!;
    if (!isHalf(merged.alpha[i]!) || isHalf(value)) continue;
    for (const { cells } of others) {
      const other = cells.alpha[i]!;
      if (isHalf(other)) backed -= 1;
      else if (other > HALF_ABOVE === value > HALF_ABOVE) backed += 1;
    }
  }
  return backed >= 0;
}

function isHalf(value: number): boolean {
  return value > HALF_ABOVE && value < HALF_BELOW;
}

function outvotes(opinion: Cells, looks: readonly Seen[]): boolean {
  const { apartMin, opinionUnsureMax, opinionShownMin } = CHOICE_RULES;
  if (opinion.unsureShare > opinionUnsureMax || opinion.sum === 0) return false;
  const distances = looks
    .flatMap((one, at) => looks.slice(at + 1).map(other => distance(one.cells, other.cells)))
    .toSorted((one, other) => one - other);
  const shown = looks.reduce((sum, { cells }) => sum + sureShownShare(cells, opinion), 0);
  const isApart = distances[distances.length >> 1]! >= apartMin;
  return isApart && shown / looks.length >= opinionShownMin;
}

function countCells(alpha: Uint8Array): Cells {
  let [sum, shown, unsure] = [0, 0, 0];
  for (const value of alpha) {
    sum += value;
    if (value > SHOWN_ABOVE) shown += 1;
    if (value > UNSURE_ABOVE && value < UNSURE_BELOW) unsure += 1;
  }
  return { alpha, sum, unsureShare: unsure / Math.max(1, shown) };
}

/** What two looks show differently, relative to the mean of what they show: 0 to 2. */
function distance(one: Cells, other: Cells): number {
  let apart = 0;
  for (let i = 0; i < one.alpha.length; i++) apart += Math.abs(one.alpha[i]! - other.alpha[i]!);
  return (2 * apart) / Math.max(1, one.sum + other.sum);
}

/** Share of what `own` surely shows that `other` shows too. */
function sureShownShare(own: Cells, other: Cells): number {
  let [sure, both] = [0, 0];
  for (let i = 0; i < own.alpha.length; i++) {
    if (own.alpha[i]! <= SURE_ABOVE) continue;
    sure += 1;
    if (other.alpha[i]! > 127) both += 1;
  }
  return sure === 0 ? 0 : both / sure;
}
