/**
 * Makes models/<name>/ranges-<size>.json: the ranges by which the model is quantised to int8.
 *
 * npm run calibrate -- <model> <photos…> [--size 1024] [--quantile 0] [--median 150]
 *   [--float32 <value>]… [--judge <folder>]…
 *
 * Without --size every size that the manifest lists under inputSize.int8 is made, and what is not
 * given is as the file says that is there. A quantile is parts of a million of a photo's numbers
 * that a range leaves out at either end; --median bounds a range at so many per cent of the median
 * of the photos' ends; --float32 names the output of a convolution that keeps its weights and its
 * input, where bytes spoil it. Choose a dozen ordinary photos and more, none of those that you
 * judge by; --judge takes folders of NAME.jpg (or .png) beside NAME_alpha.png and prints the
 * mattes' errors before (float32) and after (int8). Run it on a CPU with VNNI or DOTPROD: the
 * answer to the check picture that it stores is what every other machine is held against.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { planQuantisation } from '../inference-node/model-tools/onnx/plan-quantisation.ts';
import { type Quantisation, quantise } from '../inference-node/model-tools/onnx/quantise.ts';
import { OPSET_OF_INT8, raiseOpset } from '../inference-node/model-tools/onnx/rewrites.ts';
import { exactInputScale, prepareGraph } from '../inference-node/model-tools/preparing/prepare.ts';
import type { InferenceSession } from '../inference-node/serving/engine/child/onnx-runtime.ts';
import { writeFileWhole } from '../inference-node/serving/models/cache-files.ts';
import {
  loadManifest,
  MANIFEST_DIRECTORY,
  type ModelManifest,
} from '../inference-node/serving/models/manifest.ts';
import { decodeModel, type Graph } from '../inference-node/serving/onnx/graph.ts';
import {
  drawCheckPicture,
  summariseAnswer,
} from '../inference-node/serving/prepared/answer-check.ts';
import {
  carriesInt8,
  detectInstructionSet,
} from '../inference-node/serving/prepared/instruction-set.ts';
import {
  formatRanges,
  parseRanges,
  type Ranges,
  rangesFileName,
} from '../inference-node/serving/prepared/ranges.ts';
import { requireWeights } from '../inference-node/serving/prepared/weights-cache.ts';
import { at } from '../test/support/at.ts';
import {
  type ErrorsByImage,
  errorRatios,
  inferAlpha,
  judge,
  MEASURES,
  meanError,
  worseImages,
} from './judge-mattes.ts';
import { readModelPhoto, toPlanes } from './model-photo.ts';
import { observeRanges, openSession } from './observe-ranges.ts';
import { machine } from './service.ts';

const PHOTOS_MIN = 4;

type Settings = Pick<Ranges, 'quantile' | 'percentOfMedianMax' | 'float32'>;

/** For a size without a file. */
const NEW_FILE: Settings = { quantile: 0, percentOfMedianMax: 150, float32: [] };

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    size: { type: 'string', multiple: true, default: [] },
    quantile: { type: 'string' },
    median: { type: 'string' },
    float32: { type: 'string', multiple: true },
    judge: { type: 'string', multiple: true, default: [] },
    threads: { type: 'string', default: String(machine().cores) },
  },
});
const [modelName, ...photoFiles] = positionals;
if (modelName === undefined || photoFiles.length < PHOTOS_MIN) {
  throw new Error(`usage: calibrate <model> <photos…>, at least ${PHOTOS_MIN} photos`);
}
const threads = Number(values.threads);
const instructionSet = await detectInstructionSet();
if (!carriesInt8(instructionSet)) {
  throw new Error(`this CPU (${instructionSet}) has no instruction for int8: use another machine`);
}
const manifest = await loadManifest(modelName);
const cacheDir = path.resolve(process.env.MATTING_MODEL_DIR || 'model-cache');
const weightsFile = (await requireWeights({ cacheDir }, manifest)).get(manifest.graph.file) ?? '';
const weights = readFileSync(weightsFile);
const { int8 = [], default: defaultSize } = manifest.inputSize;
const given = values.size.map(Number);
const listed = int8.length > 0 ? int8 : [defaultSize];
for (const side of given.length > 0 ? given : listed) await calibrate(side);

