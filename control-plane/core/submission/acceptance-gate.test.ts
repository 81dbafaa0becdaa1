import assert from 'node:assert/strict';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { QueuedWork } from '@matting/queue/queue.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import { AcceptanceGate } from './acceptance-gate.ts';

const CALLER = 'caller';

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
