interface WaitInputs {
  readonly freeInMs: readonly number[];
  readonly queued: number;
  readonly inferMs: number;
}

export function estimateWaitMs({ freeInMs, queued, inferMs }: WaitInputs): number {
  const free = [...freeInMs];
  for (let i = 0; i < queued; i++) {
    const soonestMs = Math.min(...free);
    free[free.indexOf(soonestMs)] = soonestMs + inferMs;
  }
  return Math.min(...free);
}

/** Twelve runs after a change, the mean has followed nine tenths of it. */
const WEIGHT_OF_NEWEST = 0.2;

export class RunningMean {
  #value = 0;
  #measured = false;

  get value(): number {
    return this.#value;
  }

  seed(value: number): void {
    if (!this.#measured) this.#value = value;
  }

  add(value: number): void {
    this.#value = this.#measured ? this.#value + WEIGHT_OF_NEWEST * (value - this.#value) : value;
    this.#measured = true;
  }
}
