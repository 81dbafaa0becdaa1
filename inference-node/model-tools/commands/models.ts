/** `models fetch`, `list` and `check`, as they are typed and what they do. */

import { readFile, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { ConfigError } from '@matting/program/env.ts';
import { createAnswering, runOnce } from '@matting/serving/engine/choice/answer-picture.ts';
import { readCpuShare } from '@matting/serving/engine/choice/engine-layout.ts';
import { describeTerms, type UseTerms } from '@matting/serving/models/licence.ts';
import {
  listManifests,
  loadManifest,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import {
  loadPlanOutlines,
  type ModelSettings,
  outlineOf,
  type PlanEntry,
  type PlanOutline,
  refusalsOf,
  requireAdmitted,
} from '@matting/serving/models/plan.ts';
import {
  decodeModel,
  ElementType,
  type Graph,
  type GraphValue,
} from '@matting/serving/onnx/graph.ts';
import { decodeFile } from '@matting/serving/picture/codecs/decode.ts';
import { createModelInput } from '@matting/serving/picture/matte/model-input.ts';
import type { RgbaPicture } from '@matting/serving/picture/rgba-picture.ts';
import { finishPicture } from '@matting/serving/picture/worker/finish.ts';
import {
  detectInstructionSet,
  type PrepareProgress,
} from '@matting/serving/prepared/load-prepared.ts';
import { listPrepared, PREPARER_REVISION } from '@matting/serving/prepared/prepared-cache.ts';
import { findWeightsFile, type WeightsFolders } from '@matting/serving/prepared/weights-cache.ts';
import cliProgress from 'cli-progress';
import type { Command } from 'commander';
import { prepareModel } from '../preparing/prepare.ts';
import { type FetchProgress, fetchWeights } from '../weights/fetch.ts';
import type { CliConfig, CommandContext } from './cli-config.ts';

export function addModelCommands(program: Command, { config, signal }: CommandContext): void {
  const models = program.command('models').description('fetch, list and check models');
  models
    .command('fetch')
    .description('fetch weights and prepare them for this machine')
    .argument(
      '[name...]',
      'plans and models; none: MATTING_QUALITY or MATTING_MODEL, and MATTING_MODELS_OFFERED',
    )
    .option('--json', 'print what was done as JSON')
    .option('--progress-json', 'print each step as a line of JSON')
    .option('--weights-only', 'fetch and check, and prepare nothing: for another machine')
    .option('--refuse-altered', 'fail on a damaged weights file in place of fetching it again')
    .action(async (names: string[], options: ModelsFetchOptions) => {
      const streams = { out: process.stdout, err: process.stderr };
      await modelsFetch(names, options, config(), streams, signal);
    });
  models
    .command('list')
    .description('list models, their licences, and what is fetched and prepared')
    .option('--json', 'print JSON')
    .action(async (options: { json?: boolean }) => {
      await modelsList(options, config(), process.stdout);
    });
  models
    .command('check')
    .description('load any ONNX file, print its tensors, run it and write a cut-out')
    .argument('<file>', 'an ONNX model that takes an RGB picture and gives a matte')
    .option('--image <file>', 'what to cut out; a painted ball otherwise')
    .option('--out <file>', 'the cut-out, a PNG', 'check.png')
    .option('--size <pixels>', "the input's side; the graph's own otherwise, or 512")
    .option('--mean <r,g,b>', 'taken from 0 to 255 values', '127.5,127.5,127.5')
    .option('--std <r,g,b>', 'then divided by', '127.5,127.5,127.5')
    .option('--bgr', 'blue comes first')
    .option('--sigmoid', 'the output is a logit')
    .option('--output <name>', 'the output that is the matte; the first otherwise')
    .action(async (file: string, options: ModelsCheckOptions) => {
      await modelsCheck(file, options, process.stdout);
    });
}

export interface ModelsFetchOptions {
  readonly json?: boolean;
  readonly progressJson?: boolean;
  readonly refuseAltered?: boolean;
  readonly weightsOnly?: boolean;
}

type FetchedModel = Awaited<ReturnType<typeof fetchOne>>;

/**
 * Without names the configured plan and all that is offered.
 * @throws ModelError; ConfigError; the signal's reason.
 */
export async function modelsFetch(
  names: readonly string[],
  options: ModelsFetchOptions,
  config: CliConfig,
  { out, err }: { readonly out: Writable; readonly err: Writable & { readonly isTTY?: boolean } },
  signal: AbortSignal,
): Promise<void> {
  const view = options.progressJson ? new JsonView(out) : createProgressView(err);
  // All manifests first: a misspelt name is not found out after a download of minutes.
  const { addedModelsDir } = config.settings;
  const plan = await outlineOf(config.settings);
  const wanted =
    names.length > 0 ? await named(names, plan, addedModelsDir) : await served(plan, config);
  const loading = wanted.map(async ({ model, inputSize }) => {
    return { manifest: await loadManifest(model, undefined, addedModelsDir), side: inputSize };
  });
  const known = await Promise.all(loading);
  await requireAdmitted(wanted, config.settings);
  if (options.progressJson && names.length === 0) {
    const offered = config.offered.length === 0 ? '' : `, offered ${config.offered.join(' and ')}`;
    const terms = describeTerms(
      `${plan.name}${offered}`,
      known.map(({ manifest }) => manifest),
    );
    out.write(`${JSON.stringify({ event: 'terms', terms })}\n`);
  }
  const models: FetchedModel[] = [];
  try {
    for (const { manifest, side } of known) {
      const model = await fetchOne(manifest, side, options, config, view, signal);
      models.push(model);
      if (options.progressJson) out.write(`${JSON.stringify({ event: 'done', ...model })}\n`);
      else if (!options.json) out.write(`${summary(model)}\n`);
    }
  } finally {
    view.stop();
  }
  if (options.json) out.write(`${JSON.stringify({ models }, null, 2)}\n`);
}

/** A model named on the command line gets its own default, unless it is the plan's too. */
async function named(names: readonly string[], plan: PlanOutline, addedModelsDir: string) {
  const refuse = (name: string, known: string) => {
    return new ModelError('settings', `there is no plan or model ${name}: ${known}`);
  };
  return eachOnce(await entriesOf(names, { own: plan.entries, addedModelsDir }, refuse));
}

/** What runs without a name, and what may be named. */
async function served(plan: PlanOutline, { offered, settings }: CliConfig) {
  const { addedModelsDir } = settings;
  const refuse = (name: string, known: string) => {
    const expected = `a list of plans and models; ${name} is none of ${known}`;
    return new ConfigError([{ variable: 'MATTING_MODELS_OFFERED', expected }]);
  };
  const others = offered.filter(name => name !== plan.name);
  return eachOnce([
    ...plan.entries,
    ...(await entriesOf(others, { own: [], addedModelsDir }, refuse)),
  ]);
}

/** @param own entries of models that are not to have their default */
async function entriesOf(
  names: readonly string[],
  { own, addedModelsDir }: { own: readonly PlanEntry[]; addedModelsDir: string },
  refuse: (name: string, known: string) => Error,
): Promise<readonly PlanEntry[]> {
  const plans = await loadPlanOutlines();
  const models = await listManifests(undefined, addedModelsDir);
  return names.flatMap(name => {
    const plan = plans.find(outline => outline.name === name);
    if (plan !== undefined) return plan.entries;
    if (!models.includes(name)) {
      const known = [...plans.map(outline => outline.name), ...models].join(', ');
      throw refuse(JSON.stringify(name), known);
    }
    const planned = own.find(({ model }) => model === name);
    return planned ?? { model: name, inputSize: undefined, role: 'subject' as const };
  });
}

function eachOnce(entries: readonly PlanEntry[]): readonly PlanEntry[] {
  const byKind = new Map(entries.map(entry => [`${entry.model} ${entry.inputSize}`, entry]));
  return [...byKind.values()];
}

async function fetchOne(
  manifest: ModelManifest,
  side: number | undefined,
  options: ModelsFetchOptions,
  config: CliConfig,
  view: ProgressView,
  signal: AbortSignal,
) {
  const { settings, env, cwd } = config;
  const { name, version, licence } = manifest;
  const places = { cacheDir: settings.modelDir, weightsDir: settings.weightsDir };
  const { fetched, kept } = await fetchWeights(manifest, {
    ...places,
    registryOptions: async () => {
      // Npm's configuration takes a while to load, and most calls fetch nothing.
      const { loadRegistryOptions } = await import('../weights/registry.ts');
      return loadRegistryOptions({ env, cwd });
    },
    env,
    onProgress: progress => view.fetching(name, progress),
    replaceAltered: options.refuseAltered !== true,
    signal,
  });
  view.stop();
  const model = { name, version, licence: licence.spdx, fetched, kept };
  if (options.weightsOnly) return { ...model, prepared: undefined };
  const prepared = await prepareModel({
    ...places,
    manifest,
    ...(side !== undefined && { inputSize: { width: side, height: side } }),
    precision: name === settings.model ? settings.precision : 'auto',
    provider: 'cpu',
    instructionSet: await detectInstructionSet(),
    answering: createAnswering({
      childEnv: config.childEnv,
      threads: Math.max(1, Math.floor(await readCpuShare())),
    }),
    onProgress: progress => view.preparing(name, progress),
  });
  signal.throwIfAborted();
  view.stop();
  return { ...model, prepared };
}

function summary(model: FetchedModel): string {
  const { prepared } = model;
  const weights = model.fetched.length > 0 ? 'fetched and checked' : 'there and checked';
  const said = `${model.name} ${model.version} (${model.licence}): weights ${weights}`;
  if (prepared === undefined) return said;
  const size = `${prepared.inputWidth}x${prepared.inputHeight}`;
  const fallback = prepared.precisionFallback;
  const why = fallback === undefined ? '' : ` (not int8: ${fallback})`;
  return `${said}, prepared for ${size} in ${prepared.precision} on the CPU${why}: ${prepared.path}`;
}

interface ProgressView {
  fetching(model: string, progress: FetchProgress): void;
  preparing(model: string, progress: PrepareProgress): void;
  stop(): void;
}

const MEGABYTE = 1e6;
const FRAMES_PER_SECOND = 10;
/** Without a terminal a line is written at each of these steps. */
const PLAIN_STEP_PERCENT = 25;
/** For a program that draws its own: often enough for a smooth bar, few enough to read. */
const JSON_INTERVAL_MS = 100;

function createProgressView(out: Writable & { readonly isTTY?: boolean }): ProgressView {
  return out.isTTY === true ? new BarView(out) : new PlainView(out);
}

class BarView implements ProgressView {
  readonly #out: Writable;
  #bar: cliProgress.SingleBar | undefined;

  constructor(out: Writable) {
    this.#out = out;
  }

  fetching(model: string, { receivedBytes, totalBytes }: FetchProgress): void {
    this.#bar ??= this.#start(model, totalBytes ?? 0);
    this.#bar.update(receivedBytes, { megabytes: megabytes(receivedBytes) });
  }

  preparing(model: string, progress: PrepareProgress): void {
    this.stop();
    const line = preparationLine(model, progress);
    if (line !== undefined) this.#out.write(`${line}\n`);
  }

  stop(): void {
    this.#bar?.stop();
    this.#bar = undefined;
  }

  #start(model: string, totalBytes: number): cliProgress.SingleBar {
    const total = megabytes(totalBytes);
    const figures = `{percentage} % {megabytes} of ${total} MB, {eta_formatted}`;
    const format = `fetching ${model} {bar} ${figures}`;
    const bar = new cliProgress.SingleBar(
      {
        format,
        // The types ask for a stream of their own; any writable one does.
        stream: this.#out as NodeJS.WritableStream,
        fps: FRAMES_PER_SECOND,
        hideCursor: true,
        gracefulExit: false,
      },
      cliProgress.Presets.shades_classic,
    );
    bar.start(totalBytes, 0, { megabytes: '0.0' });
    return bar;
  }
}

class PlainView implements ProgressView {
  readonly #out: Writable;
  #nextPercent = 0;

  constructor(out: Writable) {
    this.#out = out;
  }

  fetching(model: string, { receivedBytes, totalBytes }: FetchProgress): void {
    const percent = totalBytes ? Math.floor((receivedBytes / totalBytes) * 100) : 0;
    // It starts again where a broken connection is tried again.
    if (percent < this.#nextPercent - PLAIN_STEP_PERCENT) this.#nextPercent = 0;
    if (percent < this.#nextPercent) return;
    this.#nextPercent = percent - (percent % PLAIN_STEP_PERCENT) + PLAIN_STEP_PERCENT;
    const total = totalBytes === undefined ? '' : ` of ${megabytes(totalBytes)}`;
    this.#out.write(`fetching ${model}: ${megabytes(receivedBytes)}${total} MB, ${percent} %\n`);
  }

  preparing(model: string, progress: PrepareProgress): void {
    const line = preparationLine(model, progress);
    if (line !== undefined) this.#out.write(`${line}\n`);
  }

  stop(): void {
    this.#nextPercent = 0;
  }
}

/** One JSON object a line: `{"event": "fetch" | "prepare", "model", …}` and the progress. */
class JsonView implements ProgressView {
  readonly #out: Writable;
  #lastMs = Number.NEGATIVE_INFINITY;

  constructor(out: Writable) {
    this.#out = out;
  }

  fetching(model: string, progress: FetchProgress): void {
    if (!this.#due(progress.receivedBytes === progress.totalBytes)) return;
    this.#line({ event: 'fetch', model, ...progress });
  }

  preparing(model: string, progress: PrepareProgress): void {
    if (progress.step === 'write' && !this.#due(false)) return;
    this.#line({ event: 'prepare', model, ...progress });
  }

  stop(): void {
    this.#lastMs = Number.NEGATIVE_INFINITY;
  }

  #due(last: boolean): boolean {
    const nowMs = performance.now();
    if (!last && nowMs - this.#lastMs < JSON_INTERVAL_MS) return false;
    this.#lastMs = nowMs;
    return true;
  }

  #line(event: object): void {
    this.#out.write(`${JSON.stringify(event)}\n`);
  }
}

function preparationLine(model: string, progress: PrepareProgress): string | undefined {
  if (progress.step === 'rewrite') return `preparing ${model} for this machine`;
  if (progress.step === 'compare') {
    const found = `${progress.blocks} deformable convolutions of ${model}`;
    return `${found} were mended: comparing them with their stock form`;
  }
  if (progress.step === 'mended') return `${model} runs mended, though ${progress.reason}`;
  if (progress.step === 'keep') {
    return `${model} runs as its maker wrote it, slower and with more memory: ${progress.reason}`;
  }
  if (progress.step === 'discard') {
    return `the prepared file ${progress.path} is not used, ${progress.reason}: making it again`;
  }
  return undefined;
}

function megabytes(bytes: number): string {
  return (bytes / MEGABYTE).toFixed(1);
}

type FetchedState = 'yes' | 'no' | 'damaged';

type ListedModel = Awaited<ReturnType<typeof describe>>;

export async function modelsList(
  options: { readonly json?: boolean },
  config: CliConfig,
  out: Writable,
): Promise<void> {
  const models: ListedModel[] = [];
  const { addedModelsDir } = config.settings;
  for (const name of await listManifests(undefined, addedModelsDir)) {
    const manifest = await loadManifest(name, undefined, addedModelsDir);
    models.push(await describe(manifest, config.settings));
  }
  if (options.json) {
    out.write(`${JSON.stringify({ models }, null, 2)}\n`);
    return;
  }
  for (const model of models) out.write(lines(model));
}

async function describe(manifest: ModelManifest, settings: ModelSettings) {
  const { modelDir: cacheDir, weightsDir, commercialUse } = settings;
  const { spdx, weights, trainingData } = manifest.licence;
  const prepared = await listPrepared(cacheDir, manifest);
  return {
    name: manifest.name,
    version: manifest.version,
    description: manifest.description,
    licence: spdx,
    trainingData: trainingData.reason,
    terms: { weights, trainingData },
    admitted: refusalsOf(manifest, commercialUse).length === 0,
    fetched: await fetchedState(manifest, { cacheDir, weightsDir }),
    prepared: prepared.map(({ path, sidecar }) => ({
      path,
      inputWidth: sidecar.inputWidth,
      inputHeight: sidecar.inputHeight,
      precision: sidecar.precision,
      provider: sidecar.provider,
      instructionSet: sidecar.instructionSet,
      /** False: of another release of the product; it is not loaded. */
      current: sidecar.revision === PREPARER_REVISION,
    })),
  };
}

async function fetchedState(
  manifest: ModelManifest,
  places: WeightsFolders,
): Promise<FetchedState> {
  let state: FetchedState = 'yes';
  for (const file of manifest.files) {
    const { check } = await findWeightsFile(places, manifest, file);
    if (check.state === 'altered') return 'damaged';
    if (check.state === 'missing') state = 'no';
  }
  return state;
}

function lines(model: ListedModel): string {
  const text = [
    `${model.name} ${model.version}  ${model.licence}  fetched: ${model.fetched}`,
    `  ${model.description}`,
    `  Weights: ${line(model.terms.weights)}`,
    `  Training data: ${line(model.terms.trainingData)}`,
  ];
  if (!model.admitted) text.push('  Refused by MATTING_COMMERCIAL_USE');
  for (const file of model.prepared) {
    const size = `${file.inputWidth}x${file.inputHeight}`;
    const state = file.current ? '' : ' (of another release)';
    text.push(
      `  prepared: ${size} ${file.precision} ${file.provider} ${file.instructionSet}${state}`,
    );
  }
  return `${text.join('\n')}\n`;
}

function line({ commercialUse, reason, source }: UseTerms): string {
  return `commercial use ${commercialUse}. ${reason} ${source}`;
}

/* Shows what is needed to write a manifest. */

export interface ModelsCheckOptions {
  readonly image?: string;
  readonly out: string;
  readonly size?: string;
  readonly mean: string;
  readonly std: string;
  readonly bgr?: boolean;
  readonly sigmoid?: boolean;
  readonly output?: string;
}

/** Where the graph leaves the size open and --size is not given. */
const SIDE_PX = 512;
const SIDE_MAX_PX = 4096;
const SAMPLE_SIDE_PX = 640;
/** Load and run together, on a slow machine. */
const TIMEOUT_MS = 300_000;
const THREADS = 2;

/** @throws ModelError `settings` where options and graph do not fit, `prepare` where it fails. */
export async function modelsCheck(
  file: string,
  options: ModelsCheckOptions,
  out: Writable,
): Promise<void> {
  const path = resolve(file);
  const graph = decodeModel(await read(path), path);
  for (const value of graph.inputs) out.write(`input   ${describeValue(value)}\n`);
  for (const value of graph.outputs) out.write(`output  ${describeValue(value)}\n`);
  const spec = { path, ...createSpec(graph, options) };
  const { inputWidth: width, inputHeight: height } = spec;
  out.write(`run     ${spec.outputName} at ${width} x ${height}\n`);
  const picture = options.image === undefined ? paintSample() : await readImage(options.image);
  const rgb = createModelInput(picture, { width, height });
  const matte = await runOnce({ spec, rgb, childEnv: {}, timeoutMs: TIMEOUT_MS }).catch(error => {
    throw new ModelError('prepare', `${path}: ${(error as Error).message}`, error);
  });
  out.write(`matte   ${describeMatte(matte.alpha)}\n`);
  const { file: cutout } = await finishPicture(picture, [{ ...matte, role: 'subject' }], {
    refinement: true,
    foregroundEstimation: true,
    outputFormat: 'png',
    resultKind: 'cutout',
  });
  await writeFile(options.out, cutout);
  out.write(`cut-out ${resolve(options.out)}\n`);
}

async function read(path: string): Promise<Buffer> {
  return await readFile(path).catch(error => {
    throw new ModelError('settings', `cannot read ${path}: ${(error as Error).message}`, error);
  });
}

function createSpec(graph: Graph, options: ModelsCheckOptions) {
  const [input] = graph.inputs;
  const output = options.output ?? graph.outputs[0]?.name;
  if (input === undefined || output === undefined) {
    throw new ModelError('settings', 'the graph has no input or no output');
  }
  return {
    // The operator's own file: there is nothing to hold it against.
    sha256: undefined,
    provider: 'cpu' as const,
    intraOpThreads: THREADS,
    sharesCores: false,
    allowCpuNodes: true,
    inputName: input.name,
    outputName: output,
    ...inputSize(input, options.size),
    normalisation: { mean: triple('--mean', options.mean), std: triple('--std', options.std) },
    colourOrder: options.bgr ? ('bgr' as const) : ('rgb' as const),
    activation: options.sigmoid ? ('sigmoid' as const) : ('none' as const),
  };
}

function inputSize({ dims }: GraphValue, wanted: string | undefined) {
  const side = wanted === undefined ? undefined : Number(wanted);
  if (side !== undefined && !(Number.isInteger(side) && side > 0 && side <= SIDE_MAX_PX)) {
    throw new ModelError('settings', `--size must be a whole number from 1 to ${SIDE_MAX_PX}`);
  }
  const [, channels, height, width] = dims;
  if (dims.length !== 4 || (channels !== 3 && channels !== null)) {
    throw new ModelError(
      'settings',
      `the input is not [batch, 3, height, width]: [${dims.join()}]`,
    );
  }
  const inputWidth = side ?? width ?? SIDE_PX;
  const inputHeight = side ?? height ?? SIDE_PX;
  for (const own of [inputWidth, inputHeight]) {
    if (Number.isInteger(own) && own > 0 && own <= SIDE_MAX_PX) continue;
    // A graph of a fixed size may still run at another one, if its author says so.
    const asked = `the graph asks for a picture of ${inputWidth} x ${inputHeight}`;
    throw new ModelError('settings', `${asked}: each side must be 1 to ${SIDE_MAX_PX} (--size)`);
  }
  return { inputWidth, inputHeight };
}

function triple(option: string, text: string): readonly [number, number, number] {
  const values = text.split(',').map(Number);
  const [red, green, blue] = values.every(Number.isFinite) && values.length === 3 ? values : [];
  if (red === undefined || green === undefined || blue === undefined) {
    throw new ModelError('settings', `${option} must be three numbers, for red, green and blue`);
  }
  return [red, green, blue];
}

function describeValue({ name, elementType, dims }: GraphValue): string {
  const known = Object.entries(ElementType).find(([, value]) => value === elementType);
  const type = known?.[0] ?? `type ${elementType}`;
  return `${name}: ${type} [${dims.map(dim => dim ?? '?').join(', ')}]`;
}

function describeMatte(alpha: Buffer): string {
  const sorted = Buffer.from(alpha).sort();
  const opaque = alpha.reduce((count, value) => count + (value > 127 ? 1 : 0), 0) / alpha.length;
  const [least, most] = [sorted[0], sorted[sorted.length - 1]];
  return `${least} to ${most} of 255, ${Math.round(100 * opaque)} % above half`;
}

async function readImage(path: string): Promise<RgbaPicture> {
  const options = { declared: undefined, onOpened: () => undefined };
  return await decodeFile(await read(resolve(path)), options);
}

function paintSample(): RgbaPicture {
  const side = SAMPLE_SIDE_PX;
  const rgba = new Uint32Array(side * side);
  for (let i = 0; i < rgba.length; i++) {
    const x = (i % side) / side - 0.5;
    const y = Math.floor(i / side) / side - 0.5;
    const light = 1 - 1.5 * Math.hypot(x + 0.1, y + 0.1);
    const ball = Math.hypot(x, y) < 0.28;
    const [red, green, blue] = ball ? [90 + 150 * light, 60 * light, 50 * light] : [205, 214, 220];
    rgba[i] = red | (green << 8) | (blue << 16) | 0xff000000;
  }
  return { width: side, height: side, rgba, translucent: false };
}
