/** A probe of an ONNX file gets these facts and limits, and measures these. */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { ProbeProcessLimits } from '@matting/serving/engine/probe/probe-process.ts';
import type { Measured, ModelManifest, SourceGraph } from '@matting/serving/models/manifest.ts';
import {
  INPUT_SIDE_MAX,
  type InputType,
  type Layout,
} from '@matting/serving/models/prepared-model.ts';

/** What options, a manifest of a person or the catalogue state: nobody can see it in a graph. */
export interface Facts
  extends Partial<Pick<ModelManifest, 'normalisation' | 'fit' | 'activation' | 'colourOrder'>> {
  /** The size in pixels, if the graph leaves it open. */
  readonly size?: Size;
  /** The graph takes every side that is a multiple of it. Absent: it takes `size` alone. */
  readonly multipleOf?: number;
  /** The output shows the background. */
  readonly inverted?: boolean;
  /** The name of the output that is the matte, if several can be. */
  readonly output?: string;
  /** The first of them is the matte, as the programs that the catalogue's sources name take it. */
  readonly firstOutput?: true;
  /** The fourth channel of the input is a trimap, if the graph leaves its channels open. */
  readonly trimap?: boolean;
}

/** A fact that the graph needs and nobody stated. */
export type OpenFact = 'normalisation' | 'size' | 'multipleOf' | 'activation' | 'output';

/** What the graph itself says. */
export interface GraphWords {
  /** `name: type [shape]` of each, one line without control characters. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** The stated facts, and those that the graph decides. */
  readonly facts: Facts;
}

export class OpenFacts extends Error {
  readonly open: readonly OpenFact[];
  /** Absent: the graph was not loaded. */
  readonly graph: GraphWords | undefined;
  /** Words about the draft that was written. */
  readonly draft: string | undefined;

  constructor(open: readonly OpenFact[], graph?: GraphWords, draft?: string) {
    super(`nobody states ${open.join(', ')}`);
    this.open = open;
    this.graph = graph;
    this.draft = draft;
  }
}

export interface ProbeLimits extends ProbeProcessLimits {
  /** Deformable convolutions that can be mended are not: preparing left them as they are. */
  readonly asItIs?: true;
}

/** Without effect: a graph that takes bytes normalises by itself. */
export const NO_NORMALISATION = { mean: [0, 0, 0], std: [1, 1, 1] } as const;

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
  readonly graph: ProbedGraph;
  /** The least side that runs beside the longest under the fit short-side, pixels. */
  readonly shortestSide?: number;
  /** The range of the raw output. */
  readonly range: readonly [least: number, most: number];
  /** Measured with its deformable convolutions mended, as it is prepared. */
  readonly mended?: true;
  /** PNG of the drawn picture, for a person. */
  readonly cutout: Buffer;
}
