import type { Writable } from 'node:stream';
import { ConfigError } from '@matting/program/config-error.ts';
import { findGpus } from '@matting/serving/engine/choice/host-gpus.ts';
import { createAnswering } from '@matting/serving/engine/choice/run-once.ts';
import { memoryMaxHere } from '@matting/serving/engine/probe/probe-process.ts';
import {
  listManifests,
  loadManifest,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import {
  describeTerms,
  loadAddedPlans,
  loadPlanOutlines,
  outlineOf,
  type PlanEntry,
  type PlanOutline,
  refusalsOf,
  requireAdmitted,
} from '@matting/serving/models/plan.ts';
import type { LoadOptions } from '@matting/serving/prepared/load-prepared.ts';
import {
  findOpenvino,
  OPENVINO_WHEEL,
  ProviderError,
  readEngineEnvironment,
  readOpenvino,
} from '@matting/serving/providers/provider-files.ts';
import type { Command } from 'commander';
import { loadCatalogue } from '../adding/catalogue.ts';
import { prepareModel } from '../preparing/prepare.ts';
import { installOpenvino } from '../providers/install-openvino.ts';
import { fetchWeights } from '../weights/fetch.ts';
import { loadNpmConfig } from '../weights/npm-config.ts';
import { addAddingCommands, modelsAdd } from './add-and-remove.ts';
import { type CliConfig, type CommandContext, UsageError } from './cli-config.ts';
import { describeRuntime } from './describe-runtime.ts';
import { modelsList, modelsShow } from './list-models.ts';
import { createProgressView, jsonView, type ProgressView } from './progress-view.ts';

export function addModelCommands(program: Command, context: CommandContext): void {
  const { config, signal } = context;
  const models = program.command('models').description('add, list, fetch and prepare models');
  addAddingCommands(models, context);
  models
    .command('fetch')
    .description('download weights and prepare them for this machine')
    .argument(
      '[name...]',
      'plans and models (default: those of MATTING_QUALITY or MATTING_MODEL, ' +
        'and MATTING_MODELS_OFFERED)',
    )
    .option('--json', 'print the result as JSON')
    .option('--progress-json', 'print a JSON line per step')
    .option('--weights-only', 'download and check only; prepare nothing')
    .option('--refuse-altered', 'fail on a damaged file, and do not download it again')
    .option('--unmeasured', 'do not install OpenVINO, and do not compare it with ONNX Runtime')
    .action(async (names: string[], options: ModelsFetchOptions) => {
      const streams = { out: process.stdout, err: process.stderr };
      await modelsFetch(names, options, config(), streams, signal);
    });
  models
    .command('list')
    .description('list models, licences, and what is downloaded and prepared')
    .option('--catalogue', 'list the models that "models add" can download by name')
    .option('--json', 'print JSON')
    .action(async (options: { json?: boolean; catalogue?: boolean }) => {
      await modelsList(options, config(), process.stdout);
    });
  models
    .command('show')
    .description('print the manifest or the catalogue entry of a model')
    .argument('<name>', 'name from "models list", with or without --catalogue')
    .action(async (name: string) => {
      await modelsShow(name, config(), process.stdout);
    });
}

interface ModelsFetchOptions {
  readonly json?: boolean;
  readonly progressJson?: boolean;
  readonly refuseAltered?: boolean;
  readonly weightsOnly?: boolean;
  readonly unmeasured?: boolean;
}

interface Streams {
  readonly out: Writable;
  readonly err: Writable & { readonly isTTY?: boolean };
}

type FetchedModel = Awaited<ReturnType<typeof fetchOne>>;

/**
 * Without names it fetches MATTING_MODEL and MATTING_MODELS_OFFERED.
 * @throws ModelError; ConfigError; the signal's reason
 */
export async function modelsFetch(
  names: readonly string[],
  options: ModelsFetchOptions,
  config: CliConfig,
  { out, err }: Streams,
  signal: AbortSignal,
): Promise<void> {
  const view = options.progressJson ? jsonView(out) : createProgressView(err);
  // All manifests first: a misspelt name must not fail after a long download.
  const { addedModelsDir } = config.settings;
  const plan = await outlineOf(config.settings);
  if (names.length === 0) {
    const isJson = options.json === true || options.progressJson === true;
    await addMissing(plan, config, { out: isJson ? err : out, err }, signal);
  }
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
    const measures = options.weightsOnly !== true && options.unmeasured !== true;
    const runtime = measures ? await openRuntime(config, view, err, signal) : undefined;
    for (const { manifest, side } of known) {
      const model = await fetchOne(manifest, side, options, config, view, runtime, signal);
      models.push(model);
      if (options.progressJson) out.write(`${JSON.stringify({ event: 'done', ...model })}\n`);
      else if (!options.json) out.write(`${summary(model)}\n`);
    }
  } finally {
    view.stop();
  }
  if (options.json) out.write(`${JSON.stringify({ models }, null, 2)}\n`);
}

