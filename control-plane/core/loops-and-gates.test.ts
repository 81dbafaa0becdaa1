import assert from 'node:assert/strict';
import { syncBuiltinESMExports } from 'node:module';
import timersPromises from 'node:timers/promises';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { HeldLease } from '@matting/queue/held-lease.ts';
import { type Claim, LEASE_MS } from '@matting/queue/lease-rules.ts';
import type { QueuedWork } from '@matting/queue/queue.ts';
import { unwritable } from '@matting/storage/blob-store.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { ReadinessService } from './http/readiness.ts';
import { AcceptanceGate } from './submission/acceptance-gate.ts';

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

const CALLER = 'caller';

/** Stored megapixels by account. */
function queueOf(accounts: Readonly<Record<string, number>>): QueuedWork {
  const byAccount = new Map(
    Object.entries(accounts).map(([id, cost]) => [id, { jobs: 1, cost, unfetched: 0 }]),
  );
  const cost = Object.values(accounts).reduce((sum, each) => sum + each, 0);
  const byModel = new Map([[null, cost]]);
  return { jobs: byAccount.size, cost, oldestAgeMs: 0, byAccount, byModel };
}

interface State {
  /** Undefined: nodes start on demand. */
  unroutableMs?: number | undefined;
  /** Of the caller. */
  megapixels: number;
  others?: Readonly<Record<string, number>>;
  nowMs?: number;
  /** Megapixels of the last minute. */
  done?: number;
  /** Jobs of the last ten minutes. */
  doneInTen?: number;
}

function gate(state: State) {
  let counted = 0;
  const acceptance = new AcceptanceGate({
    queue: {
      queued: async () => {
        counted += 1;
        return queueOf({ [CALLER]: state.megapixels, ...state.others });
      },
      doneWithin: async windowMs => ({
        jobs: 1,
        cost: (windowMs === 60_000 ? state.done : state.doneInTen) ?? 0,
      }),
    },
    unroutableMs: state.unroutableMs === undefined ? undefined : () => state.unroutableMs ?? 0,
    noNodeGraceMs: 60_000,
    advertised: () => undefined,
    queueMegapixelsMax: 100,
    now: () => state.nowMs ?? 0,
  });
  return { acceptance, counted: () => counted };
}

const unavailable = (error: unknown) => {
  assert.ok(error instanceof ContractError);
  assert.equal(error.code, 'SERVICE_UNAVAILABLE');
  assert.ok((error.retryAfterS ?? 0) > 0);
  return true;
};

test('the acceptance gate › shuts when no node was routable for longer than the grace', async t => {
  const state = { unroutableMs: 60_001, megapixels: 0 };
  const { acceptance } = gate(state);
  await rejectsWith(t, acceptance.requireOpen(CALLER), unavailable);
  state.unroutableMs = 60_000;
  await t.notThrowsAsync(acceptance.requireOpen(CALLER));
});

test('the acceptance gate › accepts jobs without a node if nodes come on demand, within the same bounds', async t => {
  const state = { megapixels: 0, nowMs: 0 };
  const { acceptance } = gate(state);
  await acceptance.requireOpen(CALLER);
  Object.assign(state, { megapixels: 101, nowMs: 1000 });
  await rejectsWith(t, acceptance.requireOpen(CALLER), unavailable);
});

test('the acceptance gate › shuts when more is queued than may be, and counts at most once a second', async t => {
  const state = { unroutableMs: 0, megapixels: 101, nowMs: 0 };
  const { acceptance, counted } = gate(state);
  await rejectsWith(t, acceptance.requireOpen(CALLER), unavailable);
  state.megapixels = 100;
  await rejectsWith(t, acceptance.requireOpen(CALLER), unavailable);
  t.is(counted(), 1);
  state.nowMs = 1000;
  await acceptance.requireOpen(CALLER);
  t.is(counted(), 2);
});

test('the acceptance gate › lets in who is below its share however much the others have queued', async t => {
  const others = { loud: 1e6, louder: 1e9 };
  // A third of 100.
  await gate({ unroutableMs: 0, megapixels: 33, others }).acceptance.requireOpen(CALLER);
  await gate({ unroutableMs: 0, megapixels: 33, others }).acceptance.requireOpen('new here');
  const over = gate({ unroutableMs: 0, megapixels: 34, others }).acceptance;
  await rejectsWith(t, over.requireOpen(CALLER), unavailable);
  await rejectsWith(t, over.requireOpen('loud'), unavailable);
});

