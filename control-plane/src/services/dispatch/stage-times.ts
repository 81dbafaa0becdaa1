/** The stages of a job with their times, as they are stored with it and shown to people. Pure. */
import { timesByStage } from '#contract/stages.ts';
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
  const nodeTimes = node === undefined ? [] : timesByStage(node);
  const times = [['queue', own.queue] as const, ...nodeTimes, ['store', own.store] as const];
  return Object.fromEntries(times.map(([stage, ms]) => [stage, Math.round(ms * 10) / 10]));
}
