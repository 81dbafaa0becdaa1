/**
 * What a probe and its child say to each other (serving/process/frames.ts carries it). The child
 * loads and runs what it is told to, and judges nothing: it may hang, crash or be out of memory.
 *
 *   probe                              child
 *   load ─────────────────────────────► looks for external data, loads
 *        ◄──────────────────────────── loaded | failed
 *   run + rgb ────────────────────────►
 *        ◄──────────────────────────── ran, with the values where one output was asked for | failed
 *
 * One at a time; after `failed` further runs may follow a load that succeeded.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { TensorFacts } from '@matting/serving/engine/child/form-ends.ts';
import type { RuntimeSpec } from '@matting/serving/engine/child/loaded-model.ts';
import type { SessionSpec } from '@matting/serving/engine/engine-protocol.ts';

export interface ToProbeChild {
  /** `spec.path` is given. */
  readonly load: { readonly kind: 'load'; readonly spec: LoadSpec };
  /** A part: HWC RGB, a picture of `size` in the spec's input. */
  readonly run: {
    readonly kind: 'run';
    readonly spec: SessionSpec;
    readonly size: Size;
    readonly outputs: readonly string[];
  };
}

export type LoadSpec = RuntimeSpec & Pick<SessionSpec, 'path'>;

/** One output of a run. */
export interface OutputValues {
  readonly name: string;
  readonly type: string;
  readonly dims: readonly number[];
  /** Of numbers alone; [0, 0] where there is none. */
  readonly range: readonly [least: number, most: number];
  /** A value is infinite or none. */
  readonly notFinite: boolean;
  /** 0: it holds no numbers, or over ANSWER_VALUES_MAX (serving/engine/engine-protocol.ts). */
  readonly count: number;
}

export interface FromProbeChild {
  readonly loaded: {
    readonly kind: 'loaded';
    readonly inputs: readonly TensorFacts[];
    readonly outputs: readonly TensorFacts[];
    /** Most of the weights are float16. */
    readonly halves: boolean;
    readonly loadedBytes: number;
  };
  /** A part where one output was asked for: its values, float32. */
  readonly ran: {
    readonly kind: 'ran';
    readonly seconds: number;
    /** Of the process, so far. */
    readonly peakBytes: number;
    readonly outputs: readonly [OutputValues, ...OutputValues[]];
  };
  readonly failed: {
    readonly kind: 'failed';
    /** As native code said it, cut. */
    readonly message: string;
  };
}

/** A graph with more tensors at its ends, or longer names, is no network that makes a matte. */
export const TENSORS_MAX = 64;
export const NAME_LENGTH_MAX = 256;
export const MESSAGE_LENGTH_MAX = 4000;
