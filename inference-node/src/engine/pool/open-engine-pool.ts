/**
 * The engine pool over child processes: one queue, each engine one run at a time.
 *
 *   a run     queued ──► running ──► settled
 *             queued: left by an engine (dispatch), by its caller (abort), by close or failure
 *             running: left when native code ends or the process dies. A caller that goes away
 *             settles its promise at once, but the engine stays taken until then: nothing
 *             overtakes native code. Back to queued where the engine died before it began.
 *
 *   the pool  starting ──first engine ready──► ready ──the failure rule──► failed
 *             starting ──an engine says that the model cannot be loaded──► failed
 *             any ──more than half of the engines stuck──► failed
 *             all of it of one GPU alone, where engines are on several: that one is out, its
 *             engines end, and the pool fails when all are
 *             closing (from any): no run is taken, running ones have their grace
 *
 * No run is sent ahead to a busy engine. Its loop is blocked, so the bytes would wait in this
 * process all the same: with one sent ahead, runs followed each other after 15.0 ms as without
 * (best case, 1024x1024, a graph that takes 5 ms), after 18 instead of 22 ms on a loaded machine.
 * In return a run that waits is bound to no engine, is lost with none, and a sync one can overtake
 * it until an engine takes it.
 */
import { createHash } from 'node:crypto';
import type { Logger } from 'pino';
import { ContractError } from '#contract/errors.ts';
import { readResidentBytes } from '../../process/resident-memory.ts';
import { saysDeviceIsGone } from '../native-error.ts';
import type { Engine, EngineListener, EngineLoss, EngineTiming } from './engine.ts';
import { EngineAccounts } from './engine-accounts.ts';
import { createGroups, type EngineGroup } from './engine-group.ts';
import type {
  EnginePool,
  EnginePoolMetrics,
  EnginePoolSnapshot,
  EngineProcess,
  EngineResult,
  EngineRun,
  RunOutcome,
} from './engine-pool.ts';
import type { EnginePoolOptions } from './engine-pool-options.ts';
import { RunQueue } from './run-queue.ts';
import { createLossError, createRunTask, type RunTask } from './run-task.ts';
import { RunningMean } from './running-mean.ts';
import { estimateWaitMs } from './wait-estimate.ts';

/** A last bound behind the node's admission, far lower: 400 MB of pictures at 1024x1024. */
export const QUEUED_RUNS_MAX = 128;
/** Times a run is given to an engine that then dies without beginning it. */
const DISPATCHES_MAX = 4;

export type { EnginePoolOptions };

/** Opens the engines and returns at once; they load side by side, those of one GPU in turn. */
export function openEnginePool(options: EnginePoolOptions): EnginePool {
  return new ChildEnginePool(options);
}

class ChildEnginePool implements EnginePool, EngineListener<RunTask> {
  readonly #options: EnginePoolOptions;
  readonly #timing: EngineTiming;
  readonly #log: Logger;
  readonly #groups: readonly EngineGroup[];
  readonly #engines: readonly Engine<RunTask>[];
  readonly #queue = new RunQueue<RunTask>();
  readonly #inferMs = new RunningMean();
  readonly #listeners = new Set<() => void>();
  readonly #ready = Promise.withResolvers<void>();
  readonly #accounts = new EngineAccounts();
  #state: EnginePoolSnapshot['state'] = 'starting';
  #failureReason: string | undefined;
  #closing: Promise<void> | undefined;
  #closeAtMs = Number.POSITIVE_INFINITY;
  #closeTimer: NodeJS.Timeout | undefined;
  #nextId = 1;