async function calibrate(side: number): Promise<void> {
  const file = path.join(MANIFEST_DIRECTORY, manifest.name, rangesFileName(side));
  const settings = settingsOf(file);
  const { quantile, percentOfMedianMax } = settings;
  const graph = float32Graph(manifest, side);
  const input = exactInputScale(manifest);
  const float32 = new Set(settings.float32);
  const plan = planQuantisation(graph, { inputIsExact: input !== undefined, float32 });
  const planes: Float32Array[] = [];
  for (const file of photoFiles) {
    planes.push(toPlanes((await readModelPhoto(file, side)).rgb, manifest));
  }
  const ranges = await observeRanges({
    graph,
    names: plan.measured,
    planes,
    side,
    quantile,
    percentOfMedianMax: percentOfMedianMax ?? Number.POSITIVE_INFINITY,
    threads,
    onBatch: (done, all) => console.log(`${modelName} ${side}: ${done} of ${all} values observed`),
  });
  const quantisation: Quantisation = { ranges, float32, input };
  const before = await openSession(graph, threads);
  const after = await openSession(quantise(graph, quantisation), threads);
  const checkPicture = drawCheckPicture(side, side);
  const answer = await inferAlpha(after, manifest, checkPicture, side);
  const text = formatRanges({
    model: manifest.name,
    version: manifest.version,
    weightsSha256: createHash('sha256').update(weights).digest('hex'),
    inputSize: side,
    quantile,
    ...(percentOfMedianMax !== undefined && { percentOfMedianMax }),
    photos: photoFiles.map(file => ({
      name: path.basename(file),
      sha256: createHash('sha256').update(readFileSync(file)).digest('hex'),
    })),
    float32: [...float32],
    ranges,
    checkAnswer: summariseAnswer({ alpha: answer, width: side, height: side }),
  });
  // The file that is committed must be readable.
  parseRanges(text, file);
  await writeFileWhole(file, whole => whole.write(Buffer.from(text), 0));
  console.log(`${file}: ${ranges.size} ranges of ${photoFiles.length} photos:`);
  for (const photo of photoFiles) console.log(`  ${path.basename(photo)}`);
  await compareOnPhotos(before, after, side);
  if (values.judge.length > 0) {
    const beforeErrors = await judge(before, manifest, side, values.judge);
    printQuality(beforeErrors, await judge(after, manifest, side, values.judge));
  }
  await Promise.all([before.release(), after.release()]);
}

/** Takes the given settings; those not given are as in the file that is there. */
function settingsOf(file: string): Settings {
  const there = existsSync(file) ? parseRanges(readFileSync(file, 'utf8'), file) : NEW_FILE;
  const { quantile, median, float32 } = values;
  const percentOfMedianMax = median === undefined ? there.percentOfMedianMax : Number(median);
  const settings = {
    quantile: quantile === undefined ? there.quantile : Number(quantile) / 1e6,
    ...(percentOfMedianMax === undefined ? {} : { percentOfMedianMax }),
    float32: float32 ?? there.float32,
  };
  if (!(settings.quantile >= 0 && settings.quantile < 0.5)) {
    throw new Error('--quantile is parts of a million, from 0 to less than half');
  }
  if (percentOfMedianMax !== undefined && !(percentOfMedianMax >= 100)) {
    throw new Error('--median is per cent, at least 100: less would cut every photo');
  }
  return settings;
}

function float32Graph({ graph, name }: ModelManifest, side: number): Graph {
  const { inputName, outputName, inputWidth, inputHeight } = graph;
  const prepared = prepareGraph(decodeModel(weights, name), {
    inputName,
    outputName,
    exported: { width: inputWidth, height: inputHeight },
    wanted: { width: side, height: side },
    precision: 'fp32',
  });
  return raiseOpset(prepared, OPSET_OF_INT8);
}

/** How far both mattes of a photo lie apart, in levels of 255. */
async function compareOnPhotos(
  before: InferenceSession,
  after: InferenceSession,
  side: number,
): Promise<void> {
  console.log('mean difference of the int8 matte to the float32 one, levels of 255:');
  for (const photo of photoFiles) {
    const { rgb } = await readModelPhoto(photo, side);
    const wanted = await inferAlpha(before, manifest, rgb, side);
    const found = await inferAlpha(after, manifest, rgb, side);
    const sum = found.reduce((total, level, i) => total + Math.abs(level - at(wanted, i)), 0);
    console.log(`  ${path.basename(photo).padEnd(40)} ${(sum / found.length).toFixed(2)}`);
  }
}

function printQuality(before: ErrorsByImage, after: ErrorsByImage): void {
  const ratios = errorRatios(before, after);
  console.log(`quality on ${before.size} images with reference mattes:`);
  for (const measure of MEASURES) {
    const [old, now] = [meanError(before, measure), meanError(after, measure)];
    const ratio = ratios[measure].toFixed(3);
    console.log(
      `  ${measure.padEnd(9)} float32 ${old.toPrecision(4)}, int8 ${now.toPrecision(4)}: ${ratio}`,
    );
  }
  const worse = worseImages(before, after);
  console.log(worse.length === 0 ? '  no image is worse for real' : `  ${worse.join('\n  ')}`);
}
