import assert from 'node:assert/strict';
import { CAP_PERIODS } from '@matting/accounts/keys/key-policy.ts';
import {
  capCountAt,
  capResetsAtMs,
  countOfNewCap,
  type KeyCap,
  takeOfCap,
} from '@matting/core/test/internals.ts';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import { alertStep, lowBalanceBody, thresholdsOf } from '../alerts/alert-store.ts';
import { lowBalanceMail } from '../alerts/balance-watch.ts';
import { dayOf, dayOfIso, isoOfDay, usageQuestionOf } from '../usage/usage-store.ts';

const NOW = 1_800_000_000_000;
const NOTHING_KEPT = { rest: null, isWithheldToday: false };
const notifiedAlert = (agoMs: number, credits: number) => ({
  threshold: 10,
  notified: { atMs: NOW - agoMs, credits },
  ...NOTHING_KEPT,
});
const has = (available: number, reserved = 0) => ({ available, reserved });

test('a balance › a threshold is told at it and below, and armed above it', t => {
  const armed = { threshold: 10, notified: null, ...NOTHING_KEPT };
  t.is(alertStep(armed, has(11), NOW), 'none');
  t.is(alertStep(armed, has(10), NOW), 'notify');
  t.is(alertStep(armed, has(0), NOW), 'notify');
  t.is(alertStep(notifiedAlert(5, 10), has(10), NOW), 'none');
  t.is(alertStep(notifiedAlert(5, 10), has(11), NOW), 'arm', 'credits were added');
  t.is(alertStep(notifiedAlert(5, 12), has(11, 1), NOW), 'none', 'those of a job came back');
  t.is(alertStep(notifiedAlert(3_600_000, 12), has(11, 1), NOW), 'arm');
  t.is(alertStep({ ...armed, threshold: 0 }, has(0, 5), NOW), 'notify');
  const kept = { rest: '*', isWithheldToday: true };
  t.is(alertStep({ ...armed, ...kept }, has(10), NOW), 'none', 'one try a day');
  t.is(alertStep({ ...notifiedAlert(5, 10), ...kept }, has(10), NOW), 'none');
  t.is(
    alertStep({ ...notifiedAlert(5, 10), ...kept, isWithheldToday: false }, has(10), NOW),
    'notify',
  );
});

test('a balance › thresholds are read from what people type', t => {
  t.deepEqual(thresholdsOf(['5', ' 100', '', '5']), [100, 5]);
  t.deepEqual(thresholdsOf([]), []);
  t.is(thresholdsOf(['5', 'x']), undefined);
});

test('a balance › what is told names the account, the threshold and what is left', t => {
  const low = {
    accountId: 'id',
    accountName: 'Shop\r\nBcc: x@y.test',
    threshold: 2000,
    balances: has(1234, 5),
    atMs: NOW,
  };
  const { data, timestamp, event_id } = JSON.parse(lowBalanceBody('an-event', low));
  t.is(event_id, 'an-event');
  t.is(timestamp, new Date(NOW).toISOString());
  t.deepEqual(data.credits, { available: 1234, reserved: 5 });
  for (const language of ['en', 'zh-CN', null]) {
    const { subject, text } = lowBalanceMail(low, language, 'https://m.example/account');
    t.notRegex(subject, /[\r\n]/, 'no header is added');
    t.regex(subject, /1,234/);
    t.regex(text, /2,000/);
    t.regex(text, /https:\/\/m\.example\/account\/credits/);
  }
});

test('usage › days are those of the calendar, UTC', t => {
  for (const iso of ['1970-01-01', '2024-02-29', '2026-11-21', '9999-12-31']) {
    const day = dayOfIso(iso);
    assert.ok(day !== undefined);
    t.is(isoOfDay(day), iso);
    t.is(dayOf(Date.parse(`${iso}T23:59:59.999Z`)), day);
  }
  for (const text of ['2023-02-29', '2026-13-01', '2026-1-1', '0000-00-00', '1969-12-31', '']) {
    t.is(dayOfIso(text), undefined, text);
  }
});

test('usage › a question without words is of thirty days, by day', t => {
  const today = dayOf(Date.parse('2026-11-21T12:00:00Z'));
  t.deepEqual(usageQuestionOf({}, today), { from: today - 29, to: today, group: 'day' });
  const month = usageQuestionOf({ to: '2026-03-31', group: 'key' }, today);
  t.true('group' in month && isoOfDay(month.from) === '2026-03-02');
  const first = usageQuestionOf({ to: '1970-01-05' }, today);
  t.deepEqual(first, { from: 0, to: 4, group: 'day' });
});

