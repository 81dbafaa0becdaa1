import type { Box, Size, Subject } from '@matting/proto/contract/finishing.ts';
import type { InputFormat, OutputFormat } from '@matting/proto/contract/formats.ts';
import type { InputTerms } from '../../models/input-size.ts';
import type { Choice } from '../extra-runs.ts';
import type { FinishChoices } from '../makeable.ts';
import type { FinishTimings, MatteHead } from '../picture-protocol.ts';
import type { Mended } from '../rgba-picture.ts';
import type { RunInput } from '../run-input.ts';

export interface DecodeRequest {
  readonly file: Buffer;
  /** Oriented or not; a larger image is PROCESSING_FAILED. */
  readonly declared: Size | undefined;
  readonly modelInputs: readonly InputTerms[];
  readonly background?: BackgroundFile | undefined;
  readonly hints?: BackgroundFile | undefined;
}

interface BackgroundFile {
  readonly file: Buffer;
  /** Oriented or not; a larger background is INVALID_PARAMETER. */
  readonly declared: Size | undefined;
}

export interface DecodedPicture extends Size {
  readonly format: InputFormat;
  /** HWC RGB, one per entry of modelInputs. */
  readonly modelInputs: readonly Buffer[];
  readonly mended?: Mended | undefined;
  readonly decodeMs: number;
}

export interface ModelInput {
  readonly rgb: Buffer;
  readonly resampleMs: number;
}

export interface MattePart extends MatteHead {
  /** One byte a pixel; 255 is opaque. */
  readonly alpha: Buffer;
}

export interface SizedAlpha {
  readonly alpha: Buffer;
  readonly size: Size;
}

export interface NextCrop {
  /** For the model's next run, in the picture's pixels; undefined: none. */
  readonly crop?: Box | undefined;
  readonly refineMs: number;
}

export interface InputView {
  /** Undefined: the picture as it is. */
  readonly input?: RunInput | undefined;
  /** In the picture's pixels; undefined: all of it. */
  readonly part: Box | undefined;
}

export interface FinishRequest extends FinishChoices {
  /**
   * At least one is a subject; none after `merge`. The result shows only pixels that a matte shows.
   * Mattes of a part replace earlier ones there.
   */
  readonly mattes: readonly MattePart[];
  /** A matte file that replaces `mattes`. */
  readonly givenMatte?: Buffer | undefined;
}

/** Has the input's oriented size, unless finishing changes it. */
export interface FinishedPicture extends Size, FinishTimings {
  readonly file: Buffer;
  /** Undefined: unwanted, or it failed. */
  readonly thumbnail?: Buffer | undefined;
  readonly matte?: Buffer | undefined;
  readonly input: Size;
  readonly subject: Subject | undefined;
}

/**
 * @throws ContractError UNSUPPORTED_IMAGE_FORMAT, IMAGE_RESOLUTION_TOO_LARGE, PROCESSING_FAILED
 * (the image's fault, also over a budget), NODE_INCAPABLE (no codec), INVALID_PARAMETER (the
 * background's fault, or an empty region), PICTURE_WORKER_LOST (died or stalled)
 */
export interface PictureLease {
  readonly waitMs: number;
  decode(request: DecodeRequest, signal: AbortSignal): Promise<DecodedPicture>;
  resample(size: Size, view: InputView, signal: AbortSignal): Promise<ModelInput>;
  /**
   * Adds a trimap as fourth byte of a pixel. Undefined: nothing is unsure.
   * @param part that the mattes show
   */
  resampleUnsure(
    size: Size,
    mattes: readonly MattePart[],
    part: Box | undefined,
    signal: AbortSignal,
  ): Promise<ModelInput | undefined>;
  /** The last `further` mattes are of further runs. */
  choose(
    mattes: readonly MattePart[],
    further: number,
    isLast: boolean,
    signal: AbortSignal,
  ): Promise<Choice>;
  /**
   * Reads the hints too; `finish` then takes neither mattes nor a given matte. Frees model inputs
   * and mattes.
   */
  merge(request: FinishRequest, signal: AbortSignal): Promise<NextCrop>;
  /** Takes the model's matte of the last crop, and frees it and its input. */
  takeCrop(matte: SizedAlpha, signal: AbortSignal): Promise<NextCrop>;
  /** Frees the model inputs and mattes. */
  finish(request: FinishRequest, signal: AbortSignal): Promise<FinishedPicture>;
  /** Idempotent. A worker that still has an image is replaced. */
  release(): void;
}

export interface PictureCapabilities {
  readonly inputFormats: readonly InputFormat[];
  readonly outputFormats: readonly OutputFormat[];
  /** Largest JPEG XL input or output of this node; 0: none. */
  readonly jxlPixelsMax: number;
}

export interface PicturePoolSnapshot {
  /** failed: more than half of the workers are stuck, and the node must end. */
  readonly state: 'ready' | 'failed';
  readonly failure: string | undefined;
  readonly workers: number;
  readonly workersStuck: number;
  readonly busy: number;
  readonly waiting: number;
  /** Running means, ms; 0: nothing was measured. Encoding includes refinement. */
  readonly decodeMsPerMegapixel: number;
  readonly encodeMsPerMegapixel: number;
  readonly decodeRates: ReadonlyMap<InputFormat, number>;
  readonly encodeRates: ReadonlyMap<OutputFormat, number>;
}

/**
 * start: before it was ready. idle: without an image. image: during one. time_budget,
 * memory_budget: killed, its image cost too much. stalled: killed without progress. abandoned:
 * killed, its image was given up. recycled: too large, or a broken codec.
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
  readonly slot: number;
  readonly pid: number;
  /** Undefined: the platform has no /proc. */
  readonly residentBytes: number | undefined;
}

export interface PicturePool {
  readonly capabilities: PictureCapabilities;
  /**
   * Serves sync before async. Rejects with the signal's reason, NODE_UNAVAILABLE at close and once
   * the pool has failed, NODE_OVERLOADED if no worker can be started.
   */
  acquire(priority: 'sync' | 'async', signal: AbortSignal): Promise<PictureLease>;
  snapshot(): PicturePoolSnapshot;
  onChange(listener: () => void): () => void;
  /**
   * Lets current images finish within `graceMs`, then kills. Resolves when only stuck workers
   * remain; a later call with less time shortens the first.
   */
  close(graceMs: number): Promise<void>;
  ends(): PictureWorkerEnds;
  processes(): PictureProcess[];
}

/**
 * Expected remaining time of an image past its estimate, relative to its time so far. Without it
 * images crowded to such nodes, and the p99 of waiting was 1.1 times as long
 * (bench/dispatch-simulator).
 */
const OVERRUN_SHARE = 0.2;

export interface HeldWorker {
  readonly elapsedMs: number;
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
