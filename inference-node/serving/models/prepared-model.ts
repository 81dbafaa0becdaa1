/** A graph ready to run, and the terms that manifests, plans and settings share. */

import type { Licence } from './licence.ts';

export const MODEL_NAME = /^[a-z0-9][a-z0-9-]{0,63}$/;

/** Pixels. No model's graph is larger; each manifest has bounds of its own. */
export const INPUT_SIDE_MAX = 8192;

export const PRECISIONS = ['fp32', 'fp16', 'int8'] as const;
export type Precision = (typeof PRECISIONS)[number];

export const EXECUTION_PROVIDERS = ['cuda', 'tensorrt', 'webgpu', 'cpu'] as const;
export type ExecutionProvider = (typeof EXECUTION_PROVIDERS)[number];

/** `normalised = (value - mean) / std` for values 0 to 255, per channel in RGB order. */
export interface Normalisation {
  readonly mean: readonly [number, number, number];
  readonly std: readonly [number, number, number];
}

/** Ends of a graph that takes and gives bytes, whatever the manifest calls its own. */
/** uint8 [images, height, width, 3], RGB. */
export const RGB_INPUT = 'matting.rgb';
/** uint8 [images, 1, height, width]. */
export const ALPHA_OUTPUT = 'matting.alpha';
/** float64, one number: the sum of the mattes, NaN where any of it is. */
export const SUM_OUTPUT = 'matting.sum';

/** Pictures that a graph takes at once, beside one. */
export const BATCH_SIZES = [2, 4, 8] as const;

/** A graph for several pictures. Its weights are those of the graph for one, in that one's file. */
export interface BatchGraph {
  readonly images: number;
  readonly path: string;
  readonly sha256: string;
}

/** Pictures that the graphs of an engine keep memory for: each those of a run. */
export function picturesHeld({ batches = [] }: Pick<PreparedModel, 'batches'>): number {
  return batches.reduce((sum, { images }) => sum + images, 1);
}

export function imagesARun({ batches = [] }: Pick<PreparedModel, 'batches'>): number {
  return batches.at(-1)?.images ?? 1;
}

export interface PreparedModel {
  readonly model: string;
  readonly version: string;
  readonly path: string;
  readonly sha256: string;
  /** Sums of the files it was made from, hexadecimal, in the manifest's order. */
  readonly weights: readonly string[];
  /** The same for several pictures at once, fewest first; absent: it runs one at a time. */
  readonly batches?: readonly BatchGraph[];
  readonly precision: Precision;
  /** One line: why `auto` does not run int8 here although the model has it; else absent. */
  readonly precisionFallback?: string;
  readonly provider: ExecutionProvider;
  readonly inputWidth: number;
  readonly inputHeight: number;
  /** float32 [images, 3, inputHeight, inputWidth]. */
  readonly inputName: string;
  /** float32 [images, 1, inputHeight, inputWidth]. */
  readonly outputName: string;
  readonly normalisation: Normalisation;
  readonly colourOrder: 'rgb' | 'bgr';
  /** What to apply to the output to get an alpha in [0, 1]. */
  readonly activation: 'none' | 'sigmoid';
  readonly licence: Licence;
  /** Of an engine's process with it, measured; absent: estimated. */
  readonly peakBytes?: number;
}

export function takingAtMost(model: PreparedModel, imagesMax: number): PreparedModel {
  const { batches = [], ...single } = model;
  const kept = batches.filter(({ images }) => images <= imagesMax);
  return kept.length === 0 ? single : { ...single, batches: kept };
}

/**
 * The other two run only where the first subject's matte is unsure (serving/picture/worth-
 * running.ts), and a plan goes on without one that fails. secondLook counts where the subject is
 * unsure, like a second subject; opinion at its edge (serving/picture/matte/merge-mattes.ts).
 */
export const MATTE_ROLES = ['subject', 'secondLook', 'opinion'] as const;
export type MatteRole = (typeof MATTE_ROLES)[number];

export interface PlanModel {
  readonly model: PreparedModel;
  readonly role: MatteRole;
}

/** The models that make a matte; the first is a subject. They run one after the other. */
export interface Plan {
  readonly name: string;
  readonly models: readonly PlanModel[];
}
