/**
 * Chooses the matte that leads after further runs (docs/adr/0064). Each run loses another part of a
 * body: the matte nearest to the others and surest replaces the subject; a mean would keep all
 * losses.
 */
import type { Choice } from '../extra-runs.ts';
import { FRAMED_RULES, sideShares } from '../framed-run.ts';
import { mergeMattes, type RoleMatte } from './merge-mattes.ts';
import { resample } from './resample.ts';

/** Chosen by cross-validation over composites (bench/MEASUREMENTS.md). */
const CHOICE_RULES = {
  /** Unsure share up to which a matte needs no further run. */
  sureUnsureMax: 0.1,
  /** If mattes of different runs are this near, half shown areas are half transparent. */
  confirmedMax: 0.065,
  /** Weight of a matte's unsure share, relative to its distance from the others. */
  unsureWeight: 1.8,
  /** Least gain over the replaced matte. */
  gainMin: 0.35,
  /** A matte that keeps a smaller share of the surely shown cells shows another subject. */
  shownAgainMin: 0.7,
  /** If the mattes are this far apart, a sure opinion that shows most of each outvotes them. */
  apartMin: 0.16,
  /** From this unsure share on, a sure opinion that shows most of a matte outvotes it. */
  outvotedUnsureMin: 0.4,
  opinionUnsureMax: 0.12,
  opinionShownMin: 0.9,
};

const GRID = { width: 256, height: 256 };
/** Bounds (0 to 255) of shown, half shown, unsure and surely shown cells. */
const SHOWN_ABOVE = 12;
const HALF_ABOVE = 38;
const HALF_BELOW = 217;
const UNSURE_ABOVE = 25;
const UNSURE_BELOW = 230;
const SURE_ABOVE = 199;
/** Keep logarithms finite, and small differences small. */
const DISTANCE_FLOOR = 0.03;
const UNSURE_FLOOR = 0.05;

interface Cells {
  readonly alpha: Uint8Array;
  readonly sum: number;
  readonly unsureShare: number;
}

interface Candidate {
  readonly at: number;
  readonly role: RoleMatte['role'];
  readonly cells: Cells;
}

/**
 * @param mattes of the plan's own runs, a subject first, then of further runs
 * @param further number of further runs
 * @param isLast no further run follows
 */
export function chooseMattes(
  mattes: readonly RoleMatte[],
  further: number,
  isLast: boolean,
): Choice {
  const small = mattes.map(({ alpha: data, width, height, role }) => {
    return { alpha: resample({ data, width, height }, GRID), ...GRID, role };
  });
  const before = mattes.length - further;
  const merged = countCells(mergeMattes(small.slice(0, before), GRID));
  const all = small.map(({ alpha, role }, at) => ({ at, role, cells: countCells(alpha) }));
  const asBefore = all.slice(0, before).map(({ at, role }) => ({ at, role }));
  const candidates = all.filter(({ role }) => role !== 'opinion');
  const opinion = all.find(({ role }) => role === 'opinion');
  const own = candidates.filter(({ at }) => at < before);
  if (further === 0) return { mattes: asBefore, settled: isSure(merged) || agree(own) };
  const isConfirmed =
    further === 1 && distance(all.at(-1)!.cells, merged) <= CHOICE_RULES.confirmedMax;
  if (isSure(merged) || isConfirmed) return { mattes: asBefore, settled: true };
  const leads = surest(candidates, merged);
  if (leads !== undefined && isSure(leads.cells)) {
    return { mattes: ledBy(leads, own, opinion), settled: true };
  }
  const isOutvoted =
    isLast &&
    opinion !== undefined &&
    outvotes(opinion.cells, leads?.cells ?? merged, candidates) &&
    // An opinion that shows the picture itself takes a pattern or a web for the subject.
    Math.min(...sideShares({ alpha: opinion.cells.alpha, size: GRID })) < FRAMED_RULES.sideShareMax;
  if (isOutvoted) return { mattes: ledBy(opinion, own, undefined), settled: true };
  const chosen = leads === undefined ? asBefore : ledBy(leads, own, opinion);
  return { mattes: chosen, settled: false };
}

function isSure({ unsureShare }: Cells): boolean {
  return unsureShare <= CHOICE_RULES.sureUnsureMax;
}

