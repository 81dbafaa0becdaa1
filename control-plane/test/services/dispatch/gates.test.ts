/** Readiness and acceptance by fake clocks. */
import assert from 'node:assert/strict';
import { describe, it, mock } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import { ReadinessService } from '../../../src/services/readiness.ts';
import { AcceptanceGate } from '../../../src/services/submission/acceptance.ts';
import type { QueuedWork } from '../../../src/store/jobs/job-queue.ts';

const CALLER = 'caller';

/** A queue by what each account has in it, in stored megapixels. */
function queueOf(accounts: Readonly<Record<string, number>>): QueuedWork {
  const byAccount = new Map(
    Object.entries(accounts).map(([id, megapixels]) => [id, { jobs: 1, megapixels, unfetched: 0 }]),
  );
  const megapixels = Object.values(accounts).reduce((sum, each) => sum + each, 0);
  return { jobs: byAccount.size, megapixels, oldestAgeMs: 0, byAccount };
}

describe('the acceptance gate', () => {
  interface State {
    /** Undefined: nodes come on demand. */
    unroutableMs?: number | undefined;
    /** Megapixels that the caller has queued. */
    megapixels: number;
    others?: Readonly<Record<string, number>>;
    nowMs?: number;
    /** Megapixels finished in the last minute. */
    done?: number;
    /** And in the last ten. */
    doneInTen?: number;
  }

  function gate(state: State) {
    let counted = 0;
    const acceptance = new AcceptanceGate({
      jobs: {
        queued: async () => {
          counted += 1;
          return queueOf({ [CALLER]: state.megapixels, ...state.others });
        },
        doneWithin: async windowMs => ({
          jobs: 1,
          megapixels: (windowMs === 60_000 ? state.done : state.doneInTen) ?? 0,
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

  it('shuts when no node was routable for longer than the grace', async () => {
    const state = { unroutableMs: 60_001, megapixels: 0 };
    const { acceptance } = gate(state);
    await assert.rejects(acceptance.requireOpen(CALLER), unavailable);
    state.unroutableMs = 60_000;
    await acceptance.requireOpen(CALLER);
  });

  it('takes work without any node where nodes come on demand, up to the same bounds', async () => {
    const state = { megapixels: 0, nowMs: 0 };
    const { acceptance } = gate(state);
    await acceptance.requireOpen(CALLER);
    await acceptance.requireRoom();
    Object.assign(state, { megapixels: 101, nowMs: 1000 });
    await assert.rejects(acceptance.requireOpen(CALLER), unavailable);
    await assert.rejects(acceptance.requireRoom(), unavailable);
  });

  it('shuts when more is queued than may be, and counts at most once a second', async () => {
    const state = { unroutableMs: 0, megapixels: 101, nowMs: 0 };
    const { acceptance, counted } = gate(state);
    await assert.rejects(acceptance.requireOpen(CALLER), unavailable);
    state.megapixels = 100;
    await assert.rejects(acceptance.requireOpen(CALLER), unavailable);
    assert.equal(counted(), 1);
    state.nowMs = 1000;
    await acceptance.requireOpen(CALLER);
    assert.equal(counted(), 2);
  });

  it('lets in who is below its share however much the others have queued', async () => {
    const others = { loud: 1e6, louder: 1e9 };
    // A third of 100.
    await gate({ unroutableMs: 0, megapixels: 33, others }).acceptance.requireOpen(CALLER);
    await gate({ unroutableMs: 0, megapixels: 33, others }).acceptance.requireOpen('new here');
    const over = gate({ unroutableMs: 0, megapixels: 34, others }).acceptance;
    await assert.rejects(over.requireOpen(CALLER), unavailable);
    await assert.rejects(over.requireOpen('loud'), unavailable);
  });

  it('asks to come when the caller may be let in, at the better pace of late', async () => {
    const retryAfter = async (state: Omit<State, 'unroutableMs'>) => {
      const { acceptance } = gate({ unroutableMs: 0, ...state });
      const error = await acceptance.requireOpen(CALLER).catch(caught => caught);
      return error.retryAfterS as number;
    };
    // 120 MP a minute are 2 a second.
    assert.equal(await retryAfter({ megapixels: 200, done: 120 }), 50);
    assert.equal(await retryAfter({ megapixels: 200, done: 1200 }), 5);
    assert.equal(await retryAfter({ megapixels: 101, done: 120 }), 5, 'never at once');
    assert.equal(await retryAfter({ megapixels: 1e9, done: 1 }), 120);
    assert.equal(await retryAfter({ megapixels: 101, done: 0 }), 15, 'nothing moves');
    const blip = { megapixels: 200, done: 0, doneInTen: 1200 };
    assert.equal(await retryAfter(blip), 50, 'a minute that stood still says little');
    // 20 over its half, at half of the pace; what the other has queued is not waited for.
    const beside = { megapixels: 70, others: { loud: 1e6 }, done: 120 };
    assert.equal(await retryAfter(beside), 20);
  });

  it('does not remember a count that failed', async () => {
    let fails = true;
    const { acceptance } = gate({
      unroutableMs: 0,
      get megapixels() {
        if (fails) throw new Error('away');
        return 0;
      },
    });
    await assert.rejects(acceptance.requireOpen(CALLER), /away/);
    fails = false;
    await acceptance.requireOpen(CALLER);
  });
});

describe('readiness', () => {
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
      cause => failures.push(cause),
    );
    return { readiness, failures, checks: () => checks };
  }

  it('needs database, storage and a node seen once', async () => {
    const state = { routable: false, nowMs: 0, database: new Error('away') as Error | undefined };
    const { readiness, failures } = service(state);
    assert.deepEqual(await readiness.check(), {
      ready: false,
      causes: ['database', 'no-node-yet'],
    });
    assert.deepEqual(failures, ['database']);
    state.database = undefined;
    state.routable = true;
    state.nowMs = 1000;
    assert.deepEqual(await readiness.check(), { ready: true });
    readiness.startDraining();
    assert.deepEqual(await readiness.check(), { ready: false, causes: ['draining'] });
  });

  it('asks for no node where nodes come on demand', async () => {
    const state = { routable: false, nowMs: 0 };
    const { readiness } = service(state, { hasBeenRoutable: undefined });
    assert.deepEqual(await readiness.check(), { ready: true });
  });

  it('checks at most once a second', async () => {
    const state = { routable: true, nowMs: 0 };
    const { readiness, checks } = service(state);
    await Promise.all([readiness.check(), readiness.check(), readiness.check()]);
    assert.equal(checks(), 1);
  });

  it('does not wait for ever', async () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      const { readiness } = service(
        { routable: true, nowMs: 0 },
        { checkDatabase: () => new Promise(() => undefined) },
      );
      const checked = readiness.check();
      mock.timers.tick(2000);
      assert.deepEqual(await checked, { ready: false, causes: ['database'] });
    } finally {
      mock.timers.reset();
    }
  });
});
