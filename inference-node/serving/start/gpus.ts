/**
 * Which execution provider this node runs on, and what its start does on GPUs: each is tried by
 * itself and left out where it does not run, unless named or alone; answers of whole models are
 * checked; engines are placed.
 */
import path from 'node:path';
import type { Logger } from 'pino';
import { answerOnce, createAnswering } from '../engine/choice/answer-picture.ts';
import {
  ExecutionProviderError,
  type ProviderChoice,
  selectExecutionProvider,
} from '../engine/choice/execution-provider.ts';
import {
  chooseDevices,
  DeviceWatch,
  GpuDevice,
  type GpuFacts,
  listGpus,
  spreadEngines,
} from '../engine/devices/devices.ts';
import { saysMemoryIsShort } from '../engine/engine-protocol.ts';
import { LOAD_TIMEOUT_MS, LOAD_TIMEOUT_TENSORRT_MS } from '../engine/pool/engine.ts';
import type { ExecutionProvider, Plan, Precision } from '../models/prepared-model.ts';
import {
  checkAnswerOnDevice,
  detectInstructionSet,
  type MakePrepared,
} from '../prepared/load-prepared.ts';
import { runtimeVersion } from '../providers/provider-files.ts';
import type { PoolSettings } from './pool-settings.ts';

export interface ChosenProvider {
  readonly provider: ProviderChoice;
  /** Also those that are out. Empty on a CPU, with WebGPU, and where the driver lists none. */
  readonly devices: readonly GpuDevice[];
  readonly unlisted?: string;
}

type EngineEnv = Readonly<Record<string, string>>;

/** @throws ExecutionProviderError where one asked for by name, or a GPU so, does not run. */
export async function chooseProvider(
  {
    executionProvider: requested,
    gpuDevices,
  }: Pick<PoolSettings, 'executionProvider' | 'gpuDevices'>,
  engineEnv: EngineEnv,
  log: Logger,
): Promise<ChosenProvider> {
  if (requested === 'cpu' || requested === 'webgpu') {
    const provider = await selectExecutionProvider(requested, { childEnv: engineEnv });
    return { provider, devices: [] };
  }
  const { gpus, unlisted, isAbsent } = await findGpus(requested, gpuDevices, engineEnv);
  if (gpus.length === 0) {
    const provider = await selectExecutionProvider(requested, { childEnv: engineEnv });
    if (isAbsent && requested === 'auto' && provider.selected === 'cpu') {
      log.info('no NVIDIA driver here: models run on the CPU');
      return { provider: { ...provider, fallbacks: [] }, devices: [] };
    }
    // On a CPU the provider's own reason says more.
    if (unlisted === undefined || provider.selected === 'cpu') return { provider, devices: [] };
    log.warn({ reason: unlisted }, 'GPUs cannot be listed: only the first is used');
    return { provider, devices: [], unlisted };
  }
  if (unlisted !== undefined) log.warn({ reason: unlisted }, 'not every GPU can be listed');
  const more = unlisted === undefined ? {} : { unlisted };
  const tried = requested === 'auto' ? 'cuda' : requested;
  const devices = gpus.map(facts => new GpuDevice(facts));
  for (const device of devices) {
    const reason = await attemptDevice(tried, device, engineEnv);
    if (reason === undefined) continue;
    if (gpuDevices !== 'all') throw new ExecutionProviderError(tried, reason);
    log.warn({ gpu: device.facts.id, name: device.facts.name, reason }, 'GPU is left out');
    device.lose(reason);
  }
  if (devices.some(({ outReason }) => outReason === undefined)) {
    return { provider: { requested, selected: tried, fallbacks: [] }, devices, ...more };
  }
  const reason = devices[0]?.outReason ?? 'no GPU runs';
  if (requested !== 'auto') throw new ExecutionProviderError(tried, reason);
  return fallenBack(reason);
}

export function fallenBack(reason: string): ChosenProvider {
  const fallbacks = [{ provider: 'cuda', reason }] as const;
  return { provider: { requested: 'auto', selected: 'cpu', fallbacks }, devices: [] };
}

