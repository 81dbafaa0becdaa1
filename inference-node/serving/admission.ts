/**
 * How much a node takes at once.
 *
 * An image needs a permit before a byte of it is received, until its result is sent: a slot, its
 * megapixels of a budget that keeps picture workers within the memory, its file's bytes. Nothing
 * waits here: the caller tries another node. What is in use is summed over living permits.
 */

import { totalmem } from 'node:os';
import { ConfigError } from '@matting/program/config-error.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { BACKGROUND_PIXELS_MAX, IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { BYTES_PER_MEGAPIXEL, countedMegapixels } from '@matting/proto/contract/picture-memory.ts';
import { largestInput, type PreparedModel } from './models/prepared-model.ts';

/** Files of all admitted images together: ten of the largest. They lie in the main process. */
const FILE_BYTES_MAX = 512 * 1024 * 1024;

export interface MegapixelBudget {
  readonly megapixelsMax: number;
  /** An image that is alone may have so many megapixels, and never more. */
  readonly megapixelsAloneMax: number;
}

interface AdmissionLimits extends MegapixelBudget {
  readonly imagesMax: number;
}

interface Share {
  readonly megapixels: number;
  readonly fileBytes: number;
}

export interface Permit {
  readonly megapixels: number;
  /** Images admitted before this one and not finished. */
  readonly queuePosition: number;
  release(): void;
}

export class Admission {
  readonly limits: AdmissionLimits;
  readonly #held = new Set<Share>();
  readonly #listeners = new Set<() => void>();

  constructor(limits: AdmissionLimits) {
    this.limits = Object.freeze({ ...limits });
  }

