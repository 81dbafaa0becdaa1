/**
 * Measures what preparing a graph gains: bare session.run of isnet as exported, one output fetched,
 * against the prepared graph. Both sessions live in one process with the same options and threads
 * and take turns, so that whatever else the machine does meets both alike.
 *
 * node bench/prepared-model.ts [--runs 10] [--threads <cores>] [--model isnet] [photo]
 */
import path from 'node:path';
import { parseArgs } from 'node:util';
import sharp, { type Sharp } from 'sharp';
import { prepareModel } from '../inference-node/model-tools/preparing/prepare.ts';
import { InferenceSession, Tensor } from '../inference-node/serving/engine/child/onnx-runtime.ts';
import { createAnswering } from '../inference-node/serving/engine/choice/run-once.ts';
import { loadManifest, type ModelManifest } from '../inference-node/serving/models/manifest.ts';
import { requireWeights } from '../inference-node/serving/prepared/weights-cache.ts';
import { at } from '../test/support/at.ts';
import { toPlanes } from './model-photo.ts';
import { writeResults } from './results.ts';
import { machine } from './service.ts';

/** The figure to reach: median of the prepared runs over median of the others. */
const RATIO_MAX = 0.9;
/** float16 weights are widened exactly; what is left is the rounding of activations to float16. */
const MATTE_DIFFERENCE_MAX = 0.002;

interface Runs {
  readonly loadMs: number;
  readonly runMs: number[];
  matte: Float32Array;
}

interface Options {
  readonly runs: number;
  readonly threads: number;
  readonly model: string;
  readonly photo: string | undefined;
}

function readOptions(): Options {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      runs: { type: 'string', default: '10' },
      threads: { type: 'string', default: String(machine().cores) },
      model: { type: 'string', default: 'isnet' },
    },
  });
  return {
    runs: Number(values.runs),
    threads: Number(values.threads),
    model: values.model,
    photo: positionals[0],
  };
}

/** A lit ball before a plain ground: a subject every matting model finds. */
function drawSubject(side: number): Sharp {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${side}" height="${side}">
    <defs><radialGradient id="light" cx="35%" cy="30%" r="75%">
      <stop offset="0" stop-color="#ffe9c9"/><stop offset="1" stop-color="#8c2f14"/>
    </radialGradient></defs>
    <rect width="100%" height="100%" fill="#9db7c4"/>
    <circle cx="50%" cy="52%" r="30%" fill="url(#light)"/></svg>`;
  return sharp(Buffer.from(svg));
}

async function readInput(manifest: ModelManifest, photo: string | undefined): Promise<Tensor> {
  const { inputWidth: width, inputHeight: height } = manifest.graph;
  const picture = photo === undefined ? drawSubject(width) : sharp(photo);
  const rgb = await picture
    .removeAlpha()
    .toColourspace('srgb')
    .resize(width, height, { fit: 'fill' })
    .raw()
    .toBuffer();
  return new Tensor('float32', toPlanes(rgb, manifest), [1, 3, height, width]);
}

async function openSession(graph: string, threads: number) {
  const startedMs = performance.now();
  const session = await InferenceSession.create(graph, {
    executionProviders: ['cpu'],
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    enableMemPattern: false,
  });
  return { session, loadMs: performance.now() - startedMs };
}

/** Takes turns; the first turn of each warms up and is not counted. */
async function measure(
  graphs: readonly [string, string],
  manifest: ModelManifest,
  input: Tensor,
  { runs, threads }: Options,
): Promise<readonly [Runs, Runs]> {
  const { inputName, outputName } = manifest.graph;
  const sessions = [await openSession(graphs[0], threads), await openSession(graphs[1], threads)];
  const measured: Runs[] = sessions.map(({ loadMs }) => ({
    loadMs,
    runMs: [],
    matte: new Float32Array(0),
  }));
  for (let turn = 0; turn <= runs; turn += 1) {
    for (const [index, { session }] of sessions.entries()) {
      const startedMs = performance.now();
      const outputs = await session.run({ [inputName]: input }, [outputName]);
      if (turn > 0) at(measured, index).runMs.push(performance.now() - startedMs);
      at(measured, index).matte = Float32Array.from(outputs[outputName]?.data as Float32Array);
    }
  }
  for (const { session } of sessions) await session.release();
  return [at(measured, 0), at(measured, 1)];
}

function summary(runMs: readonly number[]) {
  const sorted = runMs.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const median = (at(sorted, Math.ceil(middle) - 1) + at(sorted, Math.floor(middle))) / 2;
  return { min: at(sorted, 0), median, max: at(sorted, sorted.length - 1) };
}

function largestDifference(a: Float32Array, b: Float32Array): number {
  return a.reduce((largest, value, index) => Math.max(largest, Math.abs(value - at(b, index))), 0);
}

const options = readOptions();
const cacheDir = path.resolve(process.env.MATTING_MODEL_DIR || 'model-cache');
const manifest = await loadManifest(options.model);
const weights = await requireWeights({ cacheDir }, manifest);
const prepared = await prepareModel({
  manifest,
  cacheDir,
  inputSize: { width: manifest.graph.inputWidth, height: manifest.graph.inputHeight },
  precision: 'fp32',
  provider: 'cpu',
  answering: createAnswering({ childEnv: {}, threads: options.threads }),
});
const source = weights.get(manifest.graph.file) as string;
const input = await readInput(manifest, options.photo);
const [before, after] = await measure([source, prepared.path], manifest, input, options);
const [exportedMs, preparedMs] = [summary(before.runMs), summary(after.runMs)];
const ratio = preparedMs.median / exportedMs.median;
const largestMatteDifference = largestDifference(before.matte, after.matte);
writeResults('prepared-model', {
  model: prepared.model,
  threads: options.threads,
  runs: options.runs,
  exportedMs,
  preparedMs,
  exportedLoadMs: before.loadMs,
  preparedLoadMs: after.loadMs,
  ratioOfMedians: ratio,
  ratioOfMinima: preparedMs.min / exportedMs.min,
  ratioWanted: RATIO_MAX,
  largestMatteDifference,
});
if (largestMatteDifference > MATTE_DIFFERENCE_MAX) {
  console.error(`the mattes differ by more than ${MATTE_DIFFERENCE_MAX}`);
  process.exitCode = 1;
}
