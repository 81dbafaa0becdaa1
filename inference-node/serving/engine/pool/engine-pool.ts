/** The engines of one prepared model, as the pipeline sees them. open-engine-pool.ts makes them. */

import type { Size } from '@matting/proto/contract/finishing.ts';
import type { Logger } from 'pino';
import type { PreparedModel } from '../../models/prepared-model.ts';
import type { BufferPool } from '../../process/buffer-pool.ts';
import type { GpuDevice } from '../devices/gpu-device.ts';

export type EnginePriority = 'sync' | 'async';

export interface EngineRun {
  /**
   * The input is HWC, 3 bytes a pixel in RGB order, of `size`; a model with a trimap has it as
   * fourth.
   */
  readonly rgb: Uint8Array;
  /** The size of the picture in the input (models/input-size.ts); absent: it fills the input. */
  readonly size?: Size | undefined;
  readonly priority: EnginePriority;
  /**
   * If it aborts while the run waits, the run leaves the queue; while it runs, the result is
   * dropped.
   */
  readonly signal: AbortSignal;
  /** ENGINE_LOST where every engine is lost. It waits for the first load of the pool. */
  readonly leavesWhenDown?: boolean;
}

export interface EngineResult {
  /** The plane has one byte a pixel of `size`, 255 opaque. It is never rescaled per image. */
  readonly alpha: Buffer;
  readonly size: Size;
  readonly waitMs: number;
  /** The hop, both conversions and the native run, ms. */
  readonly inferMs: number;
}

export interface EnginePoolSnapshot {
  /** failed: engines keep dying, more than half are stuck, or the GPU is lost; the node must go. */
  readonly state: 'starting' | 'ready' | 'failed';
  readonly failure: string | undefined;
  readonly engines: number;
  readonly enginesReady: number;
  readonly enginesStuck: number;
  readonly running: number;
  readonly queued: number;
  /** The running mean of a run's time, ms. */
  readonly inferMs: number;
  /** The time until an engine takes a run that is queued now, ms. */
  readonly estimatedWaitMs: number;
}

/**
 * succeeded: an alpha came back. refused: the model makes no matte of this picture, and made one of
 * the check picture. failed: the engine reported an error. lost: it died under the image. dropped:
 * the caller had gone.
 */
export const RUN_OUTCOMES = ['succeeded', 'refused', 'failed', 'lost', 'dropped'] as const;
export type RunOutcome = (typeof RUN_OUTCOMES)[number];

/**
 * Counted when it ended or was killed. load: not ready yet. idle: no image in it. run: under one.
 * watchdog: its run took too long. fault: its run reported an error, so its context is not trusted.
 * device: its GPU is lost. shortage: its run found too little memory, as other programs leave it on
 * a GPU. memory: an added model's took, or kept, more than its bound (engine-bounds.ts).
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

/** Totals since the pool was opened. */
export interface EnginePoolMetrics {
  readonly runs: Readonly<Record<RunOutcome, number>>;
  readonly deaths: Readonly<Record<EngineDeathCause, number>>;
  /** Sum over the engines of the time an image was in one, seconds. */
  readonly busyS: number;
  /**
   * The time from spawn to ready of the newest engine, and its warm-up run, ms. 0: none was ready
   * yet.
   */
  readonly loadMs: number;
  readonly warmMs: number;
}

export interface EngineProcess {
  /** 0 to engines - 1, stable over restarts. */
  readonly engine: number;
  readonly pid: number;
  /** Undefined: the platform does not show it (no /proc). */
  readonly residentBytes: number | undefined;
}

export interface EnginePool {
  /** When the first engine can run; rejects, in one line, when none ever will. */
  ready(): Promise<void>;
  /**
   * Sync before async. Rejects with ContractError ENGINE_LOST (its engine died), NODE_FAULT (an
   * error of the engine), PROCESSING_FAILED (the model makes no matte of this picture, or takes too
   * much memory for it),
   * NODE_UNAVAILABLE (the pool closes, failed, or its GPU is lost), NODE_OVERLOADED, or the signal's
   * reason. Where an engine dies before the run, or finds too little memory for it, it goes back to
   * the head of the queue. `rgb` is not copied: it must not change until then.
   */
  run(run: EngineRun): Promise<EngineResult>;
  snapshot(): EnginePoolSnapshot;
  metrics(): EnginePoolMetrics;
  /** Lists the living engine processes, with those that are killed and do not die. */
  processes(): EngineProcess[];
  onChange(listener: () => void): () => void;
  /** Runs have `graceMs`, then are killed. Settles with stuck ones left; less time hurries. */
  close(graceMs: number): Promise<void>;
}

export interface EngineTiming {
  readonly loadTimeoutMs: number;
  /** A run may take the greater of these: a floor, and a multiple of the running mean. */
  readonly runTimeoutMinMs: number;
  readonly runTimeoutMeans: number;
  /**
   * The delays before the first, second, … respawn without a successful run between; the last
   * repeats.
   */
  readonly respawnDelaysMs: readonly [number, ...number[]];
  /** The time from a kill until its process counts as stuck. */
  readonly killWaitMaxMs: number;
}

export interface EnginePoolOptions {
  readonly model: PreparedModel;
  readonly engines: number;
  readonly threadsPerEngine: number;
  readonly sharesCores?: boolean;
  /** The GPU of the engines. Undefined: they run on what the provider takes first. */
  readonly device?: GpuDevice | undefined;
  /** The engines' whole environment, except for what this room sets itself. */
  readonly childEnv: Readonly<Record<string, string>>;
  readonly log: Logger;
  /** Mattes go into these buffers. Undefined: into new memory. */
  readonly buffers?: BufferPool;
  readonly timing?: Partial<EngineTiming>;
  /** Bounds the memory of each engine; absent: boundsOf() does. */
  readonly dataBytesMax?: number | undefined;
  readonly failureWindowMs?: number;
}
