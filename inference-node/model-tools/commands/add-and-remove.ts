import { join, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { createAnswering } from '@matting/serving/engine/choice/run-once.ts';
import { memoryMaxHere } from '@matting/serving/engine/probe/probe-process.ts';
import {
  listManifests,
  loadManifest,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import { ModelError, printable } from '@matting/serving/models/model-error.ts';
import { loadAddedPlans, refusalsOf } from '@matting/serving/models/plan.ts';
import { findOpenvino } from '@matting/serving/providers/provider-files.ts';
import { type Command, InvalidArgumentError } from 'commander';
import type { AddContext, AddedModel } from '../adding/add-model.ts';
import { loadCatalogue } from '../adding/catalogue.ts';
import { removeAdded } from '../adding/staging-folder.ts';
import { readStatedManifest } from '../adding/stated-manifest.ts';
import { type PrepareOptions, prepareModel } from '../preparing/prepare.ts';
import { type OpenFact, OpenFacts } from '../probing/probe-types.ts';
import { type CliConfig, type CommandContext, UsageError } from './cli-config.ts';
import { describeRuntime } from './describe-runtime.ts';
import { addGraphOptions, factsOfOptions, type GraphOptions } from './graph-options.ts';
import { createProgressView } from './progress-view.ts';

interface ModelsAddOptions extends GraphOptions {
  readonly name?: string;
  readonly sha256?: string;
  readonly tokenEnv?: string;
  readonly licenceWeights?: string;
  readonly licenceData?: string;
  readonly manifest?: string;
}

interface Terminal {
  readonly out: Writable;
  readonly err: Writable & { readonly isTTY?: boolean };
}

export function addAddingCommands(models: Command, { config, signal }: CommandContext): void {
  const add = models
    .command('add')
    .description('download, measure and register a model for requests')
    .argument('<what>', 'name from "models list --catalogue", https address or ONNX file')
    .option('--name <name>', 'name for requests (default: name of the catalogue or file)')
    .option('--sha256 <sum>', 'SHA-256 that the file must have', parseSum)
    .option('--token-env <variable>', 'variable with a token for the first host')
    .option('--licence-weights <spdx>', 'licence of the weights (default: unknown)')
    .option('--licence-data <text>', 'licence of the training data; start with yes or no if known')
    .option('--manifest <file>', 'what the model takes and gives; without it, a draft is written');
  addGraphOptions(add).action(async (what: string, options: ModelsAddOptions) => {
    const { stdout: out, stderr: err } = process;
    await modelsAdd(what, options, config(), { out, err }, signal);
  });
  models
    .command('remove')
    .description('remove an added model, and its file if no other name uses it')
    .argument('<name>', 'name from "models list"')
    .action(async (name: string) => {
      await modelsRemove(name, config(), process.stdout);
    });
}

export async function modelsAdd(
  what: string,
  options: ModelsAddOptions,
  config: CliConfig,
  terminal: Terminal,
  signal: AbortSignal,
): Promise<void> {
  // Loads slowly, and other commands do not need it.
  const { addModel } = await import('../adding/add-model.ts');
  const { probeGraph } = await import('../probing/probe-graph.ts');
  const view = createProgressView(terminal.err);
  const { memoryMax: memoryMaxBytes = memoryMaxHere(), sha256, manifest: file } = options;
  const { licenceWeights: weights, licenceData: data } = options;
  const say = (line: string) => {
    view.stop();
    terminal.err.write(`${line}\n`);
  };
  const flags = factsOfOptions(options);
  const stated =
    file === undefined ? undefined : await readStatedManifest(resolve(config.cwd, file));
  const given = {
    ...{ name: options.name ?? stated?.name, sha256, memoryMaxBytes },
    facts: { ...stated?.facts, ...flags },
    licence: { weights, data, whole: stated?.licence },
    hasManifest: file !== undefined,
  };
  const context: AddContext = {
    ...{ folders: config.settings, cwd: config.cwd, childEnv: config.childEnv, signal, say },
    access: { env: config.env },
    token: tokenOf(options.tokenEnv, config),
    catalogue: await loadCatalogue(config.catalogueFile),
    probe: probeGraph,
    prepare: manifest =>
      prepareHere(manifest, config, signal, {
        memoryMaxBytes,
        onProgress: progress => view.preparing(manifest.name, progress),
      }),
    onProgress: (file, receivedBytes, totalBytes) =>
      view.fetching(file, { file, receivedBytes, totalBytes }),
  };
  try {
    const added = await addModel(what, given, context);
    terminal.out.write(`${describeAdded(added, config).join('\n')}\n`);
  } catch (error) {
    throw error instanceof OpenFacts ? missing(error, file) : error;
  } finally {
    view.stop();
  }
}

const FLAGS: Readonly<Record<OpenFact, string>> = {
  normalisation: '--mean and --std',
  size: '--size',
  multipleOf: 'multipleOf of a manifest',
  activation: '--activation',
  output: '--output',
};

function missing({ open, draft }: OpenFacts, file: string | undefined): UsageError {
  const flags = open.map(fact => FLAGS[fact]).join(', ');
  const way = file === undefined ? draft : `or replace each null of ${file}`;
  return new UsageError([`missing ${flags}`, way].filter(Boolean).join('; set the options, '));
}

function tokenOf(variable: string | undefined, { env }: CliConfig): string | undefined {
  if (variable === undefined) return undefined;
  const token = env[variable];
  if (token !== undefined && /^[!-~]+$/.test(token)) return token;
  throw new UsageError(
    `--token-env: the variable ${JSON.stringify(variable)} has no token; set it`,
  );
}

async function prepareHere(
  manifest: ModelManifest,
  config: CliConfig,
  signal: AbortSignal,
  own: Pick<PrepareOptions, 'memoryMaxBytes' | 'onProgress'>,
) {
  const { modelDir: cacheDir, weightsDir } = config.settings;
  const { cpuRuntime: wanted, providerDir } = config;
  // Does not install OpenVINO: `models fetch` does, at each start.
  const found = await findOpenvino(providerDir, wanted);
  const openvino = typeof found === 'string' ? undefined : found;
  return await prepareModel({
    ...{ manifest, cacheDir, weightsDir, precision: 'auto', provider: 'cpu', ...own },
    runtime: { wanted, openvino, comparing: signal },
    answering: createAnswering({ childEnv: config.childEnv }),
  });
}

const GIGABYTE = 1e9;
/** A node without engines: its main process and three idle picture workers. */
const NODE_BYTES = 220e6;

const shorten = (value: number) => value.toPrecision(3);

function describeAdded({ manifest, range, prepared, cutout }: AddedModel, config: CliConfig) {
  const { name, version, measured, graph, licence, activation, inputSize, fit } = manifest;
  const { weights, trainingData } = licence;
  const { peakBytes = 0, loadedBytes = 0, seconds = 0 } = measured ?? {};
  const needed = Math.max(peakBytes, prepared.peakBytes ?? 0);
  const gigabytes = (bytes: number) => `${(bytes / GIGABYTE).toFixed(1)} GB`;
  const size = `${graph.inputWidth} x ${graph.inputHeight}`;
  const { model, quality } = config.settings;
  const before = config.offered.length > 0 ? config.offered : [model ?? quality];
  const offered = [...new Set([...before, name])].join();
  const refusals = refusalsOf(manifest, config.settings.commercialUse);
  const plans = join(config.settings.addedModelsDir, 'plans.json');
  return [
    `added ${name} ${version}`,
    `cut-out   ${cutout}; look whether it shows the person`,
    `output    ${printable(graph.outputName)}: values from ${range.map(shorten).join(' to ')}; activation ${activation}`,
    `seconds   ${seconds.toFixed(2)} at ${size} on this machine's CPU`,
    ...(fit === 'short-side' ? [`sides     ${inputSize.min} to ${inputSize.max} pixels`] : []),
    `memory    ${gigabytes(peakBytes)} at peak, ${gigabytes(loadedBytes)} loaded`,
    `licence   ${licence.spdx}; weights: commercial use ${weights.commercialUse}. ${weights.reason}`,
    `          training data: commercial use ${trainingData.commercialUse}. ${trainingData.reason}`,
    ...refusals.map(refusal => `refused   by MATTING_COMMERCIAL_USE: ${refusal}`),
    `runs on   ${describeRuntime(prepared)}`,
    `a node    that serves it needs ${gigabytes(needed + NODE_BYTES)}`,
    graph.trimap
      ? `next      use it in ${plans}, with the role refine after a subject`
      : `next      set MATTING_MODELS_OFFERED=${offered} and start again: make start runs a node for each; ` +
        `elsewhere start one with MATTING_MODEL=${name}`,
  ];
}

export async function modelsRemove(name: string, config: CliConfig, out: Writable): Promise<void> {
  const { settings } = config;
  const added = await listManifests(settings.addedModelsDir);
  if ((await listManifests()).includes(name)) {
    throw new ModelError('settings', `${name} is a shipped model, and cannot be removed`);
  }
  if (!added.includes(name)) {
    const there = added.join(', ') || 'none';
    throw new ModelError(
      'settings',
      `${JSON.stringify(name)} is not an added model; these are: ${there}`,
    );
  }
  const plans = await loadAddedPlans(settings.addedModelsDir);
  const using = plans.filter(({ entries }) => entries.some(({ model }) => model === name));
  if (using.length > 0) {
    const names = using.map(plan => plan.name).join(', ');
    throw new ModelError(
      'settings',
      `the plans ${names} use ${name}; remove it from plans.json first`,
    );
  }
  await removeAdded(await loadManifest(name, settings.addedModelsDir), settings);
  out.write(`removed ${name}\n`);
}

function parseSum(text: string): string {
  const sum = text.toLowerCase().replace(/^sha256:/, '');
  if (/^[0-9a-f]{64}$/.test(sum)) return sum;
  throw new InvalidArgumentError('Use 64 hexadecimal digits.');
}
