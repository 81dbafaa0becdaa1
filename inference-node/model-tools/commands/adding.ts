/** `models add` and `remove`, as they are typed, what they ask a person, and what they say. */
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline/promises';
import type { Writable } from 'node:stream';
import { createAnswering } from '@matting/serving/engine/choice/answer-picture.ts';
import { memoryMaxHere } from '@matting/serving/engine/probe/probe-process.ts';
import {
  listManifests,
  loadManifest,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { loadAddedPlans, refusalsOf } from '@matting/serving/models/plan.ts';
import { ACTIVATIONS } from '@matting/serving/models/prepared-model.ts';
import { findOpenvino } from '@matting/serving/providers/provider-files.ts';
import { type Command, InvalidArgumentError } from 'commander';
import type { AddContext, AddedModel, OpenFact } from '../adding/add-model.ts';
import { loadCatalogue } from '../adding/catalogue.ts';
import type { Facts } from '../adding/facts.ts';
import { removeAdded } from '../adding/workshop.ts';
import { type PrepareOptions, prepareModel } from '../preparing/prepare.ts';
import { NORMALISATIONS, type Probe } from '../probing/probe.ts';
import { writeCutouts } from './check.ts';
import { type CliConfig, type CommandContext, UsageError } from './cli-config.ts';
import {
  addGraphOptions,
  factsOfOptions,
  type GraphOptions,
  sizeOf,
  tripleOf,
} from './graph-options.ts';
import { createProgressView } from './progress-view.ts';
import { describeRuntime } from './runtime-words.ts';

interface ModelsAddOptions extends GraphOptions {
  readonly name?: string;
  readonly sha256?: string;
  readonly tokenEnv?: string;
  readonly licenceWeights?: string;
  readonly licenceData?: string;
  readonly yes?: boolean;
}

export interface Terminal {
  readonly out: Writable;
  readonly err: Writable & { readonly isTTY?: boolean };
  /** Undefined: there is nobody to ask. */
  readonly question: ((text: string) => Promise<string>) | undefined;
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
    .option('--yes', 'ask no questions; exit 64 if an option is missing');
  addGraphOptions(add).action(async (what: string, options: ModelsAddOptions) => {
    const { stdin, stdout: out, stderr: err } = process;
    const asks = stdin.isTTY === true && err.isTTY === true && options.yes !== true;
    const question = asks ? (text: string) => askTerminal(text, signal) : undefined;
    await modelsAdd(what, options, config(), { out, err, question }, signal);
  });
  models
    .command('remove')
    .description('remove an added model, and its file if no other name uses it')
    .argument('<name>', 'name from "models list"')
    .action(async (name: string) => {
      await modelsRemove(name, config(), process.stdout);
    });
}

/** The terminal stays as it is, so that Ctrl-C is the program's. */
async function askTerminal(text: string, signal: AbortSignal): Promise<string> {
  using lines = createInterface({ input: process.stdin, output: process.stderr, terminal: false });
  const ended = once(lines, 'close').then(() => {
    throw new UsageError('no answer on standard input; use the options instead');
  });
  return await Promise.race([lines.question(text, { signal }), ended]);
}

/** @throws ModelError; UsageError where an option is missing; the signal's reason */
export async function modelsAdd(
  what: string,
  options: ModelsAddOptions,
  config: CliConfig,
  terminal: Terminal,
  signal: AbortSignal,
): Promise<void> {
  // The code that fetches and measures takes a while to load; other commands need none of it.
  const { addModel } = await import('../adding/add-model.ts');
  const { probeGraph } = await import('../probing/probe-graph.ts');
  const view = createProgressView(terminal.err);
  const { memoryMax: memoryMaxBytes = memoryMaxHere() } = options;
  const { licenceWeights: weights, licenceData: data } = options;
  const { name, sha256 } = options;
  const say = (line: string) => {
    view.stop();
    terminal.err.write(`${line}\n`);
  };
  const flags = factsOfOptions(options);
  const given = { name, sha256, flags, licence: { weights, data }, memoryMaxBytes };
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
    ask: (open, probe, of) => ask(open, probe, join(tmpdir(), `matting-${of}.png`), terminal),
    onProgress: (file, receivedBytes, totalBytes) =>
      view.fetching(file, { file, receivedBytes, totalBytes }),
  };
  try {
    const added = await addModel(what, given, context);
    terminal.out.write(`${describeAdded(added, config).join('\n')}\n`);
  } finally {
    view.stop();
  }
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
  // Uses an installed OpenVINO only: `models fetch` installs it, as part of each start.
  const found = await findOpenvino(providerDir, wanted);
  const openvino = typeof found === 'string' ? undefined : found;
  return await prepareModel({
    ...{ manifest, cacheDir, weightsDir, precision: 'auto', provider: 'cpu', ...own },
    runtime: { wanted, openvino, comparing: signal },
    answering: createAnswering({ childEnv: config.childEnv }),
  });
}

