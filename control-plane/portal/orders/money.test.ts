import assert from 'node:assert/strict';
import {
  CREDITS_AMOUNT_MAX,
  isCreditAmount,
  isLedgerReference,
} from '@matting/accounts/ledger/ledger.ts';
import {
  balancesFrom,
  imbalances,
  isReservedReference,
  jobProblem,
} from '@matting/core/test/internals.ts';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import {
  creditsOfRefund,
  formatDecimal,
  grantReferenceOf,
  isMoneyReference,
  judgePayment,
  orderReferenceOf,
  orderStateOf,
  parseDecimal,
  parseOrderReference,
  refundReferenceOf,
  smallestUnits,
} from './order-rules.ts';

const ORDER = '00000000-0000-4000-8000-000000000001';

/** Any prices and credits, with successive refunds of parts of the price. */
const refunds = fc
  .record({
    credits: fc.integer({ min: 1, max: 1_000_000_000 }),
    price: fc.integer({ min: 1, max: 1_000_000_000_000 }),
    cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 }),
  })
  .map(({ credits, price, cuts }) => {
    const ends = [...new Set(cuts.map(cut => Math.floor(cut * price)))].sort((a, b) => a - b);
    const parts = [...ends, price].map((end, index) => end - (ends[index - 1] ?? 0));
    return { credits, price, parts: parts.filter(part => part > 0) };
  });

test('credits of a refund › what stays is worth no more than what stays paid, and a credit more would be', t => {
  holds(t, [refunds], ({ credits, price, parts }) => {
    let refunded = 0;
    let kept = credits;
    for (const amount of parts) {
      kept -= creditsOfRefund({ credits, price, refunded }, amount);
      refunded += amount;
      const paid = BigInt(price - refunded) * BigInt(credits);
      assert.ok(BigInt(kept) * BigInt(price) <= paid, 'rounded for the one who is refunded');
      assert.ok(BigInt(kept + 1) * BigInt(price) > paid, 'more is taken than is due');
    }
    assert.equal(kept, 0, 'all of the price takes all credits');
  });
});

test('credits of a refund › is what it is of the packages on sale', t => {
  const half = (credits: number, price: number) =>
    creditsOfRefund({ credits, price, refunded: 0 }, price / 2);
  t.is(half(2500, 5000), 1250);
  t.is(half(107_200, 150_000), 53_600);
  // A tenth of a credit costs a fen: the first refund takes a whole credit, the next nine none.
  const part = (refunded: number) => creditsOfRefund({ credits: 100, price: 1000, refunded }, 1);
  t.deepEqual([part(0), part(1), part(9), part(10)], [1, 0, 0, 1]);
});

test('credits of a refund › is of a part of what is left of the price', t => {
  const order = { credits: 100, price: 1000, refunded: 600 };
  for (const amount of [0, -1, 0.5, 401, Number.NaN, 2 ** 60]) {
    t.throws(() => creditsOfRefund(order, amount), { instanceOf: RangeError }, String(amount));
  }
});

const paid = { price: 1000, refunded: 0, expiresAtMs: 50 };

test('an order › reads as its state, its refunds and the time say', t => {
  const of = (stored: 'pending' | 'cancelled' | 'paid', refunded: number, nowMs: number) =>
    orderStateOf({ ...paid, stored, refunded }, nowMs);
  t.deepEqual([of('pending', 0, 49), of('pending', 0, 50)], ['pending', 'expired']);
  t.is(of('cancelled', 0, 50), 'cancelled');
  t.deepEqual(
    [0, 1, 999, 1000].map(refunded => of('paid', refunded, 50)),
    ['paid', 'partly-refunded', 'partly-refunded', 'refunded'],
  );
});

test('an order › is paid by its price in its currency alone, and once', t => {
  const order = { price: 1000, currency: 'CNY', stored: 'pending' } as const;
  const paid = { amount: 1000, currency: 'CNY' };
  for (const stored of ['pending', 'cancelled'] as const) {
    t.is(judgePayment({ ...order, stored }, paid), 'accepted');
  }
  t.is(judgePayment({ ...order, stored: 'paid' }, paid), 'again');
  for (const wrong of [{ amount: 999 }, { amount: 1001 }, { currency: 'JPY' }]) {
    t.is(judgePayment(order, { ...paid, ...wrong }), 'differs');
    t.is(judgePayment({ ...order, stored: 'paid' }, { ...paid, ...wrong }), 'differs');
  }
});

test('references › of orders are lawful in the ledger, and told from those of operators', t => {
  const longest = '~'.repeat(64);
  t.truthy(isMoneyReference(longest));
  for (const wrong of ['', 'a b', `${longest}~`, 'é', 7]) {
    t.false(isMoneyReference(wrong));
  }
  for (const reference of [grantReferenceOf(ORDER), refundReferenceOf(ORDER, longest)]) {
    t.truthy(isLedgerReference(reference));
    t.truthy(isReservedReference(reference));
  }
  for (const other of ['order:7', 'order 1', `order:${ORDER}x`, `gift order:${ORDER}`]) {
    t.is(isReservedReference(other), false, other);
  }
});

