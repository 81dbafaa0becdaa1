import { outsideRequests } from './request-owner.ts';

/** All callers share a value, which is read at most every `cacheMs`. */
export class CachedValue<T> {
  readonly #read: () => Promise<T>;
  readonly #cacheMs: number;
  readonly #now: () => number;
  #answer: { readonly atMs: number; readonly value: Promise<T>; failed: boolean } | undefined;

  constructor(read: () => Promise<T>, cacheMs: number, now = () => performance.now()) {
    this.#read = read;
    this.#cacheMs = cacheMs;
    this.#now = now;
  }

  get(): Promise<T> {
    const now = this.#now();
    const known = this.#answer;
    if (known !== undefined && !known.failed && now - known.atMs < this.#cacheMs) {
      return known.value;
    }
    const answer = { atMs: now, value: outsideRequests(this.#read), failed: false };
    // The cache keeps no failure: the next caller reads again.
    answer.value.catch(() => {
      answer.failed = true;
    });
    this.#answer = answer;
    return answer.value;
  }
}

export function forgetOldest(held: Map<string, unknown> | Set<string>, max: number): void {
  for (const oldest of held.keys()) {
    if (held.size <= max) return;
    held.delete(oldest);
  }
}