const GIGABYTE = 1e9;

function describeAdded({ manifest, prepared, cutout }: AddedModel, config: CliConfig) {
  const { name, version, measured, graph, licence } = manifest;
  const { weights, trainingData } = licence;
  const { peakBytes = 0, loadedBytes = 0, seconds = 0 } = measured ?? {};
  const needed = Math.max(peakBytes, prepared.peakBytes ?? 0);
  const gigabytes = (bytes: number) => `${(bytes / GIGABYTE).toFixed(1)} GB`;
  const size = `${graph.inputWidth} x ${graph.inputHeight}`;
  const offered = [...new Set([...config.offered, name])].join();
  const refusals = refusalsOf(manifest, config.settings.commercialUse);
  const plans = join(config.settings.addedModelsDir, 'plans.json');
  return [
    `added ${name} ${version}`,
    `cut-out   ${cutout}`,
    `seconds   ${seconds.toFixed(2)} at ${size} on this machine's CPU`,
    `memory    ${gigabytes(peakBytes)} at peak, ${gigabytes(loadedBytes)} loaded`,
    `licence   ${licence.spdx}; weights: commercial use ${weights.commercialUse}. ${weights.reason}`,
    `          training data: commercial use ${trainingData.commercialUse}. ${trainingData.reason}`,
    ...refusals.map(refusal => `refused   by MATTING_COMMERCIAL_USE: ${refusal}`),
    `runs on   ${describeRuntime(prepared)}`,
    `a node    needs ${gigabytes(needed)} besides its own plan`,
    graph.trimap
      ? `next      use it in ${plans}, with the role refine after a subject`
      : `next      set MATTING_MODELS_OFFERED=${offered} on the control plane, so that requests may name it`,
  ];
}

/** @throws ModelError `settings` where it was not added */
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

const FLAGS: Readonly<Record<OpenFact, string>> = {
  normalisation: '--mean and --std',
  size: '--size',
  activation: '--activation',
};

function missing(open: readonly OpenFact[], cutouts: readonly string[] = []): UsageError {
  const see = cutouts.length === 0 ? '' : ` (cut-outs by common values: ${cutouts.join(', ')})`;
  return new UsageError(`missing ${open.map(fact => FLAGS[fact]).join(', ')}${see}`);
}

/** The cut-outs stay where a person finds them: of the model there may be nothing left. */
async function ask(
  open: readonly OpenFact[],
  probe: Probe,
  path: string,
  { question }: Terminal,
): Promise<Facts> {
  const cutouts = open.includes('normalisation') ? await writeCutouts(path, probe) : [];
  if (question === undefined) throw missing(open, cutouts);
  // The output's meaning is measured anew once the input is known.
  const first = open.filter(fact => fact !== 'activation');
  let facts: Facts = {};
  for (const fact of first.length > 0 ? first : open) {
    facts = { ...facts, ...(await answered(questionOf(fact, cutouts), question, ANSWERS[fact])) };
  }
  return facts;
}

function questionOf(fact: OpenFact, cutouts: readonly string[]): string {
  if (fact === 'size') return 'Input size in pixels, N or WxH: ';
  if (fact === 'activation') return `Function to apply to its output (${ACTIVATIONS.join(', ')}): `;
  const choices = NORMALISATIONS.map(
    ({ of, mean, std }, at) =>
      `  ${at + 1}  ${of}: mean ${mean.join()}, std ${std.join()}; ${cutouts[at]}\n`,
  );
  return (
    'The model does not state its mean and std. These are common, each with a cut-out:\n' +
    `${choices.join('')}Enter the number of the best, or mean and std as R,G,B R,G,B: `
  );
}

async function answered(
  text: string,
  question: (text: string) => Promise<string>,
  parse: (answer: string) => Facts | undefined,
): Promise<Facts> {
  for (;;) {
    const facts = parse((await question(text)).trim());
    if (facts !== undefined) return facts;
  }
}

const ANSWERS: Readonly<Record<OpenFact, (answer: string) => Facts | undefined>> = {
  normalisation: answer => {
    const chosen = NORMALISATIONS[Number(answer) - 1];
    if (chosen !== undefined) {
      return { normalisation: { mean: chosen.mean, std: chosen.std } };
    }
    const [mean, std] = answer.split(/\s+/).map(tripleOf);
    return mean && std?.every(value => value > 0) ? { normalisation: { mean, std } } : undefined;
  },
  size: answer => {
    const size = sizeOf(answer);
    return size && { size };
  },
  activation: answer => {
    const activation = ACTIVATIONS.find(known => known === answer);
    return activation && { activation };
  },
};

function parseSum(text: string): string {
  const sum = text.toLowerCase().replace(/^sha256:/, '');
  if (/^[0-9a-f]{64}$/.test(sum)) return sum;
  throw new InvalidArgumentError('Use 64 hexadecimal digits.');
}
