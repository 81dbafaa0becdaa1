/** The node's picture workers, as the pipeline sees them. open-picture-pool.ts makes them. */
import type { Box, Size, Subject } from '@matting/proto/contract/finishing.ts';
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import type { InputTerms } from '../../models/input-size.ts';
import type { Choice } from '../extra-runs.ts';
import type { LookInput } from '../look-input.ts';
import type { FinishChoices } from '../makeable.ts';
import type { FinishTimings, MatteHead } from '../picture-protocol.ts';
import type { Mended } from '../rgba-picture.ts';

export interface DecodeRequest {
  readonly file: Buffer;
  /** The size that the caller declared, oriented or not; a larger image is PROCESSING_FAILED. */
  readonly declared: Size | undefined;
  readonly modelInputs: readonly InputTerms[];
  /** The finishing's background picture, if it has one. It is decoded first. */
  readonly background?: BackgroundFile | undefined;
  /** The picture of hints, if they are one. */
  readonly hints?: BackgroundFile | undefined;
}

interface BackgroundFile {
  readonly file: Buffer;
  /** The size as declared, as for the image; a larger background is INVALID_PARAMETER. */
  readonly declared: Size | undefined;
}

export interface DecodedPicture extends Size {
  readonly format: InputFormat;
  /** The inputs are HWC RGB, one per entry of modelInputs, of its size for this picture. */
  readonly modelInputs: readonly Buffer[];
  readonly mended?: Mended | undefined;
  readonly decodeMs: number;
}

export interface ModelInput {
  readonly rgb: Buffer;
  readonly resampleMs: number;
}

export interface MattePart extends MatteHead {
  /** The plane has one byte a pixel; 255 is opaque. */
  readonly alpha: Buffer;
}

/** A model's matte, one byte a pixel of `size`. */
export interface SizedAlpha {
  readonly alpha: Buffer;
  readonly size: Size;
}

export interface NextCrop {
  /** The crop that the model should look at for a hint, in the picture's pixels; undefined: none. */
  readonly crop?: Box | undefined;
  readonly refineMs: number;
}

/** The part of the picture in a model's input. */
export interface InputView {
  /** Undefined: the picture as it is. */
  readonly input?: LookInput | undefined;
  /** A part in the picture's pixels; undefined: all of it. */
  readonly part: Box | undefined;
}

export interface FinishRequest extends FinishChoices {
  /**
   * The mattes come from the plan's models that ran, at least one of them a subject, but after
   * `merge` there are none. What none shows
   * is not in the result, and mattes of a part replace what those before them show of it.
   */
  readonly mattes: readonly MattePart[];
  /** The file of a given matte, in place of mattes. */
  readonly givenMatte?: Buffer | undefined;
}

/** Its size is the oriented size of the input, unless finishing changes it. */
export interface FinishedPicture extends Size, FinishTimings {
  readonly file: Buffer;
  /** Undefined: the caller wanted no thumbnail, or the worker could not make it. */
  readonly thumbnail?: Buffer | undefined;
  /** Undefined: the caller wanted no matte. */
  readonly matte?: Buffer | undefined;
  readonly input: Size;
  /** Undefined: the worker saw no subject. */
  readonly subject: Subject | undefined;
}

/**
 * Errors: ContractError UNSUPPORTED_IMAGE_FORMAT, IMAGE_RESOLUTION_TOO_LARGE, PROCESSING_FAILED
 * (the image's fault, also over a budget), NODE_INCAPABLE (no codec), INVALID_PARAMETER (the
 * background's fault, or an empty region), PICTURE_WORKER_LOST (died or stalled).
 */
