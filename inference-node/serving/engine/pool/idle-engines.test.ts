import { until as untilHolds } from '@matting/test-support/waiting.ts';
import test, { type ExecutionContext } from 'ava';
import { FakePicturePool, StageGates, TINY_MODEL } from '../../test/fake-pools.ts';
import { collectLog } from '../../test/gpu-host.ts';
import { LoadingPool } from '../../test/loading-pools.ts';
import { MatteCaller, openShell } from '../../test/test-node.ts';
import { IdleEngines } from './idle-engines.ts';

const RUN = { rgb: new Uint8Array(48), priority: 'sync', signal: new AbortController().signal };

function open(t: ExecutionContext, idleMs = 1) {
  const pools: LoadingPool[] = [];
  const gates = new StageGates();
  const { log, lines } = collectLog();
  const engines = new IdleEngines({
    ...{ model: 'tiny', engines: 1, idleMs, log },
    open: () => {
      const pool = new LoadingPool(gates);
      pools.push(pool);
      return pool;
    },
  });
  t.teardown(() => {
    for (const pool of pools) pool.leave();
    return engines.close(0);
  });
  const until = (holds: () => boolean) =>
    untilHolds(() => `${holds}; ${pools.length} pools were opened`, holds);
  const opened = async (count: number) => {
    await until(() => pools.length === count);
    return pools[count - 1] as LoadingPool;
  };
  const started = async () => {
    (await opened(1)).load();
    await engines.ready();
  };
  const isUnloaded = () => until(() => pools.at(-1)?.closedWithMs !== undefined);
  const logged = () => lines.map(({ msg }) => msg);
  const run = (more = {}) => engines.run({ ...RUN, ...more } as Parameters<typeof engines.run>[0]);
  return { engines, gates, pools, opened, started, isUnloaded, logged, run };
}

test('engines of a small machine › end when idle, and are loaded once for all images that come then', async t => {
  const { engines, pools, opened, started, isUnloaded, logged, run } = open(t);
  t.is(engines.snapshot().state, 'starting');
  await started();
  await isUnloaded();
  t.like(engines.snapshot(), { state: 'ready', enginesReady: 1, estimatedWaitMs: 0, running: 0 });
  t.deepEqual(engines.processes(), []);
  const images = [run(), run({ failsWhenDown: true })];
  const pool = await opened(2);
  t.like(engines.snapshot(), { state: 'ready', enginesReady: 1 });
  pool.load();
  t.deepEqual(
    (await Promise.all(images)).map(({ alpha }) => alpha.length),
    [16, 16],
  );
  t.is(pools.length, 2);
  await isUnloaded();
  const once = ['model loaded', 'model unloaded'];
  t.deepEqual(logged(), [...once, ...once]);
});

test('engines of a small machine › stay while an image is in them', async t => {
  const { gates, pools, started, isUnloaded, run } = open(t, 20);
  await started();
  gates.hold('infer');
  const image = run();
  await gates.reached('infer');
  await new Promise(resolve => setTimeout(resolve, 100));
  t.is(pools[0]?.closedWithMs, undefined);
  gates.letGo('infer');
  await image;
  await t.notThrowsAsync(isUnloaded());
});

test('engines of a small machine › wait for the last process of those before', async t => {
  const { pools, opened, started, isUnloaded, run } = open(t);
  const before = await opened(1);
  before.leavesAtOnce = false;
  await started();
  await isUnloaded();
  const image = run();
  await new Promise(resolve => setTimeout(resolve, 50));
  t.is(pools.length, 1);
  before.leave();
  (await opened(2)).load();
  t.is((await image).alpha.length, 16);
});

test('engines of a small machine › fail the node where those before do not die', async t => {
  const { engines, opened, started, isUnloaded, run } = open(t);
  (await opened(1)).leavesAtOnce = false;
  await started();
  await isUnloaded();
  await t.throwsAsync(run(), { code: 'NODE_FAULT' });
  t.is(engines.snapshot().state, 'failed');
});

test('engines of a small machine › that cannot be loaded again fail the node, and a second opinion is left out', async t => {
  const { engines, opened, started, isUnloaded, run } = open(t);
  await started();
  await isUnloaded();
  const failing = Promise.allSettled([run(), run({ failsWhenDown: true })]);
  (await opened(2)).breakDown('the file is gone');
  const codes = (await failing).map(ended => ended.status === 'rejected' && ended.reason.code);
  t.deepEqual(codes, ['NODE_FAULT', 'ENGINE_LOST']);
  t.is(engines.snapshot().state, 'failed');
});

test('engines of a small machine › that cannot be loaded at the start say why', async t => {
  const { engines, opened } = open(t);
  (await opened(1)).breakDown('no such model');
  await t.throwsAsync(engines.ready(), { message: 'no such model' });
});

test('a node of a small machine › serves while its engines are not loaded', async t => {
  const { engines, gates, opened, started, isUnloaded } = open(t);
  await started();
  const run = { model: TINY_MODEL, engines, role: 'subject' } as const;
  const node = await openShell(run, new FakePicturePool(gates));
  t.teardown(() => node.close());
  await isUnloaded();
  t.is(node.status.state, 'serving');
  const states: string[] = [];
  node.status.onChange(state => states.push(state));
  const image = new MatteCaller(node).serve('12345');
  (await opened(2)).load();
  await image;
  await isUnloaded();
  t.deepEqual(states, []);
});
