/**
 * The pool of picture workers, processes with at most one image each. A worker that ends is
 * replaced at once; if it could not start, after a growing delay. A worker that does not die keeps
 * its memory, and so its slot. If more than half are lost that way, the pool has failed and the
 * node must end.
 */

import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import {
  INPUT_FORMATS,
  type InputFormat,
  OUTPUT_FORMATS,
  type OutputFormat,
} from '@matting/proto/contract/formats.ts';
import type { Logger } from 'pino';
import type { BufferPool } from '../../process/buffer-pool.ts';
import type { ChildExit } from '../../process/child.ts';
import { readResidentBytes } from '../../process/proc-files.ts';
import type { HeifDecoder } from '../children/heif-decoder.ts';
import { removeLeft } from '../children/temporary-files.ts';
import type { Choice } from '../extra-runs.ts';
import { jxlPixelsMax } from '../makeable.ts';
import type { ToPictureWorker } from '../picture-protocol.ts';
import { LeaseQueue } from './lease-queue.ts';
import {
  type DecodedPicture,
  type DecodeRequest,
  type FinishedPicture,
  type FinishRequest,
  type InputView,
  type MattePart,
  type ModelInput,
  type NextCrop,
  PICTURE_WORKER_ENDS,
  type PictureCapabilities,
  type PictureLease,
  type PicturePool,
  type PicturePoolSnapshot,
  type PictureProcess,
  type PictureWorkerEnd,
  type PictureWorkerEnds,
  type SizedAlpha,
} from './picture-pool.ts';
import { FormatRates } from './picture-rates.ts';
import {
  WORKER_LIMITS,
  type WorkerLimits,
  type WorkerListener,
  WorkerProcess,
} from './worker-process.ts';

/** The last one repeats. */
const RESTART_DELAYS_MS = [1_000, 2_000, 5_000, 10_000] as const;
/**
 * If this many in a row die before they are ready, the pool does not open. If none lives, waiting
 * images are refused; no worker has seen them, so they are not to blame.
 */
const FAILED_STARTS_MAX = 3;

/** Above this share of stuck workers the pool has failed: a broken disk or kernel blocks all. */
const STUCK_SHARE_MAX = 0.5;

export interface PicturePoolOptions {
  readonly workers: number;
  /** The workers' whole environment, except for the pool's own variables. */
  readonly childEnv: Readonly<Record<string, string>>;
  readonly log: Logger;
  readonly heif?: HeifDecoder | undefined;
  /** For model inputs and mattes. Undefined: new memory each time. */
  readonly buffers?: BufferPool;
  readonly limits?: Partial<WorkerLimits>;
  readonly restartDelaysMs?: readonly number[];
}

/** Resolves once every worker is warm. Rejects, and closes all, if several in a row fail. */
export async function openPicturePool(options: PicturePoolOptions): Promise<PicturePool> {
  const pool = new ChildPicturePool(options);
  try {
    await pool.started;
  } catch (error) {
    await pool.close(0);
    throw error;
  }
  return pool;
}

class ChildPicturePool implements PicturePool, WorkerListener {
  readonly capabilities: PictureCapabilities;
  readonly #options: PicturePoolOptions;
  readonly #limits: WorkerLimits;
  readonly #log: Logger;
  /** The index is the slot; undefined until a delayed restart. */
  readonly #workers: (WorkerProcess | undefined)[];
  readonly #leases = new Set<WorkerLease>();
  readonly #queue = new LeaseQueue<PictureLease>();
  readonly #decodeRates = new FormatRates<InputFormat>();
  readonly #encodeRates = new FormatRates<OutputFormat>();
  readonly #ends = Object.fromEntries(PICTURE_WORKER_ENDS.map(end => [end, 0])) as Record<
    PictureWorkerEnd,
    number
  >;
  readonly #started = Promise.withResolvers<void>();
  readonly #empty = Promise.withResolvers<void>();
  readonly #restarts = new Set<NodeJS.Timeout>();
  readonly #listeners = new Set<() => void>();
  #failure: string | undefined;
  #toStart: number;
  #failedStarts = 0;
  #closing = false;
  #closeTimer: NodeJS.Timeout | undefined;
  #closeAtMs = Number.POSITIVE_INFINITY;

  constructor(options: PicturePoolOptions) {
    this.#options = options;
    this.capabilities = {
      inputFormats: INPUT_FORMATS.filter(format => format !== 'heic' || options.heif !== undefined),
      outputFormats: OUTPUT_FORMATS,
      jxlPixelsMax: jxlPixelsMax(),
    };
    this.#limits = { ...WORKER_LIMITS, ...options.limits };
    this.#log = options.log;
    this.#toStart = options.workers;
    this.#workers = Array.from({ length: options.workers }, () => this.#spawn());
  }

