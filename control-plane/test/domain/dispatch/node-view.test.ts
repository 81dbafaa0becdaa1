/** What a replica takes a refusal for: a bound by size, until the node reports. */
import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
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

const REPORT = { ...IDLE, imagesInFlight: 1, megapixelsFree: 16 };

const jobOf = (megapixels: number) =>
  needsOf({ format: 'jpeg', width: 1000, height: megapixels * 1000 }, { outputFormat: 'png' });

let view: NodeView;

beforeEach(() => {
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

describe('a node that refused', () => {
  it('for want of memory gets nothing as large until it reports, and what is smaller at once', () => {
    refuse(6);
    assert.deepEqual([takes(12), takes(6), takes(5)], [false, false, true]);
    refuse(2);
    assert.deepEqual([takes(5), takes(2), takes(1)], [false, false, true]);
    refuse(4);
    assert.equal(takes(2), false, 'the least that it refused stands');
    view.take(REPORT, 1);
    assert.ok(takes(12));
  });

  it('gets nothing as large while it is idle either', () => {
    view.take({ ...REPORT, imagesInFlight: 0 }, 1);
    refuse(30);
    assert.deepEqual([takes(30), takes(29)], [false, true]);
  });

  it('for want of a place gets nothing at all until it reports', () => {
    view.end(view.reserve(6), 'for-all');
    assert.equal(takes(1), false);
    view.take(REPORT, 1);
    assert.ok(takes(1));
  });

  it('has room for all that fits where an attempt ended without a refusal', () => {
    view.end(view.reserve(6), undefined);
    assert.ok(takes(12));
  });
});

type Outcome = 'well' | 'fault';

function after(outcomes: readonly Outcome[], from: NodeTrust = NEW_NODE, nowMs = 1): NodeTrust {
  return outcomes.reduce((trust, outcome) => judged(trust, outcome, nowMs), from);
}

const times = (count: number, outcome: Outcome) => Array<Outcome>(count).fill(outcome);

describe('the trust in a node', () => {
  it('is won by successes, and lost by faults in a row', () => {
    assert.ok(!isProven(after(times(PROVEN_SUCCESSES - 1, 'well'))));
    const proven = after(times(PROVEN_SUCCESSES, 'well'));
    assert.ok(isProven(proven));
    assert.equal(after(times(FAULTS_IN_A_ROW_MAX - 1, 'fault'), proven).ejectedUntilMs, 0);
    const ejected = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), proven);
    assert.equal(ejected.ejectedUntilMs, 1 + EJECTION_MS);
    assert.ok(!isProven(ejected), 'it comes back by slow start');
  });

  it('is lost where half of many fail, never by a few', () => {
    const mixed = Array.from({ length: WINDOW_OUTCOMES_MIN }, (_, index) =>
      index % 2 === 0 ? 'well' : 'fault',
    ) as Outcome[];
    assert.equal(after(mixed.slice(0, -1)).ejectedUntilMs, 0);
    assert.ok(after(mixed).ejectedUntilMs > 0);
  });

  it('forgets faults with their window', () => {
    let trust = NEW_NODE;
    for (let round = 0; round < 40; round += 1) {
      trust = judged(trust, round % 2 === 0 ? 'well' : 'fault', 1 + round * (WINDOW_MS / 4));
    }
    assert.equal(trust.ejectedUntilMs, 0);
  });

  it('is lost for longer each time, up to a bound, and for as long as at first after a while', () => {
    let trust = NEW_NODE;
    let nowMs = 1;
    const lengths: number[] = [];
    for (let round = 0; round < 12; round += 1) {
      trust = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), trust, nowMs);
      lengths.push(trust.ejectedUntilMs - nowMs);
      nowMs = trust.ejectedUntilMs;
    }
    assert.deepEqual(
      lengths,
      lengths.map((_, index) => Math.min(EJECTION_MS_MAX, EJECTION_MS * (index + 1))),
    );
    nowMs += 3_600_000;
    const later = after(times(FAULTS_IN_A_ROW_MAX, 'fault'), trust, nowMs);
    assert.equal(later.ejectedUntilMs - nowMs, EJECTION_MS);
  });

  it('never takes a node out that mostly does well, nor for longer than the bound', () => {
    const anyOutcomes = fc.array(fc.record({ well: fc.boolean(), afterMs: fc.nat(20_000) }), {
      maxLength: 200,
    });
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
    );
  });
});
