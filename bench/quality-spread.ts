/**
 * How far the figures of quality.ts hold on other photos: every plan's errors against plain isnet
 * over the photos and over variants of them, with intervals; and holes and ghosts photo by photo,
 * which means hide. The first run is long; with --keep later ones need no engine.
 *
 * Usage: quality-spread.ts [--plans isnet,fast,standard,best] [--variants asTaken,cut] [--keep
 *   DIRECTORY] [--photos] FOLDER...   as for quality.ts; --photos: each variant's too
 */
import { parseArgs } from 'node:util';
import { loadPlanOutlines, type PlanEntry } from '../inference-node/serving/models/plan.ts';
import { refineMatte } from '../inference-node/serving/picture/matte/refine.ts';
import { at } from '../test/support/at.ts';
import { colourError, cutOut, plainMatte } from './quality/cutout-errors.ts';
import { HOLE_ERROR_NAMES, measureHoles } from './quality/holes.ts';
import { bootstrap, mean } from './quality/intervals.ts';
import { measureQuickly } from './quality/matte-metrics.ts';
import { type ModelRunner, openModelRunner } from './quality/model-runner.ts';
import { findPhotos, loadPhoto, type Photo } from './quality/photos.ts';
import { entriesOf, inferPlan } from './quality/plan-runner.ts';
import { makeVariant, VARIANT_NAMES } from './quality/variants.ts';
import { writeResults } from './results.ts';

const RATIO_NAMES = ['sad', 'mse', 'gradient', 'mae', 'softMae', 'foreground'] as const;
type Errors = Readonly<Record<(typeof RATIO_NAMES)[number], number>> &
  ReturnType<typeof measureHoles>;

interface Sample {
  readonly variant: string;
  readonly plan: string;
  readonly photo: string;
  readonly plain: Errors;
  readonly refined: Errors;
}

const PLAIN: PlanEntry = { model: 'isnet', inputSize: 1024, role: 'subject' };
/** A photo that loses more than this in SAD against plain isnet is counted. */
const WORSE_RATIO = 1.05;
/** The ground of a photo's variant is another's, this many further on: of another kind. */
const GROUND_STEP = 7;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plans: { type: 'string', default: 'isnet,fast,standard,best' },
    variants: { type: 'string', default: VARIANT_NAMES.join() },
    keep: { type: 'string' },
    photos: { type: 'boolean', default: false },
  },
});
if (positionals.length === 0) throw new Error('usage: quality-spread.ts [options] FOLDER...');

/** A plan of plans.json, or a model by its name. */
async function outline(name: string): Promise<readonly PlanEntry[]> {
  const known = (await loadPlanOutlines()).some(plan => plan.name === name);
  return await entriesOf(known ? { plan: name } : { model: name });
}

function measure(photo: Photo, alpha: Uint8Array, foreground: number): Errors {
  const { width, height } = photo.picture;
  const matte = { data: alpha, width, height };
  const reference = { data: photo.alpha, width, height };
  return { ...measureQuickly(matte, reference), ...measureHoles(matte, reference), foreground };
}

async function measurePhoto(
  variant: string,
  photo: Photo,
  plans: ReadonlyMap<string, readonly PlanEntry[]>,
  models: ModelRunner,
): Promise<Sample[]> {
  const { picture } = photo;
  const plainAlpha = plainMatte(await models.run(PLAIN, picture), picture);
  const plain = measure(photo, plainAlpha, 0);
  const samples: Sample[] = [];
  for (const [plan, entries] of plans) {
    const alpha = refineMatte(await inferPlan(entries, models, picture), picture);
    // The photo's own colours are compared where the refined result shows something.
    const own = colourError(photo, alpha, cutOut(picture, alpha, false));
    const estimated = colourError(photo, alpha, cutOut(picture, alpha, true));
    samples.push({
      variant,
      plan,
      photo: photo.name,
      plain: { ...plain, foreground: own },
      refined: measure(photo, alpha, estimated),
    });
  }
  return samples;
}

/** Variants of a photo, and the same subject in two folders, are one group. */
const groupOf = ({ photo }: Sample) => photo.slice(photo.lastIndexOf('/') + 1);

function summarise(samples: readonly Sample[]): Record<string, string | number> {
  const row: Record<string, string | number> = { photos: samples.length };
  for (const error of RATIO_NAMES) {
    const { value, low, high } = bootstrap(
      samples,
      groupOf,
      drawn => mean(drawn, s => s.refined[error]) / mean(drawn, s => s.plain[error]),
    );
    row[error] = `${value.toFixed(3)} (${low.toFixed(2)} to ${high.toFixed(2)})`;
  }
  for (const error of HOLE_ERROR_NAMES) {
    const { value, low, high } = bootstrap(samples, groupOf, drawn =>
      mean(drawn, s => 100 * s.refined[error]),
    );
    row[`${error} %`] = `${value.toFixed(2)} (${low.toFixed(1)} to ${high.toFixed(1)})`;
  }
  const ratios = samples.map(({ plain, refined }) => refined.sad / plain.sad);
  row.worse = ratios.filter(ratio => ratio > WORSE_RATIO).length;
  row.worst = Math.max(...ratios).toFixed(2);
  return row;
}

/** Only photos that have any, in percent of their deep pixels: faint + blind holes, ghosts. */
function printHoles(samples: readonly Sample[], plans: readonly string[]): void {
  console.log(`\nfaint + blind holes, ghosts (%)`.padEnd(36) + plans.join(' '.repeat(18)));
  for (const [photo, all] of Map.groupBy(samples, sample => sample.photo)) {
    if (all.every(({ refined: { holes, ghosts } }) => holes < 1e-4 && ghosts < 1e-4)) continue;
    const cells = all.map(({ refined: { faint, blind, ghosts } }) =>
      [faint, blind, ghosts].map(share => (100 * share).toFixed(2).padStart(7)).join(''),
    );
    console.log(photo.padEnd(34) + cells.join('  '));
  }
}

const plans = new Map<string, readonly PlanEntry[]>();
for (const plan of values.plans.split(',')) plans.set(plan, await outline(plan));
const models = openModelRunner(values.keep);
const all: Sample[] = [];
try {
  const stems = findPhotos(positionals);
  for (const variant of values.variants.split(',')) {
    for (const [index, stem] of stems.entries()) {
      const other = await loadPhoto(at(stems, (index + GROUND_STEP) % stems.length));
      const photo = await makeVariant(variant, await loadPhoto(stem), other);
      all.push(...(await measurePhoto(variant, photo, plans, models)));
    }
    const here = all.filter(sample => sample.variant === variant);
    if (values.photos || variant === 'asTaken') printHoles(here, [...plans.keys()]);
  }
} finally {
  await models.close();
}
const tables = [...Map.groupBy(all, ({ plan }) => plan)].map(([plan, samples]) => {
  const byVariant = [...Map.groupBy(samples, ({ variant }) => variant)];
  const rows = byVariant.map(([variant, some]) => [variant, summarise(some)] as const);
  return [plan, Object.fromEntries([...rows, ['all', summarise(samples)]])] as const;
});
writeResults('quality-spread', Object.fromEntries(tables));
for (const [plan, rows] of tables) {
  console.log(`\n${plan}`);
  console.table(rows);
}
