/**
 * The engines of a pool that share what they run on: one GPU, or the cores. They fail together,
 * and other groups go on.
 */

import { createHash } from 'node:crypto';
import type { BatchGraph } from '../../models/prepared-model.ts';
import { KILL_WAIT_MAX_MS } from '../../process/child.ts';
import type { GpuDevice } from '../devices/gpu-device.ts';
import { saysMemoryIsShort } from '../native-error.ts';
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
import type { EnginePoolOptions, EngineTiming } from './engine-pool.ts';
import { BatchRule, type EngineDeath, FAILURE_WINDOW_MS, FailureRule } from './loss-rules.ts';

/**
 * Share of a group's engines that may be stuck before it fails. One that does not die is the sign
 * of a driver, a device or a disk that is broken for the others too; with most of them gone another
 * node, or another GPU, does better.
 */
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

  /** Its GPU is out. */
  get out(): boolean {
    return this.device?.outReason !== undefined;
  }

  get mostStuck(): boolean {
    const stuck = this.engines.filter(engine => engine.stuck).length;
    return stuck > STUCK_SHARE_MAX * this.engines.length;
  }

  /** An engine of it takes runs, or has one. */
  get serves(): boolean {
    return this.engines.some(({ state }) => state === 'idle' || state === 'running');
  }

  /** Its GPU went out or came back. */
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
    const place = { index, spec, childEnv, timing, turns: device?.turns, buffers };
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
 * What the failure rule is told of an engine that was lost now. Undefined: nothing, since memory
 * that others took keeps it from loading, and the rest of its group, which has its own, serves. It
 * is tried again, and is missing until then.
 */
export function deathOf(
  group: EngineGroup,
  engine: Engine,
  loss: EngineLoss,
): EngineDeath | undefined {
  const { cause, tasks, started, message } = loss;
  if (cause === 'load' && group.serves && saysMemoryIsShort(message)) return undefined;
  const digest = createHash('sha256');
  for (const { rgb } of tasks) digest.update(rgb);
  const imageDigest = started ? digest.digest('hex') : undefined;
  return { atMs: performance.now(), engine: engine.index, cause, imageDigest };
}

/**
 * How long a run may take. What lies above its pictures' own time is for a machine that is slow for
 * a moment, which many pictures do not make slower.
 * @param meanMs what a run takes for each of its pictures.
 */
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
