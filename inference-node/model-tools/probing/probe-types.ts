import type { Size } from '@matting/proto/contract/finishing.ts';
import type { ProbeProcessLimits } from '@matting/serving/engine/probe/probe-process.ts';
import type { Measured, ModelManifest, SourceGraph } from '@matting/serving/models/manifest.ts';
import {
  INPUT_SIDE_MAX,
  type InputType,
  type Layout,
} from '@matting/serving/models/prepared-model.ts';

/** Stated by options, a manifest or the catalogue: no graph shows them. */
export interface Facts
  extends Partial<Pick<ModelManifest, 'normalisation' | 'fit' | 'activation' | 'colourOrder'>> {
  /** Stated if the graph leaves it open. */
  readonly size?: Size;
  /** Any multiple fits the graph. Absent: only `size` does. */
  readonly multipleOf?: number;
  /** The output shows the background. */
  readonly inverted?: boolean;
  /** Stated if several can be the matte. */
  readonly output?: string;
  /** The first output is the matte. Programs that the catalogue cites as sources read it, too. */
  readonly firstOutput?: true;
  /** Stated if the graph leaves its channels open. */
  readonly trimap?: boolean;
}

export type OpenFact = 'normalisation' | 'size' | 'multipleOf' | 'activation' | 'output';

export interface GraphWords {
  /** `name: type [shape]`, without control characters. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly facts: Facts;
}

export class OpenFacts extends Error {
  readonly open: readonly OpenFact[];
  readonly graph: GraphWords | undefined;
  readonly draft: string | undefined;

  constructor(open: readonly OpenFact[], graph?: GraphWords, draft?: string) {
    super(`nobody states ${open.join(', ')}`);
    this.open = open;
    this.graph = graph;
    this.draft = draft;
  }
}

export interface ProbeLimits extends ProbeProcessLimits {
  /** Keeps deformable convolutions, because preparing kept them. */
  readonly asItIs?: true;
}

/** For graphs that take bytes, which normalise themselves. */
export const NO_NORMALISATION = { mean: [0, 0, 0], std: [1, 1, 1] } as const;

/** At most twice the measured side, which takes four times the memory. */
export function longestSide(side: number, multipleOf: number): number {
  return Math.min(2 * side, INPUT_SIDE_MAX - (INPUT_SIDE_MAX % multipleOf));
}

/** A manifest's fields. The probe measured the input size. */
type ProbedGraph = Omit<SourceGraph, 'file'> & {
  readonly inputType: InputType;
  readonly layout: Layout;
  readonly dynamic: boolean;
};

export interface Probe extends Measured {
  readonly graph: ProbedGraph;
  /** Shortest side that runs next to the longest, pixels, for fit short-side. */
  readonly shortestSide?: number;
  readonly range: readonly [least: number, most: number];
  /** Measured with replaced deformable convolutions. */
  readonly mended?: true;
  readonly cutout: Buffer;
}