/** One matte has no other to agree with. */
function agree([first, ...others]: readonly Candidate[]): boolean {
  if (first === undefined || others.length === 0) return false;
  return others.every(({ cells }) => distance(cells, first.cells) <= CHOICE_RULES.confirmedMax);
}

/** Adds nothing to a first matte: other mattes only made it worse. */
function ledBy(
  leads: Candidate,
  own: readonly Candidate[],
  opinion: Candidate | undefined,
): Choice['mattes'] {
  const others = leads.at === 0 ? [] : own.filter(({ at }) => at !== leads.at);
  return [
    { at: leads.at, role: 'subject' },
    ...others.map(({ at }) => ({ at, role: 'secondLook' as const })),
    ...(opinion === undefined ? [] : [{ at: opinion.at, role: opinion.role }]),
  ];
}

function surest(candidates: readonly Candidate[], merged: Cells): Candidate | undefined {
  const costOf = (cells: Cells) => {
    const others = candidates.filter(other => other.cells !== cells);
    const logs = others.map(one => Math.log(distance(cells, one.cells) + DISTANCE_FLOOR));
    const near = logs.reduce((sum, log) => sum + log, 0) / logs.length;
    return near + CHOICE_RULES.unsureWeight * Math.log(cells.unsureShare + UNSURE_FLOOR);
  };
  const limit = costOf(merged) - CHOICE_RULES.gainMin;
  const [best] = candidates
    .map(candidate => ({ candidate, cost: costOf(candidate.cells) }))
    .filter(
      ({ candidate: { cells }, cost }) => cost < limit && isBelieved(cells, candidates, merged),
    )
    .toSorted((one, other) => one.cost - other.cost);
  return best?.candidate;
}

/**
 * A matte may decide half shown cells if the other mattes decide most of them the same way.
 * Otherwise the cells may be glass or smoke.
 */
function isBelieved(own: Cells, candidates: readonly Candidate[], merged: Cells): boolean {
  if (sureShownShare(merged, own) < CHOICE_RULES.shownAgainMin) return false;
  const others = candidates.filter(({ cells }) => cells !== own);
  let backed = 0;
  for (let i = 0; i < merged.alpha.length; i++) {
    const value = own.alpha[i]!;
    if (!isHalf(merged.alpha[i]!) || isHalf(value)) continue;
    for (const { cells } of others) {
      const other = cells.alpha[i]!;
      const isAlike = !isHalf(other) && other > HALF_ABOVE === value > HALF_ABOVE;
      backed += isAlike ? 1 : -1;
    }
  }
  return backed >= 0;
}

function isHalf(value: number): boolean {
  return value > HALF_ABOVE && value < HALF_BELOW;
}

function outvotes(opinion: Cells, leading: Cells, candidates: readonly Candidate[]): boolean {
  const { apartMin, outvotedUnsureMin, opinionUnsureMax, opinionShownMin } = CHOICE_RULES;
  if (opinion.unsureShare > opinionUnsureMax || opinion.sum === 0) return false;
  const isWide = leading.unsureShare >= outvotedUnsureMin;
  if (isWide && sureShownShare(leading, opinion) >= opinionShownMin) return true;
  const distances = candidates
    .flatMap((one, at) => candidates.slice(at + 1).map(other => distance(one.cells, other.cells)))
    .toSorted((one, other) => one - other);
  const shown = candidates.reduce((sum, { cells }) => sum + sureShownShare(cells, opinion), 0);
  const isApart = distances[distances.length >> 1]! >= apartMin;
  return isApart && shown / candidates.length >= opinionShownMin;
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

/** Relative to the mean alpha of both: 0 to 2. */
function distance(one: Cells, other: Cells): number {
  let apart = 0;
  for (let i = 0; i < one.alpha.length; i++) apart += Math.abs(one.alpha[i]! - other.alpha[i]!);
  return (2 * apart) / Math.max(1, one.sum + other.sum);
}

/** Share of the surely shown cells of `own` that `other` shows too. */
function sureShownShare(own: Cells, other: Cells): number {
  let [sure, both] = [0, 0];
  for (let i = 0; i < own.alpha.length; i++) {
    if (own.alpha[i]! <= SURE_ABOVE) continue;
    sure += 1;
    if (other.alpha[i]! > 127) both += 1;
  }
  return sure === 0 ? 0 : both / sure;
}
