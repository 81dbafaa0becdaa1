/** Preparing in int8 from ranges: the answer check, the fallback, damaged files. */
import { mkdir, mkdtemp, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import ava from 'ava';
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts';
import { rejectsWith } from '../../../../test/support/throws.ts';
import { createPlaneTables, fillAlpha, fillPlanes } from '../../../src/engine/child/graph-ends.ts';
import { InferenceSession, Tensor } from '../../../src/engine/child/onnx-runtime.ts';
import type { ModelManifest } from '../../../src/models/manifest.ts';
import { decodeModel } from '../../../src/models/onnx/model-file.ts';
import { quantise } from '../../../src/models/onnx/passes/quantise.ts';
import { planQuantisation } from '../../../src/models/onnx/quantisation-plan.ts';
import type { PreparedModel } from '../../../src/models/prepared-model.ts';
import type { AnswerPicture } from '../../../src/models/preparing/answer-check.ts';
import { drawCheckPicture, summariseAnswer } from '../../../src/models/preparing/check-picture.ts';
import {
  type PrepareOptions,
  type PrepareProgress,
  prepareModel,
} from '../../../src/models/preparing/prepare.ts';
import { exactInputScale, formatRanges } from '../../../src/models/preparing/ranges.ts';
import { fetchWeights } from '../../../src/models/weights/fetch.ts';
import { isModelError } from '../is-model-error.ts';
import { graphBytes, measureRanges, prepareTinyGraph } from '../onnx/tiny-graph.ts';
import {
  type FakeRegistry,
  makeTinyModel,
  openFakeRegistry,
  sha256,
} from '../weights/fake-registry.ts';

const test = ava.serial;

/** The folders of all tests. */
const ROOM = await temporaryFolder({ teardown: test.after.always });

const SIDE = 64;
const VNNI = 'x64-avx512-vnni';

let manifest: ModelManifest;
let registry: FakeRegistry;
let rangesText: string;
let folder: string;
let cacheDir: string;
let rangesFile: string;
let steps: PrepareProgress[];
let asked: PreparedModel[];

test.before(async () => {
  const tiny = await makeTinyModel(1000);
  registry = await openFakeRegistry(tiny.tarball);
  const { precisions, inputSize } = tiny.manifest;
  manifest = {
    ...tiny.manifest,
    precisions: [...precisions, 'int8'],
    inputSize: { ...inputSize, int8: [SIDE] },
  };
  rangesText = await calibrate(tiny.weights);
});
test.after.always(() => registry.close());
test.beforeEach(async () => {
  steps = [];
  asked = [];
  folder = await mkdtemp(join(ROOM, 'int8-'));
  cacheDir = join(folder, 'cache');
  rangesFile = join(folder, 'models', 'tiny', 'ranges-64.json');
  await mkdir(join(folder, 'models', 'tiny'), { recursive: true });
  await writeFile(rangesFile, rangesText);
  await fetchWeights(manifest, { cacheDir, registryOptions: registry.options });
});

/** An engine in this process. */
const answer: AnswerPicture = async (model, rgb) => {
  asked.push(model);
  return infer(model.path, rgb);
};

async function infer(graph: string | Uint8Array, rgb: Uint8Array): Promise<Buffer> {
  const options = { intraOpNumThreads: 1, logSeverityLevel: 3 as const };
  const session = await (typeof graph === 'string'
    ? InferenceSession.create(graph, options)
    : InferenceSession.create(graph, options));
  const planes = new Float32Array(rgb.length);
  fillPlanes(rgb, planes, createPlaneTables(manifest.normalisation, manifest.colourOrder));
  const input = new Tensor('float32', planes, [1, 3, SIDE, SIDE]);
  const { output } = await session.run({ input }, ['output']);
  const alpha = Buffer.alloc(SIDE * SIDE);
  fillAlpha(output?.data as Float32Array, new Uint8ClampedArray(alpha.buffer), 'none');
  await session.release();
  return alpha;
}

async function calibrate(weights: Buffer): Promise<string> {
  const graph = prepareTinyGraph(decodeModel(weights, 'tiny'));
  const input = exactInputScale(manifest);
  const { measured } = planQuantisation(graph, { inputIsExact: true });
  const ranges = await measureRanges(graph, measured, SIDE);
  const bytes = graphBytes(quantise(graph, { ranges, float32: new Set(), input }));
  return formatRanges({
    model: 'tiny',
    version: manifest.version,
    weightsSha256: sha256(weights),
    inputSize: SIDE,
    quantile: 0,
    photos: [{ name: 'a wave', sha256: 'ab'.repeat(32) }],
    float32: [],
    ranges,
    checkAnswer: summariseAnswer(await infer(bytes, drawCheckPicture(SIDE, SIDE)), SIDE, SIDE),
  });
}

function prepare(more: Partial<PrepareOptions> = {}): Promise<PreparedModel> {
  return prepareModel({
    manifest,
    cacheDir,
    manifestDirectory: join(folder, 'models'),
    provider: 'cpu',
    instructionSet: VNNI,
    answering: { machine: 'a test', answer },
    onProgress: progress => steps.push(progress),
    ...more,
  });
}

const took = (step: PrepareProgress['step']) => steps.splice(0).some(taken => taken.step === step);

/** Answers black in int8: a machine that computes wrongly. */
const wrong: AnswerPicture = async (model, rgb) => {
  if (model.precision !== 'int8') return answer(model, rgb);
  return Buffer.alloc(SIDE * SIDE);
};

test('ranges that do not fit are refused before anything is written, auto or not', async t => {
  for (const precision of ['auto', 'int8'] as const) {
    await writeFile(rangesFile, rangesText.replace(/"version": ?"1\.0\.0"/, '"version": "0.9.9"'));
    await rejectsWith(t, prepare({ precision }), isModelError('manifest', /version is 0\.9\.9/));
    await writeFile(rangesFile, rangesText.slice(0, 700));
    await rejectsWith(t, prepare({ precision }), isModelError('manifest', /not JSON/));
  }
  t.deepEqual(asked, []);
});

test('a machine that computes wrongly gets fp32 by auto, with a reason; int8 is refused', async t => {
  const answering = { machine: 'a wrong one', answer: wrong };
  const fallen = await prepare({ answering });
  t.is(fallen.precision, 'fp32');
  t.regex(fallen.precisionFallback ?? '', /answer to the check picture is wrong.*levels of 255/);
  const named = prepare({ answering, precision: 'int8' });
  await rejectsWith(t, named, isModelError('prepare', /MATTING_PRECISION=int8.*is wrong/));
  // Nothing of it is recorded: another machine is checked and uses int8.
  t.is((await prepare()).precision, 'int8');
});

test('an engine that dies while it runs the graph gives fp32', async t => {
  const dies = () => Promise.reject(new Error('the process ended: SIGILL'));
  const fallen = await prepare({ answering: { machine: 'an old one', answer: dies } });
  t.is(fallen.precision, 'fp32');
  t.regex(fallen.precisionFallback ?? '', /does not run: the process ended: SIGILL/);
});

test('a CPU without the instructions gets fp32, without a check', async t => {
  const { precision, precisionFallback } = await prepare({ instructionSet: 'x64-avx2' });
  t.is(precision, 'fp32');
  t.regex(precisionFallback ?? '', /x64-avx2/);
  t.deepEqual(asked, []);
});

test('int8 gives the stored answer, and is checked once on each kind of machine', async t => {
  const first = await prepare();
  t.is(first.precision, 'int8');
  t.is(first.precisionFallback, undefined);
  t.is(first.sha256, sha256(await readFile(first.path)));
  t.truthy(took('rewrite'));
  t.deepEqual(await prepare(), first);
  t.true(!took('rewrite'));
  t.is(asked.length, 1);
  await prepare({ answering: { machine: 'another', answer } });
  t.is(asked.length, 2);
  t.deepEqual(await prepare(), first);
  t.is(asked.length, 2, 'both are recorded');
});

test('a damaged record of answers is ignored and written again', async t => {
  const first = await prepare();
  const file = `${first.path}.answers.json`;
  const written = await readFile(file, 'utf8');
  const { sha256: digest } = first;
  const damaged = [
    '{"sha256": "',
    '',
    'null',
    '[]',
    '"a text"',
    '17',
    '{}',
    JSON.stringify({ sha256: digest }),
    JSON.stringify({ sha256: digest, machines: null }),
    JSON.stringify({ sha256: digest, machines: ['a test', null] }),
    JSON.stringify({ sha256: null, machines: ['a test'] }),
    // Well formed, but for another file.
    JSON.stringify({ sha256: '0'.repeat(64), machines: ['a test'] }),
  ];
  for (const text of damaged) {
    await writeFile(file, text);
    asked.length = 0;
    t.deepEqual(await prepare(), first, text);
    t.is(asked.length, 1, text);
    t.is(await readFile(file, 'utf8'), written, text);
  }
});

test('other ranges make another file beside that of a release that may still run', async t => {
  const other = rangesText.replace('"a wave"', '"a wave, renamed"');
  const first = await prepare();
  await writeFile(rangesFile, other);
  const second = await prepare();
  t.not(second.path, first.path);
  await writeFile(rangesFile, rangesText);
  steps.length = 0;
  t.deepEqual(await prepare(), first);
  t.true(!took('rewrite'));

  // No start used it for a day: making the next file removes it.
  await writeFile(rangesFile, other);
  await prepare();
  const twoDaysAgo = new Date(Date.now() - 48 * 3600_000);
  const files = [first.path, `${first.path}.json`, `${first.path}.answers.json`];
  for (const file of files) await utimes(file, twoDaysAgo, twoDaysAgo);
  await rm(second.path);
  await prepare();
  for (const file of files) await t.throwsAsync(readFile(file), { code: 'ENOENT' });
  t.is((await prepare()).path, second.path);
});
