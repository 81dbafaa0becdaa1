/**
 * Which execution provider this node runs on, and on which GPUs. Each GPU is tried by itself: one
 * that does not run is left out, unless the operator named it or there is no other.
 */
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import {
  ExecutionProviderError,
  type ProviderChoice,
  selectExecutionProvider,
} from '../engine/choice/execution-provider.ts';
import { chooseDevices } from '../engine/devices/choose-devices.ts';
import { GpuDevice } from '../engine/devices/gpu-device.ts';
import { type GpuFacts, listGpus } from '../engine/devices/nvidia-smi.ts';

export interface ChosenProvider {
  readonly provider: ProviderChoice;
  /**
   * GPUs of CUDA and TensorRT, also those that are out. Empty on a CPU, with WebGPU, and where the
   * driver does not list GPUs: then engines run on the one that CUDA takes first.
   */
  readonly devices: readonly GpuDevice[];
  /** In one line: why GPUs of this host may be missing among them, where all are wanted. */
  readonly unlisted?: string;
}

type EngineEnv = Readonly<Record<string, string>>;

/** @throws ExecutionProviderError where one asked for by name, or a GPU so, does not run. */
export async function chooseProvider(
  { executionProvider: requested, gpuDevices }: Pick<Config, 'executionProvider' | 'gpuDevices'>,
  engineEnv: EngineEnv,
  log: Logger,
): Promise<ChosenProvider> {
  if (requested === 'cpu' || requested === 'webgpu') {
    const provider = await selectExecutionProvider(requested, { childEnv: engineEnv });
    return { provider, devices: [] };
  }
  const { gpus, unlisted } = await findGpus(requested, gpuDevices, engineEnv);
  if (gpus.length === 0) {
    const provider = await selectExecutionProvider(requested, { childEnv: engineEnv });
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

/** What `auto` takes where CUDA does not do. */
export function fallenBack(reason: string): ChosenProvider {
  const fallbacks = [{ provider: 'cuda', reason }] as const;
  return { provider: { requested: 'auto', selected: 'cpu', fallbacks }, devices: [] };
}

/** Undefined: a small graph runs on it; else why not, in one line. */
export async function attemptDevice(
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
  wanted: Config['gpuDevices'],
  engineEnv: EngineEnv,
): Promise<{ readonly gpus: readonly GpuFacts[]; readonly unlisted: string | undefined }> {
  const listing = await listGpus(engineEnv);
  const refuse = (reason: string): never => {
    const provider = requested === 'auto' ? 'cuda' : requested;
    throw new ExecutionProviderError(provider, `MATTING_GPU_DEVICES names GPUs, and ${reason}`);
  };
  if (listing.state === 'failed') {
    return wanted === 'all' ? { gpus: [], unlisted: listing.reason } : refuse(listing.reason);
  }
  const { incomplete, unreachable } = listing;
  const unlisted = wanted === 'all' ? (incomplete ?? unreachable) : undefined;
  const choice = chooseDevices(wanted, listing.gpus, engineEnv.CUDA_VISIBLE_DEVICES);
  if ('gpus' in choice) return { gpus: choice.gpus, unlisted };
  return refuse(`the driver does not list ${choice.missing.join(', ')}`);
}
