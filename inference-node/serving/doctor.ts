/**
 * `matting doctor --node` makes the checks of a node's start, each with a bound of its own. It
 * fetches and prepares nothing, and does not disturb a running node.
 */

import { once } from 'node:events';
import { connect } from 'node:net';
import type { Writable } from 'node:stream';
import {
  messageWithCauses,
  reportOf,
  runCheck,
  type Warn,
} from '@matting/program/doctor/findings.ts';
import {
  askProgram,
  programFindings,
  requireReady,
  tlsFindings,
} from '@matting/program/doctor/program-findings.ts';
import { SecretsOut, secretsOfFiles } from '@matting/program/doctor/secrets.ts';
import { within } from '@matting/program/waiting.ts';
import type { Command } from 'commander';
import type { Logger } from 'pino';
import { readMemoryLimitBytes } from './admission.ts';
import { readCpuShare } from './engine/choice/engine-layout.ts';
import { PROBE_TIMEOUT_MS } from './engine/choice/execution-provider.ts';
import { LISTING_MAX_MS } from './engine/devices/list-gpus.ts';
import { admittedOutlineOf, type PlanOutline } from './models/plan.ts';
import { type Plan, type PreparedModel, runtimeOf } from './models/prepared-model.ts';
import { chooseBudget, preparePlan, readEngineEnv } from './open-pools.ts';
import { isSafeLibheif, LIBHEIF_MIN } from './picture/children/find-heif-decoder.ts';
import { hasJxlTools, jxlTools } from './picture/makeable.ts';
import { NOT_COMPARED } from './prepared/cpu-runtime.ts';
import type { NodeSettings } from './settings.ts';
import { type ChosenProvider, chooseProvider } from './start/gpus.ts';
import { chooseHeif } from './start/heif.ts';
import { chooseLayout, enginesOpened } from './start/node-layout.ts';
import type { Environment, PoolSettings } from './start/pool-settings.ts';

/** Twice the connections of its gRPC port. */
const OPEN_FILES_MIN = 2560;
/** The GPU is tried twice, alone and with the CPU; doubled for a slow driver. */
const GPU_MS_MAX = 4 * PROBE_TIMEOUT_MS;
const PROVIDER_MAX_MS = 2 * LISTING_MAX_MS + GPU_MS_MAX;
const CONNECT_MS_MAX = 3000;
const FETCH = 'run matting models fetch as the user of the node';

interface ExaminedConfig extends NodeSettings {
  readonly warnings: readonly string[];
}

async function examineNode(env: Environment, load: (env: Environment) => ExaminedConfig) {
  const { config, findings: ofProgram } = programFindings(env, load, OPEN_FILES_MIN);
  const findings = [...ofProgram];
  if (config === undefined) return findings;
  const add = async (...check: Parameters<typeof runCheck>) => {
    findings.push(...(await runCheck(...check)));
  };
  findings.push(...(await tlsFindings(config.tls)));
  let outline: PlanOutline | undefined;
  const plan = 'set MATTING_QUALITY or MATTING_MODEL to one that exists and is permitted';
  await add({ subject: 'plan', advice: plan }, async () => {
    outline = await admittedOutlineOf(config.modelSettings);
    return `${outline.name}: ${outline.entries.map(({ model }) => model).join(', ')}`;
  });
  let chosen: ChosenProvider | undefined;
  const driver = 'check the driver and its libraries, or set MATTING_EXECUTION_PROVIDER=cpu';
  await add({ subject: 'provider', advice: driver, msMax: PROVIDER_MAX_MS }, async log => {
    chosen = await chooseProviderHere(config, log);
    return describeProvider(chosen);
  });
  if (outline !== undefined && chosen !== undefined) {
    const on = { config, outline, chosen };
    let prepared: Plan | undefined;
    await add({ subject: 'models', advice: FETCH }, async (log, warn) => {
      prepared = await findPlan(on, log, warn);
      return prepared?.models.map(({ model }) => describeModel(model, warn)).join('; ');
    });
    const models = prepared;
    const memory = 'add memory, use fewer engines, or raise MATTING_NODE_MEMORY_PERCENT';
    if (models !== undefined) {
      await add({ subject: 'memory', advice: memory }, log =>
        describeMemory(config, models, on.chosen, log),
      );
    }
  }
  await add({ subject: 'AVIF', advice: 'run npm ci on this machine' }, describeAvif);
  await add({ subject: 'HEIC', advice: 'see docs/nodes.md, "HEIC"' }, async log => {
    const decoder = await chooseHeif(config, log);
    if (decoder !== undefined) return `libheif ${decoder.version} (${decoder.kind}) reads it`;
    return config.heif === 'off' ? 'refused (MATTING_HEIF=off)' : 'refused: no decoder is here';
  });
  const jxl = 'to accept it, install libjxl-tools (and util-linux)';
  await add({ subject: 'JPEG XL', advice: jxl }, describeJxl);
  const registry = 'check MATTING_REGISTRY_HOST there, and the network';
  await add({ subject: 'registry', advice: registry }, (_, warn) => requireRegistry(config, warn));
  const start =
    'start the node; its last line on standard error and its log say why it is not ready';
  await add({ subject: 'node', advice: start }, (_, warn) =>
    requireReady(config.host, config.httpPort, warn),
  );
  return findings;
}

