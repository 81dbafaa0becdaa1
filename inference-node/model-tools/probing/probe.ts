/** What a probe of an ONNX file is told, and what it finds. */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { ModelManifest, SourceGraph } from '@matting/serving/models/manifest.ts';

type Triple = readonly [number, number, number];

/** Of flags, a sidecar or the catalogue. What is absent is measured, or stays open. */
export interface ProbeWishes {
  /** Both or neither, 0 to 255, in RGB order. */
  readonly mean?: Triple;
  readonly std?: Triple;
  readonly size?: Size;
  readonly fit?: 'stretch' | 'letterbox' | 'top-left' | 'short-side';
  readonly activation?: Activation;
  readonly output?: string;
  readonly colourOrder?: ModelManifest['colourOrder'];
}

export interface ProbeLimits {
  /** Of the child's own memory; PROBE_MEMORY_MAX_BYTES where absent. */
  readonly memoryMaxBytes?: number;
  /** Of the whole probe; PROBE_TIMEOUT_MS where absent. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** As for engines. */
  readonly childEnv?: Readonly<Record<string, string>>;
}

export const PROBE_MEMORY_MAX_BYTES = 4 * 1024 ** 3;
export const PROBE_TIMEOUT_MS = 120_000;

/** Turns the raw output into alpha; `logit` undoes a second sigmoid, `signed` is -1 to 1. */
export type Activation = 'none' | 'sigmoid' | 'softmax' | 'scale255' | 'signed' | 'logit';

export interface Probe {
  /** Fields of a manifest. Its size is the one that was measured. */
  readonly graph: Omit<SourceGraph, 'file'> & {
    readonly inputType?: 'float32' | 'float16' | 'uint8';
    readonly layout?: 'nchw' | 'nhwc' | 'chw' | 'hwc';
    /** The graph leaves its size open. */
    readonly dynamic?: boolean;
  };
  /** Of an open size: what its sides have to be multiples of. 1: any side runs. */
  readonly multipleOf: number;
  /** That asked for, else the one measured. Absent: the values fit several. */
  readonly activation?: Activation;
  readonly inverted?: true;
  /** Scaling and shifting its input changes nothing: mean and std are without effect. */
  readonly normalisesItself: boolean;
  /** Of the raw output, over all check pictures. */
  readonly range: readonly [least: number, most: number];
  /** One value everywhere: no matte. */
  readonly constant: boolean;
  /** Of the process, over two runs. */
  readonly peakBytes: number;
  /** The same with the model loaded, before the first run. */
  readonly loadedBytes: number;
  /** The better of the two runs. */
  readonly seconds: number;
  /** A line each, without control characters. */
  readonly warnings: readonly string[];
  /** PNG: cut-outs by each normalisation in use, side by side, for a person. */
  readonly sheet: Buffer;
  /** PNG: the cut-out as asked for, or by ImageNet's normalisation. */
  readonly cutout: Buffer;
}
