/**
 * Decides which models of a plan run on a picture, in which order, and which of their mattes count.
 * Benches run it on recorded mattes.
 */
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import type { ExtraRun, MatteRole } from '../models/prepared-model.ts';
import { isCloserBelieved, partsAround, ZOOM_RULES } from './closer-look.ts';
import { confirmSubject } from './confirm-subject.ts';
import {
  type Choice,
  EXTRA_RUNS_MAX,
  type ExtraRunKind,
  extraRunsOf,
  isDisputed,
  ledBySurer,
} from './extra-runs.ts';
import { FRAMED_RULES, isWorthFraming, withFramedRun } from './framed-run.ts';
import { matteOfPicture, type RunInput } from './run-input.ts';
import { isWorthRunning, UNSURE_SHARE_MIN } from './unsure-share.ts';

interface PlanModel {
  readonly model: { readonly model: string };
  readonly role: MatteRole;
  readonly extraRuns?: readonly ExtraRun[] | undefined;
}

export interface PlanPicture {
  readonly picture: Size;
  /** In the picture's pixels, in place of the picture; undefined: all of it. */
  readonly part?: Box | undefined;
}

export interface ModelRun<Entry extends PlanModel> {
  readonly entry: Entry;
  /** Undefined: the picture as it is. */
  readonly input?: RunInput | undefined;
  /** Set for a run that the image can do without. */
  readonly stage?: 'extra_run' | 'crop_run';
  readonly part: Box | undefined;
}

/** One byte a pixel, rows first. */
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

/**
 * missing: the model has no working engine. unneeded: no pixel is unsure, so none needs refining.
 */
export type NoMatte = 'missing' | 'unneeded';

export const PLAN_RULES = {
  unsureShareMin: UNSURE_SHARE_MIN,
  framed: FRAMED_RULES,
  zoomed: ZOOM_RULES,
};

export type PlanRules = {
  readonly [Part in keyof typeof PLAN_RULES]: Readonly<
    Record<keyof (typeof PLAN_RULES)[Part], number>
  >;
};

export type Choose = (
  mattes: readonly RoleMatte[],
  further: number,
  isLast: boolean,
) => Choice | Promise<Choice>;

type RunModel<Entry extends PlanModel> = (
  run: ModelRun<Entry>,
  mattes: readonly RoleMatte[],
) => Promise<Matte | NoMatte>;

/**
 * Runs the models of a plan in order. Models that are not subjects run only if the first matte is
 * unsure. If that matte shows small subjects, the parts around them replace the picture.
 * @param runModel gets the earlier mattes of the same part
 * @param choose chooses among the mattes of one part; the last `further` are of further runs
 * @returns the mattes that count. Mattes of parts come last, and replace the whole picture's there.
 * isDisputed: runs on an unsure picture show different subjects.
 */
export async function inferPlan<Entry extends PlanModel>(
  plan: readonly Entry[],
  { picture, part }: PlanPicture,
  runModel: RunModel<Entry>,
  choose: Choose,
  rules: PlanRules = PLAN_RULES,
) {
  const used = new Set<Entry>();
  const missing = new Set<Entry>();
  const extra = new ExtraRuns(plan, runModel, choose);
  const runEntry = async (entry: Entry, { part, mattes }: View): Promise<View> => {
    const first = mattes[0]?.alpha;
    if (first && !isWorthRunning(entry.role, first, rules.unsureShareMin)) return { part, mattes };
    let isDoubted = false;
    for (const input of inputsOf(entry, plan, first, rules)) {
      const answer = await runModel({ entry, input, part }, mattes);
      if (answer === 'missing') missing.add(entry);
      if (answer === 'missing' || answer === 'unneeded') break;
      const { alpha, size } = matteOfPicture(answer, input);
      const matte = { alpha, size, role: entry.role };
      const joined = input ? withFramedRun(mattes, matte, rules.framed) : joinMatte(mattes, matte);
      // The framed matte was rejected: the next run takes the picture as it is.
      if (joined === undefined) {
        isDoubted = true;
        continue;
      }
      used.add(entry);
      if (entry.role === 'surerLook') {
        extra.kinds.push('larger');
        extra.compare([...mattes, matte]);
      }
      return { part, mattes: isDoubted ? confirmSubject(joined) : joined };
    }
    return { part, mattes };
  };
  const runExtra = async (all: readonly View[]) => {
    const seen: View[] = [];
    for (const view of all) seen.push(await extra.runOn(view));
    for (const entry of extra.missing) missing.add(entry);
    return seen;
  };
  let views: readonly View[] = [{ part, mattes: [] }];
  for (const entry of plan) {
    if (entry.role === 'refine') views = await runExtra(views);
    const isFirst = views[0]?.mattes.length === 0;
    const seen: View[] = [];
    for (const view of views) seen.push(await runEntry(entry, view));
    views = seen;
    const whole = views[0]?.mattes[0];
    if (!isFirst || part !== undefined || whole === undefined) continue;
    views = await addCloserLooks(entry, whole, picture, runModel, rules.zoomed);
  }
  if (plan.at(-1)?.role !== 'refine') views = await runExtra(views);
  const mattes = views.flatMap(({ part, mattes }) => mattes.map(matte => ({ ...matte, part })));
  const { kinds: extraRuns, isDisputed } = extra;
  return { mattes, runs: [...used], missing: [...missing], extraRuns, isDisputed };
}

