/**
 * The pool's side of one picture worker: a process with at most one image, and its calls.
 *
 *   starting ──ready──► idle ──lease──► leased ──release──► settling ──settled──► idle
 *   leased    at most one call runs, within its budgets
 *   settling  frees the image's memory
 *   ending    from any: it was killed. Its image is lost now; its process may end later
 *   stuck     from ending: its process does not die, and keeps its memory
 *   ended     from any: its process is gone. Final; the pool starts another worker
 */
import { fileURLToPath } from 'node:url';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { BufferPool } from '../../process/buffer-pool.ts';
import { Child, type ChildExit, KILL_WAIT_MAX_MS, OutputLines } from '../../process/child.ts';
import type { Frame } from '../../process/frames.ts';
import { readResidentBytes } from '../../process/proc-files.ts';
import {
  budgetFor,
  CPU_MS_BUDGET,
  RESIDENT_BYTES_BUDGET,
  readCpuMs,
  WALL_MS_BUDGET,
  WATCH_INTERVAL_MS,
} from '../budgets.ts';
import type { HeifDecoder } from '../children/heif-decoder.ts';
import type { FromPictureWorker, OpenedFile, ToPictureWorker } from '../picture-protocol.ts';
import type { PictureWorkerEnd } from './picture-pool.ts';

const PROGRAM = fileURLToPath(new URL('../worker/picture-worker.ts', import.meta.url));

/** Spawn to ready takes 0.4 s on an idle machine of 2 cores; this allows for a very busy one. */
const START_TIMEOUT_MS = 60_000;
const SETTLE_TIMEOUT_MS = 10_000;
/** An idle worker above this is replaced. A photo leaves 95 to 120 MB, JPEG XL 0.2 to 0.7 GB. */
const IDLE_RESIDENT_BYTES_MAX = 320 * 2 ** 20;

export const WORKER_ENV = {
  /** Threads that run the codecs: one image at a time, and the reading of its header. */
  UV_THREADPOOL_SIZE: '2',
  // glibc keeps freed pixels: 541 MB after six AVIFs of 12 MP, 95 with these settings.
  MALLOC_ARENA_MAX: '2',
  MALLOC_MMAP_THRESHOLD_: String(256 * 1024),
  MALLOC_TRIM_THRESHOLD_: String(1024 * 1024),
  GLIBC_TUNABLES: 'glibc.malloc.hugetlb=1',
} as const;
/**
 * Pixels are outside V8's heap, and the worker decides when to collect. Without the last three
 * flags V8 collects everything at every few MB of pixels, and the young generation on four threads.
 * They save a fifth of a worker's processor time (bench/MEASUREMENTS.md).
 */
export const WORKER_FLAGS = [
  '--expose-gc',
  '--max-old-space-size=128',
  '--max-semi-space-size=2',
  '--external-memory-accounted-in-global-limit',
  '--heap-growing-percent=200',
  '--no-parallel-scavenge',
];

export const WORKER_LIMITS = {
  cpuMs: CPU_MS_BUDGET,
  wallMs: WALL_MS_BUDGET,
  residentBytes: RESIDENT_BYTES_BUDGET,
  idleResidentBytesMax: IDLE_RESIDENT_BYTES_MAX,
  startTimeoutMs: START_TIMEOUT_MS,
  killWaitMaxMs: KILL_WAIT_MAX_MS,
};
export type WorkerLimits = Readonly<typeof WORKER_LIMITS>;

export interface WorkerListener {
  onIdle(worker: WorkerProcess): void;
  /** Called once, when it is killed or ends: its image is lost. */
  onEnd(worker: WorkerProcess, end: PictureWorkerEnd, exit: ChildExit | undefined): void;
  onGone(worker: WorkerProcess): void;
  onStuck(worker: WorkerProcess, pid: number): void;
  onOutput(worker: WorkerProcess, line: string): void;
}

type WorkerState = 'starting' | 'idle' | 'leased' | 'settling' | 'ending' | 'stuck' | 'ended';

const OVER: readonly WorkerState[] = ['ending', 'stuck', 'ended'];

type AnswerKind = 'decoded' | 'resampled' | 'chosen' | 'crop' | 'finished';
type Answer<Kind extends AnswerKind> = Frame<Extract<FromPictureWorker, { kind: Kind }>>;

