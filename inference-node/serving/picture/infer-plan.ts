/**
 * Which models of a plan look at a picture, in which order, and which of their mattes count. Knows
 * no engine and no codec: whoever has mattes, of engines or recorded ones, decides by this. On the
 * main thread.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { MatteRole } from '../models/prepared-model.ts';
import { FRAMED_RULES, isWorthFraming, withFramedLook } from './framed-look.ts';
import { isWorthRunning, UNSURE_SHARE_MIN } from './worth-running.ts';

/** A model of a plan. */
interface Run {
  readonly model: { readonly model: string };
  readonly role: MatteRole;
}

/** A run of a plan's model about the picture, or about the picture in a frame. */
export interface Look<Running extends Run> {
  readonly run: Running;
  readonly framed: boolean;
}

/** The plane has one byte a pixel, rows first. */
interface Matte {
  readonly alpha: Buffer;
  readonly size: Size;
}

type RoleMatte = Matte & { readonly role: MatteRole };

/** missing: the model has no engine that works. unneeded: it refines, and nothing is unsure. */
export type NoLook = 'missing' | 'unneeded';

/** The constants that decide; a search for better ones gives its own. */
export const LOOK_RULES = { unsureShareMin: UNSURE_SHARE_MIN, framed: FRAMED_RULES };

export type LookRules = {
  readonly [Part in keyof typeof LOOK_RULES]: Readonly<
    Record<keyof (typeof LOOK_RULES)[Part], number>
  >;
};

/**
 * Takes the looks of a plan one after the other: all but subjects only where the first matte is
 * unsure.
 * @param take takes a look; `mattes` are those before it.
 */
export async function inferPlan<Running extends Run>(
  plan: readonly Running[],
  take: (look: Look<Running>, mattes: readonly RoleMatte[]) => Promise<Matte | NoLook>,
  rules: LookRules = LOOK_RULES,
) {
  let mattes: RoleMatte[] = [];
  const runs: Running[] = [];
  const missing: Running[] = [];
  for (const run of plan) {
    const first = mattes[0]?.alpha;
    if (first && !isWorthRunning(run.role, first, rules.unsureShareMin)) continue;
    for (const framed of looksOf(run, plan, first, rules)) {
      const answer = await take({ run, framed }, mattes);
      if (answer === 'missing') missing.push(run);
      if (answer === 'missing' || answer === 'unneeded') break;
      const { alpha, size } = answer;
      const joined = framed
        ? withFramedLook(mattes, answer, rules.framed)
        : [...mattes, { alpha, size, role: run.role }];
      // The framed look is not believed: the next one shows the picture as it is.
      if (joined === undefined) continue;
      mattes = joined;
      runs.push(run);
      break;
    }
  }
  return { mattes, runs, missing };
}

/**
 * Tells whether each look is framed, in their order; a later one counts if none before is believed.
 */
function looksOf(
  { role, model: { model } }: Run,
  plan: readonly Run[],
  first: Uint8Array | undefined,
  rules: LookRules,
) {
  const firstModel = plan[0]?.model.model;
  const isFramed = first && isWorthFraming({ role, model }, firstModel, first, rules.framed);
  return isFramed ? [true, false] : [false];
}
