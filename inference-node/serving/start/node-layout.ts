/** How many engines of each model a node opens, as its operator and its memory have it. */
import type { Logger } from 'pino';
import { enginesAtMost, enginesInMemory, readMemoryLimitBytes } from '../admission.ts';
import {
  chooseEngineLayout,
  type EngineLayout,
  enginesOf,
} from '../engine/choice/engine-layout.ts';
import type { GpuDevice } from '../engine/devices/gpu-device.ts';
import type { ExecutionProvider, Plan, PreparedModel } from '../models/prepared-model.ts';
import type { PoolSettings } from './pool-settings.ts';

interface LayoutParts {
  readonly config: Pick<PoolSettings, 'engines' | 'engineThreads' | 'engineGoal'>;
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
  const { engines: asked, engineThreads, engineGoal } = config;
  const opened = (engines: number) => enginesOpened({ models }, engines);
  const chosen = chooseEngineLayout({
    provider,
    precisions: models.map(({ model }) => model.precision),
    cpuShare,
    goal: engineGoal,
    enginesMax: enginesInMemory(readMemoryLimitBytes(), opened),
  });
  const threadsPerEngine = engineThreads ?? chosen.threadsPerEngine;
  if (asked === undefined) return { ...chosen, threadsPerEngine };
  // The GPU's memory should hold them: if it does not, they do not load.
  if (device !== undefined) return { engines: asked, threadsPerEngine };
  const most = enginesAtMost(readMemoryLimitBytes(), opened);
  // If not even one fits, its start is refused after this, unless the operator takes the risk.
  const engines = Math.max(1, Math.min(asked, most));
  if (engines < asked)
    log.warn({ engines, asked }, 'the memory holds fewer engines than asked for');
  const share = provider === 'cpu' ? Math.max(1, Math.floor(cpuShare / engines)) : 1;
  return { engines, threadsPerEngine: engineThreads ?? share };
}

export function enginesOpened({ models }: Pick<Plan, 'models'>, engines: number): PreparedModel[] {
  return models.flatMap(each =>
    Array.from({ length: enginesOf(each, models, engines) }, () => each.model),
  );
}
