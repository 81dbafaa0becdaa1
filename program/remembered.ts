/** Remembers a value for a time, and of many values no more than a bound. */
import { outsideRequests } from './request-owner.ts';

/** A value that is read at most every `cacheMs`, however many callers there are. */
export class Remembered<T> {
  readonly #ask: () => Promise<T>;
  readonly #cacheMs: number;
  readonly #now: () => number;
  #answer: { readonly atMs: number; readonly value: Promise<T>; failed: boolean } | undefined;

  constructor(ask: () => Promise<T>, cacheMs: number, now = () => performance.now()) {
    this.#ask = ask;
    this.#cacheMs = cacheMs;
    this.#now = now;
  }

  get(): Promise<T> {
    const now = this.#now();
    const known = this.#answer;
    if (known !== undefined && !known.failed && now - known.atMs < this.#cacheMs) {
      return known.value;
    }
    const answer = { atMs: now, value: outsideRequests(this.#ask), failed: false };
    // A failure is not kept: this caller gets the error, the next one reads again.
    answer.value.catch(() => {
      answer.failed = true;
    });
    this.#answer = answer;
    return answer.value;
  }
}

/** Forgets what was put in first, until no more than `max` are left. */
export function forgetOldest(held: Map<string, unknown> | Set<string>, max: number): void {
  for (const oldest of held.keys()) {
    if (held.size <= max) return;
    held.delete(oldest);
  }
}
