import assert from 'node:assert/strict';
import test from 'ava';
import { fc } from '../../../test/support/property-tests.ts';
import {
  leaseQuota,
  type QuotaUse,
  quotaBlockOf,
  quotaWindowStartMs,
  RATE_WINDOW_MS,
} from '../../src/domain/rate-quota.ts';

const START = 1000 * RATE_WINDOW_MS;
const ask = { limit: 100, block: 10, advance: 0, windowStartMs: START };

test('a block is a sixtieth of the limit, and never nothing', t => {
  const blocks = [1, 59, 60, 61, 1200, 6000].map(quotaBlockOf);
  t.deepEqual(blocks, [1, 1, 1, 2, 20, 100]);
});

test('a lease never goes beyond the limit', t => {
  const leased = (from: number, advance = 0) =>
    leaseQuota({ windowStartMs: START, leased: from }, { ...ask, advance }, START + 5);
  t.deepEqual(leased(0), { windowStartMs: START, leased: 10, granted: 10 });
  t.deepEqual(leased(95), { windowStartMs: START, leased: 100, granted: 5 });
  t.deepEqual(leased(100), { windowStartMs: START, leased: 100, granted: 0 });
  // Advances of others may have gone beyond it.
  t.deepEqual(leased(130), { windowStartMs: START, leased: 130, granted: 0 });
  t.deepEqual(leased(85, 10), { windowStartMs: START, leased: 100, granted: 5 });
  t.deepEqual(leased(95, 10), { windowStartMs: START, leased: 105, granted: 0 });
});

test('a window starts empty, and what belongs to another one is void', t => {
  const next = START + RATE_WINDOW_MS;
  const full: QuotaUse = { windowStartMs: START, leased: 100 };
  const fresh = { windowStartMs: next, leased: 10, granted: 10 };
  t.deepEqual(leaseQuota(undefined, { ...ask, windowStartMs: next }, next), fresh);
  t.deepEqual(leaseQuota(full, { ...ask, windowStartMs: next }, next), fresh);
  // The advance was spent in the window before.
  t.deepEqual(leaseQuota(full, { ...ask, advance: 10 }, next + 59_999), fresh);
  // A database whose clock was set back counts anew instead of refusing until it catches up.
  t.is(leaseQuota({ windowStartMs: next, leased: 100 }, ask, START).granted, 10);
});

test('windows go by the minute', t => {
  t.is(quotaWindowStartMs(START), START);
  t.is(quotaWindowStartMs(START + RATE_WINDOW_MS - 1), START);
});

test('any replicas in any order answer the limit, and one block more each but the first', t => {
  const replica = () => ({ advance: 0, started: false, left: 0, exhausted: false, answered: 0 });
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 300 }),
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.nat(3), { minLength: 1500, maxLength: 1500 }),
        (limit, count, order) => {
          const block = quotaBlockOf(limit);
          const replicas = Array.from({ length: count }, replica);
          let use: QuotaUse | undefined;
          const take = (at: ReturnType<typeof replica>) => {
            if (!at.started) Object.assign(at, { started: true, left: block, advance: block });
            if (at.left === 0 && !at.exhausted) {
              const asked = { limit, block, advance: at.advance, windowStartMs: START };
              const lease = leaseQuota(use, asked, START);
              use = lease;
              Object.assign(at, {
                advance: 0,
                left: lease.granted,
                exhausted: lease.granted === 0,
              });
            }
            if (at.left === 0) return;
            at.left -= 1;
            at.answered += 1;
          };
          for (const index of order) {
            const at = replicas[index % count];
            assert.ok(at !== undefined, 'a remainder is an index');
            take(at);
          }
          const answered = replicas.reduce((sum, at) => sum + at.answered, 0);
          assert.ok(answered <= limit + (count - 1) * block, `${answered} of ${limit}`);
          for (const at of replicas) {
            for (let more = 0; more <= limit; more += 1) take(at);
          }
          const inAll = replicas.reduce((sum, at) => sum + at.answered, 0);
          assert.ok(inAll >= limit && inAll <= limit + (count - 1) * block, `${inAll} of ${limit}`);
        },
      ),
      { numRuns: 50 },
    ),
  );
});
