/**
 * How many megapixels a node may have in its picture workers at once, from the memory it may use.
 * The rule is pure; reading the limit is apart from it.
 *
 * A megapixel of the budget is 42 MB, the most that a megapixel of most pictures takes; one that
 * takes more (proto/contract/picture-memory.ts: JPEG XL above 40 megapixels) counts as so much larger.
 * Engines take their share first: ISNet at 1024x1024 in fp32 takes 0.87 GB without memory patterns,
 * 0.5 GB in int8, a 320x320 model about 0.15 GB (2 cores of an AMD EPYC). On a CPU each graph for
 * several pictures at once keeps what a run of it takes.
 */
import { totalmem } from 'node:os';
import { BACKGROUND_PIXELS_MAX, IMAGE_PIXELS_MAX } from '#contract/limits.ts';
import { BYTES_PER_MEGAPIXEL, countedMegapixels } from '#contract/picture-memory.ts';
import { ConfigError } from '#program/env.ts';
import { imagesARun, type PreparedModel, picturesHeld } from './models/prepared-model.ts';

/** Megapixels that the costliest image of the contract counts. */
const MEGAPIXELS_MOST = Math.ceil(
  countedMegapixels({
    inputFormat: undefined,
    outputFormat: 'jxl',
    resultKind: 'cutout',
    pixels: undefined,
    finishing: {
      framePixels: IMAGE_PIXELS_MAX,
      background: { inputFormat: undefined, pixels: BACKGROUND_PIXELS_MAX },
    },
  }),
);
const ENGINE_BASE_BYTES = 150_000_000;
const ENGINE_BYTES_PER_INPUT_PIXEL = 750;
const ENGINE_BYTES_PER_INPUT_PIXEL_INT8 = 400;
/** For each picture of a graph for several: u2netp's, the most of all models; isnet's at 1024. */
const BATCH_BYTES_PER_INPUT_PIXEL = 2500;
const BATCH_BYTES_MAX = { fp16: 500_000_000, fp32: 500_000_000, int8: 300_000_000 } as const;
/** Fraction of the memory limit that engines may use; pictures get the rest. */
const ENGINES_FRACTION = 0.4;
/** Fraction for both; the rest: main process, idle workers and the page cache of the model. */
const SHARED_FRACTION = 0.6;
/** One image alone may go nearer to the limit: nothing else grows beside it. */
const ALONE_FRACTION = 0.85;
/** Below this the node could not take an ordinary photo beside another one. */
const MEGAPIXELS_MIN = 12;

export interface MegapixelBudget {
  readonly megapixelsMax: number;
  readonly megapixelsAloneMax: number;
}

export interface BudgetInputs {
  readonly memoryLimitBytes: number;
  /** The model of each engine. */
  readonly engines: readonly EngineModel[];
}

export type EngineModel = Pick<PreparedModel, 'inputWidth' | 'inputHeight' | 'precision'> &
  Partial<Pick<PreparedModel, 'provider' | 'batches'>>;

/** Memory of an engine's process, about. */
function engineBytes(model: EngineModel): number {
  const { inputWidth, inputHeight, precision, provider } = model;
  const pixels = inputWidth * inputHeight;
  const further = provider === 'cpu' ? picturesHeld(model) - 1 : 0;
  const quantised = precision === 'int8';
  const each = quantised ? ENGINE_BYTES_PER_INPUT_PIXEL_INT8 : ENGINE_BYTES_PER_INPUT_PIXEL;
  const furtherEach = Math.min(BATCH_BYTES_PER_INPUT_PIXEL * pixels, BATCH_BYTES_MAX[precision]);
  return ENGINE_BASE_BYTES + pixels * each + further * furtherEach;
}

/** Engines of each of `models` that the memory holds beside the pictures; may be 0. */
export function enginesInMemory(memoryLimitBytes: number, models: readonly EngineModel[]): number {
  const bytes = models.reduce((sum, model) => sum + engineBytes(model), 0);
  return Math.floor((memoryLimitBytes * ENGINES_FRACTION) / bytes);
}

/**
 * Undefined where the memory holds not even one ordinary photo beside the engines: the operator has
 * to give more, or to set MATTING_NODE_MEGAPIXELS_MAX.
 */
export function computeMegapixelBudget(inputs: BudgetInputs): MegapixelBudget | undefined {
  const bytes = inputs.engines.reduce((sum, engine) => sum + engineBytes(engine), 0);
  const megapixelsIn = (fraction: number): number =>
    Math.floor((inputs.memoryLimitBytes * fraction - bytes) / BYTES_PER_MEGAPIXEL);
  const alone = megapixelsIn(ALONE_FRACTION);
  if (alone < MEGAPIXELS_MIN) return undefined;
  return {
    megapixelsMax: Math.max(MEGAPIXELS_MIN, megapixelsIn(SHARED_FRACTION)),
    megapixelsAloneMax: Math.min(alone, MEGAPIXELS_MOST),
  };
}

/** @throws ConfigError for the operator where it holds not even one ordinary photo. */
export function requireMegapixelBudget(inputs: BudgetInputs): MegapixelBudget {
  const budget = computeMegapixelBudget(inputs);
  if (budget !== undefined) return budget;
  const limitMb = Math.round(inputs.memoryLimitBytes / 1e6);
  const together = inputs.engines.some(engine => imagesARun(engine) > 1);
  const fewerImages = together ? 'fewer images at once (MATTING_BATCH_MAX), ' : '';
  const expected =
    `set: the memory limit (${limitMb} MB) leaves no room for a photo beside the engines; ` +
    `give more memory, fewer engines, ${fewerImages}or the megapixels you want to risk`;
  throw new ConfigError([{ variable: 'MATTING_NODE_MEGAPIXELS_MAX', expected }]);
}

/** The operator's own figure: any image of the contract is still admitted while it is alone. */
export function operatorsBudget(megapixelsMax: number): MegapixelBudget {
  return { megapixelsMax, megapixelsAloneMax: MEGAPIXELS_MOST };
}

/** The cgroup's limit where there is one, else the machine's memory. */
export function readMemoryLimitBytes(): number {
  // libuv reads the process's own cgroup, of version 1 or 2; 0 is unknown, "max" a huge number.
  const constrained = process.constrainedMemory();
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
}
