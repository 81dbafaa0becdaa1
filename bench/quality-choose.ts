/**
 * Judges the constants of unsure-share.ts, merge-mattes.ts and fill-areas.ts by cross-validation:
 * every photo, with all its variants, is judged by the constants that are best on the others. What
 * helps only in sample shows. It takes the mattes of a node's engines once, and decides over them by
 * the product's own functions.
 *
 * Usage: quality-choose.ts [--plan standard] [--variants asTaken,cut] [--keep DIRECTORY] [--largest
 *   0.7] [--differ 2] FOLDER...   --largest: megapixels to which larger photos are scaled down for
 *   the merge; --differ: the most constants in which a candidate differs from the present ones: 2
 *   makes about 200 candidates, 8, the whole grid, 21,600, which takes many times as long. Each
 *   picture is counted on standard error, with the time that the rest will take
 */
import { createHash } from 'node:crypto';
import { parseArgs } from 'node:util';
import { PLAN_RULES, type PlanRules } from '../inference-node/serving/picture/infer-plan.ts';
import { MERGE_RULES, mergeMattes } from '../inference-node/serving/picture/matte/merge-mattes.ts';
import {
  mergeToWorkingSize,
  refineMerged,
} from '../inference-node/serving/picture/matte/refine.ts';
import { at } from '../test/support/at.ts';
import { leastLoss, leaveOneOut } from './quality/cross-validation.ts';
import { colourError, cutOut, plainMatte } from './quality/cutout-errors.ts';
import { measureHoles } from './quality/holes.ts';
import { mean } from './quality/intervals.ts';
import { measureQuickly } from './quality/matte-metrics.ts';
import { type ModelRunner, openModelRunner } from './quality/model-runner.ts';
import { findPhotos, loadPhoto, type Photo } from './quality/photos.ts';
import { entriesOf, openReplay, type Replay } from './quality/plan-runner.ts';
import { scaleDown } from './quality/scale-down.ts';
import { makeVariant } from './quality/variants.ts';
import { writeResults } from './results.ts';

type Rules = typeof MERGE_RULES;

interface Constants extends Rules {
  readonly opinionFrom: number;
  readonly secondLookFrom: number;
}

const RATIO_NAMES = ['sad', 'mse', 'gradient', 'mae', 'softMae', 'foreground'] as const;
const SHARE_NAMES = ['holes', 'ghosts'] as const;
type Outcome = Readonly<Record<(typeof RATIO_NAMES | typeof SHARE_NAMES)[number], number>>;

interface Sample {
  readonly group: string;
  readonly plain: Outcome;
  /** One a candidate. */
  readonly outcomes: readonly Outcome[];
  /** Each candidate's engine time relative to that of isnet at 1024. */
  readonly costs: readonly number[];
}

const PRESENT: Constants = {
  ...MERGE_RULES,
  opinionFrom: PLAN_RULES.unsureShareMin.opinion,
  secondLookFrom: PLAN_RULES.unsureShareMin.secondLook,
};
/** Everything runs and counts; areas are left. */
const PLAIN_MEAN: Constants = {
  ...PRESENT,
  opinionFrom: 0,
  secondLookFrom: 0,
  shownAgainMin: 0,
  cellsMin: Number.POSITIVE_INFINITY,
  keptEnclosedMin: Number.POSITIVE_INFINITY,
};
const VALUES: Readonly<Partial<Record<keyof Constants, readonly number[]>>> = {
  opinionFrom: [0, 0.06, 0.085, 0.1, 0.12],
  secondLookFrom: [0, 0.1, 0.13, 0.16, 0.2],
  shownAgainMin: [0, 0.4, 0.55, 0.65],
  enclosedMin: [0.6, 0.7, 0.8],
  precisionMin: [0.85, 0.9, 0.95],
  sureFrom: [200, 230],
  keptEnclosedMin: [0.3, 0.5, 0.7, Number.POSITIVE_INFINITY],
};
/** Processor time on one thread to that of isnet at 1024 in int8; isnet's other size is 768. */
const COSTS = { subject: 1, opinion: 0.39, secondLook: 0.56, surerLook: 1, refine: 0 } as const;
/** A run of isnet at 1024 weighs so much beside all of the errors of plain isnet. */
const COST_WEIGHT = 0.03;
/** A whole photo of holes or ghosts weighs so much beside them. */
const HOLES_WEIGHT = 5;
const LOSS_NAMES = ['sad', 'mse', 'gradient', 'softMae'] as const;
const WORSE_RATIO = 1.05;
const GROUND_STEP = 7;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plan: { type: 'string', default: 'standard' },
    variants: { type: 'string', default: 'asTaken,cut,ground,darker,jpeg' },
    keep: { type: 'string' },
    largest: { type: 'string', default: '0.7' },
    differ: { type: 'string', default: '2' },
  },
});
if (positionals.length === 0) throw new Error('usage: quality-choose.ts [options] FOLDER...');

function candidates(differMax: number): Constants[] {
  let all: { readonly constants: Constants; readonly differ: number }[] = [
    { constants: PRESENT, differ: 0 },
  ];
  for (const [name, options] of Object.entries(VALUES)) {
    const present = PRESENT[name as keyof Constants];
    const changed = all.flatMap(({ constants, differ }) =>
      options.map(value => ({
        constants: { ...constants, [name]: value },
        differ: differ + (value === present ? 0 : 1),
      })),
    );
    all = changed.filter(({ differ }) => differ <= differMax);
  }
  // The present constants first: they win where others are no better.
  return [PRESENT, PLAIN_MEAN, ...all.map(({ constants }) => constants)];
}

