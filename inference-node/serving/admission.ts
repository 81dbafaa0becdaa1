/**
 * Bounds what a node takes at once. From before its first byte until its result is sent, an image
 * holds a permit: a slot, megapixels of a budget that keeps picture workers within the memory, and
 * its file's bytes. Admission has no queue: a refused caller tries another node.
 */

import { totalmem } from 'node:os';
import { ConfigError } from '@matting/program/config-error.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { BACKGROUND_PIXELS_MAX, IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { BYTES_PER_MEGAPIXEL, countedMegapixels } from '@matting/proto/contract/picture-memory.ts';
import { largestInput, type PreparedModel } from './models/prepared-model.ts';

/** Limit of all admitted files: ten of the largest. They lie in the main process. */
const FILE_BYTES_MAX = 512 * 1024 * 1024;

export interface MegapixelBudget {
  readonly megapixelsMax: number;
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

  /** `megapixelsFree`: the largest image that would be admitted now, if a slot is free. */
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

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

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
 * A megapixel of the budget is 42 MB, the most that one megapixel of usual pictures takes. Other
 * pictures count as larger (proto/contract/picture-memory.ts). Engines take their share first: on 2
 * cores of an AMD EPYC ISNet at 1024x1024 takes 0.87 GB in fp32 without memory patterns, 0.5 GB in
 * int8, a 320x320 model 0.15 GB.
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
/** CUDA's memory for each process. Six engines of `standard` took 6.9 GB (H200). */
const CUDA_BYTES = 500_000_000;
/** Share of the memory limit for engines; pictures get the rest. */
const ENGINES_FRACTION = 0.4;
/**
 * Share of the limit for engines and pictures; the rest is for the main process, idle workers and
 * the models' page cache.
 */
const SHARED_FRACTION = 0.6;
/** The same for one image alone on the node, since no other memory grows. */
const ALONE_FRACTION = 0.85;
/** With less, an ordinary photo would not fit next to another one. */
const MEGAPIXELS_MIN = 12;

interface BudgetInputs {
  readonly memoryLimitBytes: number;
  readonly engines: readonly EngineModel[];
}

type EngineModel = Pick<PreparedModel, 'inputWidth' | 'inputHeight' | 'precision'> &
  Partial<Pick<PreparedModel, 'form' | 'peakBytes'>>;

type EnginesOpened = (engines: number) => readonly EngineModel[];

export const ENGINES_MAX = 64;

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

export function enginesInMemory(memoryLimitBytes: number, opened: EnginesOpened): number {
  return enginesWithin(memoryLimitBytes * ENGINES_FRACTION, opened);
}

export function enginesAtMost(memoryLimitBytes: number, opened: EnginesOpened): number {
  const photoBytes = MEGAPIXELS_MIN * BYTES_PER_MEGAPIXEL;
  return enginesWithin(memoryLimitBytes * ALONE_FRACTION - photoBytes, opened);
}

/** Engines in half of a GPU, since other programs use it too. */
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

/** Undefined: not even one ordinary photo fits next to the engines. */
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

/** The cgroup's limit if there is one, else the machine's memory. */
export function readMemoryLimitBytes(percent = 100): number {
  // libuv reads the process's own cgroup, of version 1 or 2; 0 is unknown, "max" a huge number.
  const constrained = process.constrainedMemory();
  const whole = constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
  return (whole * percent) / 100;
}
