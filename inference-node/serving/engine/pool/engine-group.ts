/** The engines of a pool that fail together, and what losses of engines and of runs come to. */

import { createHash } from 'node:crypto';
import type { BatchGraph } from '../../models/prepared-model.ts';
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
  type RunTask,
} from './engine.ts';
import { boundsOf } from './engine-bounds.ts';
import type { EngineDeathCause, EnginePoolOptions, EngineTiming, RunQueue } from './engine-pool.ts';

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

export const LOSSES_MAX = 3;

/**
 * Which of the pictures that wait an engine takes at once.
 *
 * A run of several that fails says nothing about which did it, so each runs again, alone. After
 * three such runs with none of several that ended well between them, every picture runs alone until
 * the pool is opened again.
 */
export class BatchRule {
  readonly #sizes: readonly number[];
  #losses = 0;

  /** @param batches fewest pictures first. */
  constructor(batches: readonly BatchGraph[] = []) {
    this.#sizes = [1, ...batches.map(({ images }) => images)];
  }

  get imagesMax(): number {
    return this.#losses < LOSSES_MAX ? (this.#sizes.at(-1) ?? 1) : 1;
  }

  /** As much of the queue as there is a graph for. `idle`: engines that share what waits. */
  next(queue: RunQueue<RunTask>, idle: number): [RunTask, ...RunTask[]] | undefined {
    const share = this.#fitting(Math.ceil(queue.length / idle));
    const first = queue.shift();
    if (first === undefined || first.runsAlone) return first && [first];
    const others = queue.takeWhile(({ runsAlone }) => !runsAlone, share - 1);
    const extra = others.splice(this.#fitting(1 + others.length) - 1);
    for (const task of extra.reverse()) queue.putBack(task);
    return [first, ...others];
  }

  /** A run of several was lost. Returns true where there is none any more from now on. */
  recordLoss(): boolean {
    this.#losses += 1;
    return this.#losses === LOSSES_MAX;
  }

  recordSuccess(images: number): void {
    if (images > 1 && this.#losses < LOSSES_MAX) this.#losses = 0;
  }

  #fitting(images: number): number {
    const most = Math.min(images, this.imagesMax);
    return this.#sizes.findLast(size => size <= most) ?? 1;
  }
}

/* They share a GPU, or the cores; other groups go on. */

/** One that does not die is the sign of a broken driver, device or disk: others do better. */
const STUCK_SHARE_MAX = 0.5;

/** A run of several may take this many times what its pictures take one after the other. */
const RUN_TIMEOUT_MEANS_OF_SEVERAL = 4;

export class EngineGroup {
  /** Undefined: the cores, or the one GPU that CUDA takes first. */
  readonly device: GpuDevice | undefined;
  readonly engines: Engine[] = [];
  readonly batches: BatchRule;
  readonly #failureWindowMs: number;
  failure: FailureRule;
  /** An engine of it was ready once: what a load reports may pass. */
  wasReady = false;

  constructor(
    device: GpuDevice | undefined,
    batches?: readonly BatchGraph[],
    failureWindowMs = FAILURE_WINDOW_MS,
  ) {
    this.device = device;
    this.batches = new BatchRule(batches);
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
      group = new EngineGroup(device, model.batches, failureWindowMs);
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
  const { cause, tasks, started, message } = loss;
  if (cause === 'load' && group.serves && saysMemoryIsShort(message)) return undefined;
  if (cause === 'memory') return undefined;
  const digest = createHash('sha256');
  for (const { rgb } of tasks) digest.update(rgb);
  const imageDigest = started ? digest.digest('hex') : undefined;
  return { atMs: performance.now(), engine: engine.index, cause, imageDigest };
}

/** Above its pictures' time is room for a slow moment. `meanMs`: what one picture takes. */
export function runTimeoutMs(
  { runTimeoutMinMs, runTimeoutMeans }: EngineTiming,
  images: number,
  meanMs: number,
): number {
  const ofSeveral = images > 1 ? RUN_TIMEOUT_MEANS_OF_SEVERAL * images : 0;
  return Math.max(runTimeoutMinMs, Math.max(runTimeoutMeans, ofSeveral) * meanMs);
}

function timingOf({ model, timing }: EnginePoolOptions): EngineTiming {
  const tensorrt = model.provider === 'tensorrt';
  const graphs = 1 + (model.batches?.length ?? 0);
  return {
    loadTimeoutMs: graphs * (tensorrt ? LOAD_TIMEOUT_TENSORRT_MS : LOAD_TIMEOUT_MS),
    runTimeoutMinMs: RUN_TIMEOUT_MIN_MS,
    runTimeoutMeans: RUN_TIMEOUT_MEANS,
    respawnDelaysMs: RESPAWN_DELAYS_MS,
    killWaitMaxMs: KILL_WAIT_MAX_MS,
    ...timing,
  };
}
