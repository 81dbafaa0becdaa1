/** A graph ready to run, and the terms that manifests, plans and settings share. */

import type { Size } from '@matting/proto/contract/finishing.ts';
import type { Licence } from './licence.ts';

export const MODEL_NAME = /^[a-z0-9][a-z0-9-]{0,63}$/;

/** Pixels. No model's graph is larger; each manifest has bounds of its own. */
export const INPUT_SIDE_MAX = 8192;

export const PRECISIONS = ['fp32', 'fp16', 'int8'] as const;
export type Precision = (typeof PRECISIONS)[number];

export const EXECUTION_PROVIDERS = ['cuda', 'cpu'] as const;
export type ExecutionProvider = (typeof EXECUTION_PROVIDERS)[number];

/** `normalised = (value - mean) / std` for values 0 to 255, per channel in RGB order. */
export interface Normalisation {
  readonly mean: readonly [number, number, number];
  readonly std: readonly [number, number, number];
}

/** An activation makes an alpha in [0, 1] from a graph's output. */
export const ACTIVATIONS = [
  'none',
  'sigmoid',
  /** Logits of two classes; the second is the subject. */
  'softmax',
  /** 0 to 255. */
  'scale255',
  /** -1 to 1. */
  'signed',
  /** The sigmoid was applied twice, so that all lies in 0.5 to 0.731: undoes one. */
  'logit',
] as const;
export type Activation = (typeof ACTIVATIONS)[number];

export const INPUT_TYPES = ['float32', 'float16', 'uint8'] as const;
export type InputType = (typeof INPUT_TYPES)[number];

/** chw and hwc have no axis of pictures. */
export const LAYOUTS = ['nchw', 'nhwc', 'chw', 'hwc'] as const;
export type Layout = (typeof LAYOUTS)[number];

/**
 * How a picture comes to the input's size. letterbox keeps its ratio, in the middle; top-left, in
 * that corner, both on black; short-side keeps it with nothing beside: each picture has a size of
 * its own.
 */
export const FITS = ['stretch', 'letterbox', 'top-left', 'short-side'] as const;
export type Fit = (typeof FITS)[number];

/**
 * With fit short-side, the input's sides are multiples of `multipleOf`, from `min` to `max` pixels.
 */
interface InputSides {
  readonly multipleOf: number;
  /** Absent: the minimum is one multiple. */
  readonly min?: number;
  readonly max: number;
}

/**
 * The form describes how a graph that runs as its maker wrote it takes a picture and gives its
 * matte.
 */
export interface GraphForm {
  readonly inputType: InputType;
  readonly layout: Layout;
  readonly fit: Fit;
  /** The sides belong to fit short-side. */
  readonly sides?: InputSides;
  /** 1 is the background. */
  readonly inverted: boolean;
  /** The fourth channel is a trimap, 0 to 1: the graph improves another model's matte. */
  readonly trimap?: true;
}

/** Bytes a pixel of what an engine is given. */
export function channelsOf({ form }: Pick<PreparedModel, 'form'>): 3 | 4 {
  return form?.trimap ? 4 : 3;
}

/** Ends of a graph that takes and gives bytes, whatever the manifest calls its own. */
/** uint8 [1, height, width, 3], RGB. */
export const RGB_INPUT = 'matting.rgb';
/** uint8 [1, 1, height, width]. */
export const ALPHA_OUTPUT = 'matting.alpha';
/** float64, one number: the sum of the matte, NaN where any of it is. */
export const SUM_OUTPUT = 'matting.sum';

/** Beside the graph, by the name that it has there: weights of it (ONNX's external data). */
interface DataFile {
  readonly path: string;
  readonly sha256: string;
}

/** A graph that OpenVINO compiled, for a processor like this one. Only preparing writes it. */
export interface CompiledGraph {
  readonly path: string;
  readonly sha256: string;
}

/** An installed OpenVINO. */
export interface OpenvinoHere {
  readonly version: string;
  /** The library of its C interface. */
  readonly library: string;
}