  /** @throws ContractError NODE_OVERLOADED, NODE_SHORT_OF_MEMORY, NODE_INCAPABLE */
  admit(request: Share): Permit {
    const { megapixels } = request;
    const inUse = this.snapshot();
    const { imagesMax } = inUse;
    if (megapixels > mostAlone(this.limits)) {
      const detail = 'This node has too little memory for an image of this size.';
      throw new ContractError('NODE_INCAPABLE', detail);
    }
    if (inUse.images >= imagesMax) {
      const detail = `All ${imagesMax} places of this node are taken.`;
      throw new ContractError('NODE_OVERLOADED', detail);
    }
    if (inUse.fileBytes + request.fileBytes > FILE_BYTES_MAX) {
      const detail = 'This node already holds as many bytes of files as it can.';
      throw new ContractError('NODE_SHORT_OF_MEMORY', detail);
    }
    if (megapixels > inUse.megapixelsFree) {
      throw new ContractError('NODE_SHORT_OF_MEMORY', 'This node has too few free megapixels.');
    }
    const entry = Object.freeze({ ...request });
    this.#held.add(entry);
    this.#changed();
    return {
      megapixels,
      queuePosition: inUse.images,
      release: () => {
        if (this.#held.delete(entry)) this.#changed();
      },
    };
  }

  /** `megapixelsFree`: the largest image that would be admitted now, a slot allowing. */
  snapshot() {
    let megapixels = 0;
    let fileBytes = 0;
    for (const permit of this.#held) {
      megapixels += permit.megapixels;
      fileBytes += permit.fileBytes;
    }
    const { imagesMax, megapixelsMax } = this.limits;
    const images = this.#held.size;
    const free = megapixelsFree(this.limits, { images, megapixels });
    const pictures = { megapixels, megapixelsMax, megapixelsFree: free };
    return { images, imagesMax, ...pictures, fileBytes };
  }

  /** Called after each admission and each release. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** Gives what an image may have while no other is in the node. */
function mostAlone({ megapixelsMax, megapixelsAloneMax }: MegapixelBudget): number {
  return Math.max(megapixelsMax, megapixelsAloneMax);
}

function megapixelsFree(
  budget: MegapixelBudget,
  { images, megapixels }: { readonly images: number; readonly megapixels: number },
): number {
  return images === 0 ? mostAlone(budget) : Math.max(0, budget.megapixelsMax - megapixels);
}

/*
 * A megapixel of the budget is 42 MB, the most that one of most pictures takes; others count as so
 * much larger (proto/contract/picture-memory.ts). Engines take their share first: ISNet at
 * 1024x1024 in fp32 0.87 GB without memory patterns, 0.5 GB in int8, a 320x320 model about 0.15 GB
 * (2 cores of an AMD EPYC).
 */

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
/** GPU memory that CUDA takes for each process. Six engines of `standard` took 6.9 GB (H200). */
const CUDA_BYTES = 500_000_000;
/** Fraction of the memory limit that engines may use; pictures get the rest. */
const ENGINES_FRACTION = 0.4;
/** Fraction for both; the rest: main process, idle workers and the page cache of the model. */
const SHARED_FRACTION = 0.6;
/** One image alone may go nearer to the limit: nothing else grows beside it. */
const ALONE_FRACTION = 0.85;
/** Below this the node could not take an ordinary photo beside another one. */
const MEGAPIXELS_MIN = 12;

interface BudgetInputs {
  readonly memoryLimitBytes: number;
  readonly engines: readonly EngineModel[];
}

type EngineModel = Pick<PreparedModel, 'inputWidth' | 'inputHeight' | 'precision'> &
  Partial<Pick<PreparedModel, 'form' | 'peakBytes'>>;

/** Lists the model of each engine that a plan opens if its first model has so many. */
type EnginesOpened = (engines: number) => readonly EngineModel[];

/** The most engines of a model. */
export const ENGINES_MAX = 64;

/** Memory of an engine's process, measured where the model was added, else about. */
export function engineBytes(model: EngineModel): number {
  const { precision, peakBytes } = model;
  const { width, height } = largestInput(model);
  const quantised = precision === 'int8';
  const each = quantised ? ENGINE_BYTES_PER_INPUT_PIXEL_INT8 : ENGINE_BYTES_PER_INPUT_PIXEL;
  return peakBytes ?? ENGINE_BASE_BYTES + width * height * each;
}

export function bytesOfEngines(models: readonly EngineModel[]): number {
  return models.reduce((sum, model) => sum + engineBytes(model), 0);
}

/** Gives the number of engines that stay within their share. */
export function enginesInMemory(memoryLimitBytes: number, opened: EnginesOpened): number {
  return enginesWithin(memoryLimitBytes * ENGINES_FRACTION, opened);
}

/** Gives the number of engines that leaves room for an ordinary photo. */
export function enginesAtMost(memoryLimitBytes: number, opened: EnginesOpened): number {
  const photoBytes = MEGAPIXELS_MIN * BYTES_PER_MEGAPIXEL;
  return enginesWithin(memoryLimitBytes * ALONE_FRACTION - photoBytes, opened);
}

/** Gives the engines of a model that fit into half of a GPU. Other programs use it too. */
export function enginesOnGpu(gpuMemoryBytes: number, opened: EnginesOpened): number {
  return enginesWithin(gpuMemoryBytes / 2, opened, CUDA_BYTES);
}

function enginesWithin(bytes: number, opened: EnginesOpened, eachMoreBytes = 0): number {
  const bytesOf = (models: readonly EngineModel[]) =>
    bytesOfEngines(models) + models.length * eachMoreBytes;
  let engines = 0;
  while (engines < ENGINES_MAX && bytesOf(opened(engines + 1)) <= bytes) engines++;
  return engines;
}

/** Undefined: not even one ordinary photo fits beside the engines. */
export function computeMegapixelBudget({
  memoryLimitBytes,
  engines,
}: BudgetInputs): MegapixelBudget | undefined {
  const megapixelsIn = (fraction: number): number =>
    Math.floor((memoryLimitBytes * fraction - bytesOfEngines(engines)) / BYTES_PER_MEGAPIXEL);
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
  const photoBytes = MEGAPIXELS_MIN * BYTES_PER_MEGAPIXEL;
  const needed = (bytesOfEngines(inputs.engines) + photoBytes) / ALONE_FRACTION;
  const expected =
    `a part of more memory: ${limitMb} MB leave no room for a photo beside the engines, ` +
    `which needs ${Math.ceil(needed / 1e6)} MB; give more memory, or fewer engines`;
  throw new ConfigError([{ variable: 'MATTING_NODE_MEMORY_PERCENT', expected }]);
}

/** A part of the cgroup's limit where there is one, else of the machine's memory. */
export function readMemoryLimitBytes(percent = 100): number {
  // libuv reads the process's own cgroup, of version 1 or 2; 0 is unknown, "max" a huge number.
  const constrained = process.constrainedMemory();
  const whole = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
  return (whole * percent) / 100;
}
