/**
 * `matting doctor --node`: what this node needs, and whether it has it. Each look has a bound of
 * its own. It fetches and prepares nothing, and leaves a node that runs alone.
 */

import { constants } from 'node:fs';
import { access, stat, statfs } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import { ConfigError } from '@matting/program/config-error.ts';
import { askHttp, connectionFailureOf } from '@matting/program/doctor/ask.ts';
import {
  type Finding,
  failure,
  look,
  ok,
  reasonOf,
  reportOf,
  warning,
} from '@matting/program/doctor/findings.ts';
import {
  configurationFindings,
  openFilesFinding,
  tlsFindings,
  versionFindings,
} from '@matting/program/doctor/program-findings.ts';
import {
  nodeTokenName,
  SecretsOut,
  secondTokenFinding,
  secretsOfFiles,
  weakSecretFindings,
} from '@matting/program/doctor/secrets.ts';
import { httpBaseOf } from '@matting/program/ports/addresses.ts';
import type { Command } from 'commander';
import pino from 'pino';
import { computeMegapixelBudget, readMemoryLimitBytes } from '../admission.ts';
import { describeMachine } from '../engine/choice/answer-picture.ts';
import { readCpuShare } from '../engine/choice/engine-layout.ts';
import { ExecutionProviderError, PROBE_TIMEOUT_MS } from '../engine/choice/execution-provider.ts';
import { LISTING_MAX_MS } from '../engine/devices/list-gpus.ts';
import { loadManifest, type ModelManifest } from '../models/manifest.ts';
import { ModelError } from '../models/model-error.ts';
import type { ModelSettings } from '../models/model-settings.ts';
import { admittedOutlineOf, type PlanOutline } from '../models/plan.ts';
import type { ExecutionProvider, Plan, PlanModel } from '../models/prepared-model.ts';
import {
  findHeifDecoder,
  type HeifPlaces,
  isSafeLibheif,
  LIBHEIF_MIN,
  remarksOf,
} from '../picture/children/find-heif-decoder.ts';
import { hasJxlTools, jxlTools } from '../picture/makeable.ts';
import { NOT_COMPARED, readChoice } from '../prepared/cpu-runtime.ts';
import { detectInstructionSet } from '../prepared/instruction-set.ts';
import { describePrepared } from '../prepared/load-prepared.ts';
import { listPrepared, PREPARER_REVISION } from '../prepared/prepared-cache.ts';
import { findWeightsFile } from '../prepared/weights-cache.ts';
import { findOpenvino } from '../providers/openvino-files.ts';
import { readEngineEnvironment } from '../providers/provider-files.ts';
import type { NodeSettings } from '../settings.ts';
import { type ChosenProvider, chooseProvider } from '../start/gpus.ts';
import { chooseLayout, enginesOpened } from '../start/node-layout.ts';
import type { Environment, PoolSettings } from '../start/pool-settings.ts';

const SILENT = pino({ level: 'silent' });
const BUG = 'this is a bug in the doctor; report it with this line';

interface ExaminedConfig extends NodeSettings {
  readonly warnings: readonly string[];
}

/** @param load throws ConfigError, whose problems are findings. */
async function examineNode(env: Environment, load: (env: Environment) => ExaminedConfig) {
  const { config, findings: ofConfiguration } = configurationFindings(env, load);
  const findings: Finding[] = [...versionFindings(env), ...ofConfiguration];
  if (config === undefined) return findings;
  findings.push(...secretsFindings(config));
  findings.push(...(await look('TLS', BUG, () => tlsFindings(config.tls))));
  const { outline, findings: ofPlan } = await planFindings(config.modelSettings);
  findings.push(...ofPlan);
  let on: ProviderFound = { provider: undefined, device: undefined };
  const choose = async () => {
    const { findings: ofProvider, ...found } = await providerFindings(config);
    on = found;
    return ofProvider;
  };
  const driver = 'check the driver and its libraries, or set MATTING_EXECUTION_PROVIDER=cpu';
  findings.push(...(await look('provider', driver, choose, PROVIDER_MAX_MS)));
  if (outline !== undefined) {
    const models = () => modelFindings(config, outline, on);
    findings.push(...(await look('models', 'run matting models fetch', models)));
  }
  findings.push(...(await look('machine', BUG, machineFindings)));
  findings.push(...(await look('codecs', 'run npm ci on this machine', codecFindings)));
  findings.push(...(await look('codecs', BUG, () => heifFindings(config))));
  findings.push(...(await look('disk', BUG, () => diskFindings(config.modelSettings.modelDir))));
  findings.push(...(await registryFindings(config)), ...(await runningFindings(config)));
  return findings;
}

