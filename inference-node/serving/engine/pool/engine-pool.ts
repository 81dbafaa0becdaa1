/** The engines of one prepared model, as the pipeline sees them. open-engine-pool.ts makes them. */

import type { Logger } from 'pino';
import type { PreparedModel } from '../../models/prepared-model.ts';
import type { BufferPool } from '../../process/frames.ts';
import type { GpuDevice } from '../devices/devices.ts';

export type EnginePriority = 'sync' | 'async';

export interface EngineRun {
  /** HWC, 3 bytes a pixel in RGB order, exactly the model's input size. */
  readonly rgb: Uint8Array;
  readonly priority: EnginePriority;
  /** Aborted while queued: leaves the queue. Aborted while running: the result is dropped. */
  readonly signal: AbortSignal;
  /**
   * It does not wait for engines that start: it is ENGINE_LOST where none is ready. Where it was
   * lost with others it waits for the first that starts, since one of the others may have done it.
   */
  readonly leavesWhenDown?: boolean;
}

export interface EngineResult {
  /** One byte a pixel, 255 opaque, the model's input size. Never rescaled per image. */
  readonly alpha: Buffer;
  /** From run() until the engine that ran it took it, ms. */
  readonly waitMs: number;
  /**
   * From there until the alpha was back: the hop, both conversions and the native run, ms. Images
   * that ran together have that of all of them.
   */
  readonly inferMs: number;
}

export interface EnginePoolSnapshot {
  /** failed: engines keep dying, or more than half are stuck, on every GPU; the node must go. */
  readonly state: 'starting' | 'ready' | 'failed';
  /** Why the pool failed, in one line. */
  readonly failure: string | undefined;
  readonly engines: number;
  readonly enginesReady: number;
  /** Killed, and their processes do not die: their places stay empty until they do. */
  readonly enginesStuck: number;
  /** Engines with a run. */
  readonly running: number;
  /** Images that an engine takes at once, at most. */
  readonly imagesARunMax: number;
  readonly queued: number;
  /** Running mean of what a run takes for each of its images, ms. */
  readonly inferMs: number;
  /** For a run queued now, until an engine takes it, ms. */
  readonly estimatedWaitMs: number;
}

/**
 * How an image's run ended. succeeded: an alpha came back. failed: the engine reported an error.
 * lost: it died under the image. dropped: the caller had gone when it ended, however it ended. One
 * that is lost with others has not ended: it runs again, alone.
 */
export const RUN_OUTCOMES = ['succeeded', 'failed', 'lost', 'dropped'] as const;
export type RunOutcome = (typeof RUN_OUTCOMES)[number];

/**
 * Why an engine's process ended or was killed, counted then. load: before it was ready. idle: with
 * no image in it. run: under an image. watchdog: killed, its run took too long. fault: replaced,
 * its run reported an error, after which a GPU's context cannot be trusted. device: killed, its GPU
 * is out.
 */
export const ENGINE_DEATH_CAUSES = ['load', 'idle', 'run', 'watchdog', 'fault', 'device'] as const;
export type EngineDeathCause = (typeof ENGINE_DEATH_CAUSES)[number];

/** Totals since the pool was opened. */
export interface EnginePoolMetrics {
  /** Images by how their runs ended. */
  readonly runs: Readonly<Record<RunOutcome, number>>;
  /** Runs by how many images were in them. */
  readonly runsByImages: Readonly<Record<string, number>>;
  readonly deaths: Readonly<Record<EngineDeathCause, number>>;
  /** Sum over the engines of the time an image was in one, seconds. */
  readonly busyS: number;
  /** Spawn to ready of the newest engine, and its warm-up run, ms. 0: none was ready yet. */
  readonly loadMs: number;
  readonly warmMs: number;
}

export interface EngineProcess {
  /** 0 to engines - 1, stable over restarts. */
  readonly engine: number;
  readonly pid: number;
  /** Undefined where the platform does not say (no /proc). */
  readonly residentBytes: number | undefined;
}

