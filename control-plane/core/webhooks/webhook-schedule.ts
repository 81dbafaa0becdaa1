/** The waits between a notification's attempts, and what a receiver may change of them. Pure. */
import { parseRetryAfterMs } from '@matting/http/request-headers.ts';

/** Waits in ms; the first comes before attempt 1, so there are as many attempts as waits. */
export type WebhookSchedule = readonly [firstMs: number, ...laterMs: number[]];

/** The contract's: at once, then after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h. */
export const WEBHOOK_SCHEDULE_MS: WebhookSchedule = [
  0, 5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000,
];

/** Either way, so that what failed together is not tried together. */
const JITTER = 0.1;
/** The result's life: a later notification would announce nothing. */
const SCHEDULE_MS_MAX = 86_400_000;
/** A receiver may put a notification off for so long at a time. */
const RETRY_AFTER_MS_MAX = 3_600_000;
/** Retry-After is honoured with these two alone. */
const RETRY_AFTER_STATUS: ReadonlySet<number> = new Set([429, 503]);

/** True if every attempt falls inside the link's life, jitter included. */
export function isWebhookSchedule(schedule: readonly number[]): schedule is WebhookSchedule {
  const totalMs = schedule.reduce((sum, waitMs) => sum + waitMs, 0);
  return schedule.length > 0 && totalMs * (1 + JITTER) < SCHEDULE_MS_MAX;
}

/**
 * The wait runs from the end of one attempt to the next, never sooner than requested; undefined: no
 * other.
 */
export function nextWaitMs(
  schedule: WebhookSchedule,
  attempts: number,
  retryAfterMs: number,
  random: number,
): number | undefined {
  const waitMs = schedule.at(attempts);
  if (attempts >= schedule.length || waitMs === undefined) return undefined;
  return Math.max(Math.round(waitMs * (1 + JITTER * (2 * random - 1))), retryAfterMs);
}

/**
 * Returns at most an hour; 0 if status or header is another. @param header seconds, or an HTTP date
 */
export function retryAfterMs(status: number, header: string | undefined, nowMs: number): number {
  if (!RETRY_AFTER_STATUS.has(status)) return 0;
  return Math.min(parseRetryAfterMs(header, nowMs), RETRY_AFTER_MS_MAX);
}
