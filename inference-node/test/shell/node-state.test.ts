import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { type NodeState, NodeStatus } from '../../src/node-state.ts';
import { FakeEnginePool, StageGates } from '../grpc/fake-pools.ts';

let status: NodeStatus;
let seen: NodeState[];

beforeEach(() => {
  status = new NodeStatus();
  seen = [];
  status.onChange(state => seen.push(state));
});

function pool(enginesReady = 1): FakeEnginePool {
  const engines = new FakeEnginePool(new StageGates());
  engines.set({ enginesReady, state: enginesReady > 0 ? 'ready' : 'starting' });
  return engines;
}

describe('NodeStatus', () => {
  it('starts until every model has an engine', () => {
    const [one, two] = [pool(1), pool(0)];
    assert.equal(status.state, 'starting');
    status.attachEngines([one, two]);
    assert.equal(status.state, 'starting');
    two.set({ enginesReady: 1, state: 'ready' });
    one.set({ enginesReady: 0 });
    one.set({ enginesReady: 1 });
    assert.deepEqual(seen, ['serving', 'starting', 'serving']);
  });

  it('tells a change once', () => {
    const engines = pool();
    status.attachEngines([engines]);
    engines.set({ running: 1 });
    engines.set({ running: 0 });
    status.drain('command');
    status.drain('command');
    assert.deepEqual(seen, ['serving', 'draining']);
  });

  it('lets the control plane take its own order back, and no other', () => {
    status.attachEngines([pool()]);
    status.drain('command');
    status.undrain();
    assert.equal(status.state, 'serving');
    status.drain('command');
    status.drain('shutdown');
    status.undrain();
    assert.equal(status.state, 'draining');
  });

  it('goes back to what the engines say when a drain is taken back', () => {
    const engines = pool();
    status.attachEngines([engines]);
    status.drain('command');
    engines.set({ enginesReady: 0 });
    assert.equal(status.state, 'draining');
    status.undrain();
    assert.deepEqual(seen, ['serving', 'draining', 'starting']);
  });

  it('has failed for good when one pool has, draining or not', () => {
    const [one, two] = [pool(), pool()];
    status.attachEngines([one, two]);
    two.set({ state: 'failed', enginesReady: 0 });
    status.drain('shutdown');
    assert.equal(status.state, 'failed');
    assert.deepEqual(seen, ['serving', 'failed']);
  });
});
