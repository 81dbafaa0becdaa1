/**
 * The one file that orders and times the stages of an image:
 *
 *   receive -> (a picture worker) -> decode -> (an engine) infer -> refine and encode -> send
 *
 * One image goes through them one after the other; images overlap, as many as admission let in. The
 * call's signal is looked at between stages and handed into each. Knows no gRPC: the caller's side
 * is an `ImageExchange`; knows no codec and no runtime: those are pools of children.
 */
import type { OutputFormat } from '#contract/formats.ts';
import type { EnginePool, EnginePriority } from './engine/engine-pool.ts';
import type { PreparedModel } from './models/prepared-model.ts';
import type {
  FinishedPicture,
  PictureLease,
  PicturePool,
  PicturePoolSnapshot,
  Size,
} from './picture/picture-pool.ts';
import { type HeldWorker, workerWaitMs } from './picture/worker-wait.ts';

/** A prepared model and the engines that run it. */
export interface PlanRun {
  readonly model: PreparedModel;
  readonly engines: EnginePool;
}

/** What makes a matte. Its mattes are merged where there are several; today there is one. */
export interface RunnablePlan {
  readonly name: string;
  readonly runs: readonly PlanRun[];
}

export type ResultKind = 'cutout' | 'mask';

export interface ImageOrder {
  readonly plan: RunnablePlan;
  /** As the caller declared it; a larger image is refused by the decoder. */
  readonly declared: Size | undefined;
  readonly outputFormat: OutputFormat;
  readonly resultKind: ResultKind;
  readonly priority: EnginePriority;
}

export interface ImageResult {
  readonly file: Buffer;
  readonly outputFormat: OutputFormat;
  readonly resultKind: ResultKind;
  /** Of the result: the oriented size of the input. */
  readonly width: number;
  readonly height: number;
  readonly plan: RunnablePlan;
}

export type ImageStage = 'decoding' | 'inferring' | 'encoding';

/** The caller's side of one image. */
export interface ImageExchange {
  /** The whole file, checked. */
  receive(signal: AbortSignal): Promise<Buffer>;
  /** A stage has begun. Must not block. */
  stageBegan(stage: ImageStage): void;
  /** Resolves once the last byte has left, at the pace of the reader. */
  send(result: ImageResult, signal: AbortSignal): Promise<void>;
}

/** Milliseconds. */
export interface StageTimings {
  readonly receiveMs: number;
  readonly workerWaitMs: number;
  readonly decodeMs: number;
  readonly engineWaitMs: number;
  readonly inferMs: number;
  readonly refineMs: number;
  readonly encodeMs: number;
  readonly sendMs: number;
}

export const PIPELINE_PLACES = [
  'receiving',
  'waiting_for_worker',
  'decoding',
  'inferring',
  'encoding',
  'sending',
] as const;
export type PipelinePlace = (typeof PIPELINE_PLACES)[number];

const BEFORE_INFERENCE: readonly PipelinePlace[] = ['receiving', 'waiting_for_worker', 'decoding'];

/** An ordinary photo: only for estimates, admission counts the largest. */
const PIXELS_WHERE_UNKNOWN = 12_000_000;

interface Matte {
  readonly alpha: Buffer;
  readonly size: Size;
  readonly waitMs: number;
  readonly inferMs: number;
}

export class Pipeline {
  readonly #pictures: PicturePool;
  /** Where each image in the node is; bounded by admission. */
  readonly #places = new Map<ImageOrder, PipelinePlace>();
  /** Since when an image holds its worker. */
  readonly #workedOnSinceMs = new Map<ImageOrder, number>();

  constructor(pictures: PicturePool) {
    this.#pictures = pictures;
  }

  /**
   * Takes one image from its first byte to its last. The caller holds its permit.
   * @throws ContractError of a stage, or the signal's reason.
   */
  async process(
    order: ImageOrder,
    exchange: ImageExchange,
    signal: AbortSignal,
  ): Promise<StageTimings> {
    try {
      return await this.#stages(order, exchange, signal);
    } finally {
      this.#places.delete(order);
    }
  }

