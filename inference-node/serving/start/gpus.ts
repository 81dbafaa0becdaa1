/**
 * Chooses the execution provider and GPU of this node. Before it takes images, the GPU runs a small
 * graph, and answers of whole models are checked.
 */
import type { Logger } from 'pino';
import {
  ExecutionProviderError,
  type ProviderChoice,
  selectExecutionProvider,
} from '../engine/choice/execution-provider.ts';
import { answerOnce, createAnswering } from '../engine/choice/run-once.ts';
import { chooseDevice } from '../engine/devices/choose-gpu.ts';
import { GpuDevice } from '../engine/devices/gpu-device.ts';
import { type GpuFacts, listGpus } from '../engine/devices/list-gpus.ts';
import { saysMemoryIsShort } from '../engine/engine-protocol.ts';
import { LOAD_TIMEOUT_MS } from '../engine/pool/engine.ts';
import type { Plan } from '../models/prepared-model.ts';
import { checkAnswerOnDevice } from '../prepared/device-answer.ts';
import type { MakePrepared } from '../prepared/load-prepared.ts';
import { C_INTERFACE_VARIABLE } from '../providers/c-interface.ts';
import { runtimeVersion } from '../providers/provider-files.ts';
import type { PoolSettings } from './pool-settings.ts';

export interface ChosenProvider {
  readonly provider: ProviderChoice;
  /** Undefined: the node runs on a CPU, or the driver lists no GPU. */
  readonly device: GpuDevice | undefined;
}

type EngineEnv = Readonly<Record<string, string>>;
type DeviceWish = Pick<PoolSettings, 'executionProvider' | 'gpuDevice'>;

/** @throws ExecutionProviderError if a provider or GPU that was requested by name does not run */
export async function chooseProvider(
  { executionProvider: requested, gpuDevice }: DeviceWish,
  engineEnv: EngineEnv,
  log: Logger,
): Promise<ChosenProvider> {
  if (requested === 'cpu') {
    const provider = await selectExecutionProvider(requested, { childEnv: engineEnv });
    return { provider, device: undefined };
  }
  const { gpu, visible, unlisted, isAbsent } = await findGpu(gpuDevice, engineEnv);
  if (gpu === undefined) {
    const provider = await selectExecutionProvider(requested, { childEnv: engineEnv });
    if (isAbsent && requested === 'auto' && provider.selected === 'cpu') {
      log.info('no NVIDIA driver here: models run on the CPU');
      return { provider: { ...provider, fallbacks: [] }, device: undefined };
    }
    // On a CPU the provider's own reason says more.
    if (unlisted === undefined || provider.selected === 'cpu')
      return { provider, device: undefined };
    log.warn({ reason: unlisted }, 'GPUs cannot be listed: only the first is used');
    return { provider, device: undefined };
  }
  if (unlisted !== undefined) log.warn({ reason: unlisted }, 'not every GPU can be listed');
  if (visible > 1) {
    const facts = { gpu: gpu.id, name: gpu.name, gpus: visible };
    log.warn(facts, 'the node uses the first of several GPUs: MATTING_GPU_DEVICES selects another');
  }
  const device = new GpuDevice(gpu);
  const childEnv = device.envOf(engineEnv);
  // A named GPU runs, or the node does not start.
  const wanted = gpuDevice === undefined ? requested : 'cuda';
  const provider = { ...(await selectExecutionProvider(wanted, { childEnv })), requested };
  if (provider.selected === 'cpu') return { provider, device: undefined };
  return { provider, device };
}

export function fallenBack(reason: string): ChosenProvider {
  const fallbacks = [{ provider: 'cuda', reason }] as const;
  return { provider: { requested: 'auto', selected: 'cpu', fallbacks }, device: undefined };
}

async function findGpu(
  named: PoolSettings['gpuDevice'],
  engineEnv: EngineEnv,
): Promise<{
  readonly gpu: GpuFacts | undefined;
  readonly visible: number;
  readonly unlisted?: string | undefined;
  readonly isAbsent?: boolean;
}> {
  const listing = await listGpus(engineEnv);
  const refuse = (reason: string): never => {
    throw new ExecutionProviderError('cuda', `MATTING_GPU_DEVICES names a GPU, and ${reason}`);
  };
  if (listing.state !== 'listed') {
    if (named !== undefined) return refuse(listing.reason);
    const isAbsent = listing.state === 'absent';
    return { gpu: undefined, visible: 0, unlisted: listing.reason, isAbsent };
  }
  const chosen = chooseDevice(named, listing.gpus, engineEnv.CUDA_VISIBLE_DEVICES);
  if (named === undefined) return { ...chosen, unlisted: listing.incomplete };
  return chosen.gpu === undefined ? refuse(`the driver does not list ${named}`) : chosen;
}

export interface GpuStart {
  readonly config: PoolSettings;
  readonly make: MakePrepared;
  readonly engineEnv: EngineEnv;
  /** Undefined: CUDA's first GPU. */
  readonly device: GpuDevice | undefined;
  readonly cpuThreads: number;
  readonly ending: AbortSignal;
}

/** GPUs of a kind compute alike. Undefined: unknown, so nothing is recorded. */
function kindOf({ device, engineEnv }: GpuStart): string | undefined {
  if (device === undefined) return undefined;
  const { name, driver } = device.facts;
  const { [C_INTERFACE_VARIABLE]: options } = engineEnv;
  const cInterface = options === undefined ? '' : `, C interface with ${options}`;
  return `${name}, driver ${driver}, cuda, ONNX Runtime ${runtimeVersion()}${cInterface}`;
}

/**
 * Compares every model with its stored answer, once on each kind of GPU.
 * @returns undefined if all are right, else the fault in one line
 */
export async function wrongAnswer(start: GpuStart, plan: Plan): Promise<string | undefined> {
  const { config, make, engineEnv, device, cpuThreads, ending } = start;
  const { childEnv, modelSettings } = config;
  const onGpu = device?.envOf(engineEnv) ?? engineEnv;
  for (const { model } of plan.models) {
    ending.throwIfAborted();
    const wrong = await checkAnswerOnDevice({
      model,
      answer: answerOnce({ childEnv: onGpu, threads: 1, timeoutMs: LOAD_TIMEOUT_MS }),
      machine: kindOf(start),
      cacheDir: modelSettings.modelDir,
      weightsDir: modelSettings.weightsDir,
      addedModelsDir: modelSettings.addedModelsDir,
      answering: createAnswering({ childEnv, threads: cpuThreads }),
      make,
    });
    if (wrong !== undefined) return `${model.model} in ${model.precision}: ${wrong}`;
  }
  return undefined;
}

/** If no engine of a model gets enough memory, the error names a setting that needs less. */
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
