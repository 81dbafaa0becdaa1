/**
 * Further runs of a plan's models at a picture of which they are unsure, at other inputs made of it.
 * matte/choose-look.ts chooses the look that leads. On the main thread. docs/adr/0064.
 */
import type { ExtraInput, ExtraRun, MatteRole } from '../models/prepared-model.ts';
import { FRAMED_RULES, sideShares } from './framed-look.ts';
import type { LookInput, OfSides, SizedAlpha } from './look-input.ts';
import { unsureShare } from './worth-running.ts';

/** A picture takes so many at most, of all its models and parts. */
export const EXTRA_RUNS_MAX = 3;

/** How far the edges continue, relative to the picture's own length. */
const EDGES_BEYOND = 0.12;

/** What a further run saw: an input of its plan, or the picture as it is at a larger size. */
export const EXTRA_RUN_KINDS = ['mirrored', 'edges', 'larger'] as const;
export type ExtraRunKind = (typeof EXTRA_RUN_KINDS)[number];

export interface Choice {
  /** Those that count, by their places among the mattes; the first leads. */
  readonly mattes: readonly { readonly at: number; readonly role: MatteRole }[];
  /** No further run is worth it. */
  readonly settled: boolean;
}

interface Run {
  readonly extraRuns?: readonly ExtraRun[] | undefined;
}

/**
 * Gives the further runs that a picture may take, those of the plan's last model first.
 * @param mattes what the plan's looks show, the first look first
 */
export function extraRunsOf<Running extends Run>(
  plan: readonly Running[],
  mattes: readonly SizedAlpha[],
) {
  const [first] = mattes;
  if (first === undefined) return [];
  const share = unsureShare(first.alpha);
  return plan
    .toReversed()
    .flatMap(run => (run.extraRuns ?? []).map(extra => ({ run, ...extra })))
    .filter(({ unsureFrom }) => share >= unsureFrom)
    .flatMap(({ run, input: kind }) => {
      const input = inputOf(kind, mattes);
      return input === undefined ? [] : [{ run, kind, input }];
    });
}

/** Undefined: there is no side to continue. */
function inputOf(kind: ExtraInput, mattes: readonly SizedAlpha[]): LookInput | undefined {
  if (kind === 'mirrored') return { kind };
  const shares = mattes.map(sideShares);
  // One look is enough: the subject goes on beyond that side.
  const far = (side: 0 | 1 | 2 | 3) => {
    const isMet = shares.some(share => share[side] >= FRAMED_RULES.cutOffShareMin);
    return isMet ? EDGES_BEYOND : 0;
  };
  const beyond: OfSides<number> = [far(0), far(1), far(2), far(3)];
  return beyond.some(far => far > 0) ? { kind, beyond } : undefined;
}

/** Looks that show so much differently, of the mean of what they show, saw different subjects. */
const DISPUTED_FROM = 0.3;
/** Places along each side at which looks of different sizes are compared. */
const COMPARED = 128;

/** Tells whether the first two looks at a picture saw different subjects. */
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
  // A place in the matte.
  return alpha[row * width + column]!;
}

/** The surer of two looks is the subject. What shows nothing is not sure of anything. */
export function ledBySurer<Matte extends SizedAlpha & { readonly role: MatteRole }>(
  [first, ...others]: readonly Matte[],
  look: Matte,
): Matte[] {
  if (first === undefined) return [look];
  const isSurer =
    look.alpha.some(value => value >= 128) && unsureShare(look.alpha) < unsureShare(first.alpha);
  return [isSurer ? { ...look, role: 'subject' } : first, ...others];
}
