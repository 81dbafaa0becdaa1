import type { Size } from '@matting/proto/contract/finishing.ts';
import type { Logger } from 'pino';
import type { PreparedModel } from '../../models/prepared-model.ts';
import type { BufferPool } from '../../process/buffer-pool.ts';
import type { GpuDevice } from '../devices/gpu-device.ts';

export type EnginePriority = 'sync' | 'async';

export interface EngineRun {
  /** HWC in RGB order, 3 bytes a pixel of `size`. A fourth byte is the trimap, for some models. */
  readonly rgb: Uint8Array;
  /** The picture's size within the input (models/input-size.ts). Undefined: the whole input. */
  readonly size?: Size | undefined;
  readonly priority: EnginePriority;
  /** Aborting removes a waiting run from the queue, and drops the result of a running one. */
  readonly signal: AbortSignal;
  /**
   * The run fails with ENGINE_LOST if all engines are lost, but waits for the pool's first load.
   */
  readonly failsWhenDown?: boolean;
}

export interface EngineResult {
  /**
   * One byte a pixel of `size`, 255 opaque. Its values are never stretched to their own minimum and
   * maximum.
   */
  readonly alpha: Buffer;
  readonly size: Size;
  readonly waitMs: number;
  /** Transfer, both conversions and the native run, ms. */
  readonly inferMs: number;
}

export interface EnginePoolSnapshot {
  /** failed: engines keep dying, over half are stuck, or the GPU is lost. The node must end. */
  readonly state: 'starting' | 'ready' | 'failed';
  readonly failure: string | undefined;
  readonly engines: number;
  readonly enginesReady: number;
  readonly enginesStuck: number;
  readonly running: number;
  readonly queued: number;
  /** Running mean. */
  readonly inferMs: number;
  readonly estimatedWaitMs: number;
}

/**
 * refused: the model makes no matte of this picture, but makes one of the check picture. failed:
 * the engine reported an error. lost: its engine died during the run. dropped: the caller had left.
 */
export const RUN_OUTCOMES = ['succeeded', 'refused', 'failed', 'lost', 'dropped'] as const;
export type RunOutcome = (typeof RUN_OUTCOMES)[number];

/**
 * Why an engine ended or was killed. load: before it was ready. idle: between runs. run: during
 * one. watchdog: its run took too long. fault: its run reported an error, so its context is not
 * trusted. device: its GPU is lost. shortage: other programs left its run too little GPU memory.
 * memory: an added model took or kept more than its limit (engine-bounds.ts).
 */
export const ENGINE_DEATH_CAUSES = [
  'load',
  'idle',
  'run',
  'watchdog',
  'fault',
  'device',
  'shortage',
  'memory',
] as const;
export type EngineDeathCause = (typeof ENGINE_DEATH_CAUSES)[number];

export interface EnginePoolMetrics {
  readonly runs: Readonly<Record<RunOutcome, number>>;
  readonly deaths: Readonly<Record<EngineDeathCause, number>>;
  /** Sum over the engines of the time that each held an image, seconds. */
  readonly busyS: number;
  /** Load and warm-up run of the newest engine, ms. 0: none was ready yet. */
  readonly loadMs: number;
  readonly warmMs: number;
}

export interface EngineProcess {
  /** 0 to engines - 1, stable over restarts. */
  readonly engine: number;
  readonly pid: number;
  readonly residentBytes: number | undefined;
}

export interface EnginePool {
  /** Resolves when the first engine can run. Rejects, in one line, if none ever will. */
  ready(): Promise<void>;
  /**
   * Sync runs go before async ones. Rejects with the signal's reason or a ContractError:
   * ENGINE_LOST (its engine died), NODE_FAULT (an error of the engine), PROCESSING_FAILED (the
   * model makes no matte of this picture, or takes too much memory for it), NODE_UNAVAILABLE (the
   * pool closes or failed, or its GPU is lost), NODE_OVERLOADED.
   *
   * If an engine dies before the run begins, or lacks memory for it, the run returns to the head of
   * the queue. `rgb` is not copied: leave it unchanged until the promise settles.
   */
  run(run: EngineRun): Promise<EngineResult>;
  snapshot(): EnginePoolSnapshot;
  metrics(): EnginePoolMetrics;
  /** Living engine processes, including killed ones that do not die. */
  processes(): EngineProcess[];
  onChange(listener: () => void): () => void;
  /**
   * Running runs have `graceMs`, then they are killed. Settles even if stuck processes remain. A
   * later call can shorten the time.
   */
  close(graceMs: number): Promise<void>;
}

export interface EngineTiming {
  readonly loadTimeoutMs: number;
  /** A run may take the greater of this and `runTimeoutMeans` times the running mean. */
  readonly runTimeoutMinMs: number;
  readonly runTimeoutMeans: number;
  /**
   * Delays before the first, second, … restart without a successful run between. The last repeats.
   */
  readonly respawnDelaysMs: readonly [number, ...number[]];
  readonly killWaitMaxMs: number;
}

export interface EnginePoolOptions {
  readonly model: PreparedModel;
  readonly engines: number;
  readonly threadsPerEngine: number;
  readonly sharesCores?: boolean;
  readonly device?: GpuDevice | undefined;
  readonly childEnv: Readonly<Record<string, string>>;
  readonly log: Logger;
  readonly buffers?: BufferPool;
  readonly timing?: Partial<EngineTiming>;
  readonly dataBytesMax?: number | undefined;
  readonly failureWindowMs?: number;
}
