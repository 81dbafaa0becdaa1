import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import { type NodeState, NodeStatus } from '../../src/node-state.ts';
import { FakeEnginePool, FakePicturePool, StageGates } from '../grpc/fake-pools.ts';

let status: NodeStatus;
let seen: NodeState[];
let pictures: FakePicturePool;

beforeEach(() => {
  status = new NodeStatus();
  seen = [];
  pictures = new FakePicturePool(new StageGates());
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
    status.attach([one, two], pictures);
    assert.equal(status.state, 'starting');
    two.set({ enginesReady: 1, state: 'ready' });
    one.set({ enginesReady: 0 });
    one.set({ enginesReady: 1 });
    assert.deepEqual(seen, ['serving', 'starting', 'serving']);
  });

  it('tells a change once', () => {
    const engines = pool();
    status.attach([engines], pictures);
    engines.set({ running: 1 });
    engines.set({ running: 0 });
    status.drain('command');
    status.drain('command');
    assert.deepEqual(seen, ['serving', 'draining']);
  });

  it('lets the control plane take its own order back, and no other', () => {
    status.attach([pool()], pictures);
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
    status.attach([engines], pictures);
    status.drain('command');
    engines.set({ enginesReady: 0 });
    assert.equal(status.state, 'draining');
    status.undrain();
    assert.deepEqual(seen, ['serving', 'draining', 'starting']);
  });

  it('has failed for good when one pool has, draining or not', () => {
    const [one, two] = [pool(), pool()];
    status.attach([one, two], pictures);
    two.set({ state: 'failed', enginesReady: 0 });
    status.drain('shutdown');
    assert.equal(status.state, 'failed');
    assert.deepEqual(seen, ['serving', 'failed']);
  });

  it('says why it has failed, by engines or by picture workers', () => {
    const engines = pool();
    status.attach([engines], pictures);
    assert.equal(status.failure, undefined);
    pictures.fail('a worker does not die');
    assert.deepEqual([status.state, status.failure], ['failed', 'a worker does not die']);
    engines.set({ state: 'failed', failure: 'an engine does not die', enginesReady: 0 });
    assert.equal(status.failure, 'an engine does not die');
    assert.deepEqual(seen, ['serving', 'failed']);
  });
});