/** Adds the mattes of parts around small subjects. If all are believed, they replace the first. */
async function addCloserLooks<Entry extends PlanModel>(
  entry: Entry,
  first: RoleMatte,
  picture: Size,
  runModel: RunModel<Entry>,
  rules: PlanRules['zoomed'],
): Promise<View[]> {
  const parts = partsAround(first, picture, rules);
  const views: View[] = [];
  for (const part of parts) {
    const answer = await runModel({ entry, part }, []);
    if (typeof answer === 'string') continue;
    if (!isCloserBelieved(answer, first, part, picture, rules)) continue;
    const { alpha, size } = answer;
    views.push({ part, mattes: [{ alpha, size, role: entry.role }] });
  }
  const isAll = parts.length > 0 && views.length === parts.length;
  return isAll ? views : [{ part: undefined, mattes: [first] }, ...views];
}

/** The inputs of a model's runs. Each is used only if the mattes of all before it are rejected. */
function inputsOf(
  { role, model: { model } }: PlanModel,
  plan: readonly PlanModel[],
  first: Uint8Array | undefined,
  rules: PlanRules,
): readonly (RunInput | undefined)[] {
  const firstModel = plan[0]?.model.model;
  const isFramed = first && isWorthFraming({ role, model }, firstModel, first, rules.framed);
  return isFramed ? [{ kind: 'framed' }, undefined] : [undefined];
}

function joinMatte(mattes: readonly RoleMatte[], matte: RoleMatte): readonly RoleMatte[] {
  return matte.role === 'surerLook' ? ledBySurer(mattes, matte) : [...mattes, matte];
}

class ExtraRuns<Entry extends PlanModel> {
  readonly #plan: readonly Entry[];
  readonly #runModel: RunModel<Entry>;
  readonly #choose: Choose;
  readonly kinds: ExtraRunKind[] = [];
  readonly missing: Entry[] = [];
  isDisputed = false;

  constructor(plan: readonly Entry[], runModel: RunModel<Entry>, choose: Choose) {
    this.#plan = plan;
    this.#runModel = runModel;
    this.#choose = choose;
  }

  compare(mattes: readonly RoleMatte[]): void {
    this.isDisputed ||= isDisputed(mattes.filter(({ role }) => role !== 'opinion'));
  }

  /** Stops once the mattes agree on the subject. */
  async runOn({ part, mattes }: View): Promise<View> {
    const next = extraRunsOf(this.#plan, mattes).slice(0, EXTRA_RUNS_MAX - this.kinds.length);
    if (next.length === 0) return { part, mattes };
    const all = [...mattes];
    let choice = await this.#choose(all, 0, false);
    for (const [index, { entry, kind, input }] of next.entries()) {
      if (choice.settled) break;
      const answer = await this.#runModel({ entry, input, part, stage: 'extra_run' }, mattes);
      if (answer === 'missing') this.missing.push(entry);
      if (typeof answer === 'string') continue;
      this.kinds.push(kind);
      all.push({ ...matteOfPicture(answer, input), role: 'secondLook' });
      choice = await this.#choose(all, all.length - mattes.length, index === next.length - 1);
    }
    if (all.length > mattes.length) this.compare(mattes);
    return { part, mattes: choice.mattes.map(({ at, role }) => ({ ...all[at]!, role })) };
  }
}
