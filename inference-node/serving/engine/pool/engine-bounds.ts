/**
 * `models add` measured an added model with painted pictures, and its graph may take more for
 * another picture, so its engines have limits. A shipped model has none: its checksum pins the
 * graph, which takes the same memory for every picture.
 */
import { engineBytes } from '../../admission.ts';
import { largestInput, type PreparedModel } from '../../models/prepared-model.ts';
import { ANSWER_VALUES_MAX } from '../engine-protocol.ts';

export interface EngineBounds {
  /** RLIMIT_DATA. Undefined: no limit. */
  readonly dataBytesMax?: number;
  readonly resident?: ResidentBound;
  readonly answerBytesMax: number;
}

/** An engine that keeps more than this after a run is restarted. */
interface ResidentBound {
  /** Memory as admission counts it. On a GPU the driver may add to it from the start. */
  readonly countedBytes: number;
  /** Growth over `countedBytes`, or over the resident size when the engine became ready. */
  readonly growthBytesMax: number;
}

/**
 * V8 and the runtime reserve 0.6 GB of address space before a graph is loaded, and do not use it.
 */
export const RUNTIME_RESERVED_BYTES = 640 * 1024 ** 2;
/** Stack of a thread (glibc, with the usual `ulimit -s`). */
const THREAD_RESERVED_BYTES = 8 * 1024 ** 2;
/** The runtime allocates in powers of two. */
const MEASURED_TIMES_MAX = 2;
/** A model that nobody measured, from a manifest written by hand, gets a probe's limit. */
const UNMEASURED_BYTES = 2 * 1024 ** 3;
const KEPT_SHARE_MAX = 0.5;
/** Fluctuation of Node's own heap and buffers. */
const KEPT_BYTES = 64 * 1024 ** 2;

export function boundsOf(model: PreparedModel, threads: number): EngineBounds {
  const { width, height } = largestInput(model);
  if (model.form === undefined) return { answerBytesMax: width * height };
  const measured = measuredBytes(model);
  return {
    // A GPU's driver reserves address space by its own rules.
    ...(model.provider === 'cpu' && { dataBytesMax: dataBytesOf(model, threads) }),
    resident: {
      countedBytes: measured,
      growthBytesMax: measured * KEPT_SHARE_MAX + KEPT_BYTES,
    },
    answerBytesMax: ANSWER_VALUES_MAX,
  };
}

function measuredBytes(model: PreparedModel): number {
  return model.peakBytes ?? Math.max(UNMEASURED_BYTES, engineBytes(model));
}

export function dataBytesOf(model: PreparedModel, threads: number): number {
  const reserved = RUNTIME_RESERVED_BYTES + threads * THREAD_RESERVED_BYTES;
  return reserved + MEASURED_TIMES_MAX * measuredBytes(model);
}