type ProviderConfig = Pick<
  PoolSettings,
  'executionProvider' | 'gpuDevice' | 'providerDir' | 'childEnv'
>;

export async function chooseProviderHere(
  config: ProviderConfig,
  log: Logger,
): Promise<ChosenProvider> {
  return await chooseProvider(config, await readEngineEnv({ config, log }), log);
}

function describeProvider({ provider, device }: ChosenProvider): string {
  const { requested, selected, fallbacks } = provider;
  const on = device === undefined ? '' : ` on ${device.facts.id}`;
  const not = fallbacks.map(({ provider: tried, reason }) => `; not ${tried}: ${reason}`);
  return `${selected} runs here${on} (requested: ${requested})${not.join('')}`;
}

class NotPreparedError extends Error {}

/** Undefined: a model is not prepared, as `warn` says. */
async function findPlan(
  {
    config,
    outline,
    chosen,
  }: {
    readonly config: PoolSettings;
    readonly outline: PlanOutline;
    readonly chosen: ChosenProvider;
  },
  log: Logger,
  warn: Warn,
): Promise<Plan | undefined> {
  const make = (_source: string, _key: unknown, to: { readonly manifest: { name: string } }) =>
    Promise.reject(new NotPreparedError(`${to.manifest.name} is not prepared yet`));
  // An engine would take memory from a running node.
  const answer = () => Promise.reject(new Error('it was not checked on this machine yet'));
  const cpuShare = await readCpuShare();
  const engineEnv = config.childEnv;
  try {
    const parts = { config, log, outline, make, engineEnv, cpuShare };
    return await preparePlan(parts, chosen.provider.selected, answer);
  } catch (error) {
    if (!(error instanceof NotPreparedError)) throw error;
    warn(`${error.message}; the first start prepares it`);
    return undefined;
  }
}

function describeModel(model: PreparedModel, warn: Warn): string {
  const { runtimeFallback: reason } = model;
  if (reason === NOT_COMPARED) warn(`${model.model}: ${reason}`);
  const why = reason === undefined ? '' : ` (${reason})`;
  const runtime = runtimeOf(model) === 'openvino' ? 'OpenVINO' : 'ONNX Runtime';
  return `${model.model} ${model.precision} by ${runtime}${why}`;
}

