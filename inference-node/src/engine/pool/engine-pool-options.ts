/** What an engine pool is opened with. */
import type { Logger } from 'pino';
import type { PreparedModel } from '../../models/prepared-model.ts';
import type { BufferPool } from '../../process/buffer-pool.ts';
import type { GpuDevice } from '../devices/gpu-device.ts';
import type { EngineTiming } from './engine.ts';

export interface EnginePoolOptions {
  /** Its provider is the one that runs, or ready() rejects. */
  readonly model: PreparedModel;
  readonly engines: number;
  readonly threadsPerEngine: number;
  /** Pools of other models run on the same cores. */
  readonly sharesCores?: boolean;
  /** Device of cuda and tensorrt, where no devices are given. */
  readonly deviceId?: number;
  /** The GPU of each engine. Undefined: they run on what the provider takes first. */
  readonly devices?: readonly GpuDevice[] | undefined;
  /** The engines' whole environment, except for what this room sets itself. */
  readonly childEnv: Readonly<Record<string, string>>;
  readonly log: Logger;
  /** Where mattes are put. Undefined: in new memory. */
  readonly buffers?: BufferPool;
  readonly timing?: Partial<EngineTiming>;
  readonly failureWindowMs?: number;
}