async function attemptDevice(
  provider: 'cuda' | 'tensorrt',
  device: GpuDevice,
  engineEnv: EngineEnv,
): Promise<string | undefined> {
  try {
    await selectExecutionProvider(provider, { childEnv: device.envOf(engineEnv) });
    return undefined;
  } catch (error) {
    if (!(error instanceof ExecutionProviderError)) throw error;
    return error.reason;
  }
}

async function findGpus(
  requested: 'auto' | 'cuda' | 'tensorrt',
  wanted: PoolSettings['gpuDevices'],
  engineEnv: EngineEnv,
): Promise<{
  readonly gpus: readonly GpuFacts[];
  readonly unlisted: string | undefined;
  readonly isAbsent?: boolean;
}> {
  const listing = await listGpus(engineEnv);
  const refuse = (reason: string): never => {
    const provider = requested === 'auto' ? 'cuda' : requested;
    throw new ExecutionProviderError(provider, `MATTING_GPU_DEVICES names GPUs, and ${reason}`);
  };
  if (listing.state !== 'listed') {
    const isAbsent = listing.state === 'absent';
    return wanted === 'all'
      ? { gpus: [], unlisted: listing.reason, isAbsent }
      : refuse(listing.reason);
  }
  const unlisted = wanted === 'all' ? listing.incomplete : undefined;
  const choice = chooseDevices(wanted, listing.gpus, engineEnv.CUDA_VISIBLE_DEVICES);
  if ('gpus' in choice) return { gpus: choice.gpus, unlisted };
  return refuse(`the driver does not list ${choice.missing.join(', ')}`);
}

export type GpuProvider = Extract<ExecutionProvider, 'cuda' | 'tensorrt'>;

export type GpuStart = StartOn<GpuProvider>;

export interface StartOn<Provider extends ExecutionProvider> {
  readonly config: PoolSettings;
  readonly make: MakePrepared;
  readonly engineEnv: EngineEnv;
  readonly provider: Provider;
  /** Empty: the one that CUDA takes first, or no GPU of CUDA's. */
  readonly devices: readonly GpuDevice[];
  readonly cpuThreads: number;
  readonly ending: AbortSignal;
  readonly log: Logger;
}

/** GPUs that compute alike. Undefined: nothing says what it is, so nothing is remembered of it. */
function kindOf(device: GpuDevice | undefined, provider: ExecutionProvider): string | undefined {
  if (device === undefined) return undefined;
  const { name, driver } = device.facts;
  return `${name}, driver ${driver}, ${provider}, ONNX Runtime ${runtimeVersion()}`;
}

/** `afresh`: on one that was out, of which nothing before says anything. */
type Checked = 'once' | 'afresh';

/**
 * Every model against its stored answer on each kind of GPU not checked before. GPUs that answer
 * wrongly go out. Undefined: some are left; else why none is. @throws ExecutionProviderError where
 * the operator named the GPUs.
 */
export async function checkAnswers(start: GpuStart, plan: Plan): Promise<string | undefined> {
  const { devices, provider, log } = start;
  if (devices.length === 0) return await wrongAnswer(start, plan, undefined);
  const checked = new Map<string | undefined, string | undefined>();
  for (const device of devices.filter(({ outReason }) => outReason === undefined)) {
    const kind = kindOf(device, provider);
    if (!checked.has(kind)) checked.set(kind, await wrongAnswer(start, plan, device));
    const reason = checked.get(kind);
    if (reason === undefined) continue;
    if (start.config.gpuDevices !== 'all') throw new ExecutionProviderError(provider, reason);
    log.warn({ gpu: device.facts.id, name: device.facts.name, reason }, 'GPU is left out');
    device.lose(reason);
  }
  if (devices.some(({ outReason }) => outReason === undefined)) return undefined;
  return devices[0]?.outReason;
}