/** OpenVINO runs the graph, in place of ONNX Runtime. */
interface OpenvinoUse {
  /** The library of its C interface. */
  readonly library: string;
  /** Absent: it compiles the graph, which takes several times as long. */
  readonly compiled?: CompiledGraph;
  /** File for the compiled graph. */
  readonly exportTo?: string;
}

export interface PreparedModel {
  readonly model: string;
  readonly version: string;
  readonly path: string;
  readonly sha256: string;
  /** Sums of the files it was made from, hexadecimal, in the manifest's order. */
  readonly weights: readonly string[];
  readonly data?: readonly DataFile[];
  /**
   * The model's records lie beside this file; absent: beside `path`. Folders of weights are only
   * read.
   */
  readonly recordsBeside?: string;
  readonly precision: Precision;
  /** Why `auto` does not run int8 here although the model has it, in one line; else absent. */
  readonly precisionFallback?: string;
  readonly provider: ExecutionProvider;
  /** Absent: ONNX Runtime runs it. */
  readonly openvino?: OpenvinoUse;
  /** Why the installed OpenVINO does not run the model, in one line; else absent. */
  readonly runtimeFallback?: string;
  readonly inputWidth: number;
  readonly inputHeight: number;
  /** The input is float32 [1, 3, inputHeight, inputWidth], unless `form` says otherwise. */
  readonly inputName: string;
  /** float32 [1, 1, inputHeight, inputWidth]; with a form any that shows one matte. */
  readonly outputName: string;
  readonly normalisation: Normalisation;
  readonly colourOrder: 'rgb' | 'bgr';
  readonly activation: Activation;
  /** The form belongs to a graph that runs as it is. */
  readonly form?: GraphForm;
  /** The engine process's memory with its largest input, as measured; absent: it is estimated. */
  readonly peakBytes?: number;
  readonly licence: Licence;
}

const RUNTIMES = ['onnxruntime', 'openvino'] as const;
export type Runtime = (typeof RUNTIMES)[number];

export const CPU_RUNTIME_CHOICES = ['auto', ...RUNTIMES] as const;
export type CpuRuntimeChoice = (typeof CPU_RUNTIME_CHOICES)[number];

export function runtimeOf({ openvino }: Pick<PreparedModel, 'openvino'>): Runtime {
  return openvino === undefined ? 'onnxruntime' : 'openvino';
}

/** Gives the largest input that a picture can make; the cost of its run bounds every other's. */
export function largestInput({
  inputWidth: width,
  inputHeight: height,
  form,
}: Pick<PreparedModel, 'inputWidth' | 'inputHeight' | 'form'>): Size {
  return { width, height: form?.sides?.max ?? height };
}

/**
 * All but subjects run only where the matte is unsure (serving/picture/worth-running.ts), and a
 * plan goes on without one that fails. secondLook counts where the subject is unsure, like a second
 * subject, and surerLook in its place where it is surer; opinion at its edge
 * (serving/picture/matte/merge-mattes.ts). refine takes the picture with a trimap of what these made,
 * and decides in the unsure band (serving/picture/matte/trimap.ts).
 */
export const MATTE_ROLES = ['subject', 'secondLook', 'surerLook', 'opinion', 'refine'] as const;
export type MatteRole = (typeof MATTE_ROLES)[number];

/** An extra run sees the picture mirrored, or continued by the edges that the subject meets. */
export const EXTRA_INPUTS = ['mirrored', 'edges'] as const;
export type ExtraInput = (typeof EXTRA_INPUTS)[number];

export interface ExtraRun {
  readonly input: ExtraInput;
  /** Unsure share of the subject, from which on the run is taken. */
  readonly unsureFrom: number;
}

export interface PlanModel {
  readonly model: PreparedModel;
  readonly role: MatteRole;
  /** Further runs, in their order; those of a plan's last model come first. */
  readonly extraRuns?: readonly ExtraRun[] | undefined;
}

/** The models that make a matte; the first is a subject. They run one after the other. */
export interface Plan {
  readonly name: string;
  readonly models: readonly PlanModel[];
}
