/**
 * One engine through its successive processes. The pool decides what runs and when to give up.
 *
 *   state     entered                                      left
 *   loading   open(); after the respawn delay              ready -> idle; exit -> down
 *   idle      ready; the run ended                         take() -> running; exit -> down
 *   running   take()                                       done -> idle; failed, late, done with
 *                                                          too much memory -> stopping
 *   stopping  killed by us, its process not gone yet       exit -> down; KILL_WAIT_MAX_MS -> stuck
 *   stuck     killed, and it does not die                  exit -> down
 *   down      its process is gone                          its turn, after the delay -> loading
 *   closed    close(), from any state                      never
 *
 * A killed engine loses its run at once, since its process may never end. A stuck process keeps its
 * memory, so no other replaces it.
 */

import type { Size } from '@matting/proto/contract/finishing.ts';
import type { BufferPool } from '../../process/buffer-pool.ts';
import { type Child, type ChildExit, OutputLines } from '../../process/child.ts';
import type { Frame } from '../../process/frames.ts';
import { readResidentBytes } from '../../process/proc-files.ts';
import type { OpeningMutex } from '../devices/gpu-device.ts';
import {
  type Answer,
  type FromEngine,
  type SessionSpec,
  saysMemoryIsShort,
  saysMemoryRanOut,
} from '../engine-protocol.ts';
import type { EngineBounds } from './engine-bounds.ts';
import type { EngineDeathCause, EngineTiming } from './engine-pool.ts';
import type { RunTask } from './run-task.ts';
import { spawnEngineChild } from './spawn-engine.ts';

type EngineState = 'loading' | 'idle' | 'running' | 'stopping' | 'stuck' | 'down' | 'closed';

export const LOAD_TIMEOUT_MS = 300_000;
/** Far above any run on a useful machine, and below the 120 s that a caller waits. */
export const RUN_TIMEOUT_MIN_MS = 10_000;
export const RUN_TIMEOUT_MEANS = 20;
/** The first restart is immediate: most deaths are due to one image, and the next image waits. */
export const RESPAWN_DELAYS_MS = [0, 1000, 2000, 5000, 10_000] as const;

const OVER: readonly EngineState[] = ['stopping', 'stuck', 'closed'];

const LOADING_LOG_INTERVAL_MS = 30_000;

const LAST_WORDS_LENGTH_MAX = 4096;

/** A stuck engine is free at an unknown time. This is later than any other, yet usable in sums. */
const STUCK_FREE_IN_MS = 3_600_000;

export interface EngineLoss {
  readonly cause: EngineDeathCause;
  readonly task: RunTask | undefined;
  readonly started: boolean;
  readonly message: string;
  readonly broken: boolean;
  /** Its next process loads the model by the binding. */
  readonly byCInterface: boolean;
}

export interface EngineListener {
  onReady(engine: Engine, warmMs: number): void;
  onDone(engine: Engine, task: RunTask, answer: Answer<Buffer>): void;
  onNoMatte(engine: Engine, task: RunTask, message: string): void;
  onLoss(engine: Engine, loss: EngineLoss): void;
  onStuck(engine: Engine, pid: number): void;
  onLoading(engine: Engine, loadingMs: number): void;
  onOutput(engine: Engine, line: string): void;
}

interface EngineOptions {
  readonly index: number;
  readonly spec: SessionSpec;
  readonly bounds: EngineBounds;
  readonly childEnv: Readonly<Record<string, string>>;
  readonly timing: EngineTiming;
  readonly opening?: OpeningMutex | undefined;
  readonly buffers?: BufferPool | undefined;
}

export class Engine {
  readonly index: number;
  readonly #options: EngineOptions;
  readonly #listener: EngineListener;
  readonly #closed = Promise.withResolvers<void>();
  #output: OutputLines | undefined;
  #state: EngineState = 'down';
  #child: Child<FromEngine> | undefined;
  #task: RunTask | undefined;
  #started = false;
  #lossesInARow = 0;
  #sinceMs = performance.now();
  #loadMs = 0;
  #respawnAtMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #progressTimer: NodeJS.Timeout | undefined;
  #readyBytes = 0;
  /** Undefined from the first loss on: the C interface may be at fault, and must not be again. */
  #cInterface: SessionSpec['cInterface'];
  #outputTail = '';

  constructor(options: EngineOptions, listener: EngineListener) {
    this.index = options.index;
    this.#options = options;
    this.#cInterface = options.spec.cInterface;
    this.#listener = listener;
  }

  get state(): EngineState {
    return this.#state;
  }

  get task(): RunTask | undefined {
    return this.#task;
  }

  get pid(): number | undefined {
    return this.#child?.exited === false ? this.#child.pid : undefined;
  }

  get stuck(): boolean {
    return this.#child?.stuck ?? false;
  }

  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  get loadMs(): number {
    return this.#loadMs;
  }