test('the acceptance gate › asks to come when the caller may be let in, at the better pace of late', async t => {
  const retryAfter = async (state: Omit<State, 'unroutableMs'>) => {
    const { acceptance } = gate({ unroutableMs: 0, ...state });
    const error = await acceptance.requireOpen(CALLER).catch(caught => caught);
    return error.retryAfterS as number;
  };
  // 120 MP a minute are 2 a second.
  t.is(await retryAfter({ megapixels: 200, done: 120 }), 50);
  t.is(await retryAfter({ megapixels: 200, done: 1200 }), 5);
  t.is(await retryAfter({ megapixels: 101, done: 120 }), 5, 'never at once');
  t.is(await retryAfter({ megapixels: 1e9, done: 1 }), 120);
  t.is(await retryAfter({ megapixels: 101, done: 0 }), 15, 'nothing moves');
  const blip = { megapixels: 200, done: 0, doneInTen: 1200 };
  t.is(await retryAfter(blip), 50, 'a minute that stood still says little');
  // 20 over its half, at half of the pace; the other's queue does not count.
  const beside = { megapixels: 70, others: { loud: 1e6 }, done: 120 };
  t.is(await retryAfter(beside), 20);
});

test('the acceptance gate › does not remember a count that failed', async t => {
  let fails = true;
  const { acceptance } = gate({
    unroutableMs: 0,
    get megapixels() {
      if (fails) throw new Error('away');
      return 0;
    },
  });
  await t.throwsAsync(acceptance.requireOpen(CALLER), { message: /away/ });
  fails = false;
  await t.notThrowsAsync(acceptance.requireOpen(CALLER));
});

function service(
  state: { database?: Error | undefined; routable: boolean; nowMs: number },
  changes: Partial<ConstructorParameters<typeof ReadinessService>[0]> = {},
) {
  const failures: unknown[] = [];
  let checks = 0;
  const readiness = new ReadinessService(
    {
      checkDatabase: async () => {
        checks += 1;
        if (state.database) throw state.database;
      },
      checkStorage: async () => undefined,
      hasBeenRoutable: () => state.routable,
      now: () => state.nowMs,
      ...changes,
    },
    failed => failures.push(failed.map(({ cause }) => cause)),
  );
  return { readiness, failures, checks: () => checks };
}

test('readiness › needs database, storage and a node seen once', async t => {
  const state = { routable: false, nowMs: 0, database: new Error('away') as Error | undefined };
  const { readiness, failures } = service(state);
  t.deepEqual(await readiness.check(), {
    ready: false,
    causes: ['database', 'no-node-yet'],
  });
  await readiness.check();
  t.deepEqual(failures, [['database', 'no-node-yet']], 'once');
  state.database = undefined;
  state.routable = true;
  state.nowMs = 1000;
  t.deepEqual(await readiness.check(), { ready: true });
  readiness.startDraining();
  t.deepEqual(await readiness.check(), { ready: false, causes: ['draining'] });
  t.deepEqual(failures.slice(1), [[], ['draining']]);
});

test('readiness › names a full storage', async t => {
  const full = Object.assign(new Error('no room'), { code: 'ENOSPC' });
  const state = { routable: true, nowMs: 0 };
  const { readiness } = service(state, { checkStorage: () => Promise.reject(unwritable(full)) });
  t.deepEqual(await readiness.check(), { ready: false, causes: ['storage-full'] });
});

test('readiness › checks at most once a second', async t => {
  const state = { routable: true, nowMs: 0 };
  const { readiness, checks } = service(state);
  await Promise.all([readiness.check(), readiness.check(), readiness.check()]);
  t.is(checks(), 1);
});

test('readiness › does not wait for ever', async t => {
  const timeUp = Promise.withResolvers<boolean>();
  const waits = sinon.stub(timersPromises, 'setTimeout').callsFake(() => timeUp.promise);
  // Without it modules keep the function that they imported.
  syncBuiltinESMExports();
  t.teardown(() => {
    waits.restore();
    syncBuiltinESMExports();
  });
  const { readiness } = service(
    { routable: true, nowMs: 0 },
    { checkDatabase: () => new Promise(() => undefined) },
  );
  const checked = readiness.check();
  t.deepEqual(
    waits.args.map(([ms]) => ms),
    [2000, 2000],
  );
  timeUp.resolve(false);
  t.deepEqual(await checked, { ready: false, causes: ['database'] });
});