  constructor(options: EnginePoolOptions) {
    this.#options = options;
    this.#log = options.log;
    const { groups, timing } = createGroups(options, this);
    this.#groups = groups;
    this.#timing = timing;
    this.#engines = groups
      .flatMap(group => group.engines)
      .toSorted((one, other) => one.index - other.index);
    for (const group of groups) group.device?.onChange(() => this.#onDeviceChange(group));
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
    if (run.rgb.length !== 3 * inputWidth * inputHeight) {
      const detail = `${run.rgb.length} bytes of RGB for an input of ${inputWidth}x${inputHeight}`;
      return Promise.reject(new Error(detail));
    }
    if (run.signal.aborted) return Promise.reject(run.signal.reason);
    const refusal = this.#refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    const { task, promise } = createRunTask(this.#nextId++, run, aborted => {
      const wasQueued = this.#queue.remove(aborted);
      aborted.reject(run.signal.reason);
      if (wasQueued) this.#changed();
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
      enginesStuck: this.#countStuck(),
      enginesReady: this.#count('idle') + this.#count('running'),
      running: this.#engines.filter(engine => engine.task !== undefined).length,
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
    return this.#accounts.read();
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

  onReady(engine: Engine<RunTask>, warmMs: number): void {
    const group = this.#groupOf(engine);
    group.wasReady = true;
    group.failure.recordReady(engine.index);
    this.#accounts.noteLoad(engine.loadMs, warmMs);
    this.#inferMs.seed(warmMs);
    const { index, pid, loadMs } = engine;
    const { model, provider } = this.#options.model;
    const gpu = group.device && { gpu: group.device.facts.id };
    this.#log.info(
      { engine: index, enginePid: pid, model, provider, ...gpu, loadMs, warmMs },
      'engine ready',
    );
    if (this.#state === 'starting') {
      this.#state = 'ready';
      this.#ready.resolve();
    }
    this.#dispatch();
    this.#changed();
  }

  onDone(engine: Engine<RunTask>, task: RunTask, alpha: Buffer): void {
    const inferMs = this.#endRun(task, 'succeeded');
    this.#inferMs.add(inferMs);
    this.#groupOf(engine).failure.recordSuccess();
    // Before anything else: the engine must not wait for what the caller does with the answer.
    this.#dispatch();
    task.resolve({ alpha, waitMs: task.takenAtMs - task.queuedAtMs, inferMs });
    this.#afterRun();
  }

  onLoss(engine: Engine<RunTask>, loss: EngineLoss<RunTask>): void {
    const { cause, message, task, started } = loss;
    this.#accounts.addDeath(cause);
    this.#log.warn({ engine: engine.index, cause, reason: message }, 'engine lost');
    const imageDigest =
      task !== undefined && started
        ? createHash('sha256').update(task.rgb).digest('hex')
        : undefined;
    if (task !== undefined) this.#loseRun(task, loss);
    if (cause !== 'device') this.#judge(engine, loss, imageDigest);
    this.#afterRun();
  }

  /** Whether what this engine runs on has failed. */
  #judge(engine: Engine<RunTask>, loss: EngineLoss<RunTask>, imageDigest: string | undefined) {
    const { cause, message, broken } = loss;
    const group = this.#groupOf(engine);
    const death = { atMs: performance.now(), engine: engine.index, cause, imageDigest };
    const mustGo = group.failure.recordDeath(death);
    // What a load reports is the same the next time; a crash may not be.
    const neverLoads = broken && !group.wasReady;
    const gone = group.device !== undefined && cause === 'load' && saysDeviceIsGone(message);
    if (this.#closing !== undefined) return;
    if (neverLoads || gone) this.#lose(group, message);
    else if (mustGo) this.#lose(group, `the engines keep dying: ${message}`);
    else group.device?.suspect();
  }

  onStuck(engine: Engine<RunTask>, pid: number): void {
    const { index, state } = engine;
    this.#log.error({ engine: index, enginePid: pid }, 'engine was killed and does not die');
    // A closed one was not missed.
    if (state === 'closed') return;
    const group = this.#groupOf(engine);
    if (this.#closing === undefined && group.mostStuck) {
      this.#lose(group, `process ${pid} of engine ${index} was killed and does not die`);
    }
    this.#afterRun();
  }

  onLoading({ index }: Engine<RunTask>, loadingMs: number): void {
    const { model, provider } = this.#options.model;
    const loadingS = Math.round(loadingMs / 1000);
    this.#log.info({ engine: index, model, provider, loadingS }, 'engine still loads');
  }

  onOutput({ index, pid }: Engine<RunTask>, line: string): void {
    this.#log.warn({ engine: index, enginePid: pid, line }, 'engine wrote');
  }

  #refusal(): ContractError | undefined {
    if (this.#closing !== undefined) {
      return new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.');
    }
    if (this.#state === 'failed') {
      return new ContractError('NODE_UNAVAILABLE', 'The engines of this node do not run.');
    }
    if (this.#queue.length >= QUEUED_RUNS_MAX) {
      return new ContractError('NODE_OVERLOADED', 'Too many images wait for an engine.');
    }
    return undefined;
  }