  imagesAt(place: PipelinePlace): number {
    let images = 0;
    for (const at of this.#places.values()) if (at === place) images += 1;
    return images;
  }

  /** For an image admitted now, until an engine of `plan` takes it, ms. */
  estimatedWaitMs(plan: RunnablePlan): number {
    const ahead = BEFORE_INFERENCE.reduce((sum, place) => sum + this.imagesAt(place), 0);
    const waits = plan.runs.map(({ engines }) => {
      const { engines: all, enginesReady, inferMs, estimatedWaitMs } = engines.snapshot();
      return estimatedWaitMs + (ahead * inferMs) / Math.max(1, enginesReady || all);
    });
    return Math.max(0, this.#workerWaitMs(), ...waits);
  }

  #workerWaitMs(): number {
    const pictures = this.#pictures.snapshot();
    const nowMs = performance.now();
    const held: HeldWorker[] = [];
    const waitingMs: number[] = [];
    for (const order of this.#places.keys()) {
      const expectedMs = expectedWorkMs(order, pictures);
      const sinceMs = this.#workedOnSinceMs.get(order);
      if (sinceMs !== undefined) held.push({ elapsedMs: nowMs - sinceMs, expectedMs });
      else if (this.#places.get(order) !== 'sending') waitingMs.push(expectedMs);
    }
    return workerWaitMs(pictures.workers, held, waitingMs);
  }

  async #stages(
    order: ImageOrder,
    exchange: ImageExchange,
    signal: AbortSignal,
  ): Promise<StageTimings> {
    this.#places.set(order, 'receiving');
    const startedMs = performance.now();
    const file = await exchange.receive(signal);
    const receiveMs = performance.now() - startedMs;
    signal.throwIfAborted();

    this.#places.set(order, 'waiting_for_worker');
    const lease = await this.#pictures.acquire(order.priority, signal);
    this.#workedOnSinceMs.set(order, performance.now());
    const pixels = await this.#pixelStages(order, file, lease, exchange, signal).finally(() => {
      // Before the result is sent: a slow reader must not hold a worker.
      lease.release();
      this.#workedOnSinceMs.delete(order);
    });

    this.#places.set(order, 'sending');
    signal.throwIfAborted();
    const sendStartedMs = performance.now();
    const { file: resultFile, width, height } = pixels.finished;
    const { plan, outputFormat, resultKind } = order;
    const result = { file: resultFile, outputFormat, resultKind, width, height, plan };
    await exchange.send(result, signal);
    return {
      receiveMs,
      workerWaitMs: lease.waitMs,
      decodeMs: pixels.decodeMs,
      engineWaitMs: pixels.matte.waitMs,
      inferMs: pixels.matte.inferMs,
      refineMs: pixels.finished.refineMs,
      encodeMs: pixels.finished.encodeMs,
      sendMs: performance.now() - sendStartedMs,
    };
  }

  /** What happens while a picture worker is held. */
  async #pixelStages(
    order: ImageOrder,
    file: Buffer,
    lease: PictureLease,
    exchange: ImageExchange,
    signal: AbortSignal,
  ): Promise<{ decodeMs: number; matte: Matte; finished: FinishedPicture }> {
    signal.throwIfAborted();
    this.#enter(order, 'decoding', exchange);
    const { declared, plan, outputFormat, resultKind } = order;
    const modelInputs = plan.runs.map(({ model }) => inputSize(model));
    const decoded = await lease.decode({ file, declared, modelInputs }, signal);

    signal.throwIfAborted();
    this.#enter(order, 'inferring', exchange);
    const matte = await inferPlan(order, decoded.modelInputs, signal);

    signal.throwIfAborted();
    this.#enter(order, 'encoding', exchange);
    const finished = await lease.finish(
      { alpha: matte.alpha, alphaSize: matte.size, outputFormat, resultKind },
      signal,
    );
    return { decodeMs: decoded.decodeMs, matte, finished };
  }

  #enter(order: ImageOrder, stage: ImageStage, exchange: ImageExchange): void {
    this.#places.set(order, stage);
    exchange.stageBegan(stage);
  }
}

/** Decoding, inference and encoding of an image, by the node's own means. */
function expectedWorkMs(
  { declared, outputFormat, plan }: ImageOrder,
  pictures: PicturePoolSnapshot,
): number {
  const pixels = declared === undefined ? PIXELS_WHERE_UNKNOWN : declared.width * declared.height;
  const encode = pictures.encodeRates.get(outputFormat) ?? pictures.encodeMsPerMegapixel;
  const picturesMs = ((pictures.decodeMsPerMegapixel + encode) * pixels) / 1e6;
  return plan.runs.reduce((sum, { engines }) => sum + engines.snapshot().inferMs, picturesMs);
}

function inputSize({ inputWidth, inputHeight }: PreparedModel): Size {
  return { width: inputWidth, height: inputHeight };
}

/** Runs the models of a plan one after the other and merges their mattes. */
async function inferPlan(
  { plan, priority }: ImageOrder,
  modelInputs: readonly Buffer[],
  signal: AbortSignal,
): Promise<Matte> {
  const mattes: Matte[] = [];
  for (const [index, { model, engines }] of plan.runs.entries()) {
    const { alpha, waitMs, inferMs } = await engines.run({
      rgb: modelInputs[index],
      priority,
      signal,
    });
    mattes.push({ alpha, size: inputSize(model), waitMs, inferMs });
  }
  return mergeMattes(plan.name, mattes);
}

function mergeMattes(plan: string, mattes: readonly Matte[]): Matte {
  // Plans say how their mattes merge; none of several models can be made yet.
  if (mattes.length !== 1) throw new Error(`plan ${plan} has ${mattes.length} mattes to merge`);
  return mattes[0];
}
