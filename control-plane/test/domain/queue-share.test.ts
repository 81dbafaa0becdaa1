/** Who may add to a full queue, by its properties: whatever is queued. */
import assert from 'node:assert/strict';
import test from 'ava';
import { fc } from '../../../test/support/property-tests.ts';
import {
  type AccountQueue,
  aheadOf,
  RETRY_AFTER_MAX_S,
  RETRY_AFTER_MIN_S,
  retryAfterS,
  UNFETCHED_MEGAPIXELS,
} from '../../src/domain/queue-share.ts';

const MAX = 1000;
const CALLER = 'caller';

const anyQueue: fc.Arbitrary<AccountQueue> = fc
  .record({ stored: fc.nat(2000), unfetched: fc.nat(500) })
  .map(({ stored, unfetched }) => ({
    jobs: stored + unfetched,
    megapixels: stored + unfetched * UNFETCHED_MEGAPIXELS,
    unfetched,
  }));
const anyOthers = fc.array(anyQueue, { maxLength: 8 });

function queuesOf(caller: AccountQueue | undefined, others: readonly AccountQueue[]) {
  const queues = new Map(others.map((queue, index) => [`other ${index}`, queue]));
  if (caller !== undefined) queues.set(CALLER, caller);
  return queues;
}

const total = (queues: ReadonlyMap<string, AccountQueue>) =>
  [...queues.values()].reduce((sum, { megapixels }) => sum + megapixels, 0);

test('below it an account is let in, whatever the others have queued', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anyQueue, anyOthers, (caller, others) => {
        const queues = queuesOf(caller, others);
        const isBelow = caller.megapixels < MAX / queues.size;
        if (isBelow) assert.equal(aheadOf(CALLER, queues, MAX), undefined);
        assert.equal(aheadOf(CALLER, queuesOf(undefined, others), MAX), undefined);
      }),
    ),
  );
});

test('who is refused is over it in a queue over its bound, and one of all is', t => {
  t.notThrows(() =>
    fc.assert(
      fc.property(anyQueue, anyOthers, (caller, others) => {
        const queues = queuesOf(caller, others);
        const ahead = aheadOf(CALLER, queues, MAX);
        if (ahead !== undefined) {
          assert.ok(total(queues) > MAX);
          assert.ok(caller.megapixels >= MAX / queues.size);
        }
        const refused = [...queues.keys()].filter(id => aheadOf(id, queues, MAX) !== undefined);
        assert.equal(refused.length > 0, total(queues) > MAX);
      }),
    ),
  );
});

test('what others queue beyond it does not lengthen Retry-After', t => {
  const pace = { megapixelsPerS: 2, fetchMsMax: 60_000 };
  t.notThrows(() =>
    fc.assert(
      fc.property(anyQueue, anyOthers, fc.nat(1e6), (caller, others, more) => {
        const ahead = aheadOf(CALLER, queuesOf(caller, others), MAX);
        const [first, ...rest] = others;
        if (ahead === undefined || first === undefined) return;
        const fuller = [{ ...first, megapixels: first.megapixels + more }, ...rest];
        const waitS = retryAfterS(ahead, pace);
        const fullerAhead = aheadOf(CALLER, queuesOf(caller, fuller), MAX);
        assert.ok(fullerAhead);
        assert.equal(fullerAhead.ownExcess, ahead.ownExcess);
        const ownS = Math.ceil((ahead.ownExcess * ahead.accounts) / pace.megapixelsPerS);
        assert.ok(retryAfterS(fullerAhead, pace) <= Math.max(RETRY_AFTER_MIN_S, ownS));
        assert.ok(waitS >= RETRY_AFTER_MIN_S && waitS <= RETRY_AFTER_MAX_S);
      }),
    ),
  );
});

test('downloads are waited for no longer than they may take', t => {
  const ahead = { queueExcess: 1e6, ownExcess: 64, unfetched: 16, accounts: 1 };
  // At that pace the megapixels alone would take 6400 s.
  const pace = { megapixelsPerS: 0.01, fetchMsMax: 60_000 };
  t.is(retryAfterS(ahead, pace), 60);
  t.is(retryAfterS(ahead, { ...pace, fetchMsMax: 10_000 }), 10);
});
