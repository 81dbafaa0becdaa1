import { parseRetryAfterMs } from '@matting/http/request-headers.ts';

/** In ms; the first wait precedes attempt 1. */
export type WebhookSchedule = readonly [firstMs: number, ...laterMs: number[]];

/** The contract's schedule. */
export const WEBHOOK_SCHEDULE_MS: WebhookSchedule = [
  0, 5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000,
];

/** ±10 %, so that webhooks that failed together do not retry together. */
const JITTER = 0.1;
/** The result's life. A later notification would announce nothing. */
const SCHEDULE_MS_MAX = 86_400_000;
/** Longest delay that a receiver can ask for with one answer. */
const RETRY_AFTER_MS_MAX = 3_600_000;
const RETRY_AFTER_STATUS: ReadonlySet<number> = new Set([429, 503]);

/** Every attempt must fall inside the link's life, jitter included. */
export function isWebhookSchedule(schedule: readonly number[]): schedule is WebhookSchedule {
  const totalMs = schedule.reduce((sum, waitMs) => sum + waitMs, 0);
  return schedule.length > 0 && totalMs * (1 + JITTER) < SCHEDULE_MS_MAX;
}

/** At least `retryAfterMs`; undefined: no attempt is left. */
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

/** 0 if the answer asks for no delay. @param header seconds, or an HTTP date */
export function retryAfterMs(status: number, header: string | undefined, nowMs: number): number {
  if (!RETRY_AFTER_STATUS.has(status)) return 0;
  return Math.min(parseRetryAfterMs(header, nowMs), RETRY_AFTER_MS_MAX);
}