async function wrongAnswer(
  { config, make, engineEnv, provider, cpuThreads, ending }: GpuStart,
  plan: Plan,
  device: GpuDevice | undefined,
  checked: Checked = 'once',
): Promise<string | undefined> {
  const { childEnv, modelSettings } = config;
  const timeoutMs = provider === 'tensorrt' ? LOAD_TIMEOUT_TENSORRT_MS : LOAD_TIMEOUT_MS;
  for (const { model } of plan.models) {
    ending.throwIfAborted();
    const wrong = await checkAnswerOnDevice({
      model,
      answer: answerOnce({
        childEnv: device?.envOf(engineEnv) ?? engineEnv,
        threads: 1,
        timeoutMs,
      }),
      machine: checked === 'once' ? kindOf(device, provider) : undefined,
      cacheDir: modelSettings.modelDir,
      weightsDir: modelSettings.weightsDir,
      addedModelsDir: modelSettings.addedModelsDir,
      instructionSet: await detectInstructionSet(),
      answering: createAnswering({ childEnv, threads: cpuThreads }),
      make,
    });
    if (wrong !== undefined) return `${model.model} in ${model.precision}: ${wrong}`;
  }
  return undefined;
}

/**
 * Undefined: CUDA's first, for all. One each where nothing is said; a number is spread by memory.
 * Engines of a GPU that is out wait for it, unless they are too few for every GPU: it may be out
 * for ever.
 */
export function placeEngines({ devices, config: { engines } }: GpuStart): GpuDevice[] | undefined {
  if (devices.length === 0) return undefined;
  if (engines === undefined) return [...devices];
  const up = devices.filter(({ outReason }) => outReason === undefined);
  const placed = spreadEngines(engines, devices);
  const waits = placed.some(({ outReason }) => outReason !== undefined);
  return waits && up.some(device => !placed.includes(device)) ? spreadEngines(engines, up) : placed;
}

/** Undefined: a GPU that was out runs again: a small graph, and the models. */
export async function tryAgain(
  start: GpuStart,
  plan: Plan,
  device: GpuDevice,
): Promise<string | undefined> {
  return (
    (await attemptDevice(start.provider, device, start.engineEnv)) ??
    (await wrongAnswer(start, plan, device, 'afresh'))
  );
}

/** `plan`: with every model that is loaded when a GPU is tried. */
export function watchDevices(start: GpuStart, plan: () => Plan): DeviceWatch {
  const { devices, log } = start;
  return new DeviceWatch({ devices, log, attempt: device => tryAgain(start, plan(), device) });
}

/** Of models that are loaded later: no GPU goes out for them. @throws ExecutionProviderError */
export async function requireAnswers(start: GpuStart, plan: Plan): Promise<void> {
  const wrong = await wrongAnywhere(start, device => wrongAnswer(start, plan, device));
  if (wrong !== undefined) throw new ExecutionProviderError(start.provider, wrong);
}

/** Where the operator says nothing: to keep what it built, and half precision as the model. */
export function tensorrtEnv(
  engineEnv: EngineEnv,
  modelDir: string,
  precisions: readonly Precision[],
): EngineEnv {
  const fp16 = precisions.every(precision => precision === 'fp16');
  return {
    ORT_TENSORRT_ENGINE_CACHE_ENABLE: '1',
    ORT_TENSORRT_CACHE_PATH: path.join(modelDir, 'tensorrt'),
    ...(fp16 ? { ORT_TENSORRT_FP16_ENABLE: '1' } : {}),
    ...engineEnv,
  };
}

/** On one GPU of each kind: what a folder that is only read cannot remember, this does. */
async function wrongAnywhere(
  start: GpuStart,
  wrongOn: (device: GpuDevice | undefined) => Promise<string | undefined>,
): Promise<string | undefined> {
  const up = start.devices.filter(({ outReason }) => outReason === undefined);
  const checked = new Set<string | undefined>();
  for (const device of up.length === 0 ? [undefined] : up) {
    const kind = kindOf(device, start.provider);
    if (checked.has(kind)) continue;
    const wrong = await wrongOn(device);
    if (wrong !== undefined) return wrong;
    checked.add(kind);
  }
  return undefined;
}

/** Where no engine of a model loads for memory, the error names what would do without. */
export async function namingSettings(ready: Promise<void>, engines: number): Promise<void> {
  try {
    await ready;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const { message } = error;
    if (engines === 1 || !saysMemoryIsShort(message)) throw error;
    const advice = `with ${engines} engines of each model on a GPU: MATTING_ENGINES takes fewer`;
    throw new Error(`${message} (${advice})`, { cause: error });
  }
}
