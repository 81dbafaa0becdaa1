/** What a replica takes a refusal for: a bound by size, until the node reports. */
import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { hasPlace } from '../../../src/domain/dispatch/dispatch-policy.ts';
import { admittedMegapixels, needsOf } from '../../../src/domain/dispatch/job-needs.ts';
import { type NodeReport, NodeView } from '../../../src/domain/dispatch/node-view.ts';

const REPORT: NodeReport = {
  imagesInFlight: 1,
  imagesFree: 4,
  megapixelsFree: 16,
  enginesReady: 1,
  estimatedWaitMs: 0,
  inferMs: 100,
  decodeMsPerMegapixel: 1,
  encodeMsPerMegapixel: 1,
  decodeRates: new Map(),
  encodeRates: new Map(),
};

const jobOf = (megapixels: number) =>
  needsOf({ format: 'jpeg', width: 1000, height: megapixels * 1000 }, { outputFormat: 'png' });

let view: NodeView;

beforeEach(() => {
  view = new NodeView({
    nodeId: 'node',
    bootId: 'boot',
    inputFormats: new Set(['jpeg']),
    outputFormats: new Set(['png']),
    imagePixelsMax: 100_000_000,
    jxlPixelsMax: 0,
    megapixelsAloneMax: 60,
    engines: 4,
    imagesMax: 5,
    megapixelsMax: 20,
  });
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
