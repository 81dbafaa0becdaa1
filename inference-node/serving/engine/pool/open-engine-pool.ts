/**
 * The engine pool over child processes: one queue, each engine one run at a time. A free engine
 * takes what waits then, up to what its model has a graph for; it never waits for more.
 *
 *   picture   queued ──► running ──► settled
 *             A caller that goes away settles its promise at once, but the engine stays taken:
 *             nothing overtakes native code. Back to queued where the engine died before it
 *             began, and where a run of several is lost: then each runs alone (engine-group.ts)
 *   the pool  starting ──first engine ready──► ready ──the failure rule──► failed
 *             starting ──an engine says that the model cannot be loaded──► failed
 *             any ──more than half of the engines stuck──► failed
 *             of one GPU of several alone: it is out, and the pool fails when all are
 *             closing (from any): no run is taken, running ones have their grace
 *
 * No run is sent ahead to a busy engine: its loop is blocked, so the bytes would wait here all the
 * same (15.0 ms a run with and without at best, 18 instead of 22 on a loaded machine). In return a
 * waiting run is lost with no engine, and a sync one can overtake it.
 */

import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Logger } from 'pino';
import { BATCH_SIZES, channelsOf, type PreparedModel } from '../../models/prepared-model.ts';
import { readResidentBytes } from '../../process/proc-files.ts';
import { type Answer, saysDeviceIsGone } from '../engine-protocol.ts';
import {
  createLossError,
  createRunTask,
  type Engine,
  type EngineListener,
  type EngineLoss,
  type RunTask,
} from './engine.ts';
import {
  createGroups,
  deathOf,
  type EngineDeath,
  type EngineGroup,
  groupOf,
  runTimeoutMs,
} from './engine-group.ts';
import {
  ENGINE_DEATH_CAUSES,
  type EngineDeathCause,
  type EnginePool,
  type EnginePoolMetrics,
  type EnginePoolOptions,
  type EnginePoolSnapshot,
  type EngineProcess,
  type EngineResult,
  type EngineRun,
  type EngineTiming,
  RUN_OUTCOMES,
  type RunOutcome,
  RunQueue,
} from './engine-pool.ts';

/** A last bound behind the node's admission, far lower: 400 MB of pictures at 1024x1024. */
export const QUEUED_RUNS_MAX = 128;
/** Times a run is given to an engine that then dies without beginning it. */
const DISPATCHES_MAX = 4;

/** Opens the engines and returns at once; they load side by side, those of one GPU in turn. */
export function openEnginePool(options: EnginePoolOptions): EnginePool {
  return new ChildEnginePool(options);
}

const OUTCOMES_OF_LOSS: Partial<Record<EngineDeathCause, RunOutcome>> = {
  fault: 'failed',
  memory: 'refused',
};

class ChildEnginePool implements EnginePool, EngineListener {
  readonly #options: EnginePoolOptions;
  readonly #timing: EngineTiming;
  readonly #log: Logger;
  readonly #of: Pick<PreparedModel, 'model' | 'provider'>;
  readonly #groups: readonly EngineGroup[];
  readonly #engines: readonly Engine[];
  readonly #queue = new RunQueue<RunTask>();
  readonly #inferMs = new RunningMean();
  readonly #listeners = new Set<() => void>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #accounts = new EngineAccounts();
  readonly #unsubscribe: (() => void)[] = [];
  #state: EnginePoolSnapshot['state'] = 'starting';
  #failureReason: string | undefined;
  #closing: Promise<void> | undefined;
  #closeAtMs = Number.POSITIVE_INFINITY;
  #closeTimer: NodeJS.Timeout | undefined;
  #nextId = 1;