const at = (text: string) => Date.parse(text);
const times = fc.integer({ min: at('2024-01-01'), max: at('2032-01-01') });
const periods = fc.constantFrom(...CAP_PERIODS);

const capPeriodStartMs = (period: KeyCap['period'], now: number) =>
  capCountAt({ credits: 1, period }, { windowStartMs: null, used: 0 }, now).windowStartMs;

test('the periods of a cap › begin at midnight UTC, of the day and of the month', t => {
  const now = at('2028-02-29T23:59:59.999Z');
  t.deepEqual(
    CAP_PERIODS.map(period => [capPeriodStartMs(period, now), capResetsAtMs(period, now)]),
    [
      [0, null],
      [at('2028-02-29'), at('2028-03-01')],
      [at('2028-02-01'), at('2028-03-01')],
    ],
  );
  t.is(capResetsAtMs('month', at('2027-12-31T12:00Z')), at('2028-01-01'));
});

test('the periods of a cap › follow each other without a gap, and a time is in one of them', t => {
  holds(t, [periods, times], (period, now) => {
    const start = capPeriodStartMs(period, now);
    const end = capResetsAtMs(period, now) ?? Number.POSITIVE_INFINITY;
    assert.ok(start <= now && now < end);
    if (end === Number.POSITIVE_INFINITY) return;
    assert.equal(capPeriodStartMs(period, end), end);
    assert.equal(capResetsAtMs(period, end - 1), end);
  });
});

const step = fc.record({
  kind: fc.constantFrom('take', 'take', 'take', 'release', 'set'),
  waitMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 40 * 86_400_000 })),
  credits: fc.integer({ min: 1, max: 4 }),
  period: periods,
});

test('the count of a cap › is never over the cap, and a credit goes back to its own count alone', t => {
  holds(t, [times, fc.array(step, { maxLength: 60, size: 'max' })], (startMs, steps) => {
    let now = startMs;
    let cap: KeyCap = { credits: 3, period: 'day' };
    let count: Parameters<typeof capCountAt>[1] = { windowStartMs: null, used: 0 };
    /** The windows of the open jobs, and the number of each. */
    const open: number[] = [];
    for (const { kind, waitMs, credits, period } of steps) {
      now += waitMs;
      if (kind === 'set') {
        const next = { credits, period };
        const before = count.windowStartMs;
        count = countOfNewCap(cap, next, count, now);
        if (cap.period !== period) assert.ok((count.windowStartMs ?? 0) > (before ?? -1));
        cap = next;
      } else if (kind === 'take') {
        const taken = takeOfCap(cap, count, 1, now);
        const { used, windowStartMs } = capCountAt(cap, count, now);
        assert.equal(taken === undefined, used >= cap.credits);
        if (taken === undefined) continue;
        assert.deepEqual(taken, { windowStartMs, used: used + 1 });
        assert.ok(taken.used <= cap.credits);
        count = taken;
        open.push(windowStartMs);
      } else {
        const job = open.pop();
        if (job === count.windowStartMs) count = { ...count, used: count.used - 1 };
      }
      const counted = open.filter(of => of === count.windowStartMs).length;
      assert.equal(count.used, counted, 'no job of another count is in it');
    }
  });
});

test('the count of a cap › goes on where the clock is put back, and begins again with the next period', t => {
  const cap = { credits: 1, period: 'day' } as const;
  const used = takeOfCap(cap, { windowStartMs: null, used: 0 }, 1, at('2027-05-02T00:00:01Z'));
  assert.ok(used);
  t.is(takeOfCap(cap, used, 1, at('2027-05-01T23:59:00Z')), undefined);
  t.is(takeOfCap(cap, used, 1, at('2027-05-02T23:59:59Z')), undefined);
  t.truthy(takeOfCap(cap, used, 1, at('2027-05-03T00:00:00Z')));
});

test('the count of a cap › is kept where only the credits of its cap change', t => {
  const count = { windowStartMs: at('2027-05-02'), used: 7 };
  const day = { credits: 10, period: 'day' } as const;
  const now = at('2027-05-02T12:00Z');
  t.deepEqual(countOfNewCap(day, { ...day, credits: 5 }, count, now), count);
  const begun = { windowStartMs: now, used: 0 };
  t.deepEqual(countOfNewCap(undefined, day, count, now), begun);
  t.deepEqual(countOfNewCap(day, { ...day, period: 'total' }, count, now), begun);
  const ahead = { windowStartMs: now + 5, used: 7 };
  t.deepEqual(countOfNewCap(undefined, day, ahead, now), {
    windowStartMs: now + 6,
    used: 0,
  });
});
