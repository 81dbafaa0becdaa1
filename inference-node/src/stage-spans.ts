/** Spans of the stages that others time: a picture worker's, and an engine's behind its queue. */

import type { StageName } from '#contract/stages.ts';
import { recordSpan } from '#program/tracing/active-span.ts';

/** One after the other, the last of them ending now. Those that took no time did not take place. */
export function recordStages(stages: readonly (readonly [name: StageName, ms: number])[]): void {
  let startTime = Date.now() - stages.reduce((sum, [, ms]) => sum + ms, 0);
  for (const [name, ms] of stages) {
    if (ms > 0) recordSpan({ name, startTime }, startTime + ms);
    startTime += ms;
  }
}
