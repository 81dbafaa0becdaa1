import type { Logger } from 'pino';
import {
  enginesAtMost,
  enginesInMemory,
  enginesOnGpu,
  readMemoryLimitBytes,
} from '../admission.ts';
import {
  chooseEngineLayout,
  type EngineLayout,
  enginesOf,
  type LayoutInputs,
} from '../engine/choice/engine-layout.ts';
import type { GpuDevice } from '../engine/devices/gpu-device.ts';
import type { ExecutionProvider, Plan, PreparedModel } from '../models/prepared-model.ts';
import { PICTURE_WORKERS_MAX, type PoolSettings } from './pool-settings.ts';

interface LayoutParts {
  readonly config: Pick<PoolSettings, 'engines' | 'engineThreads' | 'memoryPercent'>;
  readonly cpuShare: number;
  readonly log: Logger;
}

/** @param device the GPU, if the driver lists it */
export function chooseLayout(
  { config, cpuShare, log }: LayoutParts,
  provider: ExecutionProvider,
  { models }: Pick<Plan, 'models'>,
  device: GpuDevice | undefined,
): EngineLayout {
  const { engines: wanted, engineThreads, memoryPercent } = config;
  const memoryBytes = readMemoryLimitBytes(memoryPercent);
  const gpuBytes = ((device?.facts.memoryBytes ?? 0) * memoryPercent) / 100;
  const opened = (engines: number) => enginesOpened({ models }, engines);
  const inMemory = enginesInMemory(memoryBytes, opened);
  const onGpu = device === undefined ? 1 : enginesOnGpu(gpuBytes, opened);
  const chosen = chooseEngineLayout({
    provider,
    cpuShare,
    enginesMax: provider === 'cpu' ? inMemory : Math.min(inMemory, onGpu),
  });
  const threadsPerEngine = engineThreads ?? chosen.threadsPerEngine;
  if (wanted === undefined) return { ...chosen, threadsPerEngine };
  // If the GPU's memory does not hold them, they do not load.
  if (device !== undefined) return { engines: wanted, threadsPerEngine };
  const most = enginesAtMost(memoryBytes, opened);
  // If not even one fits, the start is refused later.
  const engines = Math.max(1, Math.min(wanted, most));
  if (engines < wanted)
    log.warn({ engines, asked: wanted }, 'the memory holds fewer engines than asked for');
  const share = provider === 'cpu' ? Math.max(1, Math.floor(cpuShare / engines)) : 1;
  return { engines, threadsPerEngine: engineThreads ?? share };
}

/** One image is decoded and one encoded while an engine runs. */
const WORKERS_MIN = 3;
/** Decodes or encodes while every engine has an image. A second one gains nothing. */
const WORKERS_BESIDE_ENGINES = 1;
/** Cores of a GPU's host for the node's main process and for feeding the engines. */
const CORES_NOT_OF_WORKERS = 2;
/** Keeps a core busy if images spend a third of their time at engines, as small ones do. */
const WORKERS_A_CORE_MAX = 1.5;

/**
 * An image holds its worker while engines have it, and then the worker needs no core. A GPU's host
 * has cores free, so each engine gets a worker in addition to those that keep the cores busy.
 */
export function chooseWorkers(
  { provider, cpuShare }: Pick<LayoutInputs, 'provider' | 'cpuShare'>,
  engines: number,
  enginesInAll: number,
): number {
  const leastWorkers = Math.max(engines + WORKERS_BESIDE_ENGINES, WORKERS_MIN);
  const cores = Math.max(0, Math.floor(cpuShare) - CORES_NOT_OF_WORKERS);
  const most = Math.floor(WORKERS_A_CORE_MAX * cores);
  const onGpu = provider === 'cuda' ? Math.min(cores + enginesInAll, most) : 0;
  return Math.min(PICTURE_WORKERS_MAX, Math.max(leastWorkers, onGpu));
}

export function enginesOpened({ models }: Pick<Plan, 'models'>, engines: number): PreparedModel[] {
  return models.flatMap(each =>
    Array.from({ length: enginesOf(each, models, engines) }, () => each.model),
  );
}