  #dispatch(): void {
    if (this.#closing !== undefined || this.#state === 'failed') return;
    for (const engine of this.#engines) {
      if (engine.state !== 'idle') continue;
      const task = this.#queue.shift();
      if (task === undefined) return;
      task.takenAtMs = performance.now();
      task.dispatches++;
      const { runTimeoutMinMs, runTimeoutMeans } = this.#timing;
      engine.take(task, Math.max(runTimeoutMinMs, runTimeoutMeans * this.#inferMs.value));
    }
  }

  /** Counts the run and returns how long an engine was taken by it, ms. */
  #endRun(task: RunTask, outcome: RunOutcome): number {
    const takenMs = performance.now() - task.takenAtMs;
    this.#accounts.addRun(task.settled ? 'dropped' : outcome, takenMs);
    return takenMs;
  }

  #loseRun(task: RunTask, { cause, message, started }: EngineLoss<RunTask>): void {
    const mayBeginAgain = this.#closing === undefined && task.dispatches < DISPATCHES_MAX;
    // After the watchdog's time do not wait for a process that may never go, and another.
    const soon = cause !== 'watchdog' || this.snapshot().enginesReady > 0;
    if (!started && !task.settled && mayBeginAgain && soon) {
      this.#queue.putBack(task);
      return;
    }
    this.#endRun(task, cause === 'fault' ? 'failed' : 'lost');
    task.reject(createLossError(cause, message));
  }

  #groupOf(engine: Engine<RunTask>): EngineGroup {
    const group = this.#groups.find(({ engines }) => engines.includes(engine));
    if (group === undefined) throw new Error(`engine ${engine.index} is in no group`);
    return group;
  }

  /** A GPU goes out, for every pool; what has no other fails. */
  #lose({ device }: EngineGroup, message: string): void {
    if (device === undefined) this.#fail(message);
    else device.lose(message);
  }

  #onDeviceChange(group: EngineGroup): void {
    if (this.#closing !== undefined || this.#state === 'failed') return;
    group.follow();
    this.#failWhereAllAreOut(group);
    this.#afterRun();
  }

  /** @param last the one that went out last. */
  #failWhereAllAreOut(last = this.#groups[0]): void {
    const { outReason } = last?.device ?? {};
    if (outReason !== undefined && this.#groups.every(({ out }) => out)) this.#fail(outReason);
  }

  #fail(message: string): void {
    if (this.#state === 'failed') return;
    this.#state = 'failed';
    this.#failureReason = message;
    this.#log.error({ reason: message }, 'engines failed: no more images are taken');
    const { model, provider } = this.#options.model;
    this.#ready.reject(new Error(`model ${model} does not run on ${provider}: ${message}`));
    const gone = new ContractError('NODE_UNAVAILABLE', 'The engines of this node do not run.');
    for (const task of this.#queue.drain()) task.reject(gone);
  }

  /** An engine is free, or its process gone: the next run, or the end. */
  #afterRun(): void {
    if (this.#closing !== undefined || this.#state === 'failed') this.#closeFreeEngines();
    else this.#dispatch();
    this.#changed();
  }

  /** Those with a run in them, or in the middle of losing one, end after it. */
  #closeFreeEngines(): void {
    for (const engine of this.#engines) if (engine.task === undefined) engine.close();
  }

  #endGrace(): void {
    const gone = new ContractError('NODE_UNAVAILABLE', 'The node shut down before the run ended.');
    for (const engine of this.#engines) {
      const { task, state } = engine;
      if (state === 'closed') continue;
      if (task !== undefined) {
        this.#endRun(task, 'lost');
        task.reject(gone);
      }
      engine.close();
    }
    this.#changed();
  }

  #count(state: Engine<RunTask>['state']): number {
    return this.#engines.filter(engine => engine.state === state).length;
  }

  #countStuck(): number {
    return this.#engines.filter(engine => engine.stuck).length;
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
