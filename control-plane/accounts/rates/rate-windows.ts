/**
 * How replicas share an account's requests of a minute. Pure. Each minute of the database's clock
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

interface QuotaUse {
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
  /** The number reaches from 0, if the quota is used up, to a block. */
  readonly granted: number;
}

export function leaseQuota(use: QuotaUse | undefined, ask: QuotaAsk, nowMs: number): QuotaLease {
  const windowStartMs = quotaWindowStartMs(nowMs);
  const spent = use?.windowStartMs === windowStartMs ? use.leased : 0;
  const due = spent + (ask.windowStartMs === windowStartMs ? ask.advance : 0);
  const granted = Math.max(0, Math.min(ask.block, ask.limit - due));
  return { windowStartMs, leased: due + granted, granted };
}
