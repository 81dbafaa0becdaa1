/**
 * The stages of an image in a node. A new stage needs a field of `StageTimings` in the proto file
 * and an entry here. Metric labels, Server-Timing and stored times use these names.
 */
import type { StageTimings as ProtoTimings } from '../gen/matting/v1/matte_service.ts';

/** In order, with the field of each one's time. */
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

/** Only images with these stages have their times. */
const ON_REQUEST: readonly StageName[] = ['finish', 'extra_run', 'crop_run'];

/** Milliseconds; 0: the stage did not run. */
export type StageTimings = Readonly<Record<(typeof STAGES)[StageName], number>>;

export function timesByStage(timings: StageTimings): [stage: StageName, ms: number][] {
  const stages = Object.keys(STAGES) as StageName[];
  return stages
    .map((stage): [StageName, number] => [stage, timings[STAGES[stage]]])
    .filter(([stage, ms]) => !ON_REQUEST.includes(stage) || ms > 0);
}
