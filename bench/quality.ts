/**
 * How good the cut-outs are: the errors of the literature for each photo and in the mean, of the
 * plan's first model alone, plainly stretched, and of the whole plan refined; a contact sheet to
 * inspect; and how it compares with what was measured before.
 *
 * Usage: quality.ts [--plan standard | --model isnet] [--sheet FILE.png] [--baseline FILE.json]
 *   [--save-baseline] [--keep DIRECTORY] FOLDER... each with NAME.jpg,
 *   NAME_alpha.png and, perhaps, NAME_fg.png; --keep: models' mattes, for the next time
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { refineMatte } from '../inference-node/serving/picture/matte/refine.ts';
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
import { openModelRunner } from './quality/model-runner.ts';
import { findPhotos, loadPhoto, type Photo } from './quality/photos.ts';
import { entriesOf, inferPlan } from './quality/plan-runner.ts';
import { writeResults } from './results.ts';

interface Measured {
  readonly name: string;
  readonly plain: CutoutErrors;
  readonly refined: CutoutErrors;
  /** The estimator given the true matte; 0 where the true colour is not known. */
  readonly foregroundOfTruth: number;
}

/** An image that loses more than this in SAD against the plain matte is listed. */
const WORSE_RATIO = 1.05;
/** Ratio to the baseline that is tolerated: ONNX Runtime's kernels differ by machine. */
const BASELINE_TOLERANCE = 1.02;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plan: { type: 'string' },
    model: { type: 'string' },
    sheet: { type: 'string' },
    baseline: { type: 'string' },
    keep: { type: 'string' },
    'save-baseline': { type: 'boolean', default: false },
  },
});
if (positionals.length === 0) throw new Error('usage: quality.ts [options] FOLDER...');
const name = values.model ?? values.plan ?? 'standard';
const baselineFile =
  values.baseline ?? path.join(import.meta.dirname, 'quality', `baseline-${name}.json`);

async function measurePhoto(photo: Photo, sheet: ContactSheet) {
  const { picture } = photo;
  const plainAlpha = plainMatte(await models.run(at(entries, 0), picture), picture);
  const refinedAlpha = refineMatte(await inferPlan(entries, models, picture), picture);
  const plain = cutOut(picture, plainAlpha, false);
  const refined = cutOut(picture, refinedAlpha, true);
  if (values.sheet !== undefined) await sheet.add(picture, [plain, refined]);
  // The photo's own colours are compared where the refined result shows something.
  const untouched = cutOut(picture, refinedAlpha, false);
  const truth = cutOut(picture, photo.alpha, true);
  const measured: Measured = {
    name: photo.name,
    plain: {
      ...measureCutout(photo, plainAlpha, plain),
      foreground: colourError(photo, refinedAlpha, untouched),
    },
    refined: measureCutout(photo, refinedAlpha, refined),
    foregroundOfTruth: colourError(photo, photo.alpha, truth),
  };
  return measured;
}

function mean(all: readonly Measured[], pick: (measured: Measured) => number): number {
  return all.reduce((sum, measured) => sum + pick(measured), 0) / all.length;
}

function printRow(label: string, pick: (error: CutoutErrorName) => readonly number[]): void {
  const cells = CUTOUT_ERROR_NAMES.map(error =>
    pick(error)
      .map(value => value.toPrecision(3).padStart(8))
      .join(''),
  );
  console.log(label.padEnd(28) + cells.join('  '));
}

function compareWithBaseline(means: Record<string, number>): void {
  const photos = all.map(measured => measured.name);
  if (values['save-baseline']) {
    writeFileSync(baselineFile, `${JSON.stringify({ photos, means }, undefined, 2)}\n`);
    return;
  }
  if (!existsSync(baselineFile)) {
    console.log(`no baseline at ${baselineFile}: --save-baseline keeps this one`);
    return;
  }
  const before = JSON.parse(readFileSync(baselineFile, 'utf8')) as {
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

const entries = await entriesOf(values);
const models = openModelRunner(values.keep);
const sheet = new ContactSheet();
const all: Measured[] = [];
try {
  console.log(
    `${'plain, refined'.padEnd(28)}${CUTOUT_ERROR_NAMES.map(n => n.padStart(16)).join('  ')}`,
  );
  for (const stem of findPhotos(positionals)) {
    const photo = await loadPhoto(stem);
    const measured = await measurePhoto(photo, sheet);
    all.push(measured);
    printRow(measured.name, error => [measured.plain[error], measured.refined[error]]);
  }
} finally {
  await models.close();
}
if (values.sheet !== undefined) await sheet.write(values.sheet);
const plainOf = (error: CutoutErrorName) => mean(all, ({ plain }) => plain[error]);
const refinedOf = (error: CutoutErrorName) => mean(all, ({ refined }) => refined[error]);
printRow('mean', error => [plainOf(error), refinedOf(error)]);
const means = Object.fromEntries(CUTOUT_ERROR_NAMES.map(error => [error, refinedOf(error)]));
const ratios = Object.fromEntries(
  CUTOUT_ERROR_NAMES.map(error => [error, Number((refinedOf(error) / plainOf(error)).toFixed(4))]),
);
const worse = all.filter(({ plain, refined }) => refined.sad > WORSE_RATIO * plain.sad);
writeResults(`quality-${name}`, {
  images: all.length,
  ratios,
  foregroundOfTruthRatio: mean(all, m => m.foregroundOfTruth) / plainOf('foreground'),
  worse: Object.fromEntries(
    worse.map(m => [m.name, Number((m.refined.sad / m.plain.sad).toFixed(2))]),
  ),
  means,
});
compareWithBaseline(means);
