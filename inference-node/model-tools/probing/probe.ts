/** A probe of an ONNX file gets these wishes and limits, and finds these facts. */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { ProbeProcessLimits } from '@matting/serving/engine/probe/probe-process.ts';
import type { Measured, ModelManifest, SourceGraph } from '@matting/serving/models/manifest.ts';
import {
  type Activation,
  type Fit,
  INPUT_SIDE_MAX,
  type InputType,
  type Layout,
  type Normalisation,
} from '@matting/serving/models/prepared-model.ts';
import type { RgbaPicture } from '@matting/serving/picture/in-process.ts';

/** From flags, a sidecar or the catalogue. An absent value is measured, or stays open. */
export interface ProbeWishes {
  readonly normalisation?: Normalisation;
  /** An open size is measured at this one; PROBE_SIDE_PX where absent. */
  readonly size?: Size;
  readonly fit?: Fit;
  readonly activation?: Activation;
  readonly output?: string;
  readonly colourOrder?: ModelManifest['colourOrder'];
  /** A person sees this picture cut out; a drawn one where absent. */
  readonly picture?: RgbaPicture;
}

export interface ProbeLimits extends ProbeProcessLimits {
  /** Deformable convolutions that can be mended are not: preparing left them as they are. */
  readonly asItIs?: true;
}

export const PROBE_SIDE_PX = 512;

/** An open size was measured at `side`: twice that costs four times as much memory. */
export function longestSide(side: number, multipleOf: number): number {
  return Math.min(2 * side, INPUT_SIDE_MAX - (INPUT_SIDE_MAX % multipleOf));
}

/** The fields of a manifest, with what it may leave out. Its size is the one that was measured. */
type ProbedGraph = Omit<SourceGraph, 'file'> & {
  readonly inputType: InputType;
  readonly layout: Layout;
  readonly dynamic: boolean;
};

/** The values are measured on the CPU. */
export interface Probe extends Measured {
  /** `name: type [shape]` of each. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly graph: ProbedGraph;
  /** Sides of an open size have to be multiples of this. 1: any side runs. */
  readonly multipleOf: number;
  /** The least side that runs beside the longest under the fit short-side, pixels. */
  readonly shortestSide?: number;
  /** The wish, else the one that was measured. Absent: the values fit several. */
  readonly activation?: Activation;
  readonly inverted?: true;
  /** The range is the raw output's, over the pictures that were run. */
  readonly range: readonly [least: number, most: number];
  /** Measured with its deformable convolutions mended, as it is prepared. */
  readonly mended?: true;
  /** One value is everywhere: the output is no matte. */
  readonly constant: boolean;
  /** Each warning is one line, without control characters. */
  readonly warnings: readonly string[];
  /** The wish, or the names of NORMALISATIONS. */
  readonly shown: readonly string[];
  /** PNG for a person, one by each normalisation of `shown`. */
  readonly cutouts: readonly [Buffer, ...Buffer[]];
}

export interface NamedNormalisation extends Normalisation {
  readonly of: string;
}

export const NORMALISATIONS: readonly [NamedNormalisation, ...NamedNormalisation[]] = [
  { of: 'ImageNet', mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375] },
  { of: '0 to 1', mean: [0, 0, 0], std: [255, 255, 255] },
  { of: '-1 to 1', mean: [127.5, 127.5, 127.5], std: [127.5, 127.5, 127.5] },
  { of: '-0.5 to 0.5', mean: [127.5, 127.5, 127.5], std: [255, 255, 255] },
];
