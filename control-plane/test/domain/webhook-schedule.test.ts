import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  isWebhookSchedule,
  nextWaitMs,
  retryAfterMs,
  WEBHOOK_SCHEDULE_MS,
} from '../../src/domain/webhook-schedule.ts';

const HOUR_MS = 3_600_000;

describe('the waits between attempts', () => {
  it('are the contract’s, with a jitter of a tenth either way', () => {
    const contract = [5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000];
    contract.forEach((waitMs, index) => {
      const [least, middle, most] = [0, 0.5, 0.999_999].map(random =>
        nextWaitMs(WEBHOOK_SCHEDULE_MS, index + 1, 0, random),
      );
      assert.equal(least, waitMs * 0.9);
      assert.equal(middle, waitMs);
      assert.ok(most! > waitMs * 1.09 && most! <= waitMs * 1.1);
    });
    assert.equal(WEBHOOK_SCHEDULE_MS[0], 0);
    assert.equal(nextWaitMs(WEBHOOK_SCHEDULE_MS, 7, 0, 0.5), undefined);
    assert.equal(nextWaitMs(WEBHOOK_SCHEDULE_MS, 8, 0, 0.5), undefined);
  });

  it('are never shorter than the receiver asked for, and not shortened by it', () => {
    assert.equal(nextWaitMs(WEBHOOK_SCHEDULE_MS, 1, HOUR_MS, 0.5), HOUR_MS);
    assert.equal(nextWaitMs(WEBHOOK_SCHEDULE_MS, 4, HOUR_MS, 0.5), 2 * HOUR_MS);
    assert.equal(nextWaitMs(WEBHOOK_SCHEDULE_MS, 7, HOUR_MS, 0.5), undefined);
  });

  it('all fall inside 24 hours', () => {
    assert.ok(isWebhookSchedule(WEBHOOK_SCHEDULE_MS));
    assert.ok(isWebhookSchedule([0]));
    assert.ok(!isWebhookSchedule([]));
    assert.ok(!isWebhookSchedule([0, 23 * HOUR_MS]));
  });
});

describe('Retry-After', () => {
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
    it(`${status} with ${header?.slice(0, 40)} is ${expected} ms`, () => {
      assert.equal(retryAfterMs(status, header, now), expected);
    });
  }
});
