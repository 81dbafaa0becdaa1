/**
 * What a GPU gains from, measured at the start: MATTING_ENGINES=auto, engines of a model that are
 * added one by one, and MATTING_BATCH_MAX=auto, pictures that they take at once. And how fast one
 * engine is, by which a number of engines is spread over GPUs of several kinds.
 */

import {
  BATCH_SIZES,
  imagesARun,
  type PreparedModel,
  picturesHeld,
  takingAtMost,
} from '../models/prepared-model.ts';
import { measuredBatchesPath, measuredEnginesPath } from '../models/preparing/prepared-cache.ts';
import { type Measured, measureBest, measureRate, type RateOptions } from './measured-best.ts';

/** More never helped where it was tried: copies and conversion of one hide behind runs of others. */
const ENGINES_A_GPU_MAX = 4;
/**
 * Memory of a GPU that an engine takes: CUDA's context, and for each pixel of its graphs' inputs
 * what a run holds (placements counted without a card) with as much again for cuDNN's workspace. An
 * estimate, not measured on a card.
 */
const CONTEXT_BYTES = 500_000_000;
const BYTES_PER_INPUT_PIXEL = { fp16: 1030, int8: 1030, fp32: 2060 } as const;
const MEMORY_SHARE_MAX = 0.9;

export interface MeasureOptions extends Omit<RateOptions, 'engines'> {
  /** Every model of the plan gets as many. */
  readonly models: readonly PreparedModel[];
  /** The GPU, its driver, the runtime and this machine's cores, in words. */
  readonly kind: string;
}

export interface MeasureEnginesOptions extends MeasureOptions {
  /** On this GPU, by the memory of the host. */
  readonly enginesMax: number;
}

/** At least one engine, whatever the measurement says. @throws the reason of `ending`. */
export async function measureEngines(options: MeasureEnginesOptions): Promise<Measured> {
  const { model, ending } = options;
  const most = Math.min(enginesInGpu(options), options.enginesMax);
  const images = imagesARun(model);
  // With more memory, beside fewer models or with other graphs, another number may be best.
  const together = images === 1 ? '' : `, ${images} images at once`;
  const kind = `${options.kind}, at most ${most} engines${together}`;
  return await measureBest({
    numbers: [1, ...Array.from({ length: most - 1 }, (_, index) => index + 2)],
    rateOf: engines => measureRate({ ...options, engines }),
    recordPath: measuredEnginesPath(model.path),
    ...{ model, kind, ending },
  });
}

/** Images a second of one engine on a kind of GPU; 0: it does not run. @throws as `measureEngines`. */
export async function measureSpeed(options: MeasureOptions): Promise<number> {
  const { model, ending } = options;
  const { imagesPerS } = await measureBest({
    numbers: [1],
    rateOf: engines => measureRate({ ...options, engines }),
    recordPath: measuredEnginesPath(model.path),
    kind: `${options.kind}, one engine`,
    ...{ model, ending },
  });
  return imagesPerS;
}

export interface MeasureBatchesOptions extends MeasureOptions {
  /** Of each model on this GPU. */
  readonly engines: number;
}

/**
 * How many pictures an engine takes at once with a gain: of those that the models have graphs for,
 * as many as the memory holds. At least one. @throws the reason of `ending`.
 */
export async function measureBatches(options: MeasureBatchesOptions): Promise<Measured> {
  const { model, engines, ending } = options;
  const most = imagesARun(model);
  const { batches = [] } = model;
  return await measureBest({
    numbers: [1, ...batches.map(({ images }) => images)],
    rateOf: images => measureRate({ ...options, model: takingAtMost(model, images) }),
    recordPath: measuredBatchesPath(model.path),
    kind: `${options.kind}, ${engines} engines, at most ${most} images at once`,
    ...{ model, ending },
  });
}

/** As many of every model of the plan as its memory holds, by the estimate; at least one. */
export function enginesInGpu({
  models,
  device,
}: Pick<MeasureOptions, 'models' | 'device'>): number {
  const { memoryBytes } = device.facts;
  if (memoryBytes === 0) return ENGINES_A_GPU_MAX;
  const held = Math.floor((memoryBytes * MEMORY_SHARE_MAX) / bytesOfEach(models));
  return Math.max(1, Math.min(ENGINES_A_GPU_MAX, held));
}

/** Pictures at once that so many engines of every model leave room for, by the estimate. */
export function imagesInGpu({
  models,
  device,
  engines,
}: Pick<MeasureBatchesOptions, 'models' | 'device' | 'engines'>): number {
  const { memoryBytes } = device.facts;
  const fits = (imagesMax: number) => {
    const batches = BATCH_SIZES.filter(images => images <= imagesMax);
    const graphs = batches.map(images => ({ images, path: '', sha256: '' }));
    const batched = models.map(model => ({ ...model, batches: graphs }));
    return memoryBytes === 0 || engines * bytesOfEach(batched) <= memoryBytes * MEMORY_SHARE_MAX;
  };
  return BATCH_SIZES.findLast(fits) ?? 1;
}

/** One engine of every model. */
function bytesOfEach(models: readonly PreparedModel[]): number {
  return models.reduce((sum, model) => {
    const { inputWidth, inputHeight, precision } = model;
    const pixels = inputWidth * inputHeight * picturesHeld(model);
    return sum + CONTEXT_BYTES + pixels * BYTES_PER_INPUT_PIXEL[precision];
  }, 0);
}