function secretsFindings({ nodeTokens, callerTokens }: ExaminedConfig): Finding[] {
  const findings = weakSecretFindings([
    ...nodeTokens.items.map((text, index) => [nodeTokenName(index), text] as const),
    ...callerTokens.items.map(({ name, token }) => [`the caller token of ${name}`, token] as const),
  ]);
  if (nodeTokens.items.length > 1) findings.push(secondTokenFinding('this node'));
  return findings;
}

/** One control plane that answers is enough for a node; the others do not know it meanwhile. */
async function registryFindings({ registryAddresses }: ExaminedConfig): Promise<Finding[]> {
  if (registryAddresses.length === 0) {
    return [ok('registry', 'not configured; this node serves only direct callers')];
  }
  const refusals = await Promise.all(registryAddresses.map(connectionFailureOf));
  const findings: Finding[] = [];
  for (const [index, address] of registryAddresses.entries()) {
    const refusal = refusals[index];
    if (refusal === undefined) findings.push(ok('registry', `${address} takes connections`));
    else {
      const advice = 'check MATTING_REGISTRY_HOST there, and the network';
      const all = refusals.every(one => one !== undefined);
      const judged = all ? failure : warning;
      findings.push(judged('registry', `${address}: ${refusal}`, advice));
    }
  }
  return findings;
}

async function runningFindings({ host, httpPort }: ExaminedConfig): Promise<Finding[]> {
  if (httpPort === 0) return [];
  const answer = await askHttp(`${httpBaseOf(host, httpPort)}/readyz`);
  if (answer === undefined) {
    const found = `no answer at ${host}:${httpPort}`;
    return [warning('node', found, 'start the node, or read its last line on standard error')];
  }
  if (answer.status === 200) return [ok('node', `serving at ${host}:${httpPort}`)];
  const state = answer.text.trim().slice(0, 40);
  return [failure('node', `not ready: ${state}`, 'see the log of the node')];
}

const FETCH = 'run matting models fetch as the user of the node';

/** Finds what would run; undefined: that is unknown, or refused. */
async function planFindings(settings: ModelSettings): Promise<{
  readonly outline: PlanOutline | undefined;
  readonly findings: readonly Finding[];
}> {
  try {
    const outline = await admittedOutlineOf(settings);
    const models = outline.entries.map(({ model }) => model).join(', ');
    return { outline, findings: [ok('plan', `${outline.name}: ${models}`)] };
  } catch (error) {
    if (!(error instanceof ConfigError) && !(error instanceof ModelError)) throw error;
    const advice = 'set MATTING_QUALITY or MATTING_MODEL to one that exists and is permitted';
    return { outline: undefined, findings: [failure('plan', reasonOf(error), advice)] };
  }
}

async function modelFindings(
  config: PoolSettings,
  { entries }: PlanOutline,
  { provider, device }: ProviderFound,
): Promise<readonly Finding[]> {
  const { modelDir, addedModelsDir } = config.modelSettings;
  const findings: Finding[] = [];
  const prepared: PlanModel[] = [];
  for (const { model, inputSize, role } of entries) {
    const manifest = await loadManifest(model, undefined, addedModelsDir);
    findings.push(await weightsFinding(manifest, config.modelSettings));
    const current = (await listPrepared(modelDir, manifest)).find(
      ({ sidecar }) =>
        sidecar.revision === PREPARER_REVISION &&
        (provider === undefined || sidecar.provider === provider) &&
        (inputSize === undefined || sidecar.inputWidth === inputSize),
    );
    if (current === undefined) continue;
    const { path, recordsBeside, sidecar } = current;
    const described = describePrepared(manifest, sidecar, path, sidecar.sha256);
    prepared.push({ model: { ...described, recordsBeside }, role });
  }
  if (prepared.length < entries.length) {
    const found = `${entries.length - prepared.length} of ${entries.length} are not prepared yet`;
    return [...findings, warning('models', found, `the first start prepares them, or ${FETCH}`)];
  }
  if (provider === 'cpu') findings.push(await runtimeFinding(config, prepared));
  if (provider === undefined) return findings;
  const plan = { models: prepared };
  return [...findings, await memoryFinding(config, plan, { provider, device })];
}

async function weightsFinding(
  manifest: ModelManifest,
  { modelDir: cacheDir, weightsDir }: ModelSettings,
): Promise<Finding> {
  for (const file of manifest.files) {
    const { check } = await findWeightsFile({ cacheDir, weightsDir }, manifest, file);
    if (check.state === 'checked') continue;
    const wrong = check.state === 'missing' ? 'is missing' : `is damaged: ${check.reason}`;
    return failure('models', `${manifest.name}: ${file.name} ${wrong}`, FETCH);
  }
  return ok('models', `${manifest.name} ${manifest.version} is complete`);
}

