/**
 * How good the cut-outs are that callers get. Photos with reference mattes, and variants of them,
 * go through a node of each plan, in both orders through one process. Prints the errors of the
 * literature relative to plain isnet (its own matte, stretched) with intervals, holes, ghosts and
 * haze photo by photo, because means hide them, the models that the node ran, and how the means
 * compare with a baseline.
 *
 * Usage: quality.ts [--plans standard,isnet] [--variants asTaken,cut] [--once] [--photos] [--sheet
 *   FILE.png] [--save-baseline] [--keep DIRECTORY] FOLDER... each with NAME.jpg, NAME_alpha.png
 *   and, perhaps, NAME_fg.png; --once: not in the reverse order; --photos: each variant's holes
 *   too; --keep: plain isnet's mattes, for the next time
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { at } from '../test/support/at.ts';
import { ContactSheet } from './quality/contact-sheet.ts';
import {
  CUTOUT_ERROR_NAMES,
  type CutoutErrorName,
  type CutoutErrors,
  colourError,
  cutOut,
  measureCutout,
  plainMatte,
} from './quality/cutout-errors.ts';
import { HOLE_ERROR_NAMES } from './quality/holes.ts';
import { bootstrap, mean } from './quality/intervals.ts';
import { type ModelRunner, openModelRunner } from './quality/model-runner.ts';
import { findPhotos, loadPhoto, type Photo } from './quality/photos.ts';
import { encodeSent, openPlanNode, type PlanNode, type SentFile } from './quality/plan-node.ts';
import { makeVariant, VARIANT_NAMES } from './quality/variants.ts';
import { writeResults } from './results.ts';

interface Sample {
  readonly variant: string;
  readonly photo: string;
  readonly sent: SentFile;
  readonly plain: CutoutErrors;
  /** The errors of the node's answer. */
  readonly found: CutoutErrors;
  readonly alpha: Buffer;
  readonly roles: readonly string[];
  /** The estimator given the true matte; 0 where the true colour is not known. */
  readonly foregroundOfTruth: number;
}

const PLAIN = { model: 'isnet', inputSize: 1024, role: 'subject' } as const;
const RATIO_NAMES = [
  'sad',
  'mse',
  'gradient',
  'connectivity',
  'mae',
  'softMae',
  'foreground',
] as const;
/** A photo that loses more than this in SAD against plain isnet is listed. */
const WORSE_RATIO = 1.05;
/** Ratio to the baseline that is tolerated: ONNX Runtime's kernels differ by machine. */
const BASELINE_TOLERANCE = 1.02;
/** The ground of a photo's variant is another's, this many further on: of another kind. */
const GROUND_STEP = 7;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plans: { type: 'string', default: 'standard' },
    variants: { type: 'string', default: 'asTaken' },
    once: { type: 'boolean', default: false },
    photos: { type: 'boolean', default: false },
    sheet: { type: 'string' },
    keep: { type: 'string' },
    'save-baseline': { type: 'boolean', default: false },
  },
});
if (positionals.length === 0) {
  throw new Error(`usage: quality.ts [options] FOLDER..., --variants of ${VARIANT_NAMES.join()}`);
}
const stems = findPhotos(positionals);
const variants = values.variants.split(',');

async function measurePhoto(
  variant: string,
  photo: Photo,
  node: PlanNode,
  models: ModelRunner,
  sheet: ContactSheet,
): Promise<Sample> {
  const { picture } = photo;
  const sent = photo.sent ?? (await encodeSent(picture));
  const { cutout, alpha, roles } = await node.cutOut(sent);
  const plainAlpha = plainMatte(await models.run(PLAIN, picture), picture);
  const plain = cutOut(picture, plainAlpha, false);
  if (values.sheet !== undefined) await sheet.add(picture, [plain, cutout]);
  // The photo's own colours are compared where the node's result shows something.
  const untouched = cutOut(picture, alpha, false);
  const truth = cutOut(picture, photo.alpha, true);
  return {
    ...{ variant, photo: photo.name, sent, alpha: Buffer.from(alpha), roles },
    plain: {
      ...measureCutout(photo, plainAlpha, plain),
      foreground: colourError(photo, alpha, untouched),
    },
    found: measureCutout(photo, alpha, cutout),
    foregroundOfTruth: colourError(photo, photo.alpha, truth),
  };
}

/** Sends every photo with its variants, in their order. */
async function measureAll(node: PlanNode, models: ModelRunner, sheet: ContactSheet) {
  const samples: Sample[] = [];
  for (const variant of variants) {
    for (const [index, stem] of stems.entries()) {
      const other = await loadPhoto(at(stems, (index + GROUND_STEP) % stems.length));
      const photo = await makeVariant(variant, await loadPhoto(stem), other);
      const sample = await measurePhoto(variant, photo, node, models, sheet);
      samples.push(sample);
      printRow(sample.photo, error => [sample.plain[error], sample.found[error]]);
    }
  }
  return samples;
}

/** Sends the same files in reverse order; returns the photos whose alpha or models differ. */
async function differentInReverse(node: PlanNode, samples: readonly Sample[]): Promise<string[]> {
  const different: string[] = [];
  for (const { photo, sent, alpha, roles } of samples.toReversed()) {
    const again = await node.cutOut(sent);
    if (!alpha.equals(again.alpha) || roles.join() !== again.roles.join()) different.push(photo);
  }
  return different;
}

