/**
 * The engine pool over child processes: one queue, each engine one run at a time.
 *
 * |   picture   queued ──► running ──► settled
 * |             Back to queued if the engine dies before the run begins
 * |   the pool  starting ──first engine ready──► ready ──the failure rule──► failed
 * |             starting ──an engine says that the model cannot be loaded──► failed
 * |             any ──more than half of the engines stuck, or the GPU lost──► failed
 * |             closing (from any): no run is taken, running ones have their grace
 *
 * A busy engine gets no run ahead: its blocked loop would not read it. At best that would gain
 * nothing (15.0 ms a run either way), on a loaded machine 4 of 22 ms. So a waiting run is not lost
 * with an engine, and a sync run can overtake it.
 */

import { createHash } from 'node:crypto';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Logger } from 'pino';
import { channelsOf, type PreparedModel, runtimeOf } from '../../models/prepared-model.ts';
import { KILL_WAIT_MAX_MS } from '../../process/child.ts';
import { readResidentBytes } from '../../process/proc-files.ts';
import { cInterfaceOf } from '../../providers/c-interface.ts';
import { type Answer, saysDeviceIsGone, saysMemoryIsShort } from '../engine-protocol.ts';
import {
  Engine,
  type EngineListener,
  type EngineLoss,
  LOAD_TIMEOUT_MS,
  RESPAWN_DELAYS_MS,
  RUN_TIMEOUT_MEANS,
  RUN_TIMEOUT_MIN_MS,
} from './engine.ts';
import { boundsOf } from './engine-bounds.ts';
import { EngineCounters } from './engine-counters.ts';
import type {
  EngineDeathCause,
  EnginePool,
  EnginePoolMetrics,
  EnginePoolOptions,
  EnginePoolSnapshot,
  EngineProcess,
  EngineResult,
  EngineRun,
  EngineTiming,
  RunOutcome,
} from './engine-pool.ts';
import { estimateWaitMs, RunningMean } from './estimated-wait.ts';
import { type EngineDeath, FAILURE_WINDOW_MS, FailureRule } from './failure-rule.ts';
import { RunQueue } from './run-queue.ts';
import { createLossError, createRunTask, type RunTask } from './run-task.ts';

/** A last limit: 400 MB of pictures at 1024x1024. Admission's limit is far lower. */
const QUEUED_RUNS_MAX = 128;
const DISPATCHES_MAX = 4;
/** Processes that do not die show a broken driver, device or disk: other nodes do better. */
const STUCK_SHARE_MAX = 0.5;

/** Returns at once. The engines load in parallel, on a GPU one by one. */
export function openEnginePool(options: EnginePoolOptions): EnginePool {
  return new ChildEnginePool(options);
}

const OUTCOMES_OF_LOSS: Partial<Record<EngineDeathCause, RunOutcome>> = {
  fault: 'failed',
  shortage: 'failed',
  memory: 'refused',
};

class ChildEnginePool implements EnginePool, EngineListener {
  readonly #options: EnginePoolOptions;
  readonly #timing: EngineTiming;
  readonly #log: Logger;
  readonly #of: Pick<PreparedModel, 'model' | 'provider'>;
  readonly #failureWindowMs: number;
  readonly #failure: FailureRule;
  readonly #engines: readonly Engine[];
  readonly #queue = new RunQueue<RunTask>();
  readonly #inferMs = new RunningMean();
  readonly #listeners = new Set<() => void>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #counters = new EngineCounters();
  readonly #unsubscribe: (() => void) | undefined;
  #state: EnginePoolSnapshot['state'] = 'starting';
  /** True once an engine was ready. From then on the error of a load may pass. */
  #wasReady = false;
  #servedAtMs = Number.NEGATIVE_INFINITY;
  #failureReason: string | undefined;
  #closing: Promise<void> | undefined;
  #closeAtMs = Number.POSITIVE_INFINITY;
  #closeTimer: NodeJS.Timeout | undefined;
  #nextId = 1;