  constructor(options: EnginePoolOptions) {
    this.#options = options;
    this.#log = options.log;
    const { model, provider } = options.model;
    this.#of = { model, provider };
    const { groups, timing } = createGroups(options, this);
    this.#groups = groups;
    this.#timing = timing;
    this.#engines = groups
      .flatMap(group => group.engines)
      .toSorted((one, other) => one.index - other.index);
    for (const group of groups) {
      const unsubscribe = group.device?.onChange(() => this.#onDeviceChange(group));
      if (unsubscribe !== undefined) this.#unsubscribe.push(unsubscribe);
    }
    // Callers that do not wait for ready() read the state.
    this.#ready.promise.catch(() => undefined);
    for (const group of groups) group.follow();
    for (const engine of this.#engines) engine.open();
    this.#failWhereAllAreOut();
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
      running: this.#engines.filter(({ tasks }) => tasks.length > 0).length,
      imagesARunMax: Math.max(...this.#groups.map(({ batches }) => batches.imagesMax)),
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
    return this.#accounts;
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
      for (const unsubscribe of this.#unsubscribe) unsubscribe();
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
    const group = groupOf(this.#groups, engine);
    group.wasReady = true;
    const { index, pid: enginePid, loadMs } = engine;
    group.failure.recordReady(index);
    Object.assign(this.#accounts, { loadMs, warmMs });
    this.#inferMs.seed(warmMs);
    const facts = { ...this.#of, ...gpuOf(group), loadMs, warmMs };
    this.#log.info({ engine: index, enginePid, ...facts }, 'engine ready');
    if (this.#state === 'starting') {
      this.#state = 'ready';
      this.#ready.resolve();
    }
    this.#dispatch();
    this.#changed();
  }

  onDone(engine: Engine, tasks: readonly RunTask[], { alphas, size }: Answer<Buffer>): void {
    const inferMs = this.#accounts.addRun(tasks);
    for (const task of tasks) this.#endTask(task, 'succeeded');
    this.#inferMs.add(inferMs / tasks.length);
    const group = groupOf(this.#groups, engine);
    group.failure.recordSuccess();
    group.batches.recordSuccess(tasks.length);
    // Before anything else: the engine must not wait for what the caller does with the answer.
    this.#dispatch();
    for (const [index, alpha] of alphas.entries()) {
      const task = tasks[index];
      task?.resolve({ alpha, size, waitMs: task.takenAtMs - task.queuedAtMs, inferMs });
    }
    this.#afterRun();
  }

  onNoMatte({ index }: Engine, tasks: readonly RunTask[], reason: string): void {
    this.#log.warn({ engine: index, ...this.#of, reason }, 'no matte of an image');
    this.#accounts.addRun(tasks);
    const detail = `The model ${this.#of.model} cannot process this image.`;
    for (const task of tasks) {
      this.#endTask(task, 'refused');
      task.reject(new ContractError('PROCESSING_FAILED', detail, { cause: new Error(reason) }));
    }
    this.#afterRun();
  }

  onLoss(engine: Engine, loss: EngineLoss): void {
    const { cause, message: reason } = loss;
    this.#accounts.deaths[cause]++;
    this.#log.warn({ engine: engine.index, ...this.#of, cause, reason }, 'engine lost');
    const again = this.#loseRun(loss);
    if (cause !== 'device') this.#judgeLoss(engine, loss, again);
    if (cause === 'load') this.#leaveWhereDown(() => true);
    this.#afterRun();
  }

  #judgeLoss(engine: Engine, loss: EngineLoss, again: readonly RunTask[]): void {
    const group = groupOf(this.#groups, engine);
    const ofSeveral = loss.started && loss.tasks.length > 1;
    // Of a run of several each picture is judged when it has run alone.
    const death = ofSeveral && again.length > 0 ? undefined : deathOf(group, engine, loss);
    this.#judge(group, loss, death);
    if (ofSeveral && group.batches.recordLoss()) {
      const facts = { model: this.#of.model, ...gpuOf(group) };
      this.#log.error(facts, 'runs of several images keep failing: one at a time');
    }
  }

  /** `death` is undefined where it is not counted, or not yet. */
  #judge(group: EngineGroup, { cause, message, broken }: EngineLoss, death?: EngineDeath) {
    const mustGo = death !== undefined && group.failure.recordDeath(death);
    // What a load reports is the same the next time; a crash may not be.
    const neverLoads = broken && !group.wasReady;
    const gone = group.device !== undefined && cause === 'load' && saysDeviceIsGone(message);
    if (this.#closing !== undefined) return;
    if (gone) group.device?.lose(message);
    else if (neverLoads) this.#lose(group, message);
    else if (mustGo) this.#lose(group, `the engines keep dying: ${message}`);
  }

  onStuck(engine: Engine, pid: number): void {
    const { index, state } = engine;
    const facts = { engine: index, ...this.#of, enginePid: pid };
    this.#log.error(facts, 'engine was killed and does not die');
    if (state === 'closed') return;
    const group = groupOf(this.#groups, engine);
    if (this.#closing === undefined && group.mostStuck) {
      this.#lose(group, `process ${pid} of engine ${index} was killed and does not die`);
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
    const idle = this.#engines.filter(engine => engine.state === 'idle');
    for (const [index, engine] of idle.entries()) {
      const { batches } = groupOf(this.#groups, engine);
      const tasks = batches.next(this.#queue, idle.length - index);
      if (tasks === undefined) return;
      for (const task of tasks) {
        task.takenAtMs = performance.now();
        task.dispatches++;
      }
      engine.take(tasks, runTimeoutMs(this.#timing, tasks.length, this.#inferMs.value));
    }
  }

  #endTask(task: RunTask, outcome: RunOutcome): void {
    this.#accounts.runs[task.settled ? 'dropped' : outcome]++;
  }

  /** Settles what was in it, or puts it back. Returns what runs again. */
  #loseRun({ cause, message, tasks, started }: EngineLoss): RunTask[] {
    const gone = this.#gone();
    // After the watchdog's time do not wait for a process that may never go.
    const soon = cause !== 'watchdog' || this.snapshot().enginesReady > 0;
    const mayRunAgain = ({ dispatches }: RunTask) =>
      started ? tasks.length > 1 && cause !== 'device' : soon && dispatches < DISPATCHES_MAX;
    const again = gone ? [] : tasks.filter(task => !task.settled && mayRunAgain(task));
    for (const task of again.toReversed()) {
      task.runsAlone ||= started;
      this.#queue.putBack(task);
    }
    const ended = tasks.filter(task => !again.includes(task));
    if (started || ended.length > 0) this.#accounts.addRun(tasks);
    for (const task of ended) {
      this.#endTask(task, OUTCOMES_OF_LOSS[cause] ?? 'lost');
      task.reject(gone && mayRunAgain(task) ? gone : createLossError(cause, message));
    }
    return again;
  }

  /** A GPU goes out, for every pool; what has no other fails. */
  #lose({ device }: EngineGroup, message: string): void {
    if (device === undefined || this.#options.sparesDevices) this.#fail(message);
    else device.lose(message);
  }

  #onDeviceChange(group: EngineGroup): void {
    if (this.#closing !== undefined || this.#state === 'failed') return;
    group.follow();
    this.#failWhereAllAreOut(group);
    this.#afterRun();
  }

  #failWhereAllAreOut(last = this.#groups[0]): void {
    const { outReason } = last?.device ?? {};
    if (outReason !== undefined && this.#groups.every(({ out }) => out)) this.#fail(outReason);
  }

  #fail(message: string): void {
    if (this.#state === 'failed') return;
    this.#state = 'failed';
    this.#failureReason = message;
    const { model, provider } = this.#of;
    const failed = { model, provider, reason: message };
    // The node serves on with its own plan: only what names this model is refused.
    if (this.#options.sparesDevices) this.#log.error(failed, 'engines of one model failed');
    else this.#log.error(failed, 'engines failed: no more images are taken');
    this.#ready.reject(new Error(`model ${model} does not run on ${provider}: ${message}`));
    const gone = this.#gone();
    for (const task of this.#queue.drain()) task.reject(gone);
  }

  #afterRun(): void {
    if (this.#closing !== undefined || this.#state === 'failed') this.#closeFreeEngines();
    else this.#dispatch();
    this.#changed();
  }

  /** Those with a run in them, or in the middle of losing one, end after it. */
  #closeFreeEngines(): void {
    for (const engine of this.#engines) if (engine.tasks.length === 0) engine.close();
  }

  #endGrace(): void {
    const gone = new ContractError('NODE_UNAVAILABLE', 'The node shut down before the run ended.');
    for (const engine of this.#engines) {
      const { tasks, state } = engine;
      if (state === 'closed') continue;
      this.#accounts.addRun(tasks);
      for (const task of tasks) {
        this.#endTask(task, 'lost');
        task.reject(gone);
      }
      engine.close();
    }
    this.#changed();
  }

  #count(state: Engine['state']): number {
    return this.#engines.filter(engine => engine.state === state).length;
  }

  /** Those go that wait for no engine to start; not yet those that an image beside them lost. */
  #leaveWhereDown(mayLeave = ({ runsAlone }: RunTask) => !runsAlone): void {
    if (this.#engines.some(({ state }) => state === 'idle' || state === 'running')) return;
    const leaves = (task: RunTask) => task.leavesWhenDown && mayLeave(task);
    const none = new ContractError('ENGINE_LOST', 'No engine of the model is left.');
    for (const task of this.#queue.removeWhere(leaves)) task.reject(none);
  }

  #changed(): void {
    this.#leaveWhereDown();
    for (const listener of this.#listeners) listener();
  }
}

function gpuOf({ device }: EngineGroup): { gpu?: string } {
  return device === undefined ? {} : { gpu: device.facts.id };
}

export class EngineAccounts implements EnginePoolMetrics {
  readonly runs = noneOf<RunOutcome>(RUN_OUTCOMES);
  readonly deaths = noneOf<EngineDeathCause>(ENGINE_DEATH_CAUSES);
  readonly runsByImages = noneOf<number>([1, ...BATCH_SIZES]);
  busyS = 0;
  loadMs = 0;
  warmMs = 0;

  /** An engine is free of them. Returns how long they had it, ms. */
  addRun(tasks: readonly RunTask[]): number {
    const [first] = tasks;
    if (first === undefined) return 0;
    const takenMs = performance.now() - first.takenAtMs;
    this.runsByImages[tasks.length] = (this.runsByImages[tasks.length] ?? 0) + 1;
    this.busyS += takenMs / 1000;
    return takenMs;
  }
}

function noneOf<Name extends string | number>(names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map(name => [name, 0])) as Record<Name, number>;
}

/** How long a run queued now waits for an engine, by what runs took. Pure. */

export interface WaitInputs {
  readonly freeInMs: readonly number[];
  readonly queued: number;
  readonly inferMs: number;
}

export function estimateWaitMs({ freeInMs, queued, inferMs }: WaitInputs): number {
  const free = [...freeInMs];
  for (let i = 0; i < queued; i++) {
    const soonestMs = Math.min(...free);
    free[free.indexOf(soonestMs)] = soonestMs + inferMs;
  }
  return Math.min(...free);
}

/** A dozen runs after a change it has followed nine tenths of it. */
const WEIGHT_OF_NEWEST = 0.2;

export class RunningMean {
  #value = 0;
  #measured = false;

  get value(): number {
    return this.#value;
  }

  seed(value: number): void {
    if (!this.#measured) this.#value = value;
  }

  add(value: number): void {
    this.#value = this.#measured ? this.#value + WEIGHT_OF_NEWEST * (value - this.#value) : value;
    this.#measured = true;
  }
}