  freeInMs(inferMs: number): number {
    const inStateMs = performance.now() - this.#sinceMs;
    switch (this.#state) {
      case 'idle':
        return 0;
      case 'running':
        return Math.max(0, inferMs - inStateMs);
      case 'loading':
        return Math.max(0, this.#loadMs - inStateMs);
      case 'down':
        return Math.max(0, this.#respawnAtMs - performance.now()) + this.#loadMs;
      case 'stuck':
        return STUCK_FREE_IN_MS;
      default:
        return this.#loadMs;
    }
  }

  open(): void {
    const { opening } = this.#options;
    if (opening === undefined) this.#spawn();
    else opening.take(this, () => this.#spawn());
  }

  /** Ends the process and calls onLoss for its image. The pool closes the engine afterwards. */
  loseDevice(reason: string): void {
    if (this.#state !== 'down' && !OVER.includes(this.#state)) this.#stop('device', reason);
  }

  #spawn(): void {
    this.#enter('loading');
    const sinceMs = this.#sinceMs;
    this.#progressTimer = setInterval(() => {
      this.#listener.onLoading(this, performance.now() - sinceMs);
    }, LOADING_LOG_INTERVAL_MS);
    const output = new OutputLines(line => this.#listener.onOutput(this, line));
    this.#output = output;
    this.#outputTail = '';
    const { bounds } = this.#options;
    const child = spawnEngineChild(this.#options.childEnv, {
      dataBytesMax: bounds.dataBytesMax,
      partsBytesMax: bounds.answerBytesMax,
      onOutput: text => {
        this.#outputTail = (this.#outputTail + text).slice(-LAST_WORDS_LENGTH_MAX);
        output.push(text);
      },
      onFrame: frame => this.#onFrame(frame),
      buffers: this.#options.buffers,
      onExit: exit => this.#onExit(exit),
      onStuck: () => this.#onStuck(child),
      killWaitMaxMs: this.#options.timing.killWaitMaxMs,
    });
    this.#child = child;
    const spec = { ...this.#options.spec, cInterface: this.#cInterface };
    void child.send({ kind: 'init', spec });
    const { loadTimeoutMs } = this.#options.timing;
    this.#arm(loadTimeoutMs, () => {
      this.#stop('load', `the model did not load within ${loadTimeoutMs} ms`);
    });
  }

