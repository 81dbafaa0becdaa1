import ava from 'ava';
import { type NodeState, NodeStatus } from '../../src/node-state.ts';
import { FakeEnginePool, FakePicturePool, StageGates } from '../grpc/fake-pools.ts';

const test = ava.serial;

let status: NodeStatus;
let seen: NodeState[];
let pictures: FakePicturePool;

test.beforeEach(() => {
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

test('starts until every model has an engine', t => {
  const [one, two] = [pool(1), pool(0)];
  t.is(status.state, 'starting');
  status.attach([one, two], pictures);
  t.is(status.state, 'starting');
  two.set({ enginesReady: 1, state: 'ready' });
  one.set({ enginesReady: 0 });
  one.set({ enginesReady: 1 });
  t.deepEqual(seen, ['serving', 'starting', 'serving']);
});

test('tells a change once', t => {
  const engines = pool();
  status.attach([engines], pictures);
  engines.set({ running: 1 });
  engines.set({ running: 0 });
  status.drain('command');
  status.drain('command');
  t.deepEqual(seen, ['serving', 'draining']);
});

test('lets the control plane take its own order back, and no other', t => {
  status.attach([pool()], pictures);
  status.drain('command');
  status.undrain();
  t.is(status.state, 'serving');
  status.drain('command');
  status.drain('shutdown');
  status.undrain();
  t.is(status.state, 'draining');
});

test('goes back to what the engines say when a drain is taken back', t => {
  const engines = pool();
  status.attach([engines], pictures);
  status.drain('command');
  engines.set({ enginesReady: 0 });
  t.is(status.state, 'draining');
  status.undrain();
  t.deepEqual(seen, ['serving', 'draining', 'starting']);
});

test('has failed for good when one pool has, draining or not', t => {
  const [one, two] = [pool(), pool()];
  status.attach([one, two], pictures);
  two.set({ state: 'failed', enginesReady: 0 });
  status.drain('shutdown');
  t.is(status.state, 'failed');
  t.deepEqual(seen, ['serving', 'failed']);
});

test('says why it has failed, by engines or by picture workers', t => {
  const engines = pool();
  status.attach([engines], pictures);
  t.is(status.failure, undefined);
  pictures.fail('a worker does not die');
  t.deepEqual([status.state, status.failure], ['failed', 'a worker does not die']);
  engines.set({ state: 'failed', failure: 'an engine does not die', enginesReady: 0 });
  t.is(status.failure, 'an engine does not die');
  t.deepEqual(seen, ['serving', 'failed']);
});
