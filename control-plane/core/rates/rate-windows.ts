/**
 * Windows of time and what may be counted in them. Pure. First the quota of requests, then attempts
 * (sign-ins, guesses).
 *
 * How replicas share an account's requests of a minute: each minute of the database's clock
 * is a window with a quota. A replica spends one block of it before it asks anybody (its advance),
 * and leases further blocks, with the advance, from the row all replicas share:
 *
 * - an account that sends less than a block a minute to a replica costs no statement,
 * - one replica alone keeps the limit to the request,
 * - each further replica can spend its advance beyond it: one block, once a window.
 *
 * What is left of a block when its window ends is void.
 */

const RATE_KINDS = ['submissions', 'reads'] as const;
/** Counted separately. */
export type RateKind = (typeof RATE_KINDS)[number];

export const RATE_WINDOW_MS = 60_000;
/** An account at its limit leases about once a second. */
const BLOCKS_PER_WINDOW = 60;

export function quotaBlockOf(limit: number): number {
  return Math.ceil(limit / BLOCKS_PER_WINDOW);
}

export function quotaWindowStartMs(nowMs: number): number {
  return nowMs - (nowMs % RATE_WINDOW_MS);
}

export interface QuotaUse {
  readonly windowStartMs: number;
  /** Requests that replicas may have answered in that window: may exceed the limit by advances. */
  readonly leased: number;
}

export interface QuotaAsk {
  readonly limit: number;
  readonly block: number;
  /** Spent before asking, and in which window. */
  readonly advance: number;
  readonly windowStartMs: number;
}

export interface QuotaLease extends QuotaUse {
  /** From 0, where the quota is used up, to a block. */
  readonly granted: number;
}

export function leaseQuota(use: QuotaUse | undefined, ask: QuotaAsk, nowMs: number): QuotaLease {
  const windowStartMs = quotaWindowStartMs(nowMs);
  const spent = use?.windowStartMs === windowStartMs ? use.leased : 0;
  const due = spent + (ask.windowStartMs === windowStartMs ? ask.advance : 0);
  const granted = Math.max(0, Math.min(ask.block, ask.limit - due));
  return { windowStartMs, leased: due + granted, granted };
}

/**
 * How many attempts there may be in a window, which begins with the first that is counted.
 * The counts are kept in the database where replicas share them, else in AttemptWindows.
 */

interface WindowLimit {
  readonly windowMs: number;
  readonly max: number;
}

export interface WindowCount {
  readonly startMs: number;
  readonly count: number;
}

export const NONE_COUNTED: WindowCount = { startMs: 0, count: 0 };

/** How long until one more may be made; 0: now. */
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

/** Counts of this process, by whose attempts they are. */
export class AttemptWindows {
  readonly #limit: WindowLimit & { readonly keysMax: number };
  readonly #nowMs: () => number;
  readonly #counts = new Map<string, WindowCount>();

  /** @param limit past `keysMax` whose window began first is forgotten */
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
    if (this.#counts.size <= this.#limit.keysMax) return;
    for (const first of this.#counts.keys()) {
      this.#counts.delete(first);
      return;
    }
  }

  #countOf(key: string): WindowCount {
    return this.#counts.get(key) ?? NONE_COUNTED;
  }
}