  get started(): Promise<void> {
    return this.#started.promise;
  }

  acquire(priority: 'sync' | 'async', signal: AbortSignal): Promise<PictureLease> {
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#closing) return Promise.reject(shuttingDown());
    if (this.#failure !== undefined) return Promise.reject(stuckWorkers());
    const promise = this.#queue.wait(priority, signal);
    this.#dispatch();
    return promise;
  }

  snapshot(): PicturePoolSnapshot {
    return {
      state: this.#failure === undefined ? 'ready' : 'failed',
      failure: this.#failure,
      workers: this.#options.workers,
      workersStuck: this.#countStuck(),
      busy: this.#leases.size,
      waiting: this.#queue.length,
      decodeMsPerMegapixel: this.#decodeRates.all.msPerMegapixel,
      encodeMsPerMegapixel: this.#encodeRates.all.msPerMegapixel,
      decodeRates: this.#decodeRates.byFormat(),
      encodeRates: this.#encodeRates.byFormat(),
    };
  }

  ends(): PictureWorkerEnds {
    return { ...this.#ends };
  }

  processes(): PictureProcess[] {
    return this.#workers.flatMap((worker, slot) => {
      const pid = worker?.pid;
      return pid === undefined ? [] : [{ slot, pid, residentBytes: readResidentBytes(pid) }];
    });
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(graceMs: number): Promise<void> {
    this.#closing = true;
    for (const { reject } of this.#queue.drain()) reject(shuttingDown());
    for (const restart of this.#restarts) clearTimeout(restart);
    for (const worker of this.#workers) {
      if (!this.#isLeased(worker)) worker?.end('closed');
    }
    const closeAtMs = performance.now() + graceMs;
    if (closeAtMs < this.#closeAtMs) {
      this.#closeAtMs = closeAtMs;
      clearTimeout(this.#closeTimer);
      this.#closeTimer = setTimeout(() => this.#endAll(), graceMs);
    }
    this.#settleClose();
    return this.#empty.promise;
  }

  onIdle(worker: WorkerProcess): void {
    if (this.#closing) {
      worker.end('closed');
      return;
    }
    this.#failedStarts = 0;
    if (this.#toStart > 0) {
      this.#toStart -= 1;
      if (this.#toStart === 0) this.#started.resolve();
    }
    this.#dispatch();
  }

  onEnd(worker: WorkerProcess, end: PictureWorkerEnd, exit: ChildExit | undefined): void {
    this.#ends[end] += 1;
    const slot = this.#workers.indexOf(worker);
    this.#report(slot, end, exit);
    if (end !== 'start' || this.#closing) return;
    this.#failedStarts += 1;
    if (this.#failedStarts < FAILED_STARTS_MAX) return;
    this.#started.reject(new Error(`a picture worker did not start (${describeExit(exit)})`));
    if (this.#workers.some(other => other?.started)) return;
    for (const { reject } of this.#queue.drain()) reject(noWorkers());
  }

  onGone(worker: WorkerProcess): void {
    const slot = this.#workers.indexOf(worker);
    this.#workers[slot] = undefined;
    this.#removeLeft(worker.lastPid);
    if (this.#closing) this.#settleClose();
    else if (this.#failure !== undefined) return;
    else if (worker.neverStarted) this.#restartLater(slot);
    else this.#workers[slot] = this.#spawn();
    this.#changed();
  }

  /** Removes the folder of a worker that was killed during a codec's program. */
  #removeLeft(pid: number | undefined): void {
    try {
      if (pid !== undefined) removeLeft(pid);
    } catch (err) {
      this.#log.warn({ err, workerPid: pid }, 'temporary files of a picture worker stay');
    }
  }

  onStuck(worker: WorkerProcess, pid: number): void {
    const slot = this.#workers.indexOf(worker);
    this.#log.error({ place: slot, workerPid: pid }, 'picture worker was killed and does not die');
    if (this.#closing) {
      this.#settleClose();
    } else if (this.#countStuck() > STUCK_SHARE_MAX * this.#options.workers) {
      this.#fail(`process ${pid} of picture worker ${slot} was killed and does not die`);
    }
    this.#changed();
  }

  onOutput(worker: WorkerProcess, line: string): void {
    const slot = this.#workers.indexOf(worker);
    this.#log.warn({ place: slot, workerPid: worker.pid, line }, 'picture worker wrote');
  }

  #fail(reason: string): void {
    if (this.#failure !== undefined) return;
    this.#failure = reason;
    this.#log.error({ reason }, 'picture workers failed: no more images are taken');
    for (const { reject } of this.#queue.drain()) reject(stuckWorkers());
    this.#started.reject(new Error(reason));
  }

  #countStuck(): number {
    return this.#workers.filter(worker => worker?.stuck).length;
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  #restartLater(slot: number): void {
    const delaysMs = this.#options.restartDelaysMs ?? RESTART_DELAYS_MS;
    const delayMs = delaysMs[Math.min(this.#failedStarts, delaysMs.length) - 1];
    const restart = setTimeout(() => {
      this.#restarts.delete(restart);
      this.#workers[slot] = this.#spawn();
    }, delayMs);
    this.#restarts.add(restart);
  }

  forget(lease: WorkerLease): void {
    this.#leases.delete(lease);
  }

  noteDecode(format: InputFormat, size: Size, ms: number): void {
    this.#decodeRates.add(format, ms, size);
  }

  noteEncode(format: OutputFormat, size: Size, ms: number): void {
    this.#encodeRates.add(format, ms, size);
  }

  giveBack(pixels: Buffer): void {
    this.#options.buffers?.giveBack(pixels);
  }

  #spawn(): WorkerProcess {
    const { childEnv, buffers, heif } = this.#options;
    return new WorkerProcess(childEnv, this.#limits, buffers, heif, this);
  }

  #dispatch(): void {
    for (const worker of this.#workers) {
      if (!worker?.idle) continue;
      const next = this.#queue.shift();
      if (next === undefined) return;
      worker.lease();
      const lease = new WorkerLease(this, worker, performance.now() - next.sinceMs);
      this.#leases.add(lease);
      next.resolve(lease);
    }
  }

  #isLeased(worker: WorkerProcess | undefined): boolean {
    return [...this.#leases].some(lease => lease.worker === worker);
  }

  #endAll(): void {
    for (const worker of this.#workers) worker?.end('closed');
  }

  #settleClose(): void {
    if (this.#workers.some(worker => worker !== undefined && !worker.stuck)) return;
    clearTimeout(this.#closeTimer);
    this.#empty.resolve();
  }

  #report(slot: number, end: PictureWorkerEnd, exit: ChildExit | undefined): void {
    const fields = { place: slot, end, code: exit?.code, signal: exit?.signal, err: exit?.error };
    switch (end) {
      case 'closed':
      case 'recycled':
      case 'abandoned':
        this.#log.debug(fields, 'picture worker ended');
        break;
      case 'time_budget':
      case 'memory_budget':
        this.#log.warn(fields, 'picture worker killed at its budget');
        break;
      case 'stalled':
        this.#log.error(fields, 'picture worker stalled and was killed');
        break;
      default:
        this.#log.error(fields, 'picture worker died');
    }
  }
}

class WorkerLease implements PictureLease {
  readonly worker: WorkerProcess;
  readonly waitMs: number;
  readonly #pool: ChildPicturePool;
  readonly #modelInputs: Buffer[] = [];
  #released = false;

  constructor(pool: ChildPicturePool, worker: WorkerProcess, waitMs: number) {
    this.#pool = pool;
    this.worker = worker;
    this.waitMs = waitMs;
  }

  async decode(request: DecodeRequest, signal: AbortSignal): Promise<DecodedPicture> {
    this.#requireHeld(signal);
    const { file, declared, modelInputs, background, hints } = request;
    const sizes = {
      background: background && { declared: background.declared },
      hints: hints && { declared: hints.declared },
    };
    const message = { kind: 'decode', declared, modelInputs, ...sizes } as const;
    const beside = [background, hints].filter(one => one !== undefined);
    const files = [file, ...beside.map(one => one.file)];
    const { head, parts } = await this.worker.ask('decoded', message, files, signal);
    const { format, size, mended, decodeMs } = head;
    // A background or hints would distort the rate.
    if (beside.length === 0) this.#pool.noteDecode(format, size, decodeMs);
    this.#modelInputs.push(...parts);
    return { format, ...size, modelInputs: parts, mended, decodeMs };
  }

  async resample(size: Size, { input, part }: InputView, signal: AbortSignal): Promise<ModelInput> {
    const made = await this.#resample({ kind: 'resample', size, input, part }, [], signal);
    if (made === undefined) throw new Error('a resampled picture without its pixels');
    return made;
  }

  async resampleUnsure(
    size: Size,
    mattes: readonly MattePart[],
    part: Box | undefined,
    signal: AbortSignal,
  ): Promise<ModelInput | undefined> {
    const heads = mattes.map(matte => ({ size: matte.size, role: matte.role }));
    const alphas = mattes.map(({ alpha }) => alpha);
    const message = { kind: 'resample', size, part, mattes: heads } as const;
    return await this.#resample(message, alphas, signal);
  }

  async choose(
    mattes: readonly MattePart[],
    further: number,
    isLast: boolean,
    signal: AbortSignal,
  ): Promise<Choice> {
    this.#requireHeld(signal);
    const heads = mattes.map(({ size, role }) => ({ size, role }));
    const alphas = mattes.map(({ alpha }) => alpha);
    const message = { kind: 'choose', mattes: heads, further, isLast } as const;
    return (await this.worker.ask('chosen', message, alphas, signal)).head.choice;
  }

  async #resample(
    message: Extract<ToPictureWorker, { kind: 'resample' }>,
    alphas: readonly Buffer[],
    signal: AbortSignal,
  ): Promise<ModelInput | undefined> {
    this.#requireHeld(signal);
    const { head, parts } = await this.worker.ask('resampled', message, alphas, signal);
    const [rgb] = parts;
    if (rgb === undefined) return undefined;
    this.#modelInputs.push(rgb);
    return { rgb, resampleMs: head.resampleMs };
  }

  async merge(request: FinishRequest, signal: AbortSignal): Promise<NextCrop> {
    this.#requireHeld(signal);
    const { message, sent } = describeMattes('merge', request);
    const { head } = await this.worker.ask('crop', message, sent, signal);
    this.#giveBack(request.mattes.map(({ alpha }) => alpha));
    return { crop: head.crop, refineMs: head.refineMs };
  }

  async takeCrop({ alpha, size }: SizedAlpha, signal: AbortSignal): Promise<NextCrop> {
    this.#requireHeld(signal);
    requireAlpha(alpha, size);
    const { head } = await this.worker.ask('crop', { kind: 'takeCrop', size }, [alpha], signal);
    this.#giveBack([alpha]);
    return { crop: head.crop, refineMs: head.refineMs };
  }

  async finish(request: FinishRequest, signal: AbortSignal): Promise<FinishedPicture> {
    this.#requireHeld(signal);
    const { message, sent, choices } = describeMattes('finish', request);
    const alphas = request.mattes.map(({ alpha }) => alpha);
    const { head, parts } = await this.worker.ask('finished', message, sent, signal);
    const { size, input, subject, timings } = head;
    const finishMs = Object.values(timings).reduce((sum, ms) => sum + ms, 0);
    // Counts the larger size: the smaller one would make the estimate far too high.
    const larger = size.width * size.height > input.width * input.height ? size : input;
    this.#pool.noteEncode(choices.outputFormat, larger, finishMs);
    const [file, ...beside] = parts;
    const matte = choices.matte ? beside.shift() : undefined;
    const [thumbnail] = beside;
    if (file === undefined) throw new Error('a finished picture without its file');
    this.#giveBack(alphas);
    return { file, thumbnail, matte, ...size, input, subject, ...timings };
  }

  /** Also returns model inputs, whose runs are over. A failure returns none: some may be in use. */
  #giveBack(alphas: readonly Buffer[]): void {
    for (const pixels of [...this.#modelInputs.splice(0), ...alphas]) this.#pool.giveBack(pixels);
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#pool.forget(this);
    this.worker.release();
  }

  #requireHeld(signal: AbortSignal): void {
    if (this.#released) throw new Error('a picture worker was used after its release');
    signal.throwIfAborted();
  }
}

function describeMattes(kind: 'merge' | 'finish', request: FinishRequest) {
  const { mattes, givenMatte, ...choices } = request;
  for (const { alpha, size } of mattes) requireAlpha(alpha, size);
  const heads = mattes.map(({ size, role, part }) => ({ size, role, part }));
  const alphas = mattes.map(({ alpha }) => alpha);
  const sent = givenMatte === undefined ? alphas : [givenMatte];
  return { message: { kind, mattes: heads, choices }, sent, choices } as const;
}

function requireAlpha(alpha: Buffer, { width, height }: Size): void {
  if (alpha.length === width * height) return;
  throw new Error(`${alpha.length} bytes of alpha for ${width}x${height}`);
}

function shuttingDown(): ContractError {
  return new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.');
}

function noWorkers(): ContractError {
  return new ContractError('NODE_OVERLOADED', 'The node cannot start a picture worker.');
}

function stuckWorkers(): ContractError {
  return new ContractError('NODE_UNAVAILABLE', 'The picture workers of this node do not end.');
}

function describeExit(exit: ChildExit | undefined): string {
  if (exit === undefined) return 'it was not ready in time';
  const { code, signal, error } = exit;
  return error?.message ?? (signal === null ? `exit code ${code}` : `signal ${signal}`);
}