export async function describeMemory(
  config: PoolSettings,
  plan: Plan,
  { provider: { selected: provider }, device }: ChosenProvider,
  log: Logger,
): Promise<string> {
  const cpuShare = await readCpuShare();
  const layout = chooseLayout({ config, cpuShare, log }, provider, plan, device);
  const { megapixelsMax } = chooseBudget(config, plan, layout.engines);
  const all = enginesOpened(plan, layout.engines).length;
  const isDefault = provider !== 'cpu' && config.engines === undefined;
  const each = `${layout.engines} of each model for a GPU beside ${Math.floor(cpuShare)} cores`;
  const gigabytes = (readMemoryLimitBytes(config.memoryPercent) / 1e9).toFixed(1);
  return `${gigabytes} GB for ${all} engines${isDefault ? ` (${each})` : ''} and ${megapixelsMax} megapixels at once`;
}

/** Imported here, because a sharp that does not load is a finding too. */
async function describeAvif(_: Logger, warn: Warn): Promise<string> {
  const { libheifVersion } = await import('./picture/codecs/codec-sharp.ts');
  return requireSafeLibheif(libheifVersion, warn);
}

/** @param version undefined: sharp runs on a libvips that is not its own */
export function requireSafeLibheif(version: string | undefined, warn: Warn): string {
  if (version === undefined) {
    warn(
      `sharp uses the libvips of this system: check that its libheif is ${LIBHEIF_MIN} or later`,
    );
    return 'an unknown libheif reads it';
  }
  const found = `libheif ${version} reads it`;
  if (isSafeLibheif(version)) return found;
  throw new Error(`${found}; before ${LIBHEIF_MIN} a picture can take over the process`);
}

async function describeJxl(_: Logger, warn: Warn): Promise<string> {
  if (hasJxlTools()) return 'libjxl-tools read it at any size';
  const { failure } = jxlTools();
  warn(failure ?? 'above 40 megapixels, and CMYK, it is refused');
  return 'read up to 40 megapixels';
}

/** One control plane that answers is enough for a node. */
async function requireRegistry(settings: NodeSettings, warn: Warn): Promise<string> {
  const addresses = await registriesOf(settings);
  if (addresses.length === 0) return 'none is set: only direct callers use this node';
  const found = await Promise.all(
    addresses.map(async address => ({ address, why: await connectionFailureOf(address) })),
  );
  const refused = found.flatMap(({ address, why }) =>
    why === undefined ? [] : `${address}: ${why}`,
  );
  if (refused.length === found.length) throw new Error(refused.join('; '));
  for (const line of refused) warn(line);
  const taking = found.flatMap(({ address, why }) => (why === undefined ? address : []));
  return `${taking.join(', ')} take connections`;
}

/** If none is set, those of the running node. */
async function registriesOf({ registryAddresses, host, httpPort }: NodeSettings) {
  if (registryAddresses.length > 0 || httpPort === 0) return registryAddresses;
  const info = await askProgram(host, httpPort, '/info');
  const found = /"registryAddress": ?"([^"]+)"/.exec(info?.text ?? '')?.[1];
  return found?.split(',') ?? [];
}

async function connectionFailureOf(address: string): Promise<string | undefined> {
  const at = address.lastIndexOf(':');
  const host = address.slice(0, at).replace(/^\[(.*)\]$/, '$1');
  const socket = connect({ host, port: Number(address.slice(at + 1)) });
  try {
    const tooLate = () => new Error(`no answer in ${CONNECT_MS_MAX} ms`);
    await within(once(socket, 'connect'), CONNECT_MS_MAX, tooLate);
    return undefined;
  } catch (error) {
    return messageWithCauses(error);
  } finally {
    socket.destroy();
  }
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
    .description('make the checks of this node’s start; exit 1 on a failure')
    .option('--node', 'check this node, not a control plane')
    .option('--json', 'print JSON')
    .option('--strict', 'exit 1 on warnings too')
    .action(async (options: DoctorOptions) => {
      const env = context.environment();
      const good = await doctor(options, env, given => context.load(given), process.stdout);
      if (!good) context.failed();
    });
}

/** @returns whether nothing fails; with `strict`, nor warns */
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