  take(task: RunTask, runTimeoutMs: number): void {
    if (this.#state !== 'idle') throw new Error(`engine ${this.index} is ${this.#state}, not idle`);
    this.#task = task;
    this.#started = false;
    this.#enter('running');
    void this.#child?.send({ kind: 'run', id: task.id, size: task.size }, [task.rgb]);
    this.#arm(runTimeoutMs, () => {
      this.#stop('watchdog', `a run did not end within ${Math.round(runTimeoutMs)} ms`);
    });
  }

  /** Kills the process in any state, without onLoss: the caller settles its task. */
  close(): void {
    if (this.#state === 'closed') return;
    this.#disarm();
    this.#leaveOpening();
    this.#enter('closed');
    const child = this.#child;
    if (child === undefined || child.exited || child.stuck) this.#closed.resolve();
    else child.kill();
  }

  #enter(state: EngineState): void {
    this.#state = state;
    this.#sinceMs = performance.now();
  }

  /** At the end, frames that have arrived are read first: this event loop may be late. */
  #arm(ms: number, expired: () => void): void {
    clearTimeout(this.#timer);
    const timer = setTimeout(() => {
      setImmediate(() => {
        if (this.#timer === timer) expired();
      });
    }, ms);
    this.#timer = timer;
  }

  #leaveOpening(): void {
    clearInterval(this.#progressTimer);
    this.#options.opening?.leave(this);
  }

  #disarm(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #stop(cause: EngineDeathCause, message: string, broken = false): void {
    this.#disarm();
    this.#enter('stopping');
    this.#child?.kill();
    this.#lose({ cause, message, broken });
  }

  #lose(how: Pick<EngineLoss, 'cause' | 'message' | 'broken'>): void {
    const byCInterface = this.#cInterface !== undefined;
    this.#cInterface = undefined;
    const broken = how.broken && !byCInterface;
    const loss = { ...how, broken, byCInterface, task: this.#task, started: this.#started };
    this.#task = undefined;
    this.#started = false;
    this.#listener.onLoss(this, loss);
  }

  #onFrame({ head, parts }: Frame<FromEngine>): void {
    const task = this.#state === 'running' ? this.#task : undefined;
    const runs = task !== undefined && 'id' in head && head.id === task.id;
    if (this.#state === 'loading' && head.kind === 'ready') {
      this.#onReady(head.warmMs);
    } else if (this.#state === 'loading' && head.kind === 'broken') {
      this.#stop('load', head.message, true);
    } else if (runs && head.kind === 'started') {
      this.#started = true;
    } else if (runs && (head.kind === 'done' || head.kind === 'failed')) {
      this.#onRunEnd(head, task, parts);
    } else if (!OVER.includes(this.#state)) {
      this.#stop('fault', `the engine said ${head.kind} while ${this.#state}`);
    }
  }

  #onReady(warmMs: number): void {
    this.#disarm();
    this.#leaveOpening();
    this.#loadMs = performance.now() - this.#sinceMs;
    this.#readyBytes = this.#residentBytes();
    this.#enter('idle');
    this.#listener.onReady(this, warmMs);
  }

  #onRunEnd(head: FromEngine, task: RunTask, alphas: readonly Buffer[]): void {
    const [alpha, ...others] = alphas;
    const isOne = alpha !== undefined && others.length === 0;
    if (head.kind === 'done' && isOne && this.#isWhole(head.size, alpha)) {
      this.#endRun();
      this.#listener.onDone(this, task, { alpha, size: head.size });
      return;
    }
    if (head.kind === 'failed' && head.ofPicture) {
      this.#endRun();
      this.#listener.onNoMatte(this, task, head.message);
      return;
    }
    if (head.kind !== 'failed') this.#stop('fault', 'an alpha has a wrong size');
    else this.#stop(this.#isShort(head.message) ? 'shortage' : 'fault', head.message);
  }

  /**
   * False for an engine with a memory limit of its own: there the picture takes too much, not other
   * programs.
   */
  #isShort(message: string): boolean {
    return this.#options.bounds.dataBytesMax === undefined && saysMemoryIsShort(message);
  }

  /** The run succeeded, but its engine may still be stopped for the memory that it keeps. */
  #endRun(): void {
    this.#disarm();
    this.#task = undefined;
    this.#started = false;
    this.#lossesInARow = 0;
    const tooMuch = this.#describeTooMuch();
    if (tooMuch === undefined) this.#enter('idle');
    else this.#stop('memory', tooMuch);
  }

  /** A runtime frees memory that it keeps only at its end, and admission does not count it. */
  #describeTooMuch(): string | undefined {
    const { resident } = this.#options.bounds;
    if (resident === undefined) return undefined;
    const { countedBytes, growthBytesMax } = resident;
    const keptBytes = this.#residentBytes();
    const keptBytesMax = Math.max(countedBytes, this.#readyBytes) + growthBytesMax;
    if (keptBytes <= keptBytesMax) return undefined;
    const [kept, most, counted] = [keptBytes, keptBytesMax, countedBytes].map(bytes =>
      Math.round(bytes / 1e6),
    );
    return `it kept ${kept} MB after a run, over ${most} MB: ${counted} MB are counted for it`;
  }

  #residentBytes(): number {
    const { pid } = this;
    return (pid === undefined ? undefined : readResidentBytes(pid)) ?? 0;
  }

  #isWhole({ width, height }: Size, alpha: Buffer): boolean {
    const { form, inputWidth, inputHeight } = this.#options.spec;
    const isOwn = width === inputWidth && height === inputHeight;
    const isSize = form === undefined ? isOwn : width > 0 && height > 0;
    return isSize && alpha.length === width * height;
  }

  #onExit(exit: ChildExit): void {
    this.#disarm();
    this.#leaveOpening();
    this.#output?.end();
    if (this.#state === 'closed') {
      this.#closed.resolve();
      return;
    }
    const delays = this.#options.timing.respawnDelaysMs;
    const delayMs = delays[Math.min(this.#lossesInARow, delays.length - 1)] ?? delays[0];
    this.#lossesInARow++;
    this.#respawnAtMs = performance.now() + delayMs;
    const before = this.#state;
    this.#enter('down');
    // If we killed the engine, onLoss was called then.
    if (!OVER.includes(before)) this.#lose(this.#describeEnd(exit, before));
    // The listener may have closed it.
    if (this.#state !== 'down') return;
    this.#timer = setTimeout(() => this.open(), delayMs);
  }

  #onStuck(child: Child<FromEngine>): void {
    this.#disarm();
    this.#leaveOpening();
    if (this.#state === 'closed') {
      this.#closed.resolve();
    } else {
      const before = this.#state;
      this.#enter('stuck');
      const message = 'its socket is closed and the process does not end';
      if (!OVER.includes(before))
        this.#lose({ cause: this.#causeIn(before), message, broken: false });
    }
    this.#listener.onStuck(this, child.pid as number);
  }

  #describeEnd({ error, signal, code }: ChildExit, before: EngineState) {
    const how = error?.message ?? `signal ${signal}, code ${code}`;
    const message = `the process ended: ${how}`;
    const cause = this.#causeIn(before);
    // An engine without a limit died because the machine is out of memory, whatever the picture.
    const isOver =
      this.#options.bounds.dataBytesMax !== undefined && saysMemoryRanOut(this.#outputTail);
    return { cause: cause === 'run' && isOver ? 'memory' : cause, message, broken: false } as const;
  }

  #causeIn(state: EngineState): EngineDeathCause {
    return state === 'loading' ? 'load' : this.#started ? 'run' : 'idle';
  }
}
