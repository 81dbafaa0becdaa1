/**
 * Further runs of a plan's models on a picture of which they are unsure, with other inputs made of
 * it (docs/adr/0064).
 */
import type { ExtraInput, ExtraRun, MatteRole } from '../models/prepared-model.ts';
import { FRAMED_RULES, sideShares } from './framed-run.ts';
import type { OfSides, RunInput, SizedAlpha } from './run-input.ts';
import { unsureShare } from './unsure-share.ts';

export const EXTRA_RUNS_MAX = 3;

/** How far edges are continued, relative to the picture's length. */
const EDGES_BEYOND = 0.12;

/** larger: the picture itself at a larger size. */
export const EXTRA_RUN_KINDS = ['mirrored', 'edges', 'larger'] as const;
export type ExtraRunKind = (typeof EXTRA_RUN_KINDS)[number];

export interface Choice {
  /** Indexes of mattes, a subject first. */
  readonly mattes: readonly { readonly at: number; readonly role: MatteRole }[];
  readonly settled: boolean;
}

interface PlanModel {
  readonly extraRuns?: readonly ExtraRun[] | undefined;
}

/**
 * Gives the further runs that a picture may take, the last model's first.
 * @param mattes of the plan's own runs, in order
 */
export function extraRunsOf<Entry extends PlanModel>(
  plan: readonly Entry[],
  mattes: readonly SizedAlpha[],
) {
  const [first] = mattes;
  if (first === undefined) return [];
  const share = unsureShare(first.alpha);
  return plan
    .toReversed()
    .flatMap(entry => (entry.extraRuns ?? []).map(extra => ({ entry, ...extra })))
    .filter(({ unsureFrom }) => share >= unsureFrom)
    .flatMap(({ entry, input: kind }) => {
      const input = inputOf(kind, mattes);
      return input === undefined ? [] : [{ entry, kind, input }];
    });
}

/** Undefined: there is no side to continue. */
function inputOf(kind: ExtraInput, mattes: readonly SizedAlpha[]): RunInput | undefined {
  if (kind === 'mirrored') return { kind };
  const shares = mattes.map(sideShares);
  const far = (side: 0 | 1 | 2 | 3) => {
    const isMet = shares.some(share => share[side] >= FRAMED_RULES.cutOffShareMin);
    return isMet ? EDGES_BEYOND : 0;
  };
  const beyond: OfSides<number> = [far(0), far(1), far(2), far(3)];
  return beyond.some(far => far > 0) ? { kind, beyond } : undefined;
}

/** Difference of two subjects, relative to their mean alpha. */
const DISPUTED_FROM = 0.3;
const COMPARED = 128;

export function isDisputed([first, second]: readonly SizedAlpha[]): boolean {
  if (first === undefined || second === undefined) return false;
  let [apart, sum] = [0, 0];
  for (let cell = 0; cell < COMPARED ** 2; cell++) {
    const [one, other] = [alphaIn(first, cell), alphaIn(second, cell)];
    apart += Math.abs(one - other);
    sum += one + other;
  }
  return 2 * apart >= DISPUTED_FROM * sum && sum > 0;
}

function alphaIn({ alpha, size: { width, height } }: SizedAlpha, cell: number): number {
  const row = Math.floor((((cell / COMPARED) | 0) * height) / COMPARED);
  const column = Math.floor(((cell % COMPARED) * width) / COMPARED);
  return alpha[row * width + column]!;
}

/** The surer of two mattes becomes the subject. An empty matte is never sure. */
export function ledBySurer<Matte extends SizedAlpha & { readonly role: MatteRole }>(
  [first, ...others]: readonly Matte[],
  matte: Matte,
): Matte[] {
  if (first === undefined) return [matte];
  const isSurer =
    matte.alpha.some(value => value >= 128) && unsureShare(matte.alpha) < unsureShare(first.alpha);
  return [isSurer ? { ...matte, role: 'subject' } : first, ...others];
}
