/**
 * Stages of an image, in order and timed:
 *
 *   receive -> (a picture worker) -> decode -> (engines) infer -> merge, refine, encode -> send
 *
 * It knows no gRPC, codec or runtime, but an `ImageExchange` and pools of children.
 */

import { describeSpan, recordSpan, traced } from '@matting/program/tracing/active-span.ts';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { frameRange } from '@matting/proto/contract/finishing/frame.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { StageName, StageTimings } from '@matting/proto/contract/stages.ts';
import type {
  EnginePool,
  EnginePriority,
  EngineResult,
  EngineRun,
} from './engine/pool/engine-pool.ts';
import { inputTerms, sizeInInput } from './models/input-size.ts';
import type { ExtraRun, MatteRole, PreparedModel } from './models/prepared-model.ts';
import type { ExtraRunKind } from './picture/extra-runs.ts';
import { inferPlan, type ModelRun, type NoMatte, type PlanPicture } from './picture/infer-plan.ts';
import { type FinishChoices, requireMakeable } from './picture/makeable.ts';
import type { FinishTimings } from './picture/picture-protocol.ts';
import {
  type DecodedPicture,
  type DecodeRequest,
  type FinishedPicture,
  type FinishRequest,
  type HeldWorker,
  type MattePart,
  type PictureLease,
  type PicturePool,
  type PicturePoolSnapshot,
  workerWaitMs,
} from './picture/pool/picture-pool.ts';
import type { Mended } from './picture/rgba-picture.ts';
import { partOf } from './picture/subject-part.ts';

export interface PlanRun {
  readonly model: PreparedModel;
  readonly engines: EnginePool;
  /** Without a run that is not a subject's, the result names the missing model. */
  readonly role: MatteRole;
  readonly extraRuns?: readonly ExtraRun[] | undefined;
}

export interface RunnablePlan {
  readonly name: string;
  readonly runs: readonly PlanRun[];
}

export type ResultKind = 'cutout' | 'mask';

export interface ImageOrder extends FinishChoices {
  readonly plan: RunnablePlan;
  /** Declared size. The decoder refuses a larger image. */
  readonly declared: Size | undefined;
  readonly resultKind: ResultKind;
  readonly priority: EnginePriority;
  readonly backgroundDeclared?: Size | undefined;
  readonly hintsDeclared?: Size | undefined;
  /** The plan's first model may run on crops around hints. */
  readonly cropRuns?: boolean | undefined;
}

export interface ReceivedFiles {
  readonly image: Buffer;
  readonly background?: Buffer | undefined;
  readonly hints?: Buffer | undefined;
  /** Replaces the models: none runs. */
  readonly givenMatte?: Buffer | undefined;
}

export interface ImageResult extends Omit<FinishedPicture, keyof FinishTimings> {
  readonly outputFormat: OutputFormat;
  readonly resultKind: ResultKind;
  readonly mended?: Mended | undefined;
  readonly plan: RunnablePlan;
  readonly runs: readonly PlanRun[];
  readonly missing: readonly PlanRun[];
  readonly extraRuns: readonly ExtraRunKind[];
}

export type ImageStage = Extract<PipelinePosition, 'decoding' | 'inferring' | 'encoding'>;

/** The caller's side of one image. */
export interface ImageExchange {
  receive(signal: AbortSignal): Promise<ReceivedFiles>;
  /** Must not block. */
  stageBegan(stage: ImageStage): void;
  /** Resolves once the last byte has left, at the reader's pace. */
  send(result: ImageResult, signal: AbortSignal): Promise<void>;
}

export const PIPELINE_POSITIONS = [
  'receiving',
  'waiting_for_worker',
  'decoding',
  'inferring',
  'encoding',
  'sending',
] as const;
type PipelinePosition = (typeof PIPELINE_POSITIONS)[number];

const BEFORE_INFERENCE = PIPELINE_POSITIONS.slice(0, PIPELINE_POSITIONS.indexOf('inferring'));

