/**
 * How replicas share an account's requests per minute. Each minute of the database's clock is a
 * window with a quota. A replica first spends one block of it without asking (its advance), then
 * leases blocks, and the advance, from a row shared by all replicas:
 *
 * - an account that sends less than a block per minute and replica needs no statement,
 * - a single replica keeps the limit exactly,
 * - each further replica can exceed it by its advance, one block per window.
 *
 * The rest of a block is void when its window ends.
 */

const RATE_KINDS = ['submissions', 'reads'] as const;
export type RateKind = (typeof RATE_KINDS)[number];

export const RATE_WINDOW_MS = 60_000;
const BLOCKS_PER_WINDOW = 60;

export function quotaBlockOf(limit: number): number {
  return Math.ceil(limit / BLOCKS_PER_WINDOW);
}

export function quotaWindowStartMs(nowMs: number): number {
  return nowMs - (nowMs % RATE_WINDOW_MS);
}

interface QuotaUse {
  readonly windowStartMs: number;
  /** Requests that replicas may have answered in the window. Advances may exceed the limit. */
  readonly leased: number;
}

export interface QuotaAsk {
  readonly limit: number;
  readonly block: number;
  /** Requests spent before the lease, in the window at windowStartMs. */
  readonly advance: number;
  readonly windowStartMs: number;
}

export interface QuotaLease extends QuotaUse {
  /** 0 if the quota is used up, at most a block. */
  readonly granted: number;
}

export function leaseQuota(use: QuotaUse | undefined, ask: QuotaAsk, nowMs: number): QuotaLease {
  const windowStartMs = quotaWindowStartMs(nowMs);
  const spent = use?.windowStartMs === windowStartMs ? use.leased : 0;
  const due = spent + (ask.windowStartMs === windowStartMs ? ask.advance : 0);
  const granted = Math.max(0, Math.min(ask.block, ask.limit - due));
  return { windowStartMs, leased: due + granted, granted };
}
