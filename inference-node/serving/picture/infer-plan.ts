/**
 * Which models of a plan look at a picture, in which order, and which of their mattes count. Knows
 * no engine and no codec: whoever has mattes, of engines or recorded ones, decides by this. On the
 * main thread.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { ExtraRun, MatteRole } from '../models/prepared-model.ts';
import {
  type Choice,
  EXTRA_RUNS_MAX,
  type ExtraRunKind,
  extraRunsOf,
  isDisputed,
  ledBySurer,
} from './extra-runs.ts';
import { FRAMED_RULES, isWorthFraming, withFramedLook } from './framed-look.ts';
import { type LookInput, ofPicture } from './look-input.ts';
import { seenTwice } from './seen-twice.ts';
import { isWorthRunning, UNSURE_SHARE_MIN } from './worth-running.ts';
import { isCloserBelieved, partsAround, ZOOM_RULES } from './zoomed-look.ts';

/** A model of a plan. */
interface Run {
  readonly model: { readonly model: string };
  readonly role: MatteRole;
  readonly extraRuns?: readonly ExtraRun[] | undefined;
}

/** The picture, or part of it, that the models of a plan see. */
export interface Sight {
  readonly picture: Size;
  /** A part in the picture's pixels, as the picture of all looks; undefined: all of it. */
  readonly part?: Box | undefined;
}

/** A run of a plan's model about the picture or a part of it. */
export interface Look<Running extends Run> {
  readonly run: Running;
  /** Undefined: the picture as it is. */
  readonly input?: LookInput | undefined;
  /** The image goes on without such a run. */
  readonly stage?: 'extra_run' | 'crop_run';
  readonly part: Box | undefined;
}

/** The plane has one byte a pixel, rows first. */
interface Matte {
  readonly alpha: Buffer;
  readonly size: Size;
}

type RoleMatte = Matte & { readonly role: MatteRole };

/** Mattes of one part of the picture, or of all of it. */
interface View {
  readonly part: Box | undefined;
  readonly mattes: readonly RoleMatte[];
}

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

export type Choose = (
  mattes: readonly RoleMatte[],
  further: number,
  isLast: boolean,
) => Choice | Promise<Choice>;

type Take<Running extends Run> = (
  look: Look<Running>,
  mattes: readonly RoleMatte[],
) => Promise<Matte | NoLook>;

/**
 * Takes the looks of a plan one after the other: all but subjects only where the first matte is
 * unsure. If the first shows small subjects, the parts around them are the pictures of all others.
 * @param take takes a look; `mattes` are those before it, of the same part.
 * @param choose chooses among the looks at one part; the last `further` of them are further ones.
 * @returns the mattes that count, each with the part of the picture that it shows, and whether the
 *   looks at an unsure picture saw different subjects. Mattes of a part come after those of the
 *   whole picture, and replace what these show of it.
 */
export async function inferPlan<Running extends Run>(
  plan: readonly Running[],
  { picture, part }: Sight,
  take: Take<Running>,
  choose: Choose,
  rules: LookRules = LOOK_RULES,
) {
  const runs = new Set<Running>();
  const missing = new Set<Running>();
  const extra = new ExtraRuns(plan, take, choose);
  const seeWith = async (run: Running, { part, mattes }: View): Promise<View> => {
    const first = mattes[0]?.alpha;
    if (first && !isWorthRunning(run.role, first, rules.unsureShareMin)) return { part, mattes };
    let isDoubted = false;
    for (const input of looksOf(run, plan, first, rules)) {
      const answer = await take({ run, input, part }, mattes);
      if (answer === 'missing') missing.add(run);
      if (answer === 'missing' || answer === 'unneeded') break;
      const { alpha, size } = ofPicture(answer, input);
      const look = { alpha, size, role: run.role };
      const joined = input ? withFramedLook(mattes, look, rules.framed) : joinLook(mattes, look);
      // The framed look is not believed: the next one shows the picture as it is.
      if (joined === undefined) {
        isDoubted = true;
        continue;
      }
      runs.add(run);
      if (run.role === 'surerLook') {
        extra.taken.push('larger');
        extra.compare([...mattes, look]);
      }
      return { part, mattes: isDoubted ? seenTwice(joined) : joined };
    }
    return { part, mattes };
  };
  const seeMore = async (all: readonly View[]) => {
    const seen: View[] = [];
    for (const view of all) seen.push(await extra.lookAt(view));
    for (const run of extra.missing) missing.add(run);
    return seen;
  };
  let views: readonly View[] = [{ part, mattes: [] }];
  for (const run of plan) {
    if (run.role === 'refine') views = await seeMore(views);
    const isFirst = views[0]?.mattes.length === 0;
    const seen: View[] = [];
    for (const view of views) seen.push(await seeWith(run, view));
    views = seen;
    const whole = views[0]?.mattes[0];
    if (!isFirst || part !== undefined || whole === undefined) continue;
    views = await lookCloser(run, whole, picture, take, rules.zoomed);
  }
  if (plan.at(-1)?.role !== 'refine') views = await seeMore(views);
  const mattes = views.flatMap(({ part, mattes }) => mattes.map(matte => ({ ...matte, part })));
  const { taken: extraRuns, isDisputed } = extra;
  return { mattes, runs: [...runs], missing: [...missing], extraRuns, isDisputed };
}

