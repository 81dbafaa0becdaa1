/** A mean that follows the last few values. */

/** One in five: a dozen runs after a change it has followed nine tenths of it. */
const WEIGHT_OF_NEWEST = 0.2;

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
