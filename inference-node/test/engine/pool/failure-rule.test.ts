import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EngineDeathCause } from '../../../src/engine/pool/engine-pool.ts';
import { FAILURE_WINDOW_MS, FailureRule } from '../../../src/engine/pool/loss-rules.ts';

function death(atMs: number, cause: EngineDeathCause, imageDigest?: string, engine = 0) {
  return { atMs, cause, imageDigest, engine };
}

test('three deaths without an image to blame within the window are a failed node', () => {
  const rule = new FailureRule();
  assert.equal(rule.recordDeath(death(0, 'idle')), false);
  assert.equal(rule.recordDeath(death(1, 'idle')), false);
  assert.equal(rule.recordDeath(death(FAILURE_WINDOW_MS - 1, 'watchdog')), true);
});

test('deaths a window apart are not', () => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    assert.equal(rule.recordDeath(death(i * (FAILURE_WINDOW_MS / 2), 'idle')), false);
  }
});

test('one poison image never takes the node with it, however often it comes', () => {
  const rule = new FailureRule();
  for (let i = 0; i < 20; i++) {
    assert.equal(rule.recordDeath(death(i, i % 2 === 0 ? 'run' : 'watchdog', 'poison')), false);
  }
});

test('three different images do, and so does an image among other deaths', () => {
  const images = new FailureRule();
  assert.equal(images.recordDeath(death(0, 'run', 'a')), false);
  assert.equal(images.recordDeath(death(1, 'run', 'b')), false);
  assert.equal(images.recordDeath(death(2, 'run', 'a')), false);
  assert.equal(images.recordDeath(death(3, 'fault', 'c')), true);
  const mixed = new FailureRule();
  assert.equal(mixed.recordDeath(death(0, 'run', 'a')), false);
  assert.equal(mixed.recordDeath(death(1, 'load')), false);
  assert.equal(mixed.recordDeath(death(2, 'idle')), true);
});

test('a run that succeeds forgives all', () => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    assert.equal(rule.recordDeath(death(i * 3, 'run', 'a')), false);
    assert.equal(rule.recordDeath(death(i * 3 + 1, 'run', 'b')), false);
    rule.recordSuccess();
  }
});

test('three loads in a row of one engine are a failed node, whatever their distance', () => {
  const rule = new FailureRule();
  const farApartMs = 10 * FAILURE_WINDOW_MS;
  assert.equal(rule.recordDeath(death(0, 'load')), false);
  // The other engine serves meanwhile; this one still never loads.
  rule.recordSuccess();
  assert.equal(rule.recordDeath(death(farApartMs, 'load')), false);
  assert.equal(rule.recordDeath(death(2 * farApartMs, 'load', undefined, 1)), false);
  assert.equal(rule.recordDeath(death(3 * farApartMs, 'load')), true);
});

test('a load that succeeds ends the row', () => {
  const rule = new FailureRule();
  for (let i = 0; i < 10; i++) {
    assert.equal(rule.recordDeath(death(i * FAILURE_WINDOW_MS, 'load')), false);
    rule.recordReady(0);
  }
});
