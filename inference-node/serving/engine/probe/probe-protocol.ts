/**
 * These messages go between a probe and its child (serving/process/frames.ts carries them). The
 * child loads and runs by order, and judges nothing: it may hang, crash or be out of memory.
 *
 *   probe                              child
 *   load ─────────────────────────────► looks for external data, loads
 *        ◄──────────────────────────── loaded | failed
 *   run + rgb ────────────────────────►
 *        ◄──────────────────────────── ran, with the values where one output was asked for | failed
 *
 * The child does one order at a time; after `failed` further runs may follow a successful load.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { FormSpec, TensorFacts } from '../child/form-ends.ts';
import type { RuntimeSpec } from '../child/loaded-model.ts';

export interface ToProbeChild {
  readonly load: { readonly kind: 'load'; readonly spec: LoadSpec };
  /** A part: HWC RGB, a picture of `size` in the spec's input. */
  readonly run: {
    readonly kind: 'run';
    readonly spec: FormSpec;
    readonly size: Size;
    readonly outputs: readonly string[];
  };
}

type LoadSpec = RuntimeSpec & { readonly path: string };

/** One output of a run. */
export interface OutputValues {
  readonly name: string;
  readonly type: string;
  readonly dims: readonly number[];
  /** The range covers numbers alone; [0, 0] where there is none. */
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
  /** The part is there where one output was wanted: its values, float32. */
  readonly ran: {
    readonly kind: 'ran';
    readonly seconds: number;
    /** The peak is the process's, so far. */
    readonly peakBytes: number;
    readonly outputs: readonly [OutputValues, ...OutputValues[]];
  };
  readonly failed: {
    readonly kind: 'failed';
    /** The message is native code's own, cut. */
    readonly message: string;
  };
}

/** A graph with more tensors at its ends, or longer names, is no network that makes a matte. */
export const TENSORS_MAX = 64;
export const NAME_LENGTH_MAX = 256;
export const MESSAGE_LENGTH_MAX = 4000;
