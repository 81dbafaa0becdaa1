import assert from 'node:assert/strict';
import { leaseQuota, quotaBlockOf, RATE_WINDOW_MS } from '@matting/accounts/rates/rate-windows.ts';
import type { JobState } from '@matting/queue/job.ts';
import { failureDue, JOB_MS_MAX } from '@matting/queue/lease-rules.ts';
import type { AccountQueue } from '@matting/queue/queue.ts';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import {
  excessOf,
  RETRY_AFTER_MAX_S,
  retryAfterS,
  UNFETCHED_MEGAPIXELS,
} from './queue/queue-bound.ts';
import {
  isWebhookSchedule,
  nextWaitMs,
  retryAfterMs,
  WEBHOOK_SCHEDULE_MS,
} from './webhooks/webhook-schedule.ts';

const RETRY_AFTER_MIN_S = 5;
const TAKEOVERS_MAX = 10;
const LOST_WITH_PROCESS_MAX = 2;
const LOST_ATTEMPTS_MAX = 3;
const FIRST_ADMISSION_MS_MAX = 3_600_000;
const MAX = 1000;
const CALLER = 'caller';

const anyQueue: fc.Arbitrary<AccountQueue> = fc
  .record({ stored: fc.nat(2000), unfetched: fc.nat(500) })
  .map(({ stored, unfetched }) => ({
    jobs: stored + unfetched,
    cost: stored + unfetched * UNFETCHED_MEGAPIXELS,
    unfetched,
  }));
const anyOthers = fc.array(anyQueue, { maxLength: 8 });

function queuesOf(caller: AccountQueue | undefined, others: readonly AccountQueue[]) {
  const queues = new Map(others.map((queue, index) => [`other ${index}`, queue]));
  if (caller !== undefined) queues.set(CALLER, caller);
  return queues;
}

const total = (queues: ReadonlyMap<string, AccountQueue>) =>
  [...queues.values()].reduce((sum, { cost }) => sum + cost, 0);

test('a share of the queue › below it an account is let in, whatever the others have queued', t => {
  holds(t, [anyQueue, anyOthers], (caller, others) => {
    const queues = queuesOf(caller, others);
    const isBelow = caller.cost < MAX / queues.size;
    if (isBelow) assert.equal(excessOf(CALLER, queues, MAX), undefined);
    assert.equal(excessOf(CALLER, queuesOf(undefined, others), MAX), undefined);
  });
});

test('a share of the queue › who is refused is over it in a queue over its bound, and one of all is', t => {
  holds(t, [anyQueue, anyOthers], (caller, others) => {
    const queues = queuesOf(caller, others);
    const excess = excessOf(CALLER, queues, MAX);
    if (excess !== undefined) {
      assert.ok(total(queues) > MAX);
      assert.ok(caller.cost >= MAX / queues.size);
    }
    const refused = [...queues.keys()].filter(id => excessOf(id, queues, MAX) !== undefined);
    assert.equal(refused.length > 0, total(queues) > MAX);
  });
});

test('a share of the queue › is what Retry-After counts, not the jobs of others', t => {
  const pace = { megapixelsPerS: 2, fetchMsMax: 60_000 };
  holds(t, [anyQueue, anyOthers, fc.nat(1e6)], (caller, others, more) => {
    const excess = excessOf(CALLER, queuesOf(caller, others), MAX);
    const [first, ...rest] = others;
    if (excess === undefined || first === undefined) return;
    const fuller = [{ ...first, cost: first.cost + more }, ...rest];
    const waitS = retryAfterS(excess, pace);
    const fullerExcess = excessOf(CALLER, queuesOf(caller, fuller), MAX);
    assert.ok(fullerExcess);
    assert.equal(fullerExcess.ownExcess, excess.ownExcess);
    const ownS = Math.ceil((excess.ownExcess * excess.accounts) / pace.megapixelsPerS);
    assert.ok(retryAfterS(fullerExcess, pace) <= Math.max(RETRY_AFTER_MIN_S, ownS));
    assert.ok(waitS >= RETRY_AFTER_MIN_S && waitS <= RETRY_AFTER_MAX_S);
  });
});

test('a share of the queue › downloads are waited for no longer than they may take', t => {
  const excess = { queueExcess: 1e6, ownExcess: 64, unfetched: 16, accounts: 1 };
  // At that pace the megapixels alone would take 6400 s.
  const pace = { megapixelsPerS: 0.01, fetchMsMax: 60_000 };
  t.is(retryAfterS(excess, pace), 60);
  t.is(retryAfterS(excess, { ...pace, fetchMsMax: 10_000 }), 10);
});