  constructor(options: EnginePoolOptions) {
    this.#options = options;
    this.#log = options.log;
    const { device, failureWindowMs = FAILURE_WINDOW_MS } = options;
    const { model, provider } = options.model;
    this.#of = { model, provider };
    this.#failureWindowMs = failureWindowMs;
    this.#failure = new FailureRule(failureWindowMs);
    this.#timing = timingOf(options);
    this.#engines = createEngines(options, this.#timing, this);
    this.#unsubscribe = device?.onLost(reason => this.#onDeviceLost(reason));
    // Some callers read the state instead of awaiting ready().
    this.#ready.promise.catch(() => undefined);
    if (device?.outReason !== undefined) this.#fail(device.outReason);
    else for (const engine of this.#engines) engine.open();
  }

  ready(): Promise<void> {
    return this.#ready.promise;
  }

  run(run: EngineRun): Promise<EngineResult> {
    const { inputWidth, inputHeight } = this.#options.model;
    const { width, height } = run.size ?? { width: inputWidth, height: inputHeight };
    if (run.rgb.length !== channelsOf(this.#options.model) * width * height) {
      const detail = `${run.rgb.length} bytes of pixels for an input of ${width}x${height}`;
      return Promise.reject(new Error(detail));
    }
    if (run.signal.aborted) return Promise.reject(run.signal.reason);
    const refusal = this.#refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    const { task, promise } = createRunTask(this.#nextId++, run, aborted => {
      const wasQueued = this.#queue.remove(aborted);
      aborted.reject(run.signal.reason);
      if (wasQueued) this.#afterRun();
    });
    this.#queue.push(task);
    this.#dispatch();
    this.#changed();
    return promise;
  }

  snapshot(): EnginePoolSnapshot {
    const inferMs = this.#inferMs.value;
    const queued = this.#queue.length;
    return {
      state: this.#state,
      failure: this.#failureReason,
      engines: this.#engines.length,
      enginesStuck: this.#engines.filter(engine => engine.stuck).length,
      enginesReady: this.#count('idle') + this.#count('running'),
      running: this.#engines.filter(({ task }) => task !== undefined).length,
      queued,
      inferMs,
      estimatedWaitMs: estimateWaitMs({
        freeInMs: this.#engines.map(engine => engine.freeInMs(inferMs)),
        queued,
        inferMs,
      }),
    };
  }

  metrics(): EnginePoolMetrics {
    return this.#counters;
  }

