/** The engines of a pool that fail together, and what losses of engines come to. */

import { createHash } from 'node:crypto';
import { KILL_WAIT_MAX_MS } from '../../process/child.ts';
import type { GpuDevice } from '../devices/devices.ts';
import { saysMemoryIsShort } from '../engine-protocol.ts';
import {
  Engine,
  type EngineListener,
  type EngineLoss,
  LOAD_TIMEOUT_MS,
  LOAD_TIMEOUT_TENSORRT_MS,
  RESPAWN_DELAYS_MS,
  RUN_TIMEOUT_MEANS,
  RUN_TIMEOUT_MIN_MS,
} from './engine.ts';
import { boundsOf } from './engine-bounds.ts';
import type { EngineDeathCause, EnginePoolOptions, EngineTiming } from './engine-pool.ts';

export const FAILURE_DEATHS_MAX = 3;
export const FAILURE_WINDOW_MS = 60_000;

export interface EngineDeath {
  readonly atMs: number;
  readonly engine: number;
  readonly cause: EngineDeathCause;
  readonly imageDigest: string | undefined;
}

/**
 * When engines die so often that the node must go.
 *
 * Deaths under an image count once for each image (by the digest of its pixels): a poison image
 * must not take the node with it. A death without an image to blame counts each time. Three within
 * a minute with no successful run between them are a failed node; so are three failed loads of one
 * engine in a row, whatever their distance.
 */
export class FailureRule {
  readonly #windowMs: number;
  #deaths: EngineDeath[] = [];
  readonly #loadsLostInARow = new Map<number, number>();

  constructor(windowMs: number = FAILURE_WINDOW_MS) {
    this.#windowMs = windowMs;
  }

  recordReady(engine: number): void {
    this.#loadsLostInARow.delete(engine);
  }

  recordSuccess(): void {
    this.#deaths = [];
  }

  /** Returns true when the node must go. */
  recordDeath(death: EngineDeath): boolean {
    if (death.cause === 'load') {
      const inARow = (this.#loadsLostInARow.get(death.engine) ?? 0) + 1;
      this.#loadsLostInARow.set(death.engine, inARow);
      if (inARow >= FAILURE_DEATHS_MAX) return true;
    }
    const { imageDigest } = death;
    const recent = this.#deaths.filter(earlier => death.atMs - earlier.atMs < this.#windowMs);
    const isNew =
      imageDigest === undefined || recent.every(earlier => earlier.imageDigest !== imageDigest);
    this.#deaths = isNew ? [...recent, death] : recent;
    return this.#deaths.length >= FAILURE_DEATHS_MAX;
  }
}

/* They share a GPU, or the cores; other groups go on. */

/** One that does not die is the sign of a broken driver, device or disk: others do better. */
const STUCK_SHARE_MAX = 0.5;

export class EngineGroup {
  /** Undefined: the cores, or the one GPU that CUDA takes first. */
  readonly device: GpuDevice | undefined;
  readonly engines: Engine[] = [];
  readonly #failureWindowMs: number;
  failure: FailureRule;
  /** An engine of it was ready once: what a load reports may pass. */
  wasReady = false;

  constructor(device: GpuDevice | undefined, failureWindowMs = FAILURE_WINDOW_MS) {
    this.device = device;
    this.#failureWindowMs = failureWindowMs;
    this.failure = new FailureRule(failureWindowMs);
  }

  get out(): boolean {
    return this.device?.outReason !== undefined;
  }

  get mostStuck(): boolean {
    const stuck = this.engines.filter(engine => engine.stuck).length;
    return stuck > STUCK_SHARE_MAX * this.engines.length;
  }

  get serves(): boolean {
    return this.engines.some(({ state }) => state === 'idle' || state === 'running');
  }

  follow(): void {
    const { outReason } = this.device ?? {};
    for (const engine of this.engines) {
      if (outReason === undefined) engine.unpark();
      else engine.park(outReason);
    }
    if (outReason === undefined) this.failure = new FailureRule(this.#failureWindowMs);
  }
}

/** Engine i of the pool is in the group of `devices[i]`; without devices all are in one. */
export function createGroups(
  options: EnginePoolOptions,
  listener: EngineListener,
): { groups: EngineGroup[]; timing: EngineTiming } {
  const { model, engines, devices, failureWindowMs } = options;
  const timing = timingOf(options);
  const spec = {
    ...model,
    intraOpThreads: options.threadsPerEngine,
    sharesCores: options.sharesCores ?? false,
    allowCpuNodes: true,
  };
  const bounds = boundsOf(model, options.threadsPerEngine);
  const groups: EngineGroup[] = [];
  for (let index = 0; index < engines; index++) {
    const device = devices?.[index];
    let group = groups.find(other => other.device === device);
    if (group === undefined) {
      group = new EngineGroup(device, failureWindowMs);
      groups.push(group);
    }
    const childEnv = device?.envOf(options.childEnv) ?? options.childEnv;
    const { buffers } = options;
    const place = { index, spec, bounds, childEnv, timing, opening: device?.opening, buffers };
    group.engines.push(new Engine(place, listener));
  }
  return { groups, timing };
}

export function groupOf(groups: readonly EngineGroup[], engine: Engine): EngineGroup {
  const group = groups.find(({ engines }) => engines.includes(engine));
  if (group === undefined) throw new Error(`engine ${engine.index} is in no group`);
  return group;
}

/**
 * Undefined: nothing that counts against the group. Others' memory keeps the engine from loading
 * while its group serves; or one picture took an added model over its bound.
 */
export function deathOf(
  group: EngineGroup,
  engine: Engine,
  loss: EngineLoss,
): EngineDeath | undefined {
  const { cause, task, started, message } = loss;
  if (cause === 'load' && group.serves && saysMemoryIsShort(message)) return undefined;
  if (cause === 'memory') return undefined;
  const imageDigest =
    started && task !== undefined ? createHash('sha256').update(task.rgb).digest('hex') : undefined;
  return { atMs: performance.now(), engine: engine.index, cause, imageDigest };
}

/** Above its time is room for a slow moment. `meanMs`: what a run takes. */
export function runTimeoutMs(
  { runTimeoutMinMs, runTimeoutMeans }: EngineTiming,
  meanMs: number,
): number {
  return Math.max(runTimeoutMinMs, runTimeoutMeans * meanMs);
}

function timingOf({ model, timing }: EnginePoolOptions): EngineTiming {
  const tensorrt = model.provider === 'tensorrt';
  return {
    loadTimeoutMs: tensorrt ? LOAD_TIMEOUT_TENSORRT_MS : LOAD_TIMEOUT_MS,
    runTimeoutMinMs: RUN_TIMEOUT_MIN_MS,
    runTimeoutMeans: RUN_TIMEOUT_MEANS,
    respawnDelaysMs: RESPAWN_DELAYS_MS,
    killWaitMaxMs: KILL_WAIT_MAX_MS,
    ...timing,
  };
}
