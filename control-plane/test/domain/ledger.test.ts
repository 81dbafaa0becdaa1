import assert from 'node:assert/strict';
import test from 'ava';
import { fc } from '../../../test/support/property-tests.ts';
import {
  balancesFrom,
  CREDITS_AMOUNT_MAX,
  imbalances,
  isCreditAmount,
  isLedgerReference,
  jobProblem,
  NO_ENTRIES,
} from '../../src/domain/ledger.ts';

test('every difference has a sentence of its own', t => {
  const sums = { ...NO_ENTRIES, grant: 10, reserve: 3, charge: 1, release: 1 };
  t.deepEqual(imbalances({ available: 8, reserved: 1 }, sums, 1), []);
  t.deepEqual(imbalances({ available: 9, reserved: 1 }, sums, 1), [
    'available is 9, its ledger says 8',
  ]);
  t.deepEqual(imbalances({ available: 8, reserved: 2 }, sums, 2), [
    'reserved is 2, its ledger says 1',
  ]);
  t.deepEqual(imbalances({ available: 8, reserved: 1 }, sums, 0), [
    'reserved is 1, its open jobs hold 0',
  ]);
  const overdrawn = { ...NO_ENTRIES, grant: 1, revoke: 2 };
  t.deepEqual(imbalances({ available: -1, reserved: 0 }, overdrawn, 0), [
    'its ledger makes available negative (-1)',
  ]);
});

test('available + reserved + charged = granted - revoked, whatever the entries are', t => {
  const sum = fc.nat({ max: CREDITS_AMOUNT_MAX });
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.record({ grant: sum, reserve: sum, charge: sum, release: sum, revoke: sum }),
        sums => {
          const { available, reserved } = balancesFrom(sums);
          assert.equal(available + reserved + sums.charge, sums.grant - sums.revoke);
        },
      ),
    ),
  );
});

test('a job has a reserve, and once final the one settlement that its state asks for', t => {
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

test('amounts and references have one form', t => {
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
