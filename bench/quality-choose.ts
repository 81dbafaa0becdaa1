/**
 * Chooses the constants of fill-areas.ts by cross-validation: every photo, with all its variants,
 * is judged by the constants that are best on the others. What helps only in sample shows.
 *
 * Usage: quality-choose.ts [--plan standard] [--variants asTaken,cut] [--keep DIRECTORY] FOLDER...
 */
import { parseArgs } from 'node:util';
import {
  AREA_RULES,
  type AreaRules,
  gridSize,
  isSubject,
  trustedLooks,
} from '../inference-node/src/picture/matte/fill-areas.ts';
import type { RoleMatte } from '../inference-node/src/picture/matte/merge-mattes.ts';
import { refineMatte } from '../inference-node/src/picture/matte/refine.ts';
import { resample } from '../inference-node/src/picture/matte/resample.ts';
import { findAreas } from '../inference-node/src/picture/matte/undecided-areas.ts';
import { at } from '../test/support/at.ts';
import { leastLoss, leaveOneOut } from './quality/cross-validation.ts';
import { plainMatte } from './quality/cutout-errors.ts';
import { measureHoles } from './quality/holes.ts';
import { mean } from './quality/intervals.ts';
import { openModelRunner } from './quality/model-runner.ts';
import { findPhotos, loadPhoto, type Photo } from './quality/photos.ts';
import { entriesOf, inferPlan } from './quality/plan-runner.ts';
import { makeVariant } from './quality/variants.ts';
import { writeResults } from './results.ts';

interface Outcome {
  readonly sad: number;
  readonly mse: number;
  readonly holes: number;
  readonly ghosts: number;
}

/** Nothing is filled. */
const OFF: AreaRules = { ...AREA_RULES, cellsMin: Number.POSITIVE_INFINITY };
const VALUES: Readonly<Partial<Record<keyof AreaRules, readonly number[]>>> = {
  enclosedMin: [0.6, 0.65, 0.7, 0.75, 0.8],
  precisionMin: [0.85, 0.9, 0.95],
  cellsMin: [40, 60, 100],
  sureFrom: [200, 230],
  doubtFrom: [3, 6, 12],
  ownSureFrom: [200, 215, 235],
  ownEnclosedMin: [0.75, 0.9],
};
/** What a whole photo of holes or ghosts weighs beside the SAD of plain isnet. */
const HOLES_WEIGHT = 5;
const GROUND_STEP = 7;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plan: { type: 'string', default: 'standard' },
    variants: { type: 'string', default: 'asTaken,cut,ground,darker' },
    keep: { type: 'string' },
  },
});
if (positionals.length === 0) throw new Error('usage: quality-choose.ts [options] FOLDER...');

function candidates(): AreaRules[] {
  let all: AreaRules[] = [AREA_RULES];
  for (const [name, options] of Object.entries(VALUES)) {
    all = all.flatMap(rules => options.map(value => ({ ...rules, [name]: value })));
  }
  // The present constants first: they win where others are no better.
  return [AREA_RULES, OFF, ...all];
}

function measure({ alpha: truth, picture }: Photo, alpha: Uint8Array): Outcome {
  const { width, height } = picture;
  let sad = 0;
  let mse = 0;
  for (const [i, value] of alpha.entries()) {
    const difference = (value - at(truth, i)) / 255;
    sad += Math.abs(difference);
    mse += difference * difference;
  }
  const matte = { data: alpha, width, height };
  const { holes, ghosts } = measureHoles(matte, { data: truth, width, height });
  return { sad: sad / 1000, mse: mse / alpha.length, holes, ghosts };
}

/** One outcome a candidate; those that fill the same areas are measured once. */
function outcomesOf(photo: Photo, mattes: readonly RoleMatte[], all: readonly AreaRules[]) {
  const grid = gridSize(photo.picture);
  const looks = mattes.map(({ alpha, role, width, height }) => ({
    alpha: resample({ data: alpha, width, height }, grid),
    decides: role !== 'opinion',
  }));
  const areas = findAreas(looks, grid);
  const known = new Map<string, Outcome>();
  const trusts = new Map<string, boolean[]>();
  return all.map(rules => {
    const trustKey = `${rules.enclosedMin} ${rules.precisionMin}`;
    const trusted = trusts.get(trustKey) ?? trustedLooks(looks, areas, rules);
    trusts.set(trustKey, trusted);
    const key = areas.map(area => Number(isSubject(area, looks, trusted, rules))).join('');
    const outcome = known.get(key) ?? measure(photo, refineMatte(mattes, photo.picture, rules));
    known.set(key, outcome);
    return outcome;
  });
}

const all = candidates();
const entries = await entriesOf(values.plan === 'isnet' ? { model: 'isnet' } : values);
const models = openModelRunner(values.keep);
const groups: string[] = [];
const plains: Outcome[] = [];
const outcomes: Outcome[][] = [];
try {
  const stems = findPhotos(positionals);
  for (const variant of values.variants.split(',')) {
    for (const [index, stem] of stems.entries()) {
      const other = await loadPhoto(at(stems, (index + GROUND_STEP) % stems.length));
      const photo = await makeVariant(variant, await loadPhoto(stem), other);
      const mattes = await inferPlan(entries, models, photo.picture);
      const plain = await models.run(
        { model: 'isnet', inputSize: 1024, role: 'subject' },
        photo.picture,
      );
      groups.push(photo.name.slice(photo.name.lastIndexOf('/') + 1));
      plains.push(measure(photo, plainMatte(plain, photo.picture)));
      outcomes.push(outcomesOf(photo, mattes, all));
    }
  }
} finally {
  await models.close();
}
const plainSad = mean(plains, ({ sad }) => sad);
const losses = all.map((_, candidate) =>
  outcomes.map(row => {
    const { sad, holes, ghosts } = at(row, candidate);
    return sad / plainSad + HOLES_WEIGHT * (holes + ghosts);
  }),
);
const folds = leaveOneOut(groups, losses);
const chosen = new Map(folds.map(({ group, chosen: index }) => [group, index]));
const figures = (pick: (sample: number) => number) => {
  const samples = outcomes.map((row, sample) => at(row, pick(sample)));
  return {
    sad: mean(samples, ({ sad }) => sad) / plainSad,
    mse: mean(samples, ({ mse }) => mse) / mean(plains, ({ mse }) => mse),
    holes: mean(samples, ({ holes }) => holes),
    ghosts: mean(samples, ({ ghosts }) => ghosts),
  };
};
const best = leastLoss(losses, () => true);
writeResults(`quality-choose-${values.plan}`, {
  photos: groups.length,
  off: figures(() => 1),
  present: figures(() => 0),
  best: { ...figures(() => best), ...all[best] },
  crossValidated: figures(sample =>
    at([...chosen.values()], [...chosen.keys()].indexOf(at(groups, sample))),
  ),
  folds: folds.filter(fold => fold.chosen !== best).map(fold => [fold.group, all[fold.chosen]]),
});
