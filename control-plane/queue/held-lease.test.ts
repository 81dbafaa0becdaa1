import assert from 'node:assert/strict';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { HeldLease } from './held-lease.ts';
import { type Claim, LEASE_MS } from './lease-rules.ts';

const LEASE_RENEW_MS = 5_000;
const test = ava.serial;

const claim: Claim = { jobId: 'a job', holder: 'this replica', fence: 3 };
let renewals: { claim: Claim; leaseMs: number }[];
let answer: () => Promise<boolean>;
let failures: unknown[];
let stop: AbortController;
let lease: HeldLease;
let timers: sinon.SinonFakeTimers;

async function pass(ms: number): Promise<void> {
  timers.tick(ms);
  for (let turn = 0; turn < 10; turn++) await null;
}

function holdLease(t: ExecutionContext): void {
  timers = sinon.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  renewals = [];
  answer = async () => true;
  failures = [];
  stop = new AbortController();
  lease = new HeldLease({
    queue: {
      renew: (renewed, leaseMs) => {
        renewals.push({ claim: renewed, leaseMs });
        return answer();
      },
    },
    claim,
    stop: stop.signal,
    onRenewFailure: error => failures.push(error),
  });
  t.teardown(() => {
    lease.stopRenewing();
    timers.restore();
  });
}

test('a held lease › is renewed in full long before it ends, as long as the work runs', async t => {
  holdLease(t);
  t.true(2 * LEASE_RENEW_MS < LEASE_MS, 'a renewal may fail');
  for (let round = 1; round <= 5; round++) {
    await pass(LEASE_RENEW_MS);
    t.is(renewals.length, round);
  }
  t.true(renewals.every(each => each.claim === claim && each.leaseMs === LEASE_MS));
  t.false(lease.signal.aborted);
  lease.stopRenewing();
  await pass(10 * LEASE_RENEW_MS);
  t.is(renewals.length, 5);
});

test('a held lease › that another replica has ends the work at once', async t => {
  holdLease(t);
  answer = async () => false;
  await pass(LEASE_RENEW_MS);
  t.deepEqual([lease.signal.aborted, lease.end], [true, 'lost']);
});

test('a held lease › is not lost by a database that does not answer', async t => {
  holdLease(t);
  answer = () => Promise.reject(new Error('away'));
  await pass(LEASE_RENEW_MS);
  await pass(LEASE_RENEW_MS);
  t.deepEqual([failures.length, lease.signal.aborted, lease.end], [2, false, undefined]);
  answer = async () => true;
  await pass(LEASE_RENEW_MS);
  t.is(renewals.length, 3);
});

test('a held lease › is asked for once at a time, however slow the answer', async t => {
  holdLease(t);
  const { promise, resolve } = Promise.withResolvers<boolean>();
  answer = () => promise;
  await pass(4 * LEASE_RENEW_MS);
  t.is(renewals.length, 1);
  resolve(true);
  await pass(0);
  await pass(LEASE_RENEW_MS);
  t.is(renewals.length, 2);
});

test('a held lease › stops when the work is to be given back, and may still turn out lost', t => {
  holdLease(t);
  stop.abort();
  t.deepEqual([lease.signal.aborted, lease.end], [true, 'stopping']);
  lease.lose();
  t.is(lease.end, 'lost');
});

test('a held lease › of work that is to stop before it begins has ended', t => {
  const late = new HeldLease({
    queue: { renew: async () => true },
    claim,
    stop: AbortSignal.abort(),
    onRenewFailure: () => assert.fail(),
  });
  t.deepEqual([late.signal.aborted, late.end], [true, 'stopping']);
  late.stopRenewing();
});
