/** What a replica takes a refusal for: a bound by size, until the node reports. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { fc } from '../../../../test/support/property-tests.ts';
import { hasPlace } from '../../../src/domain/dispatch/dispatch-policy.ts';
import { admittedMegapixels, needsOf } from '../../../src/domain/dispatch/job-needs.ts';
import {
  EJECTION_MS,
  EJECTION_MS_MAX,
  FAULTS_IN_A_ROW_MAX,
  isProven,
  judged,
  NEW_NODE,
  type NodeTrust,
  NodeView,
  PROVEN_SUCCESSES,
  WINDOW_MS,
  WINDOW_OUTCOMES_MIN,
} from '../../../src/domain/dispatch/node-view.ts';
import { ABILITIES, REPORT as IDLE } from './nodes-seen.ts';

const test = ava.serial;

const REPORT = { ...IDLE, imagesInFlight: 1, megapixelsFree: 16 };

const jobOf = (megapixels: number) =>
  needsOf({ format: 'jpeg', width: 1000, height: megapixels * 1000 }, { outputFormat: 'png' });

let view: NodeView;

test.beforeEach(() => {
  const bounds = { megapixelsAloneMax: 60, imagesMax: 5, megapixelsMax: 20 };
  view = new NodeView({ ...ABILITIES, ...bounds, engines: 4 });
  view.take(REPORT, 0);
  for (let done = 0; done < 5; done += 1) view.judge('well', 0);
});

function takes(megapixels: number): boolean {
  const snapshot = view.snapshot();
  assert.ok(snapshot);
  return hasPlace(snapshot, jobOf(megapixels));
}

function refuse(megapixels: number): void {
  view.end(view.reserve(admittedMegapixels(jobOf(megapixels))), 'for-its-size');
}

test('a node that refused › for want of memory gets nothing as large until it reports, and what is smaller at once', t => {
  refuse(6);
  t.deepEqual([takes(12), takes(6), takes(5)], [false, false, true]);
  refuse(2);
  t.deepEqual([takes(5), takes(2), takes(1)], [false, false, true]);
  refuse(4);
  t.is(takes(2), false, 'the least that it refused stands');
  view.take(REPORT, 1);
  t.truthy(takes(12));
});

test('a node that refused › gets nothing as large while it is idle either', t => {
  view.take({ ...REPORT, imagesInFlight: 0 }, 1);
  refuse(30);
  t.deepEqual([takes(30), takes(29)], [false, true]);
});

test('a node that refused › for want of a place gets nothing at all until it reports', t => {
  view.end(view.reserve(6), 'for-all');
  t.false(takes(1));
  view.take(REPORT, 1);
  t.truthy(takes(1));
});

test('a node that refused › has room for all that fits where an attempt ended without a refusal', t => {
  view.end(view.reserve(6), undefined);
  t.truthy(takes(12));
});

type Outcome = 'well' | 'fault';

function after(outcomes: readonly Outcome[], from: NodeTrust = NEW_NODE, nowMs = 1): NodeTrust {
  return outcomes.reduce((trust, outcome) => judged(trust, outcome, nowMs), from);
}

const times = (count: number, outcome: Outcome) => Array<Outcome>(count).fill(outcome);

test('the trust in a node › is won by successes, and lost by faults in a row', t => {
  t.true(!isProven(after(times(PROVEN_SUCCESSES - 1, 'well'))));
  const proven = after(times(PROVEN_SUCCESSES, 'well'));
  t.truthy(isProven(proven));
  t.is(after(times(FAULTS_IN_A_ROW_MAX - 1, 'fault'), proven).ejectedUntilMs, 0);
  const ejected = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), proven);
  t.is(ejected.ejectedUntilMs, 1 + EJECTION_MS);
  t.true(!isProven(ejected), 'it comes back by slow start');
});

test('the trust in a node › is lost where half of many fail, never by a few', t => {
  const mixed = Array.from({ length: WINDOW_OUTCOMES_MIN }, (_, index) =>
    index % 2 === 0 ? 'well' : 'fault',
  ) as Outcome[];
  t.is(after(mixed.slice(0, -1)).ejectedUntilMs, 0);
  t.true(after(mixed).ejectedUntilMs > 0);
});

test('the trust in a node › forgets faults with their window', t => {
  let trust = NEW_NODE;
  for (let round = 0; round < 40; round += 1) {
    trust = judged(trust, round % 2 === 0 ? 'well' : 'fault', 1 + round * (WINDOW_MS / 4));
  }
  t.is(trust.ejectedUntilMs, 0);
});

test('the trust in a node › is lost for longer each time, up to a bound, and for as long as at first after a while', t => {
  let trust = NEW_NODE;
  let nowMs = 1;
  const lengths: number[] = [];
  for (let round = 0; round < 12; round += 1) {
    trust = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), trust, nowMs);
    lengths.push(trust.ejectedUntilMs - nowMs);
    nowMs = trust.ejectedUntilMs;
  }
  t.deepEqual(
    lengths,
    lengths.map((_, index) => Math.min(EJECTION_MS_MAX, EJECTION_MS * (index + 1))),
  );
  nowMs += 3_600_000;
  const later = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), trust, nowMs);
  t.is(later.ejectedUntilMs - nowMs, EJECTION_MS);
});

test('the trust in a node › never takes a node out that mostly does well, nor for longer than the bound', t => {
  const anyOutcomes = fc.array(fc.record({ well: fc.boolean(), afterMs: fc.nat(20_000) }), {
    maxLength: 200,
    size: 'max',
  });
  t.notThrows(() =>
    fc.assert(
      fc.property(anyOutcomes, outcomes => {
        let trust = NEW_NODE;
        let nowMs = 1;
        let row = 0;
        for (const { well, afterMs } of outcomes) {
          nowMs += afterMs;
          const before = trust;
          trust = judged(trust, well ? 'well' : 'fault', nowMs);
          if (nowMs < before.ejectedUntilMs) {
            assert.equal(trust, before, 'what ends under an ejection adds nothing to it');
            continue;
          }
          row = well ? 0 : row + 1;
          const isOut = trust.ejectedUntilMs > nowMs;
          if (isOut) assert.ok(!well, 'a success ejects no node');
          assert.ok(trust.ejectedUntilMs <= nowMs + EJECTION_MS_MAX);
          if (row >= FAULTS_IN_A_ROW_MAX) assert.ok(isOut);
          if (isOut) row = 0;
        }
      }),
    ),
  );
});