/** A model named on the command line gets its own default size, unless the plan has the model. */
async function named(names: readonly string[], plan: PlanOutline, addedModelsDir: string) {
  const refuse = (name: string, known: string) => {
    return new ModelError('settings', `no plan or model ${name}; use one of ${known}`);
  };
  return eachOnce(await entriesOf(names, { own: plan.entries, addedModelsDir }, refuse));
}

async function served(plan: PlanOutline, { offered, settings }: CliConfig) {
  const { addedModelsDir } = settings;
  const refuse = (name: string, known: string) => {
    const expected = `a list of plans and models; ${name} is none of ${known}`;
    return new ConfigError([{ variable: 'MATTING_MODELS_OFFERED', expected }]);
  };
  const others = offered.filter(name => name !== plan.name);
  const entries = await entriesOf(others, { own: [], addedModelsDir }, refuse);
  return eachOnce([...plan.entries, ...entries]);
}

/**
 * Checks names and terms before it fetches anything. Needs no lock, since another machine that adds
 * to the same folders makes the same model.
 */
async function addMissing(
  plan: PlanOutline,
  config: CliConfig,
  streams: Streams,
  signal: AbortSignal,
): Promise<void> {
  const { addedModelsDir, commercialUse: gate } = config.settings;
  const { plans, models } = await knownHere(addedModelsDir);
  const known = new Set([...plans.map(({ name }) => name), ...models]);
  const missing = [plan.name, ...config.offered].filter(name => !known.has(name));
  if (missing.length === 0) return;
  const catalogue = await loadCatalogue(config.catalogueFile);
  const rows = catalogue.filter(({ name }) => missing.includes(name));
  if (rows.length === 0) return;
  const isThere = (name: string) => rows.every(row => row.name !== name);
  await served(plan, { ...config, offered: config.offered.filter(isThere) });
  for (const { name, licence } of rows) {
    const refusals = refusalsOf({ licence }, gate);
    if (refusals.length === 0) continue;
    const expected = `met by every model: ${gate} refuses ${name}; ${refusals.join('; ')}`;
    throw new ConfigError([{ variable: 'MATTING_COMMERCIAL_USE', expected }]);
  }
  for (const { name } of rows) {
    try {
      await modelsAdd(name, {}, config, streams, signal);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      throw new UsageError(`${name}: ${error.message}; use "models add"`);
    }
  }
}

