/** `models fetch` and `check`, as they are typed and what they do. */

import { readFile, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { ConfigError } from '@matting/program/env.ts';
import { createAnswering, runOnce } from '@matting/serving/engine/choice/answer-picture.ts';
import { readCpuShare } from '@matting/serving/engine/choice/engine-layout.ts';
import { describeTerms } from '@matting/serving/models/licence.ts';
import {
  listManifests,
  loadManifest,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import { ModelError, printable } from '@matting/serving/models/model-error.ts';
import {
  loadPlanOutlines,
  outlineOf,
  type PlanEntry,
  type PlanOutline,
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
import { detectInstructionSet } from '@matting/serving/prepared/load-prepared.ts';
import type { Command } from 'commander';
import { prepareModel } from '../preparing/prepare.ts';
import { fetchWeights } from '../weights/fetch.ts';
import { addAddingCommands } from './adding.ts';
import type { CliConfig, CommandContext } from './cli-config.ts';
import { modelsList, modelsShow } from './list-models.ts';
import { createProgressView, JsonView, type ProgressView } from './progress-view.ts';

export function addModelCommands(program: Command, context: CommandContext): void {
  const { config, signal } = context;
  const models = program.command('models').description('add, fetch, list and check models');
  addAddingCommands(models, context);
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
    .option('--catalogue', 'list what others publish and "models add" knows by name')
    .option('--json', 'print JSON')
    .action(async (options: { json?: boolean; catalogue?: boolean }) => {
      await modelsList(options, config(), process.stdout);
    });
  models
    .command('show')
    .description('print the manifest of a model, or what the catalogue has of it')
    .argument('<name>', 'as "models list" shows it, or its --catalogue')
    .action(async (name: string) => {
      await modelsShow(name, config(), process.stdout);
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
  out.write(`run     ${printable(spec.outputName)} at ${width} x ${height}\n`);
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
  return `${printable(name)}: ${type} [${dims.map(dim => dim ?? '?').join(', ')}]`;
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
