/**
 * The stages of an image in a node. A new stage is a field of `StageTimings` in the proto file and
 * a line here; where a stage has to be measured, the types then report what is missing. Metric
 * labels, Server-Timing and stored times take the names from here.
 */
import type { StageTimings as ProtoTimings } from '../gen/matting/v1/matte_service.ts';

/** Names of the stages, in their order, and the field that carries each one's time. */
export const STAGES = {
  receive: 'receiveMs',
  worker_wait: 'workerWaitMs',
  decode: 'decodeMs',
  engine_wait: 'engineWaitMs',
  infer: 'inferMs',
  second_look: 'secondLookMs',
  extra_run: 'extraRunMs',
  crop_run: 'cropRunMs',
  refine: 'refineMs',
  finish: 'finishMs',
  encode: 'encodeMs',
  send: 'sendMs',
} as const satisfies Readonly<Record<string, keyof ProtoTimings>>;

export type StageName = keyof typeof STAGES;

/** An image without such a stage has no time of it. */
const ON_REQUEST: readonly StageName[] = ['finish', 'extra_run', 'crop_run'];

/** Milliseconds of each stage; 0 where it did not take place. */
export type StageTimings = Readonly<Record<(typeof STAGES)[StageName], number>>;

export function timesByStage(timings: StageTimings): [stage: StageName, ms: number][] {
  const stages = Object.keys(STAGES) as StageName[];
  return stages
    .map((stage): [StageName, number] => [stage, timings[STAGES[stage]]])
    .filter(([stage, ms]) => !ON_REQUEST.includes(stage) || ms > 0);
}