async function entriesOf(
  names: readonly string[],
  { own, addedModelsDir }: { own: readonly PlanEntry[]; addedModelsDir: string },
  refuse: (name: string, known: string) => Error,
): Promise<readonly PlanEntry[]> {
  const { plans, models } = await knownHere(addedModelsDir);
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

async function knownHere(addedModelsDir: string) {
  const plans = [...(await loadPlanOutlines()), ...(await loadAddedPlans(addedModelsDir))];
  return { plans, models: await listManifests(undefined, addedModelsDir) };
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
  runtime: LoadOptions['runtime'],
  signal: AbortSignal,
) {
  const { settings, env, cwd } = config;
  const { name, version, licence } = manifest;
  const folders = { cacheDir: settings.modelDir, weightsDir: settings.weightsDir };
  const { fetched, kept } = await fetchWeights(manifest, {
    ...folders,
    npmConfig: () => loadNpmConfig({ env, cwd }),
    env,
    onProgress: progress => view.fetching(name, progress),
    replaceAltered: options.refuseAltered !== true,
    signal,
  });
  view.stop();
  const model = { name, version, licence: licence.spdx, fetched, kept };
  if (options.weightsOnly) return { ...model, prepared: undefined };
  const prepared = await prepareModel({
    ...folders,
    manifest,
    ...(side !== undefined && { inputSize: { width: side, height: side } }),
    precision: name === settings.model ? settings.precision : 'auto',
    provider: 'cpu',
    answering: createAnswering({ childEnv: config.childEnv }),
    runtime,
    memoryMaxBytes: memoryMaxHere(),
    onProgress: progress => view.preparing(name, progress),
  });
  signal.throwIfAborted();
  view.stop();
  return { ...model, prepared };
}

/** Installs OpenVINO if it is missing. With `auto`, ONNX Runtime runs the models if that fails. */
async function openRuntime(
  config: CliConfig,
  view: ProgressView,
  err: Streams['err'],
  signal: AbortSignal,
): Promise<LoadOptions['runtime']> {
  const { cpuRuntime: wanted, providerDir, env } = config;
  if (wanted === 'onnxruntime') return undefined;
  const gpu = wanted === 'auto' ? await gpuProvider(config) : undefined;
  if (gpu !== undefined) {
    err.write(`matting: ${gpu} runs the models here: the runtimes of the CPU are not compared\n`);
    return undefined;
  }
  const there = await readOpenvino(providerDir, { hashed: true });
  if (there.state !== 'installed') {
    const onProgress = (receivedBytes: number, totalBytes: number) =>
      view.fetching('openvino', { file: OPENVINO_WHEEL.name, receivedBytes, totalBytes });
    try {
      await installOpenvino({ providerDir, env, signal, onProgress });
    } catch (error) {
      // With `auto`, the start continues without a network or with a read-only folder.
      const isExpected = error instanceof ProviderError || error instanceof ModelError;
      if (wanted === 'openvino' || !isExpected) throw error;
      err.write(`matting: OpenVINO is not used: ${error.message}\n`);
    } finally {
      view.stop();
    }
  }
  const found = await findOpenvino(providerDir, wanted);
  return { wanted, openvino: typeof found === 'string' ? undefined : found, comparing: signal };
}

/** Provider that a start would choose here. Undefined: the CPU. */
async function gpuProvider({ executionProvider, providerDir, childEnv }: CliConfig) {
  if (executionProvider === 'cpu') return undefined;
  if (executionProvider !== 'auto') return executionProvider;
  const { gpus, tryCuda } = await findGpus(childEnv);
  if (gpus.state === 'absent') return undefined;
  const { childEnv: engineEnv } = await readEngineEnvironment(providerDir, childEnv);
  const attempts = await tryCuda(engineEnv);
  return attempts.some(({ reason }) => reason === undefined) ? ('cuda' as const) : undefined;
}

function summary(model: FetchedModel): string {
  const { prepared } = model;
  const weights = model.fetched.length > 0 ? 'fetched and checked' : 'there and checked';
  const line = `${model.name} ${model.version} (${model.licence}): weights ${weights}`;
  if (prepared === undefined) return line;
  const size = `${prepared.inputWidth}x${prepared.inputHeight}`;
  const fallback = prepared.precisionFallback;
  const why = fallback === undefined ? '' : ` (not int8: ${fallback})`;
  const by = describeRuntime(prepared);
  return `${line}, prepared for ${size} in ${prepared.precision} on the CPU${why}, runs on ${by}: ${prepared.path}`;
}
