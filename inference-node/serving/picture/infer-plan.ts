/**
 * Which models of a plan look at a picture, in which order, and which of their mattes count. Knows
 * no engine and no codec: whoever has mattes, of engines or recorded ones, decides by this. On the
 * main thread.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { MatteRole } from '../models/prepared-model.ts';
import { FRAMED_RULES, isWorthFraming, withFramedLook } from './framed-look.ts';
import { seenTwice } from './seen-twice.ts';
import { isWorthRunning, UNSURE_SHARE_MIN } from './worth-running.ts';
import { isCloserBelieved, partAround, ZOOM_RULES } from './zoomed-look.ts';

/** A model of a plan. */
interface Run {
  readonly model: { readonly model: string };
  readonly role: MatteRole;
}

/** What a plan's looks are taken of. */
export interface Sight {
  readonly picture: Size;
  /** A part in the picture's pixels, as the picture of all looks; undefined: all of it. */
  readonly part?: Box | undefined;
}

/** A run of a plan's model about the picture or a part of it, perhaps in a frame. */
export interface Look<Running extends Run> {
  readonly run: Running;
  readonly framed: boolean;
  readonly part: Box | undefined;
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
export const LOOK_RULES = {
  unsureShareMin: UNSURE_SHARE_MIN,
  framed: FRAMED_RULES,
  zoomed: ZOOM_RULES,
};

export type LookRules = {
  readonly [Part in keyof typeof LOOK_RULES]: Readonly<
    Record<keyof (typeof LOOK_RULES)[Part], number>
  >;
};

type Take<Running extends Run> = (
  look: Look<Running>,
  mattes: readonly RoleMatte[],
) => Promise<Matte | NoLook>;

/**
 * Takes the looks of a plan one after the other: all but subjects only where the first matte is
 * unsure. If the first shows a small subject, the part around it is the picture of all others.
 * @param take takes a look; `mattes` are those before it, of the same part.
 * @returns the mattes that count, and the part of the picture that they show.
 */
export async function inferPlan<Running extends Run>(
  plan: readonly Running[],
  { picture, part: given }: Sight,
  take: Take<Running>,
  rules: LookRules = LOOK_RULES,
) {
  let mattes: RoleMatte[] = [];
  let part = given;
  const runs: Running[] = [];
  const missing: Running[] = [];
  for (const run of plan) {
    const first = mattes[0]?.alpha;
    if (first && !isWorthRunning(run.role, first, rules.unsureShareMin)) continue;
    let isDoubted = false;
    for (const framed of looksOf(run, plan, first, rules)) {
      const answer = await take({ run, framed, part }, mattes);
      if (answer === 'missing') missing.push(run);
      if (answer === 'missing' || answer === 'unneeded') break;
      const { alpha, size } = answer;
      const joined = framed
        ? withFramedLook(mattes, answer, rules.framed)
        : [...mattes, { alpha, size, role: run.role }];
      // The framed look is not believed: the next one shows the picture as it is.
      if (joined === undefined) {
        isDoubted = true;
        continue;
      }
      mattes = isDoubted ? seenTwice(joined) : joined;
      runs.push(run);
      break;
    }
    const [whole] = mattes;
    if (first !== undefined || given !== undefined || whole === undefined) continue;
    const closer = await takeCloser(run, whole, picture, take, rules.zoomed);
    if (closer === undefined) continue;
    part = closer.part;
    mattes = [closer.matte];
  }
  return { mattes, part, runs, missing };
}

/** Undefined: the subject is not small, or the closer look is not believed. */
async function takeCloser<Running extends Run>(
  run: Running,
  first: RoleMatte,
  picture: Size,
  take: Take<Running>,
  rules: LookRules['zoomed'],
) {
  const part = partAround(first, picture, rules);
  if (part === undefined) return undefined;
  const answer = await take({ run, framed: false, part }, []);
  if (typeof answer === 'string') return undefined;
  if (!isCloserBelieved(answer, first, part, picture, rules)) return undefined;
  const { alpha, size } = answer;
  return { part, matte: { alpha, size, role: run.role } };
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
