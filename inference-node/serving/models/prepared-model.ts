import type { Size } from '@matting/proto/contract/finishing.ts';
import type { Licence } from './licence.ts';

export const MODEL_NAME = /^[a-z0-9][a-z0-9-]{0,63}$/;

/** Pixels. Each manifest has limits of its own below it. */
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

export const ACTIVATIONS = [
  'none',
  'sigmoid',
  /** Logits of two classes; the second is the subject. */
  'softmax',
  /** 0 to 255. */
  'scale255',
  /** -1 to 1. */
  'signed',
  /** The sigmoid was applied twice, so that values lie in 0.5 to 0.731: undoes one. */
  'logit',
] as const;
export type Activation = (typeof ACTIVATIONS)[number];

export const INPUT_TYPES = ['float32', 'float16', 'uint8'] as const;
export type InputType = (typeof INPUT_TYPES)[number];

/** chw and hwc have no batch axis. */
export const LAYOUTS = ['nchw', 'nhwc', 'chw', 'hwc'] as const;
export type Layout = (typeof LAYOUTS)[number];

/**
 * How a picture fits the input. letterbox keeps its ratio, centred on black; top-left in that
 * corner; short-side keeps it without padding, so that each picture has a size of its own.
 */
export const FITS = ['stretch', 'letterbox', 'top-left', 'short-side'] as const;
export type Fit = (typeof FITS)[number];

interface InputSides {
  readonly multipleOf: number;
  /** Absent: one multiple. */
  readonly min?: number;
  readonly max: number;
}

/** How a graph that runs as its maker wrote it takes a picture and gives its matte. */
export interface GraphForm {
  readonly inputType: InputType;
  readonly layout: Layout;
  readonly fit: Fit;
  readonly sides?: InputSides;
  /** 1 is the background. */
  readonly inverted: boolean;
  /** The fourth channel is a trimap, 0 to 1: the graph refines another model's matte. */
  readonly trimap?: true;
}

/** Bytes a pixel of an engine's input. */
export function channelsOf({ form }: Pick<PreparedModel, 'form'>): 3 | 4 {
  return form?.trimap ? 4 : 3;
}

/** Tensor names of a graph that was rewritten to take and give bytes. */
/** uint8 [1, height, width, 3], RGB. */
export const RGB_INPUT = 'matting.rgb';
/** uint8 [1, 1, height, width]. */
export const ALPHA_OUTPUT = 'matting.alpha';
/** float64, one number: the sum of the matte, NaN if any value is. */
export const SUM_OUTPUT = 'matting.sum';

/** ONNX external data, next to the graph under the name that the graph uses. */
interface DataFile {
  readonly path: string;
  readonly sha256: string;
}

/** Compiled by OpenVINO for a processor like this one. Only preparing writes it. */
export interface CompiledGraph {
  readonly path: string;
  readonly sha256: string;
}

export interface InstalledOpenvino {
  readonly version: string;
  readonly library: string;
}

interface OpenvinoUse {
  readonly library: string;
  /** Absent: it compiles the graph, which takes several times as long. */
  readonly compiled?: CompiledGraph;
  readonly exportTo?: string;
}

export interface PreparedModel {
  readonly model: string;
  readonly version: string;
  readonly path: string;
  readonly sha256: string;
  /** SHA-256 of the files it was made from, hexadecimal, in the manifest's order. */
  readonly weights: readonly string[];
  readonly data?: readonly DataFile[];
  /** The model's records lie next to this file. Absent: next to `path`. */
  readonly recordsBeside?: string;
  readonly precision: Precision;
  /** Why `auto` does not run int8 although the model has it, in one line. */
  readonly precisionFallback?: string;
  readonly provider: ExecutionProvider;
  /** Absent: ONNX Runtime. */
  readonly openvino?: OpenvinoUse;
  /** Why the installed OpenVINO does not run the model, in one line. */
  readonly runtimeFallback?: string;
  readonly inputWidth: number;
  readonly inputHeight: number;
  /** float32 [1, 3, inputHeight, inputWidth], unless `form` says otherwise. */
  readonly inputName: string;
  /** float32 [1, 1, inputHeight, inputWidth]; with a form any shape of one matte. */
  readonly outputName: string;
  readonly normalisation: Normalisation;
  readonly colourOrder: 'rgb' | 'bgr';
  readonly activation: Activation;
  readonly form?: GraphForm;
  /** Measured memory of the engine's process with its largest input. Absent: estimated. */
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

/** The largest input that a picture can make. No run costs more. */
export function largestInput({
  inputWidth: width,
  inputHeight: height,
  form,
}: Pick<PreparedModel, 'inputWidth' | 'inputHeight' | 'form'>): Size {
  return { width, height: form?.sides?.max ?? height };
}

/**
 * Roles other than subject run only if the matte is unsure, and a plan continues if one fails.
 * secondLook is averaged with the subject where that is unsure; surerLook replaces the subject if
 * it is surer; opinion counts at the subject's edge (picture/matte/merge-mattes.ts). refine takes
 * the picture with a trimap of these mattes, and decides in the unsure band
 * (picture/matte/trimap.ts).
 */
export const MATTE_ROLES = ['subject', 'secondLook', 'surerLook', 'opinion', 'refine'] as const;
export type MatteRole = (typeof MATTE_ROLES)[number];

/** The picture mirrored, or continued by the edges that the subject meets. */
export const EXTRA_INPUTS = ['mirrored', 'edges'] as const;
export type ExtraInput = (typeof EXTRA_INPUTS)[number];

export interface ExtraRun {
  readonly input: ExtraInput;
  /** Unsure share of the subject from which the run is made. */
  readonly unsureFrom: number;
}

export interface PlanModel {
  readonly model: PreparedModel;
  readonly role: MatteRole;
  /** In this order, but those of a plan's last model come first. */
  readonly extraRuns?: readonly ExtraRun[] | undefined;
}

/** Run one after the other; the first is a subject. */
export interface Plan {
  readonly name: string;
  readonly models: readonly PlanModel[];
}
