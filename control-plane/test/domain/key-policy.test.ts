import assert from 'node:assert/strict';
import test from 'ava';
import { fc } from '../../../test/support/property-tests.ts';
import {
  CAP_PERIODS,
  type CapCount,
  capCountAt,
  capPeriodStartMs,
  capReached,
  capResetsAtMs,
  countOfNewCap,
  type KeyCap,
  takeOfCap,
} from '../../src/domain/account/key-policy.ts';

const at = (text: string) => Date.parse(text);
const times = fc.integer({ min: at('2024-01-01'), max: at('2032-01-01') });
const periods = fc.constantFrom(...CAP_PERIODS);

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
  t.notThrows(() =>
    fc.assert(
      fc.property(periods, times, (period, now) => {
        const start = capPeriodStartMs(period, now);
        const end = capResetsAtMs(period, now) ?? Number.POSITIVE_INFINITY;
        assert.ok(start <= now && now < end);
        if (end === Number.POSITIVE_INFINITY) return;
        assert.equal(capPeriodStartMs(period, end), end);
        assert.equal(capResetsAtMs(period, end - 1), end);
      }),
    ),
  );
});

const step = fc.record({
  kind: fc.constantFrom('take', 'take', 'take', 'release', 'set'),
  waitMs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 40 * 86_400_000 })),
  credits: fc.integer({ min: 1, max: 4 }),
  period: periods,
});

test('the count of a cap › is never over the cap, and a credit goes back to its own count alone', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(times, fc.array(step, { maxLength: 60, size: 'max' }), (startMs, steps) => {
        let now = startMs;
        let cap: KeyCap = { credits: 3, period: 'day' };
        let count: CapCount = { windowStartMs: null, used: 0 };
        /** The counts of the jobs that are open, and how many each count has. */
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
      }),
    ),
  );
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

test('the count of a cap › is told with when it begins again', t => {
  const resetsAtMs = at('2027-05-03');
  t.is(
    capReached({ credits: 10, period: 'day' }, resetsAtMs),
    'the API key has used its cap of 10 credits a day; they begin again at 2027-05-03T00:00:00.000Z',
  );
  t.regex(capReached({ credits: 1, period: 'total' }, null), /do not come back/);
});