/** Says after each of `all` how long the rest will take, if it takes as long as those before. */
function countPictures(all: number): () => void {
  const start = performance.now();
  let done = 0;
  return () => {
    done += 1;
    const minutes = ((performance.now() - start) / done) * ((all - done) / 60_000);
    console.error(`${done} of ${all}, ${minutes.toFixed(0)} minutes left`);
  };
}

function measure(photo: Photo, alpha: Uint8Array, estimate: boolean): Outcome {
  const { width, height } = photo.picture;
  const matte = { data: alpha, width, height };
  const reference = { data: photo.alpha, width, height };
  const foreground = colourError(photo, alpha, cutOut(photo.picture, alpha, estimate));
  return { ...measureQuickly(matte, reference), ...measureHoles(matte, reference), foreground };
}

const rulesBy = ({ opinionFrom, secondLookFrom }: Constants): PlanRules => ({
  ...PLAN_RULES,
  unsureShareMin: {
    ...PLAN_RULES.unsureShareMin,
    opinion: opinionFrom,
    secondLook: secondLookFrom,
  },
});

const costOf = ({ taken }: Replay) => taken.reduce((sum, { entry }) => sum + COSTS[entry.role], 0);

/** Candidates that merge the same alpha are measured once. */
async function judgePhoto(full: Photo, models: ModelRunner): Promise<Omit<Sample, 'group'>> {
  const photo = await scaleDown(full, 1e6 * Number(values.largest));
  const replay = openReplay(entries, models, full.picture);
  const outcomes: Outcome[] = [];
  const costs: number[] = [];
  const measured = new Map<string, Outcome>();
  for (const constants of all) {
    const replayed = await replay(rulesBy(constants));
    const { mattes } = replayed;
    const merged = mergeMattes(mattes, photo.picture, constants);
    const key = createHash('sha256').update(merged).digest('hex');
    const outcome =
      measured.get(key) ??
      measure(
        photo,
        refineMerged(mergeToWorkingSize(mattes, photo.picture, constants), photo.picture),
        true,
      );
    measured.set(key, outcome);
    outcomes.push(outcome);
    costs.push(costOf(replayed));
  }
  const first = await models.run(at(entries, 0), full.picture);
  const plain = measure(photo, plainMatte(first, photo.picture), false);
  return { plain, outcomes, costs };
}

async function takeSamples(): Promise<Sample[]> {
  const models = openModelRunner(values.keep);
  const samples: Sample[] = [];
  try {
    const stems = findPhotos(positionals);
    const variants = values.variants.split(',');
    const count = countPictures(stems.length * variants.length);
    for (const variant of variants) {
      for (const [index, stem] of stems.entries()) {
        const other = await loadPhoto(at(stems, (index + GROUND_STEP) % stems.length));
        const photo = await makeVariant(variant, await loadPhoto(stem), other);
        const group = photo.name.slice(photo.name.lastIndexOf('/') + 1);
        samples.push({ group, ...(await judgePhoto(photo, models)) });
        count();
      }
    }
  } finally {
    await models.close();
  }
  return samples;
}

const entries = await entriesOf(values.plan);
const all = candidates(Number(values.differ));
const samples = await takeSamples();
const plainMeans = new Map(LOSS_NAMES.map(name => [name, mean(samples, s => s.plain[name])]));
const lossOf = (outcome: Outcome, cost: number) => {
  const ratios = LOSS_NAMES.map(name => outcome[name] / (plainMeans.get(name) ?? 1));
  const errors = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length;
  return errors + HOLES_WEIGHT * (outcome.holes + outcome.ghosts) + COST_WEIGHT * cost;
};
const losses = all.map((_, candidate) =>
  samples.map(({ outcomes, costs }) => lossOf(at(outcomes, candidate), at(costs, candidate))),
);
const folds = leaveOneOut(
  samples.map(({ group }) => group),
  losses,
);
const chosen = new Map(folds.map(({ group, chosen: index }) => [group, index]));
const best = leastLoss(losses, () => true);

function figures(pick: (sample: Sample) => number): Record<string, number | string> {
  const outcome = (sample: Sample) => at(sample.outcomes, pick(sample));
  const ratios = samples.map(sample => outcome(sample).sad / sample.plain.sad);
  const rounded = (value: number) => Number(value.toFixed(4));
  return {
    ...Object.fromEntries(
      RATIO_NAMES.map(name => [
        name,
        rounded(mean(samples, s => outcome(s)[name]) / mean(samples, s => s.plain[name])),
      ]),
    ),
    ...Object.fromEntries(
      SHARE_NAMES.map(name => [`${name} %`, rounded(100 * mean(samples, s => outcome(s)[name]))]),
    ),
    worse: ratios.filter(ratio => ratio > WORSE_RATIO).length,
    worst: rounded(Math.max(...ratios)),
    cost: rounded(mean(samples, s => at(s.costs, pick(s)))),
  };
}

writeResults(`quality-choose-${values.plan}`, {
  photos: samples.length,
  candidates: all.length,
  plainMean: figures(() => 1),
  present: figures(() => 0),
  best: { ...figures(() => best), ...all[best] },
  crossValidated: figures(({ group }) => chosen.get(group) ?? 0),
  folds: folds.filter(fold => fold.chosen !== best).map(fold => [fold.group, all[fold.chosen]]),
});
