/** How long a run queued now waits for an engine, by what runs took. Pure. */

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

/** One in five: a dozen runs after a change it has followed nine tenths of it. */
const WEIGHT_OF_NEWEST = 0.2;

/** A mean that follows the last few values. */
export class RunningMean {
  #value = 0;
  #measured = false;

  /** 0 before the first value. */
  get value(): number {
    return this.#value;
  }

  /** A first guess, until something was measured. */
  seed(value: number): void {
    if (!this.#measured) this.#value = value;
  }

  add(value: number): void {
    this.#value = this.#measured ? this.#value + WEIGHT_OF_NEWEST * (value - this.#value) : value;
    this.#measured = true;
  }
}
