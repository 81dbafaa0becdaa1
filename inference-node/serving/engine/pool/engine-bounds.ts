/**
 * Bounds what an engine may take while it serves. `models add` measured an added model with painted
 * pictures, and a graph of anybody's may take more for another picture. What bounds a probe
 * therefore bounds each engine of that model too. A shipped model has no bound: its graph is pinned
 * by its checksum, was rewritten for one size, and takes the same memory for every picture.
 */
import { engineBytes } from '../../admission.ts';
import { largestInput, type PreparedModel } from '../../models/prepared-model.ts';
import { ANSWER_VALUES_MAX } from '../engine-protocol.ts';

export interface EngineBounds {
  /** The kernel gives the process no more than this (RLIMIT_DATA). Undefined: all that there is. */
  readonly dataBytesMax?: number;
  readonly resident?: ResidentBound;
  /** The matte of a run. */
  readonly answerBytesMax: number;
}

/** An engine that keeps more than this after a run is restarted. */
interface ResidentBound {
  /**
   * The memory as admission counts it. On a GPU the driver may make the process larger from the
   * start.
   */
  readonly countedBytes: number;
  /** The growth above `countedBytes`, or above what was resident when the engine was ready. */
  readonly growthBytesMax: number;
}

/** V8 and the runtime reserve this and do not use it: 0.6 GB before a graph is loaded. */
export const RUNTIME_RESERVED_BYTES = 640 * 1024 ** 2;
/** The stack that each thread reserves (glibc, with the usual `ulimit -s`). */
const THREAD_RESERVED_BYTES = 8 * 1024 ** 2;
/** An engine may take this times what was measured. The runtime takes memory in powers of two. */
const MEASURED_TIMES_MAX = 2;
/** A model that nobody measured, in a manifest written by hand, gets the bound of a probe. */
const UNMEASURED_BYTES = 2 * 1024 ** 3;
/** An engine may keep this share of what was measured between two pictures. */
const KEPT_SHARE_MAX = 0.5;
/** Node's own heap and buffers come and go by so much. */
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

/** Bounds the memory of an engine whose graph nobody made for its runtime (RLIMIT_DATA, bytes). */
export function dataBytesOf(model: PreparedModel, threads: number): number {
  const reserved = RUNTIME_RESERVED_BYTES + threads * THREAD_RESERVED_BYTES;
  return reserved + MEASURED_TIMES_MAX * measuredBytes(model);
}