interface Call {
  readonly kind: AnswerKind;
  readonly signal: AbortSignal;
  readonly startedMs: number;
  /** Undefined until the first check. */
  cpuBeforeMs?: number | undefined;
  readonly resolve: (frame: Frame<FromPictureWorker>) => void;
  readonly reject: (reason: unknown) => void;
}

export class WorkerProcess {
  readonly #limits: WorkerLimits;
  readonly #listener: WorkerListener;
  readonly #child: Child<FromPictureWorker>;
  #state: WorkerState = 'starting';
  #call: Call | undefined;
  /** Sum of its image, background and result. */
  #megapixels = 0;
  /** The last opened picture is to blame for the cost. */
  #decoding: OpenedFile = 'image';
  #end: PictureWorkerEnd | undefined;
  #timer: NodeJS.Timeout | undefined;
  #watch: NodeJS.Timeout | undefined;

  constructor(
    childEnv: Readonly<Record<string, string>>,
    limits: WorkerLimits,
    buffers: BufferPool | undefined,
    heif: HeifDecoder | undefined,
    listener: WorkerListener,
  ) {
    this.#limits = limits;
    this.#listener = listener;
    this.#timer = setTimeout(() => this.end('start'), limits.startTimeoutMs);
    const output = new OutputLines(line => listener.onOutput(this, line));
    this.#child = new Child<FromPictureWorker>({
      program: PROGRAM,
      args: heif === undefined ? [] : [JSON.stringify(heif)],
      env: { ...childEnv, ...WORKER_ENV },
      execArgv: WORKER_FLAGS,
      killWaitMaxMs: limits.killWaitMaxMs,
      onOutput: text => output.push(text),
      onFrame: frame => this.#onFrame(frame),
      buffers,
      onStuck: () => this.#onStuck(),
      onExit: exit => {
        output.end();
        this.#onExit(exit);
      },
    });
  }

  get pid(): number | undefined {
    return this.#child.exited ? undefined : this.#child.pid;
  }

  /** Also of a process that has ended. */
  get lastPid(): number | undefined {
    return this.#child.pid;
  }

  get started(): boolean {
    return this.#state !== 'starting' && !OVER.includes(this.#state);
  }

  get neverStarted(): boolean {
    return this.#end === 'start';
  }

  get stuck(): boolean {
    return this.#state === 'stuck';
  }

  get idle(): boolean {
    return this.#state === 'idle';
  }

  lease(): void {
    if (this.#state !== 'idle') throw new Error(`a ${this.#state} picture worker was leased`);
    this.#megapixels = 0;
    this.#state = 'leased';
  }

  /**
   * Rejects with the worker's ContractError, PROCESSING_FAILED over a budget (INVALID_PARAMETER for
   * a background's), PICTURE_WORKER_LOST, or the signal's reason, which ends it.
   */
  ask<Kind extends AnswerKind>(
    kind: Kind,
    message: ToPictureWorker,
    parts: readonly Buffer[],
    signal: AbortSignal,
  ): Promise<Answer<Kind>> {
    if (this.#call !== undefined) throw new Error('a picture worker was asked two things at once');
    if (this.#state !== 'leased') return Promise.reject(this.#lossError());
    const { promise, resolve, reject } = Promise.withResolvers<Frame<FromPictureWorker>>();
    const startedMs = performance.now();
    this.#decoding = firstOpened(message);
    this.#call = { kind, signal, startedMs, resolve, reject };
    signal.addEventListener('abort', this.#onAbort);
    this.#watch = setInterval(() => this.#checkBudgets(), WATCH_INTERVAL_MS);
    void this.#child.send(message, parts);
    return promise as Promise<Answer<Kind>>;
  }

  /** Kills the process if a call still runs. */
  release(): void {
    if (this.#state !== 'leased') return;
    if (this.#call !== undefined) {
      this.end('abandoned');
      return;
    }
    this.#state = 'settling';
    this.#timer = setTimeout(() => this.end('abandoned'), SETTLE_TIMEOUT_MS);
    void this.#child.send({ kind: 'release' } satisfies ToPictureWorker);
  }

  /** Loses the image at once, however long the process takes to end. */
  end(cause: PictureWorkerEnd): void {
    if (OVER.includes(this.#state)) return;
    this.#state = 'ending';
    this.#child.kill();
    this.#lose(cause, undefined);
  }

  #lose(cause: PictureWorkerEnd, exit: ChildExit | undefined): void {
    clearTimeout(this.#timer);
    this.#end = cause;
    this.#takeCall()?.reject(this.#lossError());
    this.#listener.onEnd(this, cause, exit);
  }

  readonly #onAbort = () => {
    const call = this.#takeCall();
    this.end('abandoned');
    call?.reject(call.signal.reason);
  };

  #takeCall(): Call | undefined {
    const call = this.#call;
    this.#call = undefined;
    clearInterval(this.#watch);
    call?.signal.removeEventListener('abort', this.#onAbort);
    return call;
  }

  #onFrame(frame: Frame<FromPictureWorker>): void {
    if (this.#end !== undefined) return;
    const { head } = frame;
    switch (head.kind) {
      case 'ready':
        this.#becomeIdle();
        break;
      case 'opened':
        this.#decoding = head.of;
        this.#megapixels += (head.size.width * head.size.height) / 1e6;
        break;
      case 'framed':
        this.#megapixels += (head.size.width * head.size.height) / 1e6;
        break;
      case 'decoded':
      case 'resampled':
      case 'chosen':
      case 'crop':
      case 'finished':
        this.#takeCall()?.resolve(frame);
        break;
      case 'failed': {
        const { code, detail, cause } = head;
        this.#takeCall()?.reject(new ContractError(code, detail, { cause }));
        break;
      }
      case 'settled':
        if (head.poisoned || head.residentBytes > this.#limits.idleResidentBytesMax) {
          this.end('recycled');
        } else {
          this.#becomeIdle();
        }
    }
  }

  #becomeIdle(): void {
    clearTimeout(this.#timer);
    this.#state = 'idle';
    this.#listener.onIdle(this);
  }

  #onExit(exit: ChildExit): void {
    const before = this.#state;
    this.#state = 'ended';
    if (!OVER.includes(before)) this.#lose(endIn(before), exit);
    this.#listener.onGone(this);
  }

  /** Also called for a process that closed its socket by itself and then did not end. */
  #onStuck(): void {
    const before = this.#state;
    this.#state = 'stuck';
    if (!OVER.includes(before)) this.#lose(endIn(before), undefined);
    this.#listener.onStuck(this, this.#child.pid as number);
  }

  #checkBudgets(): void {
    const { pid } = this;
    const call = this.#call;
    if (pid === undefined || call === undefined) return;
    const { cpuMs, wallMs, residentBytes } = this.#limits;
    const cpuNowMs = readCpuMs(pid);
    call.cpuBeforeMs ??= cpuNowMs;
    const cpuUsedMs = (cpuNowMs ?? 0) - (call.cpuBeforeMs ?? 0);
    const resident = readResidentBytes(pid) ?? 0;
    if (cpuUsedMs > budgetFor(cpuMs, this.#megapixels)) {
      this.end('time_budget');
    } else if (performance.now() - call.startedMs > budgetFor(wallMs, this.#megapixels)) {
      // If the processor time is unknown, the image counts as at fault.
      this.end(cpuNowMs === undefined ? 'time_budget' : 'stalled');
    } else if (resident > budgetFor(residentBytes, this.#megapixels)) {
      this.end('memory_budget');
    }
  }

  #costError(cost: string): ContractError {
    if (this.#decoding === 'image') {
      return new ContractError('PROCESSING_FAILED', `The image ${cost}.`);
    }
    const field = this.#decoding === 'hints' ? 'hints_file' : 'background';
    return new ContractError('INVALID_PARAMETER', `${field}: The image ${cost}.`);
  }

  #lossError(): ContractError {
    switch (this.#end) {
      case 'time_budget':
        return this.#costError('takes too long to process');
      case 'memory_budget':
        return this.#costError('takes too much memory to process');
      case 'stalled':
        return new ContractError('PICTURE_WORKER_LOST', 'The picture worker stalled.');
      case 'closed':
        return new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.');
      default:
        return new ContractError(
          'PICTURE_WORKER_LOST',
          'The picture worker died while it processed the image.',
        );
    }
  }
}

function firstOpened(message: ToPictureWorker): OpenedFile {
  if (message.kind !== 'decode') return 'image';
  if (message.background !== undefined) return 'background';
  return message.hints === undefined ? 'image' : 'hints';
}

function endIn(state: WorkerState): PictureWorkerEnd {
  if (state === 'starting') return 'start';
  return state === 'leased' ? 'image' : 'idle';
}