/** An ordinary photo, for estimates. */
const SIZE_WHERE_UNKNOWN: Size = { width: 4000, height: 3000 };

/** A plan continues without an optional run after these errors: other models may succeed. */
const LEFT_OUT: readonly ErrorCode[] = [
  'ENGINE_LOST',
  'NODE_FAULT',
  'NODE_OVERLOADED',
  'NODE_UNAVAILABLE',
  'PROCESSING_FAILED',
];

export class Pipeline {
  readonly #pictures: PicturePool;
  readonly #positions = new Map<ImageOrder, PipelinePosition>();
  readonly #workedOnSinceMs = new Map<ImageOrder, number>();

  constructor(pictures: PicturePool) {
    this.#pictures = pictures;
  }

  /**
   * The caller holds a permit.
   * @throws ContractError of a stage, or the signal's reason
   */
  async process(
    order: ImageOrder,
    exchange: ImageExchange,
    signal: AbortSignal,
  ): Promise<StageTimings> {
    try {
      return await this.#stages(order, exchange, signal);
    } finally {
      this.#positions.delete(order);
    }
  }

  imagesAt(position: PipelinePosition): number {
    let images = 0;
    for (const at of this.#positions.values()) if (at === position) images += 1;
    return images;
  }

  /** Wait of an image admitted now for an engine of `plan`, ms. */
  estimatedWaitMs(plan: RunnablePlan): number {
    let ahead = 0;
    for (const at of this.#positions.values()) if (BEFORE_INFERENCE.includes(at)) ahead += 1;
    const waits = subjects(plan).map(({ engines }) => {
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
    for (const order of this.#positions.keys()) {
      const expectedMs = expectedWorkMs(order, pictures);
      const sinceMs = this.#workedOnSinceMs.get(order);
      if (sinceMs !== undefined) held.push({ elapsedMs: nowMs - sinceMs, expectedMs });
      else if (this.#positions.get(order) !== 'sending') waitingMs.push(expectedMs);
    }
    const workers = Math.max(1, pictures.workers - pictures.workersStuck);
    return workerWaitMs(workers, held, waitingMs);
  }

  async #stages(
    order: ImageOrder,
    exchange: ImageExchange,
    signal: AbortSignal,
  ): Promise<StageTimings> {
    this.#positions.set(order, 'receiving');
    const startedMs = performance.now();
    const files = await traced({ name: 'receive' }, () => exchange.receive(signal));
    const receiveMs = performance.now() - startedMs;
    signal.throwIfAborted();

    this.#positions.set(order, 'waiting_for_worker');
    const lease = await traced({ name: 'worker_wait' }, () =>
      this.#pictures.acquire(order.priority, signal),
    );
    this.#workedOnSinceMs.set(order, performance.now());
    const pixels = await this.#pixelStages(order, files, lease, exchange, signal).finally(() => {
      // Comes before the result is sent: a slow reader must not occupy a worker.
      lease.release();
      this.#workedOnSinceMs.delete(order);
    });

    this.#positions.set(order, 'sending');
    signal.throwIfAborted();
    const sendStartedMs = performance.now();
    const { file, thumbnail, matte, width, height, input, subject: found } = pixels.finished;
    const { plan, outputFormat, resultKind } = order;
    const { runs, extraRuns, isDisputed } = pixels.inference;
    const subject = found && { ...found, unsure: found.unsure || isDisputed };
    const missing = [...new Set([...pixels.inference.missing, ...pixels.crops.missing])];
    const shape = { outputFormat, resultKind, width, height, input, subject };
    const { mended } = pixels;
    const result = { file, thumbnail, matte, ...shape, mended, plan, runs, missing, extraRuns };
    await traced({ name: 'send' }, () => exchange.send(result, signal));
    return {
      receiveMs,
      workerWaitMs: lease.waitMs,
      decodeMs: pixels.decodeMs,
      engineWaitMs: pixels.inference.waitMs + pixels.crops.waitMs,
      inferMs: pixels.inference.inferMs,
      secondLookMs: pixels.inference.secondLookMs,
      extraRunMs: pixels.inference.extraRunMs,
      cropRunMs: pixels.crops.inferMs,
      refineMs: pixels.crops.refineMs + pixels.finished.refineMs,
      finishMs: pixels.finished.finishMs,
      encodeMs: pixels.finished.encodeMs,
      sendMs: performance.now() - sendStartedMs,
    };
  }

  async #pixelStages(
    order: ImageOrder,
    { image: file, ...otherFiles }: ReceivedFiles,
    lease: PictureLease,
    exchange: ImageExchange,
    signal: AbortSignal,
  ) {
    signal.throwIfAborted();
    this.#enter(order, 'decoding', exchange);
    const { declared, plan, outputFormat, resultKind, hints, matte } = order;
    const { refinement, foregroundEstimation, finishing, thumbnail } = order;
    // A subject box needs the picture's size first, and a given matte needs no model.
    const isWhole = hints?.subjectBox === undefined && otherFiles.givenMatte === undefined;
    const required = isWhole ? subjects(plan) : [];
    const modelInputs = required.map(({ model }) => inputTerms(model));
    const sent = { file, declared, modelInputs, ...extraPictures(order, otherFiles) };
    const decoded = await traced({ name: 'decode' }, () => lease.decode(sent, signal));

    // The header did not show the orientation, so the size is checked again before a model runs.
    requireMakeable(order, decoded, this.#pictures.capabilities, { turned: false });
    const part = hints && partOf(hints, decoded);
    signal.throwIfAborted();
    this.#enter(order, 'inferring', exchange);
    const inputs = new ModelInputs(lease, required, decoded);
    const { givenMatte } = otherFiles;
    const target = { picture: decoded, part };
    const inference =
      givenMatte === undefined ? await runPlan(order, target, inputs, signal) : NO_INFERENCE;

    signal.throwIfAborted();
    const { mattes } = inference;
    const steps = { refinement, foregroundEstimation, finishing, hints };
    const choices = { outputFormat, resultKind, ...steps, thumbnail, matte };
    const request = { mattes, givenMatte, ...choices };
    const crops = order.cropRuns ? await runCrops(order, request, lease, inputs, signal) : NO_CROPS;

    signal.throwIfAborted();
    this.#enter(order, 'encoding', exchange);
    const rest = order.cropRuns ? { mattes: [], ...choices } : request;
    const finished = await lease.finish(rest, signal);
    const { refineMs, finishMs, encodeMs } = finished;
    recordStages([
      ['refine', crops.refineMs + refineMs],
      ['finish', finishMs],
      ['encode', encodeMs],
    ]);
    const decodeMs = decoded.decodeMs + inputs.resampleMs;
    return { decodeMs, mended: decoded.mended, inference, crops, finished };
  }

  #enter(order: ImageOrder, stage: ImageStage, exchange: ImageExchange): void {
    this.#positions.set(order, stage);
    exchange.stageBegan(stage);
  }
}

function expectedWorkMs(
  { declared = SIZE_WHERE_UNKNOWN, outputFormat, finishing = {}, plan }: ImageOrder,
  pictures: PicturePoolSnapshot,
): number {
  const pixels = declared.width * declared.height;
  // The time to encode grows with the larger of picture and result.
  const encoded = Math.max(pixels, frameRange(finishing, declared, { turned: true }).whole);
  const encode = pictures.encodeRates.get(outputFormat) ?? pictures.encodeMsPerMegapixel;
  const picturesMs = (pictures.decodeMsPerMegapixel * pixels + encode * encoded) / 1e6;
  return plan.runs.reduce((sum, { engines }) => sum + engines.snapshot().inferMs, picturesMs);
}

export function subjects(plan: RunnablePlan): readonly PlanRun[] {
  return plan.runs.filter(({ role }) => role === 'subject');
}

/**
 * Inputs of subjects came with the decoded picture; other runs request theirs as they need them.
 */
class ModelInputs {
  readonly lease: PictureLease;
  readonly #picture: Size;
  readonly #made: ReadonlyMap<PlanRun, Buffer | undefined>;
  resampleMs = 0;

