/** The stages of a job with their times, as they are stored with it and shown to people. Pure. */
import type { StageTimings } from '../../domain/job.ts';
import type { MatteResult } from '../../nodes/attempt-outcome.ts';

/** The control plane's own stages around the node's. */
export interface OwnTimes {
  /** From submission to the node's Admitted. */
  readonly queue: number;
  /** Making the result durable. */
  readonly store: number;
}

/** Milliseconds to the tenth: `queue`, then the node's stages in their order, then `store`. */
export function roundedTimings(node: MatteResult['timings'], own: OwnTimes): StageTimings {
  const stages: Record<string, number> = {
    queue: own.queue,
    ...(node === undefined
      ? {}
      : {
          receive: node.receiveMs,
          worker_wait: node.workerWaitMs,
          decode: node.decodeMs,
          engine_wait: node.engineWaitMs,
          infer: node.inferMs,
          second_look: node.secondLookMs,
          refine: node.refineMs,
          encode: node.encodeMs,
          send: node.sendMs,
        }),
    store: own.store,
  };
  const entries = Object.entries(stages);
  return Object.fromEntries(entries.map(([stage, ms]) => [stage, Math.round(ms * 10) / 10]));
}