test('references › of orders are short, read as people type them, and no ids', t => {
  const references = Array.from({ length: 200 }, (_, attempt) => orderReferenceOf(ORDER, attempt));
  t.is(new Set(references).size, 200);
  for (const reference of references) {
    t.regex(reference, /^M-[2-9A-HJKMNP-TW-Z]{4}-[2-9A-HJKMNP-TW-Z]{2}$/);
    t.is(parseOrderReference(reference), reference);
  }
  t.is(parseOrderReference(' m 7f3k22 '), 'M-7F3K-22');
  for (const other of ['', 'M-7F3K-2', 'M-7F3K-222', 'M-7F3O-22', '7F3K-22', ORDER, 'M-7F3K-2é']) {
    t.is(parseOrderReference(other), undefined, other);
  }
});

test('sums of money › are read and written to the smallest unit', t => {
  for (const [text, fen] of [
    ['12', 1200],
    ['12.5', 1250],
    ['0.01', 1],
    ['0.29', 29],
    ['13000.00', 1_300_000],
  ] as const) {
    t.is(parseDecimal(text, 'CNY'), fen);
    t.is(parseDecimal(formatDecimal(fen, 'CNY'), 'CNY'), fen);
  }
  t.deepEqual(
    [1, 100, 1250].map(fen => formatDecimal(fen, 'CNY')),
    ['0.01', '1.00', '12.50'],
  );
});

test('sums of money › are no other words', t => {
  for (const text of ['', '0', '0.00', '-1', '1e3', '1,5', '.5', '1.', '1.234', ' 1', '１']) {
    t.is(parseDecimal(text, 'CNY'), undefined, text);
  }
  t.throws(() => smallestUnits(1, 'DOGE'), { instanceOf: RangeError });
});

test('the ledger › every difference is told once', t => {
  const sums = { grant: 10, reserve: 3, charge: 1, release: 1, revoke: 0 };
  const overdrawn = { grant: 1, reserve: 0, charge: 0, release: 0, revoke: 2 };
  for (const [available, reserved, entries, held, messages] of [
    [8, 1, sums, 1, []],
    [9, 1, sums, 1, [/^available/]],
    [8, 2, sums, 2, [/^reserved .* ledger/]],
    [8, 1, sums, 0, [/^reserved .* open jobs/]],
    [-1, 0, overdrawn, 0, [/negative/]],
  ] as const) {
    const found = imbalances({ available, reserved }, entries, held);
    t.is(found.length, messages.length, found.join());
    for (const [index, what] of messages.entries()) t.regex(found[index] ?? '', what);
  }
});

test('the ledger › available + reserved + charged = granted - revoked, whatever the entries are', t => {
  const sum = fc.nat({ max: CREDITS_AMOUNT_MAX });
  const sums = fc.record({ grant: sum, reserve: sum, charge: sum, release: sum, revoke: sum });
  holds(t, [sums], entries => {
    const { available, reserved } = balancesFrom(entries);
    assert.equal(available + reserved + entries.charge, entries.grant - entries.revoke);
  });
});

test('the ledger › a job has a reserve, and once final the one settlement that its state asks for', t => {
  const charge = { kind: 'charge', amount: 1 } as const;
  const release = { kind: 'release', amount: 1 } as const;
  for (const state of ['accepted', 'fetching', 'ready', 'running'] as const) {
    t.is(jobProblem(state, { reserve: 1, settlement: null }), undefined);
    for (const settlement of [charge, release]) {
      t.regex(jobProblem(state, { reserve: 1, settlement }) ?? '', /^the job is .* and (c|r)/);
    }
  }
  for (const [state, right, wrong] of [
    ['succeeded', charge, release],
    ['failed', release, charge],
  ] as const) {
    t.is(jobProblem(state, { reserve: 1, settlement: right }), undefined);
    t.regex(jobProblem(state, { reserve: 1, settlement: wrong }) ?? '', /reserve 1 and/);
    t.regex(jobProblem(state, { reserve: 1, settlement: null }) ?? '', /no settlement/);
    t.regex(jobProblem(state, { reserve: null, settlement: right }) ?? '', /no reserve/);
    t.regex(jobProblem(state, { reserve: 2, settlement: right }) ?? '', /reserve 2 and/);
  }
  for (const settlement of [charge, release]) {
    t.is(jobProblem(null, { reserve: 1, settlement }), undefined);
    t.regex(jobProblem(null, { reserve: 2, settlement }) ?? '', /gone .* differ/);
    t.regex(jobProblem(null, { reserve: null, settlement }) ?? '', /gone .* no partner/);
  }
  t.regex(jobProblem(null, { reserve: 1, settlement: null }) ?? '', /its reserve has no/);
});

test('the ledger › amounts and references have one form', t => {
  for (const amount of [0, -1, 1.5, Number.NaN, Infinity, CREDITS_AMOUNT_MAX + 1]) {
    t.is(isCreditAmount(amount), false, String(amount));
  }
  t.true(isCreditAmount(1) && isCreditAmount(CREDITS_AMOUNT_MAX));
  for (const reference of ['', ' ', ' a', 'a ', 'a\t', 'ü', 'x'.repeat(129)]) {
    t.is(isLedgerReference(reference), false, reference);
  }
  for (const reference of ['a', 'order 17', 'x'.repeat(128)]) {
    t.is(isLedgerReference(reference), true, reference);
  }
});