  processes(): EngineProcess[] {
    return this.#engines.flatMap(({ index, pid }) =>
      pid === undefined ? [] : [{ engine: index, pid, residentBytes: readResidentBytes(pid) }],
    );
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(graceMs: number): Promise<void> {
    if (this.#closing === undefined) {
      const gone = new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.');
      this.#ready.reject(gone);
      this.#unsubscribe?.();
      for (const task of this.#queue.drain()) task.reject(gone);
      const closed = Promise.all(this.#engines.map(engine => engine.closed));
      this.#closing = closed.then(() => clearTimeout(this.#closeTimer));
      this.#closeFreeEngines();
      this.#changed();
    }
    const closeAtMs = performance.now() + graceMs;
    if (closeAtMs < this.#closeAtMs) {
      this.#closeAtMs = closeAtMs;
      clearTimeout(this.#closeTimer);
      this.#closeTimer = setTimeout(() => this.#endGrace(), graceMs);
    }
    return this.#closing;
  }

  onReady(engine: Engine, warmMs: number): void {
    const { device } = this.#options;
    this.#wasReady = true;
    const { index, pid: enginePid, loadMs } = engine;
    this.#failure.recordReady(index);
    Object.assign(this.#counters, { loadMs, warmMs });
    this.#inferMs.seed(warmMs);
    const on = { runtime: runtimeOf(this.#options.model), ...(device && { gpu: device.facts.id }) };
    const facts = { ...this.#of, ...on, loadMs, warmMs };
    this.#log.info({ engine: index, enginePid, ...facts }, 'engine ready');
    if (this.#state === 'starting') {
      this.#state = 'ready';
      this.#ready.resolve();
    }
    this.#dispatch();
    this.#changed();
  }

  onDone(_: Engine, task: RunTask, { alpha, size }: Answer<Buffer>): void {
    const inferMs = this.#counters.addRun(task);
    this.#endTask(task, 'succeeded');
    this.#inferMs.add(inferMs);
    this.#failure.recordSuccess();
    // Dispatches first: the engine must not wait while the caller uses the answer.
    this.#dispatch();
    task.resolve({ alpha, size, waitMs: task.takenAtMs - task.queuedAtMs, inferMs });
    this.#afterRun();
  }

  onNoMatte({ index }: Engine, task: RunTask, reason: string): void {
    this.#log.warn({ engine: index, ...this.#of, reason }, 'no matte of an image');
    this.#counters.addRun(task);
    const detail = `The model ${this.#of.model} cannot process this image.`;
    this.#endTask(task, 'refused');
    task.reject(new ContractError('PROCESSING_FAILED', detail, { cause: new Error(reason) }));
    this.#afterRun();
  }

  onLoss(engine: Engine, loss: EngineLoss): void {
    const { cause, message, byCInterface } = loss;
    const reason = byCInterface ? `${message}; it loads again without the C interface` : message;
    this.#counters.deaths[cause]++;
    this.#log.warn({ engine: engine.index, ...this.#of, cause, reason }, 'engine lost');
    if (loss.task !== undefined) this.#loseRun(loss, loss.task);
    if (cause !== 'device') this.#judge(engine, loss);
    this.#afterRun();
  }

  #judge(engine: Engine, loss: EngineLoss): void {
    const { cause, message, broken } = loss;
    const { device } = this.#options;
    const death = this.#deathOf(engine, loss);
    const mustGo = death !== undefined && this.#failure.recordDeath(death);
    // A load reports the same error the next time; a crash may not come again.
    const neverLoads = broken && !this.#wasReady;
    const gone = device !== undefined && cause === 'load' && saysDeviceIsGone(message);
    if (this.#closing !== undefined) return;
    if (gone) device.lose(message);
    else if (neverLoads) this.#lose(message);
    else if (mustGo) this.#lose(`the engines keep dying: ${message}`);
  }

  /**
   * Undefined if the loss does not count towards a failure:
   * - the engine loads again without the C interface
   * - other programs took the memory of a run, or, while engines serve or lately served, of a load
   * - a picture took an added model over its limit
   */
  #deathOf({ index }: Engine, loss: EngineLoss): EngineDeath | undefined {
    const { cause, task, started, message, byCInterface } = loss;
    if (byCInterface) return undefined;
    if (cause !== 'load') this.#servedAtMs = performance.now();
    const serves = this.#serves || performance.now() - this.#servedAtMs < this.#failureWindowMs;
    if (cause === 'load' && serves && saysMemoryIsShort(message)) return undefined;
    if (cause === 'memory' || cause === 'shortage') return undefined;
    const imageDigest =
      started && task !== undefined
        ? createHash('sha256').update(task.rgb).digest('hex')
        : undefined;
    return { atMs: performance.now(), engine: index, cause, imageDigest };
  }

  onStuck(engine: Engine, pid: number): void {
    const { index, state } = engine;
    const facts = { engine: index, ...this.#of, enginePid: pid };
    this.#log.error(facts, 'engine was killed and does not die');
    if (state === 'closed') return;
    const stuck = this.#engines.filter(other => other.stuck).length;
    if (this.#closing === undefined && stuck > STUCK_SHARE_MAX * this.#engines.length) {
      this.#lose(`process ${pid} of engine ${index} was killed and does not die`);
    }
    this.#afterRun();
  }

  onLoading({ index }: Engine, loadingMs: number): void {
    const loadingS = Math.round(loadingMs / 1000);
    this.#log.info({ engine: index, ...this.#of, loadingS }, 'engine still loads');
  }

  onOutput({ index, pid }: Engine, line: string): void {
    this.#log.warn({ engine: index, enginePid: pid, line }, 'engine wrote');
  }

  #gone(): ContractError | undefined {
    if (this.#closing !== undefined) {
      return new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.');
    }
    if (this.#state === 'failed') {
      return new ContractError('NODE_UNAVAILABLE', 'The engines of this node do not run.');
    }
    return undefined;
  }

  #refusal(): ContractError | undefined {
    const gone = this.#gone();
    if (gone !== undefined || this.#queue.length < QUEUED_RUNS_MAX) return gone;
    return new ContractError('NODE_OVERLOADED', 'Too many images wait for an engine.');
  }

  #dispatch(): void {
    if (this.#closing !== undefined || this.#state === 'failed') return;
    // Engines of a lost GPU end one after the other, and one must not take a run that another lost.
    if (this.#options.device?.outReason !== undefined) return;
    const idle = this.#engines.filter(engine => engine.state === 'idle');
    for (const engine of idle) {
      const task = this.#queue.shift();
      if (task === undefined) return;
      task.takenAtMs = performance.now();
      task.dispatches++;
      engine.take(task, runTimeoutMs(this.#timing, this.#inferMs.value));
    }
  }

  #endTask(task: RunTask, outcome: RunOutcome): void {
    this.#counters.runs[task.settled ? 'dropped' : outcome]++;
  }

  #loseRun({ cause, message, started }: EngineLoss, task: RunTask): void {
    const gone = this.#gone();
    // After the watchdog a run is repeated only if another engine is ready: a killed process may
    // never end.
    const soon = cause !== 'watchdog' || this.snapshot().enginesReady > 0;
    const mayRun = !started || cause === 'shortage';
    const mayRunAgain = mayRun && soon && task.dispatches < DISPATCHES_MAX;
    if (mayRunAgain && !gone && !task.settled) {
      this.#queue.putBack(task);
      return;
    }
    this.#counters.addRun(task);
    this.#endTask(task, OUTCOMES_OF_LOSS[cause] ?? 'lost');
    task.reject(gone && mayRunAgain ? gone : createLossError(cause, message));
  }

  #lose(message: string): void {
    const { device } = this.#options;
    if (device === undefined) this.#fail(message);
    else device.lose(message);
  }

  #onDeviceLost(reason: string): void {
    if (this.#closing !== undefined || this.#state === 'failed') return;
    for (const engine of this.#engines) engine.loseDevice(reason);
    this.#fail(reason);
    this.#afterRun();
  }

  #fail(message: string): void {
    if (this.#state === 'failed') return;
    this.#state = 'failed';
    this.#failureReason = message;
    const { model, provider } = this.#of;
    const failed = { model, provider, reason: message };
    this.#log.error(failed, 'engines failed: no more images are taken');
    this.#ready.reject(new Error(`model ${model} does not run on ${provider}: ${message}`));
    const gone = this.#gone();
    for (const task of this.#queue.drain()) task.reject(gone);
  }

  #afterRun(): void {
    if (this.#closing !== undefined || this.#state === 'failed') this.#closeFreeEngines();
    else this.#dispatch();
    this.#changed();
  }

  /** Closes engines without a run. The others, also those that are losing one, close after it. */
  #closeFreeEngines(): void {
    for (const engine of this.#engines) if (engine.task === undefined) engine.close();
  }

  #endGrace(): void {
    const gone = new ContractError('NODE_UNAVAILABLE', 'The node shut down before the run ended.');
    for (const engine of this.#engines) {
      const { task, state } = engine;
      if (state === 'closed') continue;
      if (task !== undefined) {
        this.#counters.addRun(task);
        this.#endTask(task, 'lost');
        task.reject(gone);
      }
      engine.close();
    }
    this.#changed();
  }

  get #serves(): boolean {
    return this.#engines.some(({ state }) => state === 'idle' || state === 'running');
  }

  #count(state: Engine['state']): number {
    return this.#engines.filter(engine => engine.state === state).length;
  }

  #failWaiting(): void {
    if (this.#serves || this.#state === 'starting') return;
    const none = new ContractError('ENGINE_LOST', 'No engine of the model is left.');
    for (const task of this.#queue.removeWhere(({ failsWhenDown }) => failsWhenDown))
      task.reject(none);
  }

  #changed(): void {
    this.#failWaiting();
    for (const listener of this.#listeners) listener();
  }
}

function createEngines(options: EnginePoolOptions, timing: EngineTiming, listener: EngineListener) {
  const { model, engines, threadsPerEngine, device, buffers, dataBytesMax } = options;
  const spec = {
    ...model,
    intraOpThreads: threadsPerEngine,
    sharesCores: options.sharesCores ?? false,
    allowCpuNodes: true,
    cInterface: model.form === undefined ? cInterfaceOf(options.childEnv) : undefined,
  };
  const ofModel = boundsOf(model, threadsPerEngine);
  const bounds = dataBytesMax === undefined ? ofModel : { ...ofModel, dataBytesMax };
  const childEnv = device?.envOf(options.childEnv) ?? options.childEnv;
  const alike = { spec, bounds, childEnv, timing, opening: device?.opening, buffers };
  return Array.from({ length: engines }, (_, index) => new Engine({ index, ...alike }, listener));
}

function timingOf({ timing }: EnginePoolOptions): EngineTiming {
  return {
    loadTimeoutMs: LOAD_TIMEOUT_MS,
    runTimeoutMinMs: RUN_TIMEOUT_MIN_MS,
    runTimeoutMeans: RUN_TIMEOUT_MEANS,
    respawnDelaysMs: RESPAWN_DELAYS_MS,
    killWaitMaxMs: KILL_WAIT_MAX_MS,
    ...timing,
  };
}

export function runTimeoutMs(
  { runTimeoutMinMs, runTimeoutMeans }: EngineTiming,
  meanMs: number,
): number {
  return Math.max(runTimeoutMinMs, runTimeoutMeans * meanMs);
}
