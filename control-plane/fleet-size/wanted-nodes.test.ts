/** How many nodes are wanted, and by which pace. */
import assert from 'node:assert/strict';
import { snapshotWith } from '@matting/core/test/nodes-seen.ts';
import { fc, holds } from '@matting/test-support/property-tests.ts';
import test from 'ava';
import {
  BUSY_SHARE,
  type FleetNeeds,
  HeldPeak,
  pacePerS,
  usedShares,
  WorkMeter,
  wantedNodes,
} from './wanted-nodes.ts';

const POLICY = { waitTargetMs: 60_000, nodesMin: 0, nodesMax: 50 };
const ASLEEP: FleetNeeds = {
  waitingJobs: 0,
  waitingMegapixels: 0,
  playgroundJobs: 0,
  runningJobs: 0,
  inflowPerS: 0,
  pacePerS: 10,
  oldestAgeMs: 0,
  unroutableMs: 3_600_000,
  routableNodes: 0,
  utilisation: undefined,
};

function wanted(changes: Partial<FleetNeeds>, policy = POLICY): number {
  return wantedNodes({ ...ASLEEP, ...changes }, policy);
}

test('the wanted number of nodes › is none where nothing waits, comes or runs', t => {
  t.is(wanted({}), 0);
  t.is(wanted({ pacePerS: undefined }), 0);
  t.is(wanted({ inflowPerS: 0.01 }), 0, 'what came once has been done');
});

test('the wanted number of nodes › is one for whatever waits or runs, also where no pace is known', t => {
  const some = [
    { waitingJobs: 1, waitingMegapixels: 1 },
    { playgroundJobs: 60 },
    { runningJobs: 1 },
  ];
  for (const needs of some) {
    t.is(wanted(needs), 1);
    t.is(wanted({ ...needs, pacePerS: undefined }), 1);
  }
  t.is(wanted({ waitingJobs: 9999, waitingMegapixels: 99_999, pacePerS: undefined }), 1);
});

test('the wanted number of nodes › does what comes, and what waits within the target', t => {
  // 10 MP/s a node for a minute.
  t.is(wanted({ waitingJobs: 50, waitingMegapixels: 600 }), 1);
  t.is(wanted({ waitingJobs: 51, waitingMegapixels: 612 }), 2);
  t.is(wanted({ inflowPerS: 30 * BUSY_SHARE }), 3);
  t.is(wanted({ waitingJobs: 50, waitingMegapixels: 600, inflowPerS: 30 * BUSY_SHARE }), 4);
  const patient = { ...POLICY, waitTargetMs: 600_000 };
  t.is(wanted({ waitingJobs: 50, waitingMegapixels: 6000 }, patient), 1);
});

test('the wanted number of nodes › is one more for each that did not come', t => {
  const waits = { waitingJobs: 51, waitingMegapixels: 612 };
  for (const pacePerS of [undefined, 10]) {
    const least = pacePerS === undefined ? 1 : 2;
    t.is(wanted({ ...waits, pacePerS, oldestAgeMs: 299_999 }), least);
    t.is(wanted({ ...waits, pacePerS, oldestAgeMs: 300_000 }), least + 1);
    t.is(wanted({ ...waits, pacePerS, oldestAgeMs: 900_000 }), least + 3);
    const soon = { ...waits, pacePerS, oldestAgeMs: 900_000, unroutableMs: 299_999 };
    t.is(wanted(soon), least, 'one was there a moment ago');
  }
});

test('the wanted number of nodes › stays within the bounds', t => {
  t.is(wanted({ waitingJobs: 1e6, waitingMegapixels: 1e9 }), 50);
  t.is(wanted({}, { ...POLICY, nodesMin: 2 }), 2);
});

test('the wanted number of nodes › is a whole number within the bounds whatever is measured, and no less for more that waits', t => {
  const amount = fc.double({ min: 0, max: 1e12, noNaN: true });
  const count = fc.nat(1e6);
  const needs = fc.record({
    waitingJobs: count,
    waitingMegapixels: amount,
    playgroundJobs: count,
    runningJobs: count,
    inflowPerS: amount,
    pacePerS: fc.option(amount, { nil: undefined }),
    oldestAgeMs: amount,
    unroutableMs: amount,
    routableNodes: count,
    utilisation: fc.option(fc.double({ min: 0, max: 1, noNaN: true }), { nil: undefined }),
  });
  holds(t, [needs, amount], (given, more) => {
    const nodes = wantedNodes(given, POLICY);
    assert.ok(Number.isInteger(nodes) && nodes >= 0 && nodes <= POLICY.nodesMax, `${nodes}`);
    const waitingMegapixels = given.waitingMegapixels + more;
    assert.ok(wantedNodes({ ...given, waitingMegapixels }, POLICY) >= nodes);
  });
});

