import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fc } from '../../../test/support/property-tests.ts';
import { LEDGER_KINDS, type LedgerKind } from '../../src/domain/ledger.ts';
import {
  endOfDayMs,
  type LedgerCheckpoint,
  LedgerTally,
  NOTHING_CLOSED,
  sameSums,
} from '../../src/domain/ledger-checkpoint.ts';

const DAY_MS = 86_400_000;
const SPAN = 3;

interface Entry {
  readonly kind: LedgerKind;
  readonly amount: number;
  readonly createdAtMs: number;
}

const entry: fc.Arbitrary<Entry> = fc.record({
  kind: fc.constantFrom(...LEDGER_KINDS),
  amount: fc.integer({ min: 1, max: 5 }),
  // A few days, and often the same millisecond.
  createdAtMs: fc
    .tuple(fc.nat({ max: 4 }), fc.nat({ max: 5 }))
    .map(([day, ms]) => day * DAY_MS + ms),
});
const ledger = fc
  .array(entry, { maxLength: 40 })
  .map(entries => entries.toSorted((a, b) => a.createdAtMs - b.createdAtMs));

function checkpointsOf(entries: readonly Entry[], from: LedgerCheckpoint, untilMs: number) {
  const tally = new LedgerTally(from, SPAN);
  const set: LedgerCheckpoint[] = [];
  const pass = (atMs: number) => {
    const due = tally.due(atMs);
    if (due === undefined) return;
    tally.closed();
    set.push(due);
  };
  for (const one of entries) {
    pass(one.createdAtMs);
    tally.add(one);
  }
  pass(untilMs);
  return { set, whole: tally.at(untilMs) };
}

function sumsBefore(entries: readonly Entry[], closedToMs: number): LedgerCheckpoint {
  const tally = new LedgerTally(NOTHING_CLOSED);
  for (const one of entries) if (one.createdAtMs < closedToMs) tally.add(one);
  return tally.at(closedToMs);
}

test('a checkpoint holds exactly what was created before it, wherever it stands', () => {
  fc.assert(
    fc.property(ledger, entries => {
      const { set } = checkpointsOf(entries, NOTHING_CLOSED, 6 * DAY_MS);
      for (const one of set) assert.ok(sameSums(one, sumsBefore(entries, one.closedToMs)));
    }),
  );
});

test('every day that has entries ends with one, and none is set without an entry', () => {
  fc.assert(
    fc.property(ledger, entries => {
      const { set } = checkpointsOf(entries, NOTHING_CLOSED, 6 * DAY_MS);
      const places = set.map(({ closedToMs }) => closedToMs);
      for (const { createdAtMs } of entries) assert.ok(places.includes(endOfDayMs(createdAtMs)));
      let before = 0;
      for (const { entries: count } of set) {
        assert.ok(count > before);
        before = count;
      }
    }),
  );
});

test('a day is not closed before its end', () => {
  const entries = [{ kind: 'grant' as const, amount: 1, createdAtMs: DAY_MS + 5 }];
  assert.deepEqual(checkpointsOf(entries, NOTHING_CLOSED, 2 * DAY_MS - 1).set, []);
  assert.equal(checkpointsOf(entries, NOTHING_CLOSED, 2 * DAY_MS).set.length, 1);
});

test('a long day is cut between milliseconds, never within one', () => {
  const at = (createdAtMs: number) => ({ kind: 'grant' as const, amount: 1, createdAtMs });
  const entries = [at(1), at(2), at(2), at(2), at(2), at(3)];
  const { set } = checkpointsOf(entries, NOTHING_CLOSED, 4);
  assert.deepEqual(
    set.map(({ closedToMs, entries: count }) => [closedToMs, count]),
    [[3, 5]],
  );
});

test('counting goes on from any checkpoint as if from the first entry', () => {
  fc.assert(
    fc.property(ledger, fc.nat(), (entries, pick) => {
      const all = checkpointsOf(entries, NOTHING_CLOSED, 6 * DAY_MS);
      const from = all.set[pick % all.set.length];
      if (from === undefined) return;
      const rest = entries.filter(({ createdAtMs }) => createdAtMs >= from.closedToMs);
      const later = checkpointsOf(rest, from, 6 * DAY_MS);
      assert.deepEqual(later.whole, all.whole);
      assert.deepEqual(later.set.at(-1) ?? from, all.set.at(-1));
    }),
  );
});
