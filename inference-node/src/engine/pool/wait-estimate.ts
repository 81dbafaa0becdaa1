/** How long a run queued now waits for an engine. Pure. */

export interface WaitInputs {
  /** For each engine, ms until it can take a run, as far as is known: 0 idle. */
  readonly freeInMs: readonly number[];
  /** Runs waiting already. */
  readonly queued: number;
  /** Running mean of a run. */
  readonly inferMs: number;
}

/** Lets the waiting runs take, one after the other, the engine that is free first. */
export function estimateWaitMs({ freeInMs, queued, inferMs }: WaitInputs): number {
  const free = [...freeInMs];
  for (let i = 0; i < queued; i++) {
    const soonestMs = Math.min(...free);
    free[free.indexOf(soonestMs)] = soonestMs + inferMs;
  }
  return Math.min(...free);
}
