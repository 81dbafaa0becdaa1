import { at } from './at.ts';

/** Repeatable by seed. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** mulberry32 (Tommy Ettinger, public domain): 0 to 2^32 - 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** 0 to `below` - 1. */
  below(below: number): number {
    return below <= 0 ? 0 : this.next() % below;
  }

  between(min: number, max: number): number {
    return min + ((max - min) * this.next()) / 2 ** 32;
  }

  pick<Value>(values: readonly Value[]): Value {
    return at(values, this.below(values.length));
  }

  shuffle<Value>(values: readonly Value[]): Value[] {
    const keyed = values.map(value => ({ value, key: this.next() }));
    return keyed.sort((one, other) => one.key - other.key).map(({ value }) => value);
  }
}