/** Says which runtime runs each model, and why. */
async function runtimeFinding(
  { cpuRuntime: wanted, providerDir }: PoolSettings,
  models: readonly PlanModel[],
): Promise<Finding> {
  if (wanted === 'onnxruntime') return ok('runtime', 'ONNX Runtime runs the models, as set');
  const found = await findOpenvino(providerDir, wanted);
  if (typeof found === 'string') {
    if (wanted === 'openvino') return failure('runtime', found, FETCH);
    return ok('runtime', `ONNX Runtime runs the models: ${found}`);
  }
  const here = { machine: describeMachine() };
  const lines: string[] = [];
  for (const { model } of models) {
    const choice = await readChoice(model, { wanted, openvino: found }, here);
    if (choice.runtime === 'openvino') {
      lines.push(`OpenVINO runs ${model.model} in ${choice.timeShare} of the time`);
    } else {
      lines.push(`ONNX Runtime runs ${model.model}: ${choice.reason}`);
    }
  }
  const text = lines.join('; ');
  return text.includes(NOT_COMPARED) ? warning('runtime', text, FETCH) : ok('runtime', text);
}

export async function memoryFinding(
  config: PoolSettings,
  plan: Pick<Plan, 'models'>,
  { provider, device }: { readonly provider: ExecutionProvider } & Pick<ChosenProvider, 'device'>,
): Promise<Finding> {
  const { megapixelsMax } = config;
  const memoryLimitBytes = readMemoryLimitBytes();
  const cpuShare = await readCpuShare();
  const here = { config, cpuShare, log: SILENT };
  const layout = chooseLayout(here, provider, plan, device);
  const all = enginesOpened(plan, layout.engines);
  const budget = computeMegapixelBudget({ memoryLimitBytes, engines: all });
  const gigabytes = `${(memoryLimitBytes / 1e9).toFixed(1)} GB`;
  if (budget === undefined && megapixelsMax === undefined) {
    const found = `${gigabytes} are too little for ${all.length} engines and a photo`;
    const advice = 'add memory, use fewer engines, or set MATTING_NODE_MEGAPIXELS_MAX';
    return failure('memory', found, advice);
  }
  const room = `${megapixelsMax ?? budget?.megapixelsMax} megapixels at once`;
  const isDefault = provider !== 'cpu' && config.engines === undefined;
  const each = `${layout.engines} of each model for a GPU beside ${Math.floor(cpuShare)} cores`;
  const why = isDefault ? ` (${each})` : '';
  return ok('memory', `${gigabytes} for ${all.length} engines${why} and ${room}`);
}

/** The GPU is tried twice: by itself, and beside the CPU; twice that for a driver that is slow. */
const GPU_MS_MAX = 4 * PROBE_TIMEOUT_MS;

type ProviderConfig = Pick<
  PoolSettings,
  'executionProvider' | 'gpuDevice' | 'providerDir' | 'childEnv'
>;

interface ProviderFound extends Pick<ChosenProvider, 'device'> {
  /** Undefined: none runs here. */
  readonly provider: ExecutionProvider | undefined;
}

const PROVIDER_MAX_MS = 2 * LISTING_MAX_MS + GPU_MS_MAX;

export async function providerFindings(
  config: ProviderConfig,
): Promise<ProviderFound & { findings: Finding[] }> {
  try {
    const { childEnv } = await readEngineEnvironment(config.providerDir, config.childEnv);
    const chosen = await chooseProvider(config, childEnv, SILENT);
    const { requested, selected: provider, fallbacks } = chosen.provider;
    const { device } = chosen;
    const on = device === undefined ? '' : ` on ${device.facts.id}`;
    const not = fallbacks.map(({ provider: tried, reason }) => `${tried}: ${reason}`);
    const more = not.length === 0 ? '' : `; not ${not.join('; ')}`;
    const found = `${provider} runs here${on} (requested: ${requested})${more}`;
    const findings = [ok('provider', found)];
    if (chosen.unlisted !== undefined) {
      const advice = 'check nvidia-smi; the node uses only GPUs that it lists';
      findings.push(warning('GPU', `not every GPU is listed: ${chosen.unlisted}`, advice));
    }
    return { provider, device, findings };
  } catch (error) {
    if (!(error instanceof ExecutionProviderError)) throw error;
    const advice =
      'fix this, or set MATTING_EXECUTION_PROVIDER; until then the node does not start';
    const findings = [failure('provider', error.message, advice)];
    return { provider: undefined, device: undefined, findings };
  }
}

/** Twice as many as its gRPC port's connections. */
const OPEN_FILES_MIN = 2560;
/** Weights and prepared models of the largest plan take about half of it. */
const FREE_BYTES_WARN = 1e9;