test('the wanted number of nodes › calls no node for what waits beside idle ones', t => {
  const stuck = { waitingJobs: 5000, waitingMegapixels: 60_000, routableNodes: 20 };
  t.is(wanted({ ...stuck, utilisation: 0 }), 1);
  t.is(wanted({ ...stuck, utilisation: 0.1 }), 5);
  t.is(wanted({ ...stuck, utilisation: 0.49 }), 21);
  t.is(wanted({ ...stuck, utilisation: 0.5 }), 50, 'a fleet that is used');
  t.is(wanted({ ...stuck, routableNodes: 0 }), 50, 'nobody is there to tell');
});

test('a peak › rises at once, and falls between once and twice the time', t => {
  const peak = new HeldPeak(100);
  t.is(peak.hold(3, 0), 3);
  t.is(peak.hold(9, 10), 9);
  t.is(peak.hold(1, 99), 9);
  t.is(peak.hold(2, 109), 9);
  t.is(peak.hold(1, 208), 9);
  t.is(peak.hold(1, 209), 2, 'what was wanted since');
  t.is(peak.hold(0, 310), 1);
  t.is(peak.hold(0, 1000), 0, 'of long ago nothing');
});

test('the time of a node › is whose images it has, where it takes no more', t => {
  const full = { imagesInFlight: 4, imagesFree: 2, ownImages: 1, estimatedWaitMs: 300 };
  t.deepEqual(usedShares(snapshotWith(full), 0), { all: 1, own: 0.25 });
  const crowded = { imagesInFlight: 6, imagesFree: 0, ownImages: 6 };
  t.deepEqual(usedShares(snapshotWith(crowded), 0), { all: 1, own: 1 });
});

test('the time of a node › is a place of it an image, where it takes more', t => {
  const free = { imagesInFlight: 1, imagesFree: 3, ownImages: 1 };
  t.deepEqual(usedShares(snapshotWith(free), 0), { all: 0.25, own: 0.25 });
  t.deepEqual(usedShares(snapshotWith({}), 0), { all: 0, own: 0 });
});

const busy = snapshotWith({
  imagesInFlight: 2,
  imagesFree: 2,
  ownImages: 1,
  estimatedWaitMs: 1e9,
});

/** Seconds in which it does so many megapixels each. */
function work(meter: WorkMeter, fromS: number, seconds: number, megapixels: number): void {
  for (let second = 0; second < seconds; second += 1) {
    meter.sample([busy, snapshotWith({})], (fromS + second) * 1000);
    meter.finished(megapixels);
  }
  meter.sample([], (fromS + seconds) * 1000);
}

test('the pace of a node › is what it did for us by the part of its time that we had', t => {
  const meter = new WorkMeter();
  t.is(pacePerS(meter.take(0).work), undefined);
  work(meter, 0, 101, 6);
  const { work: measured, utilisation } = meter.take(101_000);
  t.true(Math.abs(measured.nodeMs - 50_000) < 1);
  t.is(Math.round(pacePerS(measured) ?? 0), 12);
  t.is(utilisation, 0.5);
  t.is(meter.take(102_000).utilisation, undefined, 'no node was looked at since');
});

test('the pace of a node › follows other nodes and images, and outlives a process', t => {
  const meter = new WorkMeter();
  work(meter, 0, 5000, 6);
  work(meter, 5000, 5000, 60);
  const { work: measured } = meter.take(10_000_000);
  t.true((pacePerS(measured) ?? 0) > 110, `${pacePerS(measured)}`);
  t.is(pacePerS(new WorkMeter(measured).take(0).work), pacePerS(measured));
});

test('the pace of a node › stands while nothing is done', t => {
  const meter = new WorkMeter({ megapixels: 20, nodeMs: 1000 });
  meter.sample([snapshotWith({})], 0);
  meter.sample([snapshotWith({})], 3_600_000);
  t.is(pacePerS(meter.take(3_600_000).work), 20);
});

test('what comes › is known within a minute, and forgotten as fast', t => {
  const meter = new WorkMeter();
  meter.take(0);
  const lately = [60, 60, 60, 0, 0, 0].map((megapixels, minute) => {
    meter.submitted(megapixels * 60);
    return meter.take((minute + 1) * 60_000).inflowPerS;
  });
  t.true(lately.slice(0, 3).every((each, at) => each > [37, 51, 56][at]!));
  t.true(lately.at(-1)! < 3.5, `${lately}`);
  t.is(meter.take(360_000).inflowPerS, lately.at(-1)!, 'twice in an instant is once');
});