function printRow(label: string, pick: (error: CutoutErrorName) => readonly number[]): void {
  const cells = CUTOUT_ERROR_NAMES.map(error =>
    pick(error)
      .map(value => value.toPrecision(3).padStart(10))
      .join(''),
  );
  console.log(label.padEnd(36) + cells.join('  '));
}

/** Prints the photos that have any, in percent of their deep pixels. */
function printHoles(samples: readonly Sample[]): void {
  console.log('\nfaint and blind holes, ghosts, haze, strong (%)');
  for (const { photo, found } of samples) {
    const { holes, faint, blind, ghosts, haze, strong } = found;
    if (Math.max(holes, ghosts, haze, strong) < 1e-4) continue;
    const shares = [faint, blind, ghosts, haze, strong];
    const cells = shares.map(share => (100 * share).toFixed(2).padStart(7));
    console.log(photo.padEnd(36) + cells.join(''));
  }
}

/** Variants of a photo, and the same subject in two folders, are one group. */
const groupOf = ({ photo }: Sample) => photo.slice(photo.lastIndexOf('/') + 1);

function summarise(samples: readonly Sample[]): Record<string, unknown> {
  const row: Record<string, unknown> = { photos: samples.length };
  for (const error of RATIO_NAMES) {
    const { value, low, high } = bootstrap(
      samples,
      groupOf,
      drawn => mean(drawn, s => s.found[error]) / mean(drawn, s => s.plain[error]),
    );
    row[error] = `${value.toFixed(3)} (${low.toFixed(2)} to ${high.toFixed(2)})`;
  }
  const percent = (pick: (sample: Sample) => number) => (100 * mean(samples, pick)).toFixed(2);
  for (const error of HOLE_ERROR_NAMES) {
    row[`${error} %, plain`] = `${percent(s => s.found[error])}, ${percent(s => s.plain[error])}`;
  }
  for (const role of ['opinion', 'second_look']) {
    row[`with ${role}`] = samples.filter(({ roles }) => roles.includes(role)).length;
  }
  const ratio = ({ plain, found }: Sample) => found.sad / plain.sad;
  const worse = samples.filter(sample => ratio(sample) > WORSE_RATIO);
  row.worse = worse.length;
  row.worst = Math.max(...samples.map(ratio)).toFixed(2);
  return row;
}

function compareWithBaseline(plan: string, samples: readonly Sample[]): void {
  const file = path.join(import.meta.dirname, 'quality', `baseline-${plan}.json`);
  const photos = samples.map(({ photo }) => photo.slice(photo.indexOf('/') + 1));
  const means = Object.fromEntries(
    CUTOUT_ERROR_NAMES.map(error => [error, mean(samples, ({ found }) => found[error])]),
  );
  if (values['save-baseline']) {
    writeFileSync(file, `${JSON.stringify({ photos, means }, undefined, 2)}\n`);
    return;
  }
  if (!existsSync(file)) {
    console.log(`no baseline at ${file}: --save-baseline keeps this one`);
    return;
  }
  const before = JSON.parse(readFileSync(file, 'utf8')) as {
    readonly photos: readonly string[];
    readonly means: Readonly<Record<string, number>>;
  };
  if (before.photos.join() !== photos.join()) {
    console.log('the baseline was measured on other photos: not compared');
    return;
  }
  for (const [error, value] of Object.entries(means)) {
    const ratio = value / (before.means[error] ?? Number.NaN);
    if (!(ratio > BASELINE_TOLERANCE)) continue;
    console.log(`WORSE than the baseline: ${error} ${ratio.toFixed(3)}`);
    process.exitCode = 1;
  }
}

async function measurePlan(plan: string, models: ModelRunner, sheet: ContactSheet) {
  console.log(
    `\n${plan}\n${'plain, found'.padEnd(36)}${CUTOUT_ERROR_NAMES.map(n => n.padStart(20)).join('  ')}`,
  );
  const node = await openPlanNode(plan);
  try {
    const samples = await measureAll(node, models, sheet);
    const different = values.once ? 'not tried' : await differentInReverse(node, samples);
    if (different.length > 0 && !values.once) process.exitCode = 1;
    return { samples, different };
  } finally {
    await node.close();
  }
}

const models = openModelRunner(values.keep);
const sheet = new ContactSheet();
const tables: Record<string, unknown> = {};
try {
  for (const plan of values.plans.split(',')) {
    const { samples, different } = await measurePlan(plan, models, sheet);
    const byVariant = Map.groupBy(samples, ({ variant }) => variant);
    for (const [variant, some] of byVariant) {
      if (values.photos || variant === 'asTaken') printHoles(some);
      if (variant === 'asTaken') compareWithBaseline(plan, some);
    }
    const rows = [...byVariant].map(([variant, some]) => [variant, summarise(some)] as const);
    const worse = samples.flatMap(({ photo, plain, found }) =>
      found.sad > WORSE_RATIO * plain.sad ? [[photo, (found.sad / plain.sad).toFixed(2)]] : [],
    );
    const known = samples.filter(sample => sample.foregroundOfTruth > 0);
    tables[plan] = {
      ...Object.fromEntries([...rows, ['all', summarise(samples)]]),
      differentInReverse: different,
      worse: Object.fromEntries(worse),
      foregroundOfTruthRatio:
        mean(known, s => s.foregroundOfTruth) / mean(known, s => s.plain.foreground),
    };
  }
} finally {
  await models.close();
}
if (values.sheet !== undefined) await sheet.write(values.sheet);
writeResults('quality', tables);