async function machineFindings(): Promise<readonly Finding[]> {
  const share = await readCpuShare();
  const cores = `${share} cores, ${await detectInstructionSet()}`;
  const few = warning('machine', cores, 'raise the quota; below one core every picture is slow');
  return [
    share < 1 ? few : ok('machine', cores),
    hasJxlTools()
      ? ok('machine', 'reads JPEG XL of any size with libjxl-tools')
      : warning(
          'machine',
          'refuses JPEG XL above 40 megapixels, and CMYK',
          jxlTools().failure === undefined
            ? 'to accept it, install libjxl-tools (and util-linux)'
            : `libjxl-tools need a folder for temporary files: ${jxlTools().failure}`,
        ),
    openFilesFinding(OPEN_FILES_MIN),
  ];
}

async function diskFindings(modelDir: string): Promise<readonly Finding[]> {
  const found = await stat(modelDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (found === undefined) {
    const advice = 'run matting models fetch as the user of the node';
    return [warning('disk', `${modelDir} does not exist yet`, advice)];
  }
  try {
    await access(modelDir, constants.R_OK | constants.X_OK);
  } catch (error) {
    return [failure('disk', reasonOf(error), 'let the user of the node read it')];
  }
  const { bavail, bsize } = await statfs(modelDir);
  const room = `${((bavail * bsize) / 1e9).toFixed(1)} GB free at ${modelDir}`;
  if (bavail * bsize >= FREE_BYTES_WARN) return [ok('disk', room)];
  return [warning('disk', room, 'free some space to fetch or prepare another model')];
}

/** Loaded here alone: where sharp does not load, that is a finding as well. */
export async function codecFindings(): Promise<readonly Finding[]> {
  const { libheifVersion } = await import('../picture/codecs/codec-sharp.ts');
  return [libheifFinding(libheifVersion)];
}

/** @param version undefined: sharp runs on a libvips that is not its own. */
export function libheifFinding(version: string | undefined): Finding {
  if (version === undefined) {
    const found = 'sharp uses the libvips of this system, whose libheif is unknown';
    return warning('codecs', found, `check that libheif is ${LIBHEIF_MIN} or later, or run npm ci`);
  }
  const found = `reads AVIF with libheif ${version}`;
  if (isSafeLibheif(version)) return ok('codecs', found);
  const holes = `${found}; before ${LIBHEIF_MIN} a picture can take over the process`;
  return failure('codecs', holes, 'run npm ci to install the sharp of package-lock.json');
}

/** Without one nothing is wrong: whether HEIC is read is the operator's choice. */
export async function heifFindings(
  { heif: choice }: Pick<PoolSettings, 'heif'>,
  places?: HeifPlaces,
): Promise<readonly Finding[]> {
  if (choice === 'off') return [ok('codecs', 'refuses HEIC (MATTING_HEIF=off)')];
  const { decoder, failures } = await findHeifDecoder(choice, places);
  const advice = 'see docs/nodes.md, "HEIC"';
  const findings = failures.map(reason => warning('codecs', `HEIC: ${reason}`, advice));
  if (decoder === undefined) {
    const found = 'refuses HEIC: neither libheif-js nor libheif-examples work here';
    findings.push(choice === undefined ? ok('codecs', found) : failure('codecs', found, advice));
    return findings;
  }
  const { kind, version } = decoder;
  const remarks = remarksOf(decoder).map(line => warning('codecs', line, advice));
  return [...findings, ok('codecs', `reads HEIC with libheif ${version} (${kind})`), ...remarks];
}

interface DoctorOptions {
  readonly json?: boolean;
  readonly strict?: boolean;
}

interface DoctorContext {
  environment(): Environment;
  load(env: Environment): ExaminedConfig;
  failed(): void;
}

export function addDoctorCommand(program: Command, context: DoctorContext): void {
  program
    .command('doctor')
    .description('check everything this node needs; exit 1 on a failure')
    .option('--node', 'check this node, not a control plane')
    .option('--json', 'print JSON')
    .option('--strict', 'exit 1 on warnings too')
    .action(async (options: DoctorOptions) => {
      const env = context.environment();
      const good = await doctor(options, env, given => context.load(given), process.stdout);
      if (!good) context.failed();
    });
}

/** @returns whether nothing fails; with `strict`, nothing warns either. */
export async function doctor(
  options: DoctorOptions,
  env: Environment,
  load: (env: Environment) => ExaminedConfig,
  out: Writable,
): Promise<boolean> {
  const { text, fault } = reportOf(await examineNode(env, load), options);
  out.write(`${new SecretsOut(env, await secretsOfFiles(env)).of(text)}\n`);
  return fault === undefined;
}
