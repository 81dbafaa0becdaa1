/** A claim kept alive: renewed in time, ended by its loss, and by nothing else. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { LEASE_MS, LEASE_RENEW_MS } from '../../../src/domain/lease.ts';
import { HeldLease } from '../../../src/services/dispatch/held-lease.ts';
import type { Claim } from '../../../src/store/jobs/job-lease.ts';

const claim: Claim = { jobId: 'a job', holder: 'this replica', fence: 3 };
let renewals: { claim: Claim; leaseMs: number }[];
/** What the next renewals answer. */
let answer: () => Promise<boolean>;
let failures: unknown[];
let stop: AbortController;
let lease: HeldLease;

/** The clock moves, and what hangs on it has its turn. */
async function pass(ms: number): Promise<void> {
  mock.timers.tick(ms);
  for (let turn = 0; turn < 10; turn++) await null;
}

beforeEach(() => {
  mock.timers.enable({ apis: ['setInterval'] });
  renewals = [];
  answer = async () => true;
  failures = [];
  stop = new AbortController();
  lease = new HeldLease({
    jobs: {
      renew: (renewed, leaseMs) => {
        renewals.push({ claim: renewed, leaseMs });
        return answer();
      },
    },
    claim,
    stop: stop.signal,
    onRenewFailure: error => failures.push(error),
  });
});

afterEach(() => {
  lease.stopRenewing();
  mock.timers.reset();
});

describe('a held lease', () => {
  it('is renewed in full long before it ends, as long as the work goes on', async () => {
    assert.ok(2 * LEASE_RENEW_MS < LEASE_MS, 'a renewal may fail');
    for (let round = 1; round <= 5; round++) {
      await pass(LEASE_RENEW_MS);
      assert.equal(renewals.length, round);
    }
    assert.ok(renewals.every(each => each.claim === claim && each.leaseMs === LEASE_MS));
    assert.equal(lease.signal.aborted, false);
    lease.stopRenewing();
    await pass(10 * LEASE_RENEW_MS);
    assert.equal(renewals.length, 5);
  });

  it('that another replica has ends the work at once', async () => {
    answer = async () => false;
    await pass(LEASE_RENEW_MS);
    assert.deepEqual([lease.signal.aborted, lease.end], [true, 'lost']);
  });

  it('is not lost by a database that does not answer', async () => {
    answer = () => Promise.reject(new Error('away'));
    await pass(LEASE_RENEW_MS);
    await pass(LEASE_RENEW_MS);
    assert.deepEqual([failures.length, lease.signal.aborted, lease.end], [2, false, undefined]);
    answer = async () => true;
    await pass(LEASE_RENEW_MS);
    assert.equal(renewals.length, 3);
  });

  it('is asked for once at a time, however slow the answer', async () => {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    answer = () => promise;
    await pass(4 * LEASE_RENEW_MS);
    assert.equal(renewals.length, 1);
    resolve(true);
    await pass(0);
    await pass(LEASE_RENEW_MS);
    assert.equal(renewals.length, 2);
  });

  it('stops when the work is to be given back, and may still turn out lost', () => {
    stop.abort();
    assert.deepEqual([lease.signal.aborted, lease.end], [true, 'stopping']);
    lease.lose();
    assert.equal(lease.end, 'lost');
  });

  it('of work that is to stop before it begins has ended', () => {
    const late = new HeldLease({
      jobs: { renew: async () => true },
      claim,
      stop: AbortSignal.abort(),
      onRenewFailure: error => failures.push(error),
    });
    assert.deepEqual([late.signal.aborted, late.end], [true, 'stopping']);
    late.stopRenewing();
  });
});
