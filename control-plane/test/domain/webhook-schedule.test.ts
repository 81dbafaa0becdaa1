import test from 'ava';
import {
  isWebhookSchedule,
  nextWaitMs,
  retryAfterMs,
  WEBHOOK_SCHEDULE_MS,
} from '../../src/domain/webhook-schedule.ts';

const HOUR_MS = 3_600_000;

test('the waits between attempts › are the contract’s, with a jitter of a tenth either way', t => {
  const contract = [5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000];
  contract.forEach((waitMs, index) => {
    const [least, middle, most] = [0, 0.5, 0.999_999].map(random =>
      nextWaitMs(WEBHOOK_SCHEDULE_MS, index + 1, 0, random),
    );
    t.is(least, waitMs * 0.9);
    t.is(middle, waitMs);
    t.true(most! > waitMs * 1.09 && most! <= waitMs * 1.1);
  });
  t.is(WEBHOOK_SCHEDULE_MS[0], 0);
  t.is(nextWaitMs(WEBHOOK_SCHEDULE_MS, 7, 0, 0.5), undefined);
  t.is(nextWaitMs(WEBHOOK_SCHEDULE_MS, 8, 0, 0.5), undefined);
});

test('the waits between attempts › are never shorter than the receiver asked for, and not shortened by it', t => {
  t.is(nextWaitMs(WEBHOOK_SCHEDULE_MS, 1, HOUR_MS, 0.5), HOUR_MS);
  t.is(nextWaitMs(WEBHOOK_SCHEDULE_MS, 4, HOUR_MS, 0.5), 2 * HOUR_MS);
  t.is(nextWaitMs(WEBHOOK_SCHEDULE_MS, 7, HOUR_MS, 0.5), undefined);
});

test('the waits between attempts › all fall inside 24 hours', t => {
  t.truthy(isWebhookSchedule(WEBHOOK_SCHEDULE_MS));
  t.truthy(isWebhookSchedule([0]));
  t.true(!isWebhookSchedule([]));
  t.true(!isWebhookSchedule([0, 23 * HOUR_MS]));
});

const now = Date.parse('Fri, 20 Nov 2026 12:00:00 GMT');

for (const [status, header, expected] of [
  [503, '120', 120_000],
  [429, ' 7 ', 7_000],
  [503, '3600', HOUR_MS],
  [503, '86400', HOUR_MS],
  [503, '9'.repeat(400), HOUR_MS],
  [429, 'Fri, 20 Nov 2026 12:00:30 GMT', 30_000],
  [429, 'Friday, 20-Nov-26 12:00:30 GMT', 30_000],
  [429, 'Sat, 21 Nov 2026 12:00:30 GMT', HOUR_MS],
  [429, 'Fri, 20 Nov 2026 11:00:00 GMT', 0],
  [503, '0', 0],
  [503, '-5', 0],
  [503, '1.5', 0],
  [503, '1e3', 0],
  [503, '2027', 2_027_000],
  [503, 'soon', 0],
  [503, '', 0],
  [503, undefined, 0],
  [500, '120', 0],
  [410, '120', 0],
  [302, '120', 0],
] as const) {
  test(`Retry-After › ${status} with ${header?.slice(0, 40)} is ${expected} ms`, t => {
    t.is(retryAfterMs(status, header, now), expected);
  });
}
