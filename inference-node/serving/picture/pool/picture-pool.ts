/** The node's picture workers, as the pipeline sees them. open-picture-pool.ts makes them. */
import type { Size, Subject } from '#contract/finishing.ts';
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import type { MatteRole } from '../../models/prepared-model.ts';
import type { FinishChoices } from '../makeable.ts';
import type { FinishTimings } from '../picture-protocol.ts';

export interface DecodeRequest {
  /** The whole file. */
  readonly file: Buffer;
  /** The size that the caller declared, oriented or not; a larger image is PROCESSING_FAILED. */
  readonly declared: Size | undefined;
  /** Input sizes of the models that run in any case. */
  readonly modelInputs: readonly Size[];
  /** The finishing's background picture, where it has one. Decoded first. */
  readonly background?: BackgroundFile | undefined;
}

export interface BackgroundFile {
  readonly file: Buffer;
  /** As of the image; a larger one is INVALID_PARAMETER. */
  readonly declared: Size | undefined;
}

export interface DecodedPicture {
  readonly format: InputFormat;
  /** Oriented, pixels. */
  readonly width: number;
  readonly height: number;
  /** HWC RGB, one per entry of modelInputs, stretched to its size. */
  readonly modelInputs: readonly Buffer[];
  readonly decodeMs: number;
}

/** What a model sees. */
export interface ModelInput {
  /** HWC RGB, stretched to the size. */
  readonly rgb: Buffer;
  readonly resampleMs: number;
}

/** One model's answer. */
export interface MattePart {
  /** One byte a pixel, 255 opaque. */
  readonly alpha: Buffer;
  readonly size: Size;
  readonly role: MatteRole;
}

export interface FinishRequest extends FinishChoices {
  /** From the plan's models that ran, at least one of them a subject. */
  readonly mattes: readonly MattePart[];
}

/** The size is the result's. */
export interface FinishedPicture extends Size, FinishTimings {
  readonly file: Buffer;
  /** Oriented, pixels. */
  readonly input: Size;
  /** Undefined: none was seen. */
  readonly subject: Subject | undefined;
}

/**
 * One worker, held for one image from decode to encode. Errors: ContractError
 * UNSUPPORTED_IMAGE_FORMAT, IMAGE_RESOLUTION_TOO_LARGE, PROCESSING_FAILED (the image's fault, not
 * retryable: also a time or memory budget exceeded), NODE_INCAPABLE (codec not here),
 * INVALID_PARAMETER (the background's fault, or an empty region), PICTURE_WORKER_LOST (died, and not by a budget, or stalled).
 */
export interface PictureLease {
  readonly waitMs: number;
  decode(request: DecodeRequest, signal: AbortSignal): Promise<DecodedPicture>;
  /** The decoded picture for one more model. */
  resample(size: Size, signal: AbortSignal): Promise<ModelInput>;
  /** When it has resolved the model inputs and the request's mattes must not be read: they go. */
  finish(request: FinishRequest, signal: AbortSignal): Promise<FinishedPicture>;
  /** Gives the worker back, or replaces it where an image is still inside. Idempotent. */
  release(): void;
}

export interface PictureCapabilities {
  readonly inputFormats: readonly InputFormat[];
  readonly outputFormats: readonly OutputFormat[];
  /** Largest JPEG XL input or output on this node; 0: none. */
  readonly jxlPixelsMax: number;
}

export interface PicturePoolSnapshot {
  /** failed: more than half of the workers are stuck; the node must go. */
  readonly state: 'ready' | 'failed';
  /** Why the pool failed, in one line. */
  readonly failure: string | undefined;
  readonly workers: number;
  /** Workers that were killed and do not die: their places stay empty until they do. */
  readonly workersStuck: number;
  readonly busy: number;
  readonly waiting: number;
  /** Running means, ms; 0: none yet. Encoding includes refinement. */
  readonly decodeMsPerMegapixel: number;
  readonly encodeMsPerMegapixel: number;
  /** The same by format, for the formats processed so far. */
  readonly decodeRates: ReadonlyMap<InputFormat, number>;
  readonly encodeRates: ReadonlyMap<OutputFormat, number>;
}

/**
 * Why a worker's process ended or was killed. start: before it was ready. idle: without an image.
 * image: during an image, by itself or by an outsider. time_budget, memory_budget: killed, its
 * image cost too much. stalled: killed, it made no progress with an image. abandoned: killed, its
 * image was given up while it worked. recycled: replaced, it had grown too large or a codec in it
 * was broken. closed: the pool was closed.
 */
export const PICTURE_WORKER_ENDS = [
  'start',
  'idle',
  'image',
  'time_budget',
  'memory_budget',
  'stalled',
  'abandoned',
  'recycled',
  'closed',
] as const;
export type PictureWorkerEnd = (typeof PICTURE_WORKER_ENDS)[number];
/** Totals since the pool was opened. */
export type PictureWorkerEnds = Readonly<Record<PictureWorkerEnd, number>>;

export interface PictureProcess {
  /** 0 to workers - 1, stable over restarts. */
  readonly place: number;
  readonly pid: number;
  /** Undefined where the platform does not say (no /proc). */
  readonly residentBytes: number | undefined;
}

export interface PicturePool {
  readonly capabilities: PictureCapabilities;
  /**
   * Waits for a worker; sync before async. Rejects with the signal's reason, with NODE_UNAVAILABLE
   * at close and once the pool has failed, with NODE_OVERLOADED where no worker can be started.
   */
  acquire(priority: 'sync' | 'async', signal: AbortSignal): Promise<PictureLease>;
  snapshot(): PicturePoolSnapshot;
  /** Called after each change of the snapshot's state or workersStuck. */
  onChange(listener: () => void): () => void;
  /**
   * Takes no more images, lets those inside finish up to `graceMs`, then kills. Resolves when no
   * worker is left but stuck ones. Idempotent; a later call with less time hurries the first.
   */
  close(graceMs: number): Promise<void>;
  ends(): PictureWorkerEnds;
  /** The living workers, and those that were killed and do not die. */
  processes(): PictureProcess[];
}

/**
 * Estimates how long an image admitted now waits for a picture worker, from what the node measured:
 * what is left of the images in the workers, then the queue in its order. Pure.
 */

/**
 * Least remaining time as a share of the time an image has been in its worker: an image that
 * exceeds the mean of its size and format is not over at once. Estimates that ran out attracted
 * images to just those nodes: without it the p99 of waiting in a simulated fleet of 50 at 0.9 load
 * is 1.1 times as long, of synchronous jobs 1.1 to 1.2 times (bench/dispatch-simulator).
 */
const OVERRUN_SHARE = 0.2;

export interface HeldWorker {
  /** Time since the image entered the worker. */
  readonly elapsedMs: number;
  /** Total time expected for its size and format. */
  readonly expectedMs: number;
}

/** @param waitingMs the time expected for each image in the queue, in order. */
export function workerWaitMs(
  workers: number,
  held: readonly HeldWorker[],
  waitingMs: readonly number[],
): number {
  const freeInMs = held.map(({ elapsedMs, expectedMs }) =>
    Math.max(OVERRUN_SHARE * elapsedMs, expectedMs - elapsedMs),
  );
  while (freeInMs.length < workers) freeInMs.push(0);
  for (const ms of waitingMs) {
    const soonestMs = Math.min(...freeInMs);
    freeInMs[freeInMs.indexOf(soonestMs)] = soonestMs + ms;
  }
  return Math.min(...freeInMs);
}