/** The whole picture is left out where a closer look at each part of it is believed. */
async function lookCloser<Running extends Run>(
  run: Running,
  first: RoleMatte,
  picture: Size,
  take: Take<Running>,
  rules: LookRules['zoomed'],
): Promise<View[]> {
  const parts = partsAround(first, picture, rules);
  const views: View[] = [];
  for (const part of parts) {
    const answer = await take({ run, part }, []);
    if (typeof answer === 'string') continue;
    if (!isCloserBelieved(answer, first, part, picture, rules)) continue;
    const { alpha, size } = answer;
    views.push({ part, mattes: [{ alpha, size, role: run.role }] });
  }
  const isAll = parts.length > 0 && views.length === parts.length;
  return isAll ? views : [{ part: undefined, mattes: [first] }, ...views];
}

/** The inputs of a model's looks in their order; a later one counts if none before is believed. */
function looksOf(
  { role, model: { model } }: Run,
  plan: readonly Run[],
  first: Uint8Array | undefined,
  rules: LookRules,
): readonly (LookInput | undefined)[] {
  const firstModel = plan[0]?.model.model;
  const isFramed = first && isWorthFraming({ role, model }, firstModel, first, rules.framed);
  return isFramed ? [{ kind: 'framed' }, undefined] : [undefined];
}

function joinLook(mattes: readonly RoleMatte[], look: RoleMatte): readonly RoleMatte[] {
  return look.role === 'surerLook' ? ledBySurer(mattes, look) : [...mattes, look];
}

/** The further runs of a plan at one picture. */
class ExtraRuns<Running extends Run> {
  readonly #plan: readonly Running[];
  readonly #take: Take<Running>;
  readonly #choose: Choose;
  readonly taken: ExtraRunKind[] = [];
  readonly missing: Running[] = [];
  /** The plan's own looks at an unsure picture saw different subjects. */
  isDisputed = false;

  constructor(plan: readonly Running[], take: Take<Running>, choose: Choose) {
    this.#plan = plan;
    this.#take = take;
    this.#choose = choose;
  }

  compare(looks: readonly RoleMatte[]): void {
    this.isDisputed ||= isDisputed(looks.filter(({ role }) => role !== 'opinion'));
  }

  /** Takes one after the other until the looks settle what the subject is. */
  async lookAt({ part, mattes }: View): Promise<View> {
    const next = extraRunsOf(this.#plan, mattes).slice(0, EXTRA_RUNS_MAX - this.taken.length);
    if (next.length === 0) return { part, mattes };
    const all = [...mattes];
    let choice = await this.#choose(all, 0, false);
    for (const [index, { run, kind, input }] of next.entries()) {
      if (choice.settled) break;
      const answer = await this.#take({ run, input, part, stage: 'extra_run' }, mattes);
      if (answer === 'missing') this.missing.push(run);
      if (typeof answer === 'string') continue;
      this.taken.push(kind);
      all.push({ ...ofPicture(answer, input), role: 'secondLook' });
      choice = await this.#choose(all, all.length - mattes.length, index === next.length - 1);
    }
    if (all.length > mattes.length) this.compare(mattes);
    return { part, mattes: choice.mattes.map(({ at, role }) => ({ ...all[at]!, role })) };
  }
}