export interface PictureLease {
  readonly waitMs: number;
  decode(request: DecodeRequest, signal: AbortSignal): Promise<DecodedPicture>;
  resample(size: Size, view: InputView, signal: AbortSignal): Promise<ModelInput>;
  /**
   * Resamples with a trimap of the mattes as fourth byte of a pixel. Undefined: nothing is unsure.
   * @param part of the picture, which the mattes show
   */
  resampleUnsure(
    size: Size,
    mattes: readonly MattePart[],
    part: Box | undefined,
    signal: AbortSignal,
  ): Promise<ModelInput | undefined>;
  /** Chooses among looks at one part; the last `further` of them are further ones. */
  choose(
    mattes: readonly MattePart[],
    further: number,
    isLast: boolean,
    signal: AbortSignal,
  ): Promise<Choice>;
  /**
   * Merges the mattes and reads the hints. Then `finish` takes neither mattes nor a given matte.
   * When it has resolved, model inputs and mattes must not be read: they go.
   */
  merge(request: FinishRequest, signal: AbortSignal): Promise<NextCrop>;
  /** @param look the model's matte of the last crop. It goes with its input. */
  look(look: SizedAlpha, signal: AbortSignal): Promise<NextCrop>;
  /** When it has resolved the model inputs and the request's mattes must not be read: they go. */
  finish(request: FinishRequest, signal: AbortSignal): Promise<FinishedPicture>;
  /** Gives the worker back, or replaces it where an image is still inside. Idempotent. */
  release(): void;
}

export interface PictureCapabilities {
  readonly inputFormats: readonly InputFormat[];
  readonly outputFormats: readonly OutputFormat[];
  /** The largest JPEG XL input or output on this node; 0: the node takes none. */
  readonly jxlPixelsMax: number;
}

export interface PicturePoolSnapshot {
  /** failed: more than half of the workers are stuck; the node must go. */
  readonly state: 'ready' | 'failed';
  readonly failure: string | undefined;
  readonly workers: number;
  /** Workers that were killed and do not die: their places stay empty until they do. */
  readonly workersStuck: number;
  readonly busy: number;
  readonly waiting: number;
  /** The rates are running means, ms; 0: nothing was measured. Encoding includes refinement. */
  readonly decodeMsPerMegapixel: number;
  readonly encodeMsPerMegapixel: number;
  readonly decodeRates: ReadonlyMap<InputFormat, number>;
  readonly encodeRates: ReadonlyMap<OutputFormat, number>;
}

/**
 * Why a worker ended. start: before it was ready. idle: without an image. image: during one.
 * time_budget, memory_budget: killed, its image cost too much. stalled: killed without progress.
 * abandoned: killed, its image was given up. recycled: too large, or a broken codec. closed.
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
export type PictureWorkerEnds = Readonly<Record<PictureWorkerEnd, number>>;

export interface PictureProcess {
  /** 0 to workers - 1, stable over restarts. */
  readonly place: number;
  readonly pid: number;
  /** Undefined: the platform does not show it (no /proc). */
  readonly residentBytes: number | undefined;
}

export interface PicturePool {
  readonly capabilities: PictureCapabilities;
  /**
   * Sync before async. Rejects with the signal's reason, NODE_UNAVAILABLE at close and once the
   * pool has failed, NODE_OVERLOADED where no worker can be started.
   */
  acquire(priority: 'sync' | 'async', signal: AbortSignal): Promise<PictureLease>;
  snapshot(): PicturePoolSnapshot;
  onChange(listener: () => void): () => void;
  /**
   * Lets images inside finish up to `graceMs`, then kills. Resolves when only stuck workers are
   * left; a later call with less time hurries the first.
   */
  close(graceMs: number): Promise<void>;
  ends(): PictureWorkerEnds;
  processes(): PictureProcess[];
}

/** Estimates the wait of an image for a worker: the rest of those in workers, then the queue. */

/**
 * Least remaining share of the time an image has been in its worker. Estimates that ran out
 * attracted images to just those nodes: the p99 of waiting in a simulated fleet of 50 at 0.9 load
 * was 1.1 times as long (bench/dispatch-simulator).
 */
const OVERRUN_SHARE = 0.2;

export interface HeldWorker {
  readonly elapsedMs: number;
  /** Total time expected for its size and format. */
  readonly expectedMs: number;
}

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