export interface EnginePool {
  /**
   * Resolves when the first engine can run; rejects, with one line for the operator, when none ever
   * will: the model does not load, or the pool failed or was closed before.
   */
  ready(): Promise<void>;
  /**
   * Queues a run; sync before async. Rejects with ContractError ENGINE_LOST when its engine died
   * under it (also by the watchdog), NODE_FAULT when the engine reports an error, NODE_UNAVAILABLE
   * when the pool closes or failed, or the GPU under the run is out, NODE_OVERLOADED over the
   * queue's own bound, and with the signal's reason when aborted. When an engine dies before it
   * began the run, or under several images at once, the caller does not notice: the run goes back
   * to the head of the queue, of several each alone. `rgb` is not copied: it must not change until
   * the promise settles.
   */
  run(run: EngineRun): Promise<EngineResult>;
  snapshot(): EnginePoolSnapshot;
  metrics(): EnginePoolMetrics;
  /** The living engine processes, with those that are killed and do not die. */
  processes(): EngineProcess[];
  /** Called after each change of the snapshot's state, enginesReady, enginesStuck, running, queued. */
  onChange(listener: () => void): () => void;
  /**
   * Refuses new runs and those queued, lets running ones finish up to `graceMs`, then kills.
   * Resolves when no engine process is left but stuck ones. Idempotent; a later call with less time
   * hurries the first.
   */
  close(graceMs: number): Promise<void>;
}

export interface EngineTiming {
  /** A load may take this long. */
  readonly loadTimeoutMs: number;
  /** A run may take the greater of these: a floor, and a multiple of the running mean. */
  readonly runTimeoutMinMs: number;
  readonly runTimeoutMeans: number;
  /** Before the first, second, … respawn without a successful run between; the last one repeats. */
  readonly respawnDelaysMs: readonly [number, ...number[]];
  /** From a kill until its process counts as stuck. */
  readonly killWaitMaxMs: number;
}

/** What a pool is opened with. */
export interface EnginePoolOptions {
  /** Its provider is the one that runs, or ready() rejects. */
  readonly model: PreparedModel;
  readonly engines: number;
  readonly threadsPerEngine: number;
  /** Pools of other models run on the same cores. */
  readonly sharesCores?: boolean;
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

/**
 * An async run goes as if it had come this much later: a sync one overtakes those that came up to 5
 * s before it, and none waits for ever behind a stream of sync ones. Five seconds are a few runs on
 * a CPU, and far below what an asynchronous caller polls at.
 */
export const ASYNC_HANDICAP_MS = 5_000;

export interface Queued {
  readonly priority: EnginePriority;
  /** performance.now() at the time of arrival, ms. */
  readonly queuedAtMs: number;
}

/** Each priority in order of arrival; of the two heads, the one that is due first. */
export class RunQueue<Item extends Queued> {
  readonly #waiting: Record<EnginePriority, Item[]> = { sync: [], async: [] };

  get length(): number {
    return this.#waiting.sync.length + this.#waiting.async.length;
  }

  push(item: Item): void {
    this.#waiting[item.priority].push(item);
  }

  /** For one that was the head of its line and is again. Of several the last one first. */
  putBack(item: Item): void {
    this.#waiting[item.priority].unshift(item);
  }

  shift(): Item | undefined {
    return this.#nextLine().shift();
  }

  /** The next ones, `max` at most, up to the first that is not to be taken. */
  takeWhile(isTaken: (item: Item) => boolean, max: number): Item[] {
    const taken: Item[] = [];
    while (taken.length < max) {
      const line = this.#nextLine();
      const [next] = line;
      if (next === undefined || !isTaken(next)) break;
      taken.push(next);
      line.shift();
    }
    return taken;
  }

  /** The line whose head is due first. */
  #nextLine(): Item[] {
    const [sync] = this.#waiting.sync;
    const [async] = this.#waiting.async;
    if (sync === undefined) return this.#waiting.async;
    if (async === undefined) return this.#waiting.sync;
    const syncFirst = sync.queuedAtMs <= async.queuedAtMs + ASYNC_HANDICAP_MS;
    return this.#waiting[syncFirst ? 'sync' : 'async'];
  }

  /** Returns false where it was not waiting. */
  remove(item: Item): boolean {
    const line = this.#waiting[item.priority];
    const index = line.indexOf(item);
    if (index === -1) return false;
    line.splice(index, 1);
    return true;
  }

  /** Takes those out that are to leave. */
  removeWhere(leaves: (item: Item) => boolean): Item[] {
    const leaving = [...this.#waiting.sync, ...this.#waiting.async].filter(leaves);
    for (const item of leaving) this.remove(item);
    return leaving;
  }

  /** Empties the queue. */
  drain(): Item[] {
    return [...this.#waiting.sync.splice(0), ...this.#waiting.async.splice(0)];
  }
}