  constructor(lease: PictureLease, runs: readonly PlanRun[], picture: DecodedPicture) {
    this.lease = lease;
    this.#picture = picture;
    this.#made = new Map(runs.map((run, index) => [run, picture.modelInputs[index]]));
  }

  /** Undefined: the run refines `mattes`, and nothing in them is unsure. */
  async of(
    { entry, ...view }: ModelRun<PlanRun>,
    mattes: readonly MattePart[],
    signal: AbortSignal,
  ): Promise<Pick<EngineRun, 'rgb' | 'size'> | undefined> {
    const { part } = view;
    const size = sizeInInput(inputTerms(entry.model), part ?? this.#picture);
    const made = view.input || part ? undefined : this.#made.get(entry);
    if (made !== undefined) return { rgb: made, size };
    const input =
      entry.role === 'refine'
        ? await this.lease.resampleUnsure(size, mattes, part, signal)
        : await this.lease.resample(size, view, signal);
    if (input === undefined) return undefined;
    this.resampleMs += input.resampleMs;
    return { rgb: input.rgb, size };
  }
}

const NO_INFERENCE: Awaited<ReturnType<typeof runPlan>> = {
  ...{ mattes: [], runs: [], missing: [], extraRuns: [], isDisputed: false },
  ...{ waitMs: 0, inferMs: 0, secondLookMs: 0, extraRunMs: 0 },
};

function extraPictures(
  { backgroundDeclared, hintsDeclared }: ImageOrder,
  { background, hints }: Omit<ReceivedFiles, 'image'>,
): Pick<DecodeRequest, 'background' | 'hints'> {
  return {
    background: background && { file: background, declared: backgroundDeclared },
    hints: hints && { file: hints, declared: hintsDeclared },
  };
}

async function runPlan(
  { plan, priority }: ImageOrder,
  target: PlanPicture,
  inputs: ModelInputs,
  signal: AbortSignal,
) {
  let waitMs = 0;
  const times = { infer: 0, second_look: 0, extra_run: 0, crop_run: 0 };
  const runOne = async (run: ModelRun<PlanRun>, mattes: readonly MattePart[]) => {
    const answer = await tracedModel(run, inputs, mattes, { priority, signal });
    if (typeof answer === 'string') return answer;
    waitMs += answer.waitMs;
    times[stageOf(run)] += answer.inferMs;
    return answer;
  };
  const inference = await inferPlan(plan.runs, target, runOne, (...mattes) =>
    inputs.lease.choose(...mattes, signal),
  );
  const { infer: inferMs, second_look: secondLookMs, extra_run: extraRunMs } = times;
  return { ...inference, waitMs, inferMs, secondLookMs, extraRunMs };
}

const STAGES_OF_ROLES: Partial<Record<MatteRole, 'second_look' | 'extra_run'>> = {
  secondLook: 'second_look',
  surerLook: 'extra_run',
};

function stageOf({ stage, entry }: ModelRun<PlanRun>) {
  return stage ?? STAGES_OF_ROLES[entry.role] ?? 'infer';
}

const NO_CROPS: Awaited<ReturnType<typeof runCrops>> = {
  ...{ missing: [], waitMs: 0, inferMs: 0, refineMs: 0 },
};

/** Runs the plan's first model on crops that the worker requests for the hints. */
async function runCrops(
  { plan, priority }: ImageOrder,
  request: FinishRequest,
  lease: PictureLease,
  inputs: ModelInputs,
  signal: AbortSignal,
) {
  const [entry] = subjects(plan);
  const missing: PlanRun[] = [];
  let [waitMs, inferMs] = [0, 0];
  let { crop, refineMs } = await lease.merge(request, signal);
  while (crop !== undefined && entry !== undefined) {
    // If a crop has no answer, colours decide about the hint.
    const run = { entry, part: crop, stage: 'crop_run' } as const;
    const answer = await tracedModel(run, inputs, [], { priority, signal });
    if (typeof answer === 'string') {
      missing.push(entry);
      break;
    }
    waitMs += answer.waitMs;
    inferMs += answer.inferMs;
    const next = await lease.takeCrop(answer, signal);
    crop = next.crop;
    refineMs += next.refineMs;
  }
  return { missing, waitMs, inferMs, refineMs };
}

type Call = Pick<EngineRun, 'priority' | 'signal'>;

function tracedModel(
  run: ModelRun<PlanRun>,
  inputs: ModelInputs,
  mattes: readonly MattePart[],
  call: Call,
) {
  const { model, role } = run.entry;
  const attributes = {
    'matting.model': model.model,
    'matting.model.role': role,
    ...(run.input && { 'matting.model.input': run.input.kind }),
  };
  return traced({ name: 'engine', attributes }, async () => {
    const answer = await runModel(run, inputs, mattes, call);
    if (typeof answer === 'string') describeSpan({ 'matting.outcome': answer });
    else {
      recordStages([
        ['engine_wait', answer.waitMs],
        [stageOf(run), answer.inferMs],
      ]);
    }
    return answer;
  });
}

/** Waits for starting engines, but for lost ones only if the image needs them. */
async function runModel(
  run: ModelRun<PlanRun>,
  inputs: ModelInputs,
  mattes: readonly MattePart[],
  call: Call,
): Promise<EngineResult | NoMatte> {
  const { engines, role } = run.entry;
  const isNeeded = role === 'subject' && run.stage === undefined;
  if (!isNeeded && isDown(engines)) return 'missing';
  const picture = await inputs.of(run, mattes, call.signal);
  if (picture === undefined) return 'unneeded';
  if (isNeeded) return await engines.run({ ...picture, ...call });
  try {
    // Does not wait for an engine that must load again, which may take minutes.
    return await engines.run({ ...picture, ...call, failsWhenDown: true });
  } catch (error) {
    call.signal.throwIfAborted();
    if (!(error instanceof ContractError) || !LEFT_OUT.includes(error.code)) throw error;
    return 'missing';
  }
}

/** False during the first load: the first picture after a start waits for all its runs, too. */
function isDown(engines: EnginePool): boolean {
  const { state, enginesReady } = engines.snapshot();
  return state !== 'starting' && enginesReady === 0;
}

/** Spans of stages that others timed, in sequence, the last one ending now. */
function recordStages(stages: readonly (readonly [name: StageName, ms: number])[]): void {
  let startTime = Date.now() - stages.reduce((sum, [, ms]) => sum + ms, 0);
  for (const [name, ms] of stages) {
    if (ms > 0) recordSpan({ name, startTime }, startTime + ms);
    startTime += ms;
  }
}

/* Labels of a run: a plan may have one model at several sizes. */

export const RUN_LABELS = ['model', 'input_size', 'role'] as const;

export type RunLabels = Readonly<Record<(typeof RUN_LABELS)[number], string>>;

export const ROLE_LABELS = {
  subject: 'subject',
  secondLook: 'second_look',
  surerLook: 'surer_look',
  opinion: 'opinion',
  refine: 'refine',
} as const satisfies Record<MatteRole, string>;

/** `input_size` is the side in pixels, or such as `1024x768`. */
export function runLabels({ model, role }: PlanRun): RunLabels {
  return { model: model.model, input_size: sizeLabel(model), role: ROLE_LABELS[role] };
}

export function sizeLabel({ inputWidth, inputHeight }: PreparedModel): string {
  return inputWidth === inputHeight ? `${inputWidth}` : `${inputWidth}x${inputHeight}`;
}
