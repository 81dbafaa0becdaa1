/** A worker held for one image: its calls, in the words of the pipeline. */
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import { largerOf, type Size } from '../size.ts';
import type {
  DecodedPicture,
  DecodeRequest,
  FinishedPicture,
  FinishRequest,
  ModelInput,
  PictureLease,
} from './picture-pool.ts';
import type { WorkerProcess } from './worker-process.ts';

/** The pool, as its leases see it. */
export interface LeasingPool {
  /** A lease has ended: its worker becomes idle again, or ends. */
  forget(lease: WorkerLease): void;
  noteDecode(format: InputFormat, size: Size, ms: number): void;
  noteEncode(format: OutputFormat, size: Size, ms: number): void;
  /** An image's model input or matte is no longer needed. */
  giveBack(pixels: Buffer): void;
}

export class WorkerLease implements PictureLease {
  readonly worker: WorkerProcess;
  readonly waitMs: number;
  readonly #pool: LeasingPool;
  /** What the image's models see. */
  readonly #modelInputs: Buffer[] = [];
  #released = false;

  constructor(pool: LeasingPool, worker: WorkerProcess, waitMs: number) {
    this.#pool = pool;
    this.worker = worker;
    this.waitMs = waitMs;
  }

  async decode(request: DecodeRequest, signal: AbortSignal): Promise<DecodedPicture> {
    this.#requireHeld(signal);
    const { file, declared, modelInputs, background } = request;
    const behind = background && { declared: background.declared };
    const message = { kind: 'decode', declared, modelInputs, background: behind } as const;
    const files = background === undefined ? [file] : [file, background.file];
    const { head, parts } = await this.worker.ask('decoded', message, files, signal);
    const { format, size, decodeMs } = head;
    // A background's time says nothing about images.
    if (background === undefined) this.#pool.noteDecode(format, size, decodeMs);
    this.#modelInputs.push(...parts);
    return { format, ...size, modelInputs: parts, decodeMs };
  }

  async resample(size: Size, signal: AbortSignal): Promise<ModelInput> {
    this.#requireHeld(signal);
    const message = { kind: 'resample', size } as const;
    const { head, parts } = await this.worker.ask('resampled', message, [], signal);
    const [rgb] = parts;
    if (rgb === undefined) throw new Error('a resampled picture without its pixels');
    this.#modelInputs.push(rgb);
    return { rgb, resampleMs: head.resampleMs };
  }

  async finish(request: FinishRequest, signal: AbortSignal): Promise<FinishedPicture> {
    this.#requireHeld(signal);
    const { mattes, ...choices } = request;
    for (const { alpha, size } of mattes) {
      if (alpha.length === size.width * size.height) continue;
      throw new Error(`${alpha.length} bytes of alpha for ${size.width}x${size.height}`);
    }
    const heads = mattes.map(({ size, role }) => ({ size, role }));
    const message = { kind: 'finish', mattes: heads, choices } as const;
    const alphas = mattes.map(({ alpha }) => alpha);
    const { head, parts } = await this.worker.ask('finished', message, alphas, signal);
    const { size, input, subject, timings } = head;
    const finishMs = Object.values(timings).reduce((sum, ms) => sum + ms, 0);
    // By the smaller of the two an estimate would be far too high.
    this.#pool.noteEncode(choices.outputFormat, largerOf(size, input), finishMs);
    const [file] = parts;
    if (file === undefined) throw new Error('a finished picture without its file');
    // The worker has read the mattes, and engines what they made them of. Of an image that ends
    // otherwise something may still be on its way to a child.
    for (const pixels of [...this.#modelInputs.splice(0), ...alphas]) this.#pool.giveBack(pixels);
    return { file, ...size, input, subject, ...timings };
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
