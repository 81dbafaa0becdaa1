/**
 * Bounds attempts (sign-ins, guesses, notifications of payments) in a window, which begins with its
 * first attempt. Counts are in the database if replicas share them, else in AttemptWindows.
 */
import { forgetOldest } from '@matting/program/caches.ts';

interface WindowLimit {
  readonly windowMs: number;
  readonly max: number;
}

export interface WindowCount {
  readonly startMs: number;
  readonly count: number;
}

export const NONE_COUNTED: WindowCount = { startMs: 0, count: 0 };

export function leftOfWindowMs(
  { startMs, count }: WindowCount,
  { windowMs, max }: WindowLimit,
  nowMs: number,
): number {
  return count < max ? 0 : Math.max(0, startMs + windowMs - nowMs);
}

export function countAttempt(
  { startMs, count }: WindowCount,
  windowMs: number,
  nowMs: number,
): WindowCount {
  if (count === 0 || nowMs >= startMs + windowMs) return { startMs: nowMs, count: 1 };
  return { startMs, count: count + 1 };
}

export class AttemptWindows {
  readonly #limit: WindowLimit & { readonly keysMax: number };
  readonly #nowMs: () => number;
  readonly #counts = new Map<string, WindowCount>();

  /** @param limit past `keysMax` keys, the one with the oldest window is forgotten */
  constructor(limit: WindowLimit & { readonly keysMax: number }, nowMs = () => performance.now()) {
    this.#limit = limit;
    this.#nowMs = nowMs;
  }

  waitS(key: string): number {
    const leftMs = leftOfWindowMs(this.#countOf(key), this.#limit, this.#nowMs());
    return Math.ceil(leftMs / 1000);
  }

  count(key: string): void {
    const before = this.#countOf(key);
    const counted = countAttempt(before, this.#limit.windowMs, this.#nowMs());
    if (counted.startMs !== before.startMs) this.#counts.delete(key);
    this.#counts.set(key, counted);
    forgetOldest(this.#counts, this.#limit.keysMax);
  }

  #countOf(key: string): WindowCount {
    return this.#counts.get(key) ?? NONE_COUNTED;
  }
}