const START = 1000 * RATE_WINDOW_MS;
const ask = { limit: 100, block: 10, advance: 0, windowStartMs: START };

test('a rate › a block is a sixtieth of the limit, and never nothing', t => {
  const blocks = [1, 59, 60, 61, 1200, 6000].map(quotaBlockOf);
  t.deepEqual(blocks, [1, 1, 1, 2, 20, 100]);
});

test('a rate › a lease never goes beyond the limit', t => {
  const leased = (from: number, advance = 0) =>
    leaseQuota({ windowStartMs: START, leased: from }, { ...ask, advance }, START + 5);
  t.deepEqual(leased(0), { windowStartMs: START, leased: 10, granted: 10 });
  t.deepEqual(leased(95), { windowStartMs: START, leased: 100, granted: 5 });
  t.deepEqual(leased(100), { windowStartMs: START, leased: 100, granted: 0 });
  // Others' advances may exceed it.
  t.deepEqual(leased(130), { windowStartMs: START, leased: 130, granted: 0 });
  t.deepEqual(leased(85, 10), { windowStartMs: START, leased: 100, granted: 5 });
  t.deepEqual(leased(95, 10), { windowStartMs: START, leased: 105, granted: 0 });
});

test('a rate › starts each window empty, and ignores counts of another window', t => {
  const next = START + RATE_WINDOW_MS;
  const full = { windowStartMs: START, leased: 100 };
  const fresh = { windowStartMs: next, leased: 10, granted: 10 };
  t.deepEqual(leaseQuota(undefined, { ...ask, windowStartMs: next }, next), fresh);
  t.deepEqual(leaseQuota(full, { ...ask, windowStartMs: next }, next), fresh);
  t.deepEqual(leaseQuota(full, { ...ask, advance: 10 }, next + 59_999), fresh);
  // After the clock was set back, it counts from 0 instead of refusing.
  t.is(leaseQuota({ windowStartMs: next, leased: 100 }, ask, START).granted, 10);
});

const START_MS = 1_700_000_000_000;

function jobAt(ageMs: number, overrides: object = {}) {
  return {
    state: 'running' as JobState,
    createdAtMs: START_MS,
    startedAtMs: (START_MS + 1) as number | null,
    readAtMs: START_MS + ageMs,
    lostAttempts: 0,
    lostWithProcess: 0,
    takeovers: 0,
    ...overrides,
  };
}

test('the bounds of a job › each bound ends the job when it is reached and not before', t => {
  const cases: [over: object, retryable: boolean, under: object][] = [
    [{ lostAttempts: LOST_ATTEMPTS_MAX }, true, { lostAttempts: LOST_ATTEMPTS_MAX - 1 }],
    [
      { lostAttempts: 2, lostWithProcess: LOST_WITH_PROCESS_MAX },
      false,
      { lostAttempts: 2, lostWithProcess: LOST_WITH_PROCESS_MAX - 1 },
    ],
    [{ takeovers: TAKEOVERS_MAX }, true, { takeovers: TAKEOVERS_MAX - 1 }],
  ];
  for (const [over, retryable, under] of cases) {
    t.is(failureDue(jobAt(1000, under)), undefined);
    const failure = failureDue(jobAt(1000, over));
    t.is(failure?.code, 'PROCESSING_FAILED');
    t.is(failure?.retryable, retryable);
  }
});

test('the bounds of a job › deadlines are an hour to the first admission and two hours in all, both retryable', t => {
  const waiting = { state: 'ready', startedAtMs: null };
  t.is(failureDue(jobAt(FIRST_ADMISSION_MS_MAX - 1, waiting)), undefined);
  t.true(failureDue(jobAt(FIRST_ADMISSION_MS_MAX, waiting))?.retryable);
  t.is(failureDue(jobAt(FIRST_ADMISSION_MS_MAX)), undefined, 'admitted already');
  t.is(failureDue(jobAt(JOB_MS_MAX - 1)), undefined);
  t.true(failureDue(jobAt(JOB_MS_MAX))?.retryable);
});

test('the bounds of a job › a verdict about the image is not softened by a deadline', t => {
  const both = { lostAttempts: 5, lostWithProcess: 2, takeovers: 99 };
  t.false(failureDue(jobAt(10 * JOB_MS_MAX, both))?.retryable);
});

test('the bounds of a job › a final job ends with nothing more', t => {
  const over = { lostAttempts: 9, lostWithProcess: 9, takeovers: 99 };
  for (const state of ['succeeded', 'failed']) {
    t.is(failureDue(jobAt(10 * JOB_MS_MAX, { ...over, state })), undefined);
  }
});

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
