import {
  appendFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { ModelManifest } from '@matting/serving/models/manifest.ts';
import type { PreparedModel } from '@matting/serving/models/prepared-model.ts';
import { decodeModel } from '@matting/serving/onnx/graph.ts';
import { buildPlan, type PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';
import {
  listPrepared,
  PREPARER_REVISION,
  preparedDirectory,
} from '@matting/serving/prepared/prepared-cache.ts';
import { recordChecked, weightsPath } from '@matting/serving/prepared/weights-cache.ts';
import { askDevice, type DeviceOptions } from '@matting/serving/test/ask-device.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { answerBlocks, loadModel } from '@matting/serving/test/run-graph.ts';
import { at } from '@matting/test-support/at.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { planQuantisation } from '../onnx/plan-quantisation.ts';
import { quantise } from '../onnx/quantise.ts';
import {
  type FakeRegistry,
  makeTinyModel,
  openFakeRegistry,
  sha256,
  type TinyModel,
} from '../test/fake-registry.ts';
import {
  graphBytes,
  largestDifference,
  measureRanges,
  prepareTinyGraph,
  runGraph,
} from '../test/tiny-graph.ts';
import { fetchWeights } from '../weights/fetch.ts';
import { exactInputScale, makePrepared, type PrepareOptions, prepareModel } from './prepare.ts';

const test = ava.serial;

const ROOM = await temporaryFolder({ teardown: test.after.always });

let model: TinyModel;
let registry: FakeRegistry;
let folder: string;
let cacheDir: string;
let steps: PrepareProgress[];
let answered: PreparedModel[];

test.before(async () => {
  model = await makeTinyModel(1000);
  registry = await openFakeRegistry(model.tarball);
});
test.after.always(() => registry.close());
test.beforeEach(async () => {
  [steps, answered] = [[], []];
  folder = await mkdtemp(join(ROOM, 'test-'));
  cacheDir = join(folder, 'cache');
  await fetchWeights(model.manifest, { cacheDir, npmConfig: registry.options });
});

function prepareTiny(more: Partial<PrepareOptions> = {}): Promise<PreparedModel> {
  return prepareModel({
    manifest: model.manifest,
    cacheDir,
    provider: 'cpu',
    instructionSet: 'x64-test',
    answering: NO_ENGINE,
    onProgress: progress => steps.push(progress),
    ...more,
  });
}

/** Only int8 needs an engine. */
const NO_ENGINE = {
  machine: 'a test',
  answer: () => Promise.reject(new Error('no engine here')),
};

function tookRewrite(): boolean {
  return steps.splice(0).some(({ step }) => step === 'rewrite');
}

const square = (side: number) => ({ width: side, height: side });

test('a size or precision that the model does not have is refused, with those it has', async t => {
  const refused = (more: Partial<PrepareOptions>, pattern: RegExp) =>
    rejectsWith(t, prepareTiny(more), isModelError('settings', pattern));
  await refused({ inputSize: square(50) }, /inputSize of its plan.*of 32 from 32 to 256/);
  await refused({ inputSize: { width: 64, height: 512 } }, /64x512/);
  await refused({ precision: 'int8' }, /int8 \(MATTING_PRECISION\): it can in fp32, fp16/);
});

test('a graph that runs as it is keeps its bytes: looked at once, then never again', async t => {
  const file = at(model.manifest.files, 0);
  const sides = { default: 64, listed: [64], multipleOf: 32, min: 32, max: 256 };
  const own: ModelManifest = {
    ...model.manifest,
    graph: { ...model.manifest.graph, layout: 'nhwc', dynamic: true },
    ...{ precisions: ['fp16'], inputSize: sides, fit: 'short-side', activation: 'signed' },
    measured: { peakBytes: 700, loadedBytes: 500, seconds: 1, provider: 'cpu' },
  };
  const prepared = await prepareTiny({ manifest: own });
  t.is(prepared.path, weightsPath(cacheDir, own, file));
  t.is(prepared.sha256, file.sha256);
  t.deepEqual(prepared.form, {
    ...{ inputType: 'float32', layout: 'nhwc', fit: 'short-side', inverted: false },
    sides: { multipleOf: 32, max: 256 },
  });
  // The largest input has 64x256 pixels; 64x64 were measured.
  t.like(prepared, { precision: 'fp16', activation: 'signed', peakBytes: 1300, inputHeight: 64 });
  t.true(tookRewrite());
  t.deepEqual(await prepareTiny({ manifest: own }), prepared);
  t.false(tookRewrite());
  const [listed] = await listPrepared(cacheDir, own);
  t.is(listed?.path, prepared.path);
  const refused = (manifest: ModelManifest, size: Size, pattern: RegExp) =>
    rejectsWith(t, prepareTiny({ manifest, inputSize: size }), isModelError('settings', pattern));
  await refused(own, { width: 64, height: 96 }, /short-side, it takes the length of one side/);
  await refused(own, square(288), /multiples of 32 from 32 to 256/);
  const fixed = { ...own, graph: { ...own.graph, dynamic: false }, fit: 'stretch' as const };
  await refused(fixed, square(96), /its graph takes 64x64 alone/);
});

test('altered weights are refused though the prepared file is there, or their record is forged', async t => {
  await prepareTiny();
  const file = at(model.manifest.files, 0);
  const path = weightsPath(cacheDir, model.manifest, file);
  await alterLastByte(path);
  await rejectsWith(t, prepareTiny(), isModelError('altered', /damaged.*models fetch tiny/));
  await recordChecked(path, file);
  const another = prepareTiny({ instructionSet: 'x64-other' });
  await rejectsWith(t, another, isModelError('altered', /sha256/));
  await rm(path);
  await rejectsWith(t, prepareTiny(), isModelError('missing', /models fetch tiny/));
});

test('the prepared graph runs and is described for an engine', async t => {
  const prepared = await prepareTiny();
  const bytes = await readFile(prepared.path);
  t.is(prepared.sha256, sha256(bytes));
  t.true(prepared.path.startsWith(cacheDir));
  const { path: _path, sha256: _sha256, ...rest } = prepared;
  t.deepEqual(rest, {
    model: 'tiny',
    version: '1.0.0',
    weights: model.manifest.files.map(file => file.sha256),
    precision: 'fp32',
    provider: 'cpu',
    inputWidth: 64,
    inputHeight: 64,
    inputName: 'input',
    outputName: 'output',
    normalisation: model.manifest.normalisation,
    colourOrder: 'rgb',
    activation: 'none',
    licence: model.manifest.licence,
  });
  const wanted = await runGraph(model.weights, 64);
  t.true(largestDifference(wanted, await runGraph(bytes, 64)) < 2e-3);
});

test('size, precision, provider and instruction set each have a file of their own', async t => {
  const variants: Partial<PrepareOptions>[] = [
    {},
    { inputSize: square(96) },
    { precision: 'fp16' },
    { provider: 'cuda', precision: 'fp32' },
    { instructionSet: 'x64-other' },
  ];
  const paths = new Set<string>();
  for (const variant of variants) {
    paths.add((await prepareTiny(variant)).path);
    t.truthy(tookRewrite());
  }
  t.is(paths.size, variants.length);
  t.is((await listPrepared(cacheDir, model.manifest)).length, variants.length);
});

test('a prepared file that is damaged, or made from other weights, is made again', async t => {
  const first = await prepareTiny();
  const { path } = first;
  const sidecar = JSON.parse(await readFile(`${path}.json`, 'utf8'));
  const sources = { ...sidecar.sources, 'tiny.onnx': '0'.repeat(64) };
  for (const [what, damage] of [
    ['truncated', () => writeFile(path, 'short')],
    ['longer', () => appendFile(path, 'more')],
    ['altered', () => alterLastByte(path)],
    ['without its sidecar', () => rm(`${path}.json`)],
    ['with half a sidecar', () => writeFile(`${path}.json`, '{"model": "ti')],
    [
      'of other weights',
      () => writeFile(`${path}.json`, `${JSON.stringify({ ...sidecar, sources }, null, 2)}\n`),
    ],
  ] as const) {
    await damage();
    steps.length = 0;
    t.deepEqual(await prepareTiny(), first, what);
    const discarded = steps.find(({ step }) => step === 'discard');
    t.true(discarded?.step === 'discard' && discarded.path === path, what);
    t.is(sha256(await readFile(path)), first.sha256, what);
    tookRewrite();
    await prepareTiny();
    t.true(!tookRewrite(), what);
  }
});

async function alterLastByte(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes.writeUInt8((bytes.at(-1) ?? 0) ^ 1, bytes.length - 1);
  await writeFile(path, bytes);
}

test('files of an older revision are removed after a day without a start that used them', async t => {
  const { path } = await prepareTiny();
  const old = path.replace(`_r${PREPARER_REVISION}.onnx`, `_r${PREPARER_REVISION - 1}.onnx`);
  const newer = path.replace(`_r${PREPARER_REVISION}.onnx`, `_r${PREPARER_REVISION + 1}.onnx`);
  await rename(path, old);
  await rename(`${path}.json`, `${old}.json`);
  await writeFile(newer, 'of a later release');
  // From releases up to 0.2.0.
  const together = path.replace(/_r(?=\d+\.onnx$)/, '_n2_r');
  await writeFile(together, 'for two pictures');
  const elsewhere = path.replace(/_cpu_(?=[^/]*$)/, '_webgpu_');
  await writeFile(elsewhere, 'for WebGPU');
  await prepareTiny();
  const directory = preparedDirectory(cacheDir, model.manifest);
  t.is((await readdir(directory)).length, 7, 'the old one may still be in use');
  const twoDaysAgo = new Date(Date.now() - 48 * 3600_000);
  for (const file of [old, `${old}.json`, together, elsewhere, newer])
    await utimes(file, twoDaysAgo, twoDaysAgo);
  await prepareTiny({ inputSize: square(96) });
  const names = (await readdir(directory)).map(name => join(directory, name));
  for (const file of [old, `${old}.json`, together, elsewhere]) t.false(names.includes(file), file);
  t.true(names.includes(newer));
});

test('records of a graph that runs as it is are removed a day after their last use', async t => {
  const own: ModelManifest = {
    ...model.manifest,
    graph: { ...model.manifest.graph, dynamic: true },
    precisions: ['fp32'],
  };
  const { recordsBeside = '' } = await prepareTiny({ manifest: own });
  const old = recordsBeside.replace(
    `_r${PREPARER_REVISION}.onnx`,
    `_r${PREPARER_REVISION - 1}.onnx`,
  );
  const beside = ['.json', '.runtimes.json', '.openvino-0123abcd'].map(end => old + end);
  for (const file of beside) await writeFile(file, 'of an earlier release');
  const directory = preparedDirectory(cacheDir, own);
  const left = async () => (await readdir(directory)).map(name => join(directory, name));
  await prepareTiny({ manifest: own, instructionSet: 'x64-other' });
  t.true((await left()).includes(`${old}.json`), 'it may still be in use');
  const twoDaysAgo = new Date(Date.now() - 48 * 3600_000);
  for (const file of [...beside, `${recordsBeside}.json`])
    await utimes(file, twoDaysAgo, twoDaysAgo);
  await prepareTiny({ manifest: own });
  const used = (await stat(`${recordsBeside}.json`)).mtimeMs;
  t.true(used > twoDaysAgo.getTime() + 3600_000, 'its use is noted');
  await prepareTiny({ manifest: own, instructionSet: 'x64-third' });
  const names = await left();
  for (const file of beside) t.false(names.includes(file), file);
  t.true(names.includes(`${recordsBeside}.json`));
});

test('two at the same time make the same file', async t => {
  const [one, other] = await Promise.all([prepareTiny(), prepareTiny()]);
  t.deepEqual(one, other);
  t.is(sha256(await readFile(one.path)), one.sha256);
  tookRewrite();
  await prepareTiny();
  t.true(!tookRewrite());
});

test('a plan of one model is prepared', async t => {
  const manifestDirectory = join(cacheDir, 'manifests');
  const plan = () =>
    buildPlan({
      outline: { name: 'tiny', entries: [{ model: 'tiny', inputSize: 96, role: 'subject' }] },
      ...{ manifestDirectory, cacheDir, provider: 'cpu' },
      ...{ instructionSet: 'x64-test', answering: NO_ENGINE, make: makePrepared },
    });
  await rejectsWith(t, plan(), isModelError('settings', /no model "tiny"/));
  await mkdir(join(manifestDirectory, 'tiny'), { recursive: true });
  const manifest = join(manifestDirectory, 'tiny', 'manifest.json');
  await writeFile(manifest, JSON.stringify(model.manifest));
  const { name, models } = await plan();
  t.is(name, 'tiny');
  t.deepEqual(
    models.map(({ model: { inputWidth, inputHeight }, role }) => [inputWidth, inputHeight, role]),
    [[96, 96, 'subject']],
  );
});

const SIDE = 64;
const VNNI = 'x64-avx512-vnni';

let manifest: ModelManifest;
let rangesText: string;
let rangesFile: string;

test.before(async () => {
  const { precisions, inputSize } = model.manifest;
  manifest = {
    ...model.manifest,
    precisions: [...precisions, 'int8'],
    inputSize: { ...inputSize, int8: [SIDE] },
  };
  rangesText = await calibrate(model.weights);
});
test.beforeEach(async () => {
  rangesFile = join(folder, 'models', 'tiny', 'ranges-64.json');
  await mkdir(join(folder, 'models', 'tiny'), { recursive: true });
  await writeFile(rangesFile, rangesText);
});

type AnswerPicture = PrepareOptions['answering']['answer'];

const answer: AnswerPicture = async (model, rgb) => {
  answered.push(model);
  const { alpha, size } = await (await loadModel(model)).run(rgb);
  return { alpha: Uint8Array.from(alpha), ...size };
};

async function calibrate(weights: Buffer): Promise<string> {
  const graph = prepareTinyGraph(decodeModel(weights, 'tiny'));
  const input = exactInputScale(manifest);
  const { measured } = planQuantisation(graph, { inputIsExact: true });
  const ranges = await measureRanges(graph, measured, SIDE);
  const bytes = graphBytes(quantise(graph, { ranges, float32: new Set(), input }));
  const { inputWidth, inputHeight, inputName, outputName } = model.manifest.graph;
  const ends = { inputWidth, inputHeight, inputName, outputName, activation: 'none' } as const;
  const { normalisation, colourOrder } = manifest;
  return JSON.stringify({
    model: 'tiny',
    version: manifest.version,
    weightsSha256: sha256(weights),
    inputSize: SIDE,
    quantilePerMillion: 0,
    photos: [{ name: 'a wave', sha256: 'ab'.repeat(32) }],
    checkAnswer: await answerBlocks({ ...ends, normalisation, colourOrder }, bytes, SIDE),
    ranges: Object.fromEntries(ranges),
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

/** A machine that computes int8 wrongly. */
const wrong: AnswerPicture = async (model, rgb) => {
  if (model.precision !== 'int8') return answer(model, rgb);
  return { alpha: Buffer.alloc(SIDE * SIDE), width: SIDE, height: SIDE };
};

test('ranges that do not fit are refused before anything is written, auto or not', async t => {
  for (const precision of ['auto', 'int8'] as const) {
    await writeFile(rangesFile, rangesText.replace(/"version": ?"1\.0\.0"/, '"version": "0.9.9"'));
    await rejectsWith(t, prepare({ precision }), isModelError('manifest', /version is 0\.9\.9/));
    await writeFile(rangesFile, rangesText.slice(0, 700));
    await rejectsWith(t, prepare({ precision }), isModelError('manifest', /not JSON/));
  }
  t.deepEqual(answered, []);
});

test('a machine that computes wrongly gets fp32 by auto, with a reason; int8 is refused', async t => {
  const answering = { machine: 'a wrong one', answer: wrong };
  const fallen = await prepare({ answering });
  t.is(fallen.precision, 'fp32');
  t.regex(fallen.precisionFallback ?? '', /answer to the check picture is wrong.*levels of 255/);
  const named = prepare({ answering, precision: 'int8' });
  await rejectsWith(t, named, isModelError('prepare', /MATTING_PRECISION=int8.*is wrong/));
  // Not recorded, so another machine uses int8.
  t.is((await prepare()).precision, 'int8');
});

test('an engine that dies while it runs the graph gives fp32', async t => {
  const dies = () => Promise.reject(new Error('the process ended: SIGILL'));
  const fallen = await prepare({ answering: { machine: 'an old one', answer: dies } });
  t.is(fallen.precision, 'fp32');
  t.regex(fallen.precisionFallback ?? '', /does not run: the process ended: SIGILL/);
});

test('int8 gives the stored answer, and is checked once on each kind of machine', async t => {
  const first = await prepare();
  t.is(first.precision, 'int8');
  t.is(first.precisionFallback, undefined);
  t.is(first.sha256, sha256(await readFile(first.path)));
  t.truthy(took('rewrite'));
  t.deepEqual(await prepare(), first);
  t.true(!took('rewrite'));
  t.is(answered.length, 1);
  await prepare({ answering: { machine: 'another', answer } });
  t.is(answered.length, 2);
  t.deepEqual(await prepare(), first);
  t.is(answered.length, 2, 'both are recorded');
});

test('a damaged record of answers is ignored and written again', async t => {
  const first = await prepare();
  const file = `${first.path}.answers.json`;
  const written = await readFile(file, 'utf8');
  const { sha256: digest } = first;
  const damaged = [
    '{"sha256": "',
    'null',
    '{}',
    JSON.stringify({ sha256: digest }),
    JSON.stringify({ sha256: digest, machines: null }),
    JSON.stringify({ sha256: digest, machines: ['a test', null] }),
    JSON.stringify({ sha256: null, machines: ['a test'] }),
    // For another file.
    JSON.stringify({ sha256: '0'.repeat(64), machines: ['a test'] }),
  ];
  for (const text of damaged) {
    await writeFile(file, text);
    answered.length = 0;
    t.deepEqual(await prepare(), first, text);
    t.is(answered.length, 1, text);
    t.is(await readFile(file, 'utf8'), written, text);
  }
});

test('other ranges make another file, and keep that of a release that may still run', async t => {
  const first = await prepare();
  await writeFile(rangesFile, rangesText.replace('"a wave"', '"a wave, renamed"'));
  const second = await prepare();
  t.not(second.path, first.path);
  await writeFile(rangesFile, rangesText);
  steps.length = 0;
  t.deepEqual(await prepare(), first);
  t.true(!took('rewrite'));
});

/** As in a container image: weights in one folder, everything else in another. */
let folders: { readonly cacheDir: string; readonly weightsDir: string };

/** Without ranges, as modnet at 448. */
async function prepareOnGpu(manifest = model.manifest): Promise<PreparedModel> {
  folders = { cacheDir: join(folder, 'all-else'), weightsDir: cacheDir };
  await mkdir(join(folder, 'manifests', 'tiny'), { recursive: true });
  const file = join(folder, 'manifests', 'tiny', 'manifest.json');
  await writeFile(file, JSON.stringify(manifest));
  const { instructionSet, answering } = options();
  return await prepareModel({
    ...{ manifest, ...folders, instructionSet, answering },
    precision: 'fp16',
    provider: 'cuda',
  });
}

function options(gpuLevel = 100): DeviceOptions {
  const answerOf = (level: number) => async (model: PreparedModel) => {
    const { inputWidth: width, inputHeight: height } = model;
    return { alpha: new Uint8Array(width * height).fill(level), width, height };
  };
  return {
    ...folders,
    manifestDirectory: join(folder, 'manifests'),
    instructionSet: 'x64-test',
    machine: 'a GPU, driver 580',
    answer: answerOf(gpuLevel),
    answering: {
      machine: 'a test',
      answer: async model => {
        answered.push(model);
        return await answerOf(100)(model);
      },
    },
    make: makePrepared,
  };
}

test('weights that are only in the folder that is read are enough', async t => {
  const onGpu = await prepareOnGpu();
  t.is(await askDevice(onGpu, options()), undefined);
  const [onCpu, ...more] = answered;
  t.deepEqual([onCpu?.precision, onCpu?.provider, more.length], ['fp32', 'cpu', 0]);
  t.truthy(onCpu?.path.startsWith(folders.cacheDir));
  t.is(await askDevice(onGpu, options(0)), undefined);
  t.is(answered.length, 1);
});

test('a graph that runs as it is runs the same on the CPU, and folders of weights stay', async t => {
  const graph = { ...model.manifest.graph, dynamic: true };
  const onGpu = await prepareOnGpu({ ...model.manifest, graph, precisions: ['fp16'] });
  const before = await readdir(dirname(onGpu.path));
  t.is(await askDevice(onGpu, options()), undefined);
  t.is(await askDevice(onGpu, options(0)), undefined);
  t.deepEqual(
    answered.map(({ path, provider }) => [path, provider]),
    [[onGpu.path, 'cpu']],
  );
  t.deepEqual(await readdir(dirname(onGpu.path)), before);
  const brighter = { ...onGpu, activation: 'scale255' } as const;
  t.regex((await askDevice(brighter, options(0))) ?? '', /is wrong/);
});

test('one that is checked afresh is held against the answer that was found before', async t => {
  const onGpu = await prepareOnGpu();
  t.is(await askDevice(onGpu, options()), undefined);
  await rm(folders.weightsDir, { recursive: true });
  const afresh = { machine: undefined };
  t.is(await askDevice(onGpu, { ...options(), ...afresh }), undefined);
  t.regex((await askDevice(onGpu, { ...options(200), ...afresh })) ?? '', /is wrong/);
  t.is(answered.length, 1);
});

test('another answer is wrong, and is not remembered as right', async t => {
  const onGpu = await prepareOnGpu();
  const wrong = await askDevice(onGpu, options(200));
  t.regex(wrong ?? '', /^its answer to the check picture is wrong: /);
  t.regex((await askDevice(onGpu, options(200))) ?? '', /is wrong/);
});

test('a GPU counts as wrong if there is no answer to compare its own with', async t => {
  const onGpu = await prepareOnGpu();
  await rm(folders.weightsDir, { recursive: true });
  const reason = await askDevice(onGpu, options());
  t.regex(reason ?? '', /^there is no answer to hold its own against: .*models fetch tiny/);
  const failing = { machine: 'a test', answer: () => Promise.reject(new Error('no memory')) };
  await fetchWeights(model.manifest, {
    cacheDir: folders.weightsDir,
    npmConfig: registry.options,
  });
  const failed = await askDevice(onGpu, { ...options(), answering: failing });
  t.is(failed, 'there is no answer to hold its own against: no memory');
});
