import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ContractError } from '#contract/errors.ts';
import {
  leaseQuota,
  type QuotaAsk,
  type QuotaUse,
  RATE_WINDOW_MS,
  type RateKind,
} from '../../src/domain/rate-quota.ts';
import { RateLimits } from '../../src/services/rate-limits.ts';
import type { RateQuotaStore } from '../../src/store/accounts/rate-quota-store.ts';

const START = 1000 * RATE_WINDOW_MS;

/** The shared row without its database, on a clock the test sets. */
class Quotas implements RateQuotaStore {
  now = START;
  statements = 0;
  away = false;
  readonly #rows = new Map<string, QuotaUse>();

  async nowMs(): Promise<number> {
    this.#count();
    return this.now;
  }

  async lease(accountId: string, kind: RateKind, ask: QuotaAsk) {
    this.#count();
    const lease = leaseQuota(this.#rows.get(kind + accountId), ask, this.now);
    this.#rows.set(kind + accountId, lease);
    return lease;
  }

  #count(): void {
    this.statements += 1;
    if (this.away) throw new ContractError('SERVICE_UNAVAILABLE', 'away');
  }
}

function opened(limits = { submissions: 120, reads: 600 }) {
  const quotas = new Quotas();
  return { quotas, limits: new RateLimits(quotas, limits) };
}

async function takenBy(limits: RateLimits, count: number, kind: RateKind = 'submissions') {
  const takes = Array.from({ length: count }, () => limits.take('acme', kind));
  return (await Promise.all(takes)).filter(state => state.allowed).length;
}

test('one replica keeps the limit to the request, one at a time or all at once', async () => {
  for (const limit of [1, 2, 59, 60, 61, 120, 1000]) {
    const slow = opened({ submissions: limit, reads: 1 }).limits;
    let allowed = 0;
    for (let sent = 0; sent < limit + 5; sent += 1) allowed += await takenBy(slow, 1);
    assert.equal(allowed, limit);
    const burst = opened({ submissions: limit, reads: 1 }).limits;
    assert.equal(await takenBy(burst, limit + 5), limit);
  }
});

test('statements are issued for blocks, not for requests', async () => {
  const { quotas, limits } = opened({ submissions: 1200, reads: 6000 });
  await takenBy(limits, 20);
  assert.equal(quotas.statements, 1, 'the clock, once for all accounts and kinds');
  await limits.take('other', 'submissions');
  await takenBy(limits, 100, 'reads');
  assert.equal(quotas.statements, 1);
  assert.equal(await takenBy(limits, 1180), 1180);
  assert.equal(quotas.statements, 1 + 59);
  assert.equal(await takenBy(limits, 500), 0);
  assert.equal(quotas.statements, 1 + 60, 'who is refused costs one statement a window');
});

test('kinds and accounts are counted apart', async () => {
  const { limits } = opened({ submissions: 1, reads: 2 });
  assert.equal(await takenBy(limits, 3), 1);
  assert.equal(await takenBy(limits, 3, 'reads'), 2);
  assert.equal((await limits.take('other', 'submissions')).allowed, true);
});

test('what a caller gets: the limit, what remains, when the next window begins', async () => {
  const { quotas, limits } = opened({ submissions: 120, reads: 1 });
  quotas.now = START + 30_500;
  const remaining: number[] = [];
  for (let sent = 0; sent < 122; sent += 1) {
    const state = await limits.take('acme', 'submissions');
    assert.equal(state.limit, 120);
    assert.equal(state.windowS, 60);
    assert.ok(state.resetS <= 30 && state.resetS >= 1, `${state.resetS}`);
    remaining.push(state.remaining);
  }
  const falling = Array.from({ length: 120 }, (_, index) => 119 - index);
  assert.deepEqual(remaining, [...falling, 0, 0]);
});

test('what other replicas spent shows with the next lease', async () => {
  const { quotas, limits } = opened({ submissions: 120, reads: 1 });
  await takenBy(new RateLimits(quotas, { submissions: 120, reads: 1 }), 100);
  const first = await limits.take('acme', 'submissions');
  assert.equal(first.remaining, 119);
  await limits.take('acme', 'submissions');
  const third = await limits.take('acme', 'submissions');
  // 100 of the other's, 2 in advance, 2 leased of which 1 is left.
  assert.equal(third.remaining, 120 - 104 + 1);
  assert.equal(await takenBy(limits, 100), 17);
});

test('a new window is learnt from the database, also where ours has not ended yet', async () => {
  const { quotas, limits } = opened({ submissions: 2, reads: 60 });
  assert.equal(await takenBy(limits, 5, 'reads'), 5);
  quotas.now = START + RATE_WINDOW_MS;
  // The next lease meets the new window, and its one block is lost; what was spent in the old one
  // counts no more.
  assert.equal(await takenBy(limits, 100, 'reads'), 59);
  // A clock that is set back is believed too.
  quotas.now = START - 3 * RATE_WINDOW_MS;
  assert.equal(await takenBy(limits, 5), 2);
});

test('a window ends while no request comes', async () => {
  const { quotas, limits } = opened({ submissions: 1, reads: 1 });
  quotas.now = START + RATE_WINDOW_MS - 30;
  assert.equal(await takenBy(limits, 2), 1);
  quotas.now = START + RATE_WINDOW_MS;
  let state = await limits.take('acme', 'submissions');
  while (!state.allowed) state = await limits.take('acme', 'submissions');
  assert.ok(state.resetS > 50);
});

test('without the database nothing is let through on credit, and all works again after', async () => {
  const { quotas, limits } = opened({ submissions: 120, reads: 1 });
  const unavailable = (error: unknown) =>
    error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE';
  quotas.away = true;
  await assert.rejects(limits.take('acme', 'submissions'), unavailable);
  quotas.away = false;
  assert.equal(await takenBy(limits, 2), 2);
  quotas.away = true;
  await assert.rejects(limits.take('acme', 'submissions'), unavailable);
  quotas.away = false;
  assert.equal(await takenBy(limits, 200), 118);
});
