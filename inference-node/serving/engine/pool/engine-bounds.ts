/**
 * Limits for engines of added models: `models add` measured them with painted pictures, and their
 * graphs may take more for others. A shipped model has none: its checksum pins the graph, which
 * takes the same memory for every picture.
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

/** If an engine keeps more than this after a run, it is restarted. */
interface ResidentBound {
  /** Memory as admission counts it. A GPU's driver may take more from the start. */
  readonly countedBytes: number;
  /** Growth over `countedBytes`, or over the resident size when the engine became ready. */
  readonly growthBytesMax: number;
}

/** V8 and the runtime reserve 0.6 GB of addresses before a graph is loaded, and do not use them. */
export const RUNTIME_RESERVED_BYTES = 640 * 1024 ** 2;
/** Stack of a thread (glibc, with the usual `ulimit -s`). */
const THREAD_RESERVED_BYTES = 8 * 1024 ** 2;
/** The runtime allocates in powers of two, so up to twice what was measured. */
const MEASURED_TIMES_MAX = 2;
/** A model that nobody measured, from a manifest written by hand, gets a probe's limit. */
const UNMEASURED_BYTES = 2 * 1024 ** 3;
const KEPT_SHARE_MAX = 0.5;
/** Room for fluctuations of Node's own heap and buffers. */
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
