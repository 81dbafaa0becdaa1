import { once } from 'node:events';
import { status } from '@grpc/grpc-js';
import {
  type GetNodeInfoResponse,
  InputFormat,
  type MatteHeader,
  type WatchCapacityResponse,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import type { Selectable } from '../models/selectable.ts';
import { sumOf } from '../models/selectable.ts';
import type { RunnablePlan } from '../pipeline.ts';
import { TINY_MODEL } from '../test/fake-pools.ts';
import { collectLog } from '../test/gpu-host.ts';
import { LoadingPool, selectableModel } from '../test/loading-pools.ts';
import { ownClock } from '../test/own-clock.ts';
import {
  header,
  heldIn,
  MatteCaller,
  openTestNode,
  type TestNodeOptions,
  untilNothingAdmitted,
} from '../test/test-node.ts';
import { ROOM_WAIT_MAX_MS } from './engine-memory.ts';

const TURN_MS = 10_000;
const OFF_MS = 30_000;
const test = ava.serial;

const GB = 1e9;
const IDLE_MS = 60_000;
/**
 * Of 8 GB, 85 % without a photo are 6.3 GB: the own plan's engine and two of these fit, not three.
 */
const LARGE = { peakBytes: 2.5 * GB };
const ONE = selectableModel('one', LARGE);
const TWO = selectableModel('two', LARGE);
const THREE = selectableModel('three', LARGE);

async function open(t: ExecutionContext, found: Selectable[], options: TestNodeOptions = {}) {
  const pools: LoadingPool[] = [];
  const { log, lines } = collectLog();
  const folder = { found, problems: [] as string[] };
  const node = await openTestNode({
    log,
    limits: { megapixelsMax: 90, megapixelsAloneMax: 100 },
    ...options,
    others: {
      idleMs: IDLE_MS,
      look: async () => ({ selectable: folder.found, problems: folder.problems }),
      open: model => {
        const pool = new LoadingPool(model, node.gates);
        pools.push(pool);
        return pool;
      },
      ...options.others,
    },
  });
  t.teardown(async () => {
    for (const pool of pools) pool.leave();
    await node.close();
  });
  const opened = async (count: number) => {
    await until(`${count} pools, of ${pools.length}`, () => pools.length >= count);
    return pools[count - 1] as LoadingPool;
  };
  /** Asks for a model alone, and answers once it is loaded and the image is done. */
  const load = async (name: string) => {
    const count = pools.length + 1;
    const caller = await new MatteCaller(node).sendFile('12345', { model: name });
    const pool = await opened(count);
    pool.load();
    t.is(await caller.ended, undefined);
    await untilNothingAdmitted(node);
    return pool;
  };
  /** The same without a call, for tests that put the clock forward: an image that stays. */
  const enter = async (name: string) => {
    const plan: RunnablePlan = node.selectables.find('model', name) ?? node.plan;
    const count = pools.length + Number(node.selectables.loaded().every(one => one.plan !== plan));
    const leave = node.selectables.roomFor(plan, 1).enter();
    return { leave, plan, pool: () => opened(count) };
  };
  const serve = async (fields: Partial<MatteHeader> = {}) => {
    const caller = await new MatteCaller(node).serve('12345', fields);
    await untilNothingAdmitted(node);
    return caller;
  };
  const ask = (fields: Partial<MatteHeader>) =>
    new MatteCaller(node, { deadlineMs: 10_000 }).send(header(fields));
  const names = () => node.selectables.list.map(({ name }) => name);
  return { node, pools, lines, folder, opened, enter, load, serve, ask, names };
}

type Node = Awaited<ReturnType<typeof open>>['node'];

async function capacityOf({ client }: Node): Promise<WatchCapacityResponse> {
  const call = client.watchCapacity({});
  call.on('error', () => undefined);
  const [first] = await once(call, 'data');
  call.cancel();
  return first;
}

function infoOf({ client }: Node): Promise<GetNodeInfoResponse> {
  return new Promise((resolve, reject) => {
    client.getNodeInfo({}, (error, found) => (error ? reject(error) : resolve(found)));
  });
}

async function counted({ metrics }: Node, name: string) {
  const metric = await metrics.registry.getSingleMetric(`matting_node_${name}`)?.get();
  return metric?.values.map(({ value, labels }) => [...Object.values(labels), value]);
}

const SHORT_ERROR = { code: 'NODE_SHORT_OF_MEMORY' };
const SHORT = { code: 'NODE_SHORT_OF_MEMORY', retryable: true, status: status.RESOURCE_EXHAUSTED };

test('a model is loaded when it is first wanted, once for all that wait, and holds no worker meanwhile', async t => {
  const { node, pools, opened, names } = await open(t, [ONE]);
  t.deepEqual(names(), ['tiny', 'one']);
  t.like((await infoOf(node)).selectable[1], {
    ...{ name: 'one', default: false, memoryBytes: 2.5 * GB, loadMs: 0 },
    ...{ goodFor: 'one is for tests', sha256: sumOf(ONE) },
  });
  const waiting = [];
  for (let i = 0; i < 2; i++) {
    waiting.push(await new MatteCaller(node).sendFile('12345', { model: 'one' }));
  }
  const pool = await opened(1);
  await until('two that wait for a load', () => node.pipeline.imagesAt('waiting_for_load') >= 2);
  t.like((await capacityOf(node)).modelLoads[0], { name: 'one', enginesReady: 0 });
  t.is(node.pictures.leasesOut, 0);
  t.is(node.pipeline.estimatedWaitMs(node.plan), 0);
  await new MatteCaller(node).serve('12345');
  t.is(node.pictures.decoded.length, 1);
  pool.load();
  for (const caller of waiting) {
    t.is(await caller.ended, undefined);
    t.like(caller.result().header, { plan: 'one', modelRuns: [{ model: 'one', role: 'subject' }] });
  }
  t.is(pools.length, 1);
  t.is(pool.runs.length, 2);
  t.like((await capacityOf(node)).modelLoads[0], { name: 'one', enginesReady: 1, inferMs: 100 });
  t.deepEqual(await counted(node, 'model_loads_total'), [['one', '4', 'loaded', 1]]);
  t.true((await counted(node, 'engines_ready'))?.some(([model]) => model === 'one'));
});

test('a model that no image wanted for the given time is unloaded; the own plan stays', async t => {
  const clock = ownClock(t, { measured: true });
  const { node, pools, enter } = await open(t, [ONE]);
  const first = await enter('one');
  const pool = await first.pool();
  pool.load();
  await first.plan.ready?.();
  await clock.tickAsync(2 * IDLE_MS);
  first.leave();
  await clock.tickAsync(IDLE_MS - 1000);
  (await enter('one')).leave();
  await clock.tickAsync(IDLE_MS - 1000);
  t.is(pool.closedWithMs, undefined);
  await clock.tickAsync(1000);
  t.is(pool.closedWithMs, 0);
  t.deepEqual(node.selectables.loaded(), []);
  t.deepEqual(await counted(node, 'model_unloads_total'), [['one', '4', 'idle', 1]]);
  t.is(node.engines.closedWithMs, undefined);
  const again = await enter('one');
  (await again.pool()).load();
  await t.notThrowsAsync(async () => await again.plan.ready?.());
  t.is(pools.length, 2);
});

test('a load that fails fails the images that waited, and the node serves without the model', async t => {
  const { node, opened, ask, names, serve } = await open(t, [ONE]);
  const waiting = await new MatteCaller(node).sendFile('12345', { model: 'one' });
  (await opened(1)).breakDown('model one does not run on cpu');
  await waiting.refused({ code: 'NODE_FAULT', retryable: true });
  await untilNothingAdmitted(node);
  t.deepEqual(names(), ['tiny']);
  t.is((await capacityOf(node)).selectableRevision, 2);
  await ask({ model: 'one' }).refused({ code: 'NODE_INCAPABLE' });
  await t.notThrowsAsync(serve());
  t.deepEqual(await counted(node, 'model_loads_total'), [['one', '4', 'failed', 1]]);
});

test('a model that fails to load is offered again after a wait that doubles, up to a bound', async t => {
  const clock = ownClock(t, { measured: true });
  const { node, enter, names } = await open(t, [ONE]);
  for (const offMs of [OFF_MS, 2 * OFF_MS, 4 * OFF_MS, 8 * OFF_MS, 16 * OFF_MS, 15 * 60_000]) {
    const image = await enter('one');
    const failed = t.throwsAsync(async () => await image.plan.ready?.(), {
      message: 'The model could not be loaded.',
    });
    (await image.pool()).breakDown('a fault');
    await failed;
    image.leave();
    await clock.tickAsync(offMs - 1000);
    await node.selectables.look();
    t.deepEqual(names(), ['tiny']);
    await clock.tickAsync(1000);
    await node.selectables.look();
    t.deepEqual(names(), ['tiny', 'one']);
  }
});

test('one whose engines keep dying is ended, and the node is not', async t => {
  const { node, load, names } = await open(t, [ONE]);
  const pool = await load('one');
  pool.set({ state: 'failed', failure: 'the engines keep dying', enginesReady: 0 });
  t.deepEqual(names(), ['tiny']);
  t.is(pool.closedWithMs, 0);
  t.is(node.status.state, 'serving');
  t.deepEqual(await counted(node, 'model_unloads_total'), [['one', '4', 'failed', 1]]);
});

test('if memory is short, the model that waits longest for an image is unloaded, never one in use', async t => {
  const { node, pools, load, opened, ask, serve } = await open(t, [ONE, TWO, THREE]);
  const one = await load('one');
  const two = await load('two');
  // 8 GB but for 6.
  t.is((await capacityOf(node)).megapixelsFree, 19);
  const held = await heldIn(node, 'infer', { model: 'one' });
  const heldToo = await new MatteCaller(node).sendFile('12345', { model: 'two' });
  await until('two in engines', () => node.pipeline.imagesAt('inferring') >= 2);
  await ask({ model: 'three' }).refused(SHORT);
  t.deepEqual([one.closedWithMs, two.closedWithMs], [undefined, undefined]);
  node.gates.letGo('infer');
  await Promise.all([held.ended, heldToo.ended]);
  await untilNothingAdmitted(node);
  await serve({ model: 'one' });
  two.leavesAtOnce = false;
  const caller = await new MatteCaller(node).sendFile('12345', { model: 'three' });
  t.deepEqual([one.closedWithMs, two.closedWithMs], [undefined, 0]);
  await until('one that waits for a load', () => node.pipeline.imagesAt('waiting_for_load') >= 1);
  // Memory is not free before the process is gone: neither for engines nor for pictures.
  t.is((await capacityOf(node)).megapixelsFree, 0);
  await ask({}).refused(SHORT);
  t.is(pools.length, 2);
  two.leave();
  (await opened(3)).load();
  t.is(await caller.ended, undefined);
});

test('a process that does not die keeps its memory: what waits for it is given up', async t => {
  const clock = ownClock(t, { measured: true });
  const { node, pools, enter, names } = await open(t, [ONE, TWO, THREE]);
  for (const name of ['one', 'two']) {
    const image = await enter(name);
    const pool = await image.pool();
    pool.leavesAtOnce = false;
    pool.load();
    await image.plan.ready?.();
    image.leave();
  }
  const image = await enter('three');
  const failed = t.throwsAsync(async () => await image.plan.ready?.(), {
    message: 'The memory for this model did not become free in time.',
  });
  await clock.tickAsync(ROOM_WAIT_MAX_MS);
  await failed;
  image.leave();
  t.is(pools.length, 2);
  // The model is not at fault.
  t.true(names().includes('three'));
  t.is(node.admission.snapshot().megapixelsFree, 19);
  pools[0]?.leave();
  await clock.tickAsync(1000);
  t.is(node.admission.snapshot().megapixelsFree, 78);
});

test('a model that never fits is not advertised, and the log gives its memory', async t => {
  const huge = selectableModel('huge', { peakBytes: 7 * GB });
  const { node, lines, ask, names } = await open(t, [huge, ONE]);
  t.deepEqual(names(), ['tiny', 'one']);
  await ask({ model: 'huge' }).refused({
    code: 'NODE_INCAPABLE',
    status: status.FAILED_PRECONDITION,
  });
  await node.selectables.look();
  const told = lines.filter(({ msg }) => msg === 'a model cannot be asked for');
  t.is(told.length, 1);
  t.regex(String(told[0]?.reason), /model huge .* needs 7000 MB beside the 1000 MB .* 8000 MB$/);
});

test('an image too large beside engines that nobody uses has them ended, and comes again', async t => {
  const { node, load, ask, serve } = await open(t, [ONE, TWO]);
  await load('one');
  const two = await load('two');
  const inputFormat = InputFormat.INPUT_FORMAT_JPEG;
  const large = { width: 10_000, height: 8500, inputFormat };
  // Beside its own engine alone it would not fit either.
  await ask({ ...large, model: 'one' }).refused({ code: 'NODE_INCAPABLE' });
  two.leavesAtOnce = false;
  await ask(large).refused(SHORT);
  await ask(large).refused(SHORT);
  t.is(two.closedWithMs, 0);
  two.leave();
  await until('room again', () => node.admission.snapshot().megapixelsFree >= 90);
  await t.notThrowsAsync(serve(large));
});

test('images too large beside engines, and engines, go by turns', async t => {
  const clock = ownClock(t, { measured: true });
  const { node, enter } = await open(t, [ONE]);
  const load = async () => {
    const image = await enter('one');
    const pool = await image.pool();
    pool.load();
    await image.plan.ready?.();
    return { ...image, pool };
  };
  const ask = (megapixels: number) => node.selectables.roomFor(node.plan, megapixels);
  const first = await load();
  const isRefused = () => t.throws(() => node.selectables.roomFor(first.plan, 1), SHORT_ERROR);
  ask(95);
  isRefused();
  first.leave();
  ask(95);
  t.is(first.pool.closedWithMs, 0);
  isRefused();
  ask(94).enter();
  isRefused();
  ask(95).enter();
  await clock.tickAsync(0);
  const second = await load();
  second.leave();
  ask(95);
  t.is(second.pool.closedWithMs, undefined);
  await clock.tickAsync(2 * TURN_MS);
  ask(95);
  t.is(second.pool.closedWithMs, 0);
  await clock.tickAsync(TURN_MS);
  // The image never came again, and delayed nobody.
  const third = await load();
  third.leave();
  ask(95);
  t.is(third.pool.closedWithMs, 0);
});

test('engines without an image for long give way where pictures are short of memory', async t => {
  const clock = ownClock(t, { measured: true });
  const { node, enter } = await open(t, [ONE, TWO]);
  const pools: LoadingPool[] = [];
  for (const name of ['one', 'two']) {
    const image = await enter(name);
    const pool = await image.pool();
    pool.load();
    await image.plan.ready?.();
    image.leave();
    pools.push(pool);
  }
  const ended = () => pools.map(({ closedWithMs }) => closedWithMs === 0);
  const ask = (megapixels: number) => node.selectables.roomFor(node.plan, megapixels).enter();
  const permit = node.admission.admit({ megapixels: 12, fileBytes: 1 });
  await clock.tickAsync(30_000 - 1000);
  ask(12);
  t.deepEqual(ended(), [false, false]);
  await clock.tickAsync(2000);
  permit.release();
  ask(12);
  t.deepEqual(ended(), [false, false]);
  node.admission.admit({ megapixels: 12, fileBytes: 1 });
  ask(12);
  t.deepEqual(ended(), [true, false]);
  await clock.tickAsync(0);
  ask(12);
  t.deepEqual(ended(), [true, false]);
});

test('a folder that changes while the node serves is followed, images go on with what they began on', async t => {
  const { node, folder, load, opened, ask, names } = await open(t, [ONE]);
  const first = await load('one');
  const held = await heldIn(node, 'infer', { model: 'one' });
  const { selectableRevision: before } = await capacityOf(node);
  const other = selectableModel('one', {
    ...LARGE,
    normalisation: { mean: [1, 1, 1], std: [1, 1, 1] },
  });
  folder.found = [other, TWO];
  folder.problems.push('models/bad/manifest.json: not JSON');
  await node.selectables.look();
  t.is((await capacityOf(node)).selectableRevision, before + 1);
  await ask({ model: 'one', selectableSha256: sumOf(ONE) }).refused({
    code: 'NODE_INCAPABLE',
    status: status.FAILED_PRECONDITION,
    message: /another model under this name/,
  });
  t.is(first.closedWithMs, undefined);
  node.gates.letGo('infer');
  t.is(await held.ended, undefined);
  await untilNothingAdmitted(node);
  t.is(first.closedWithMs, 0);
  const caller = await new MatteCaller(node).sendFile('12345', {
    model: 'one',
    selectableSha256: sumOf(other),
  });
  (await opened(2)).load();
  t.is(await caller.ended, undefined);
  folder.found = [TWO];
  await node.selectables.look();
  t.deepEqual(names(), ['tiny', 'two']);
  await ask({ plan: 'two' }).refused({ code: 'NODE_INCAPABLE' });
});

test('plans share engines with each other and with the own plan, whose name stands first', async t => {
  const subject = { model: TINY_MODEL, role: 'subject' } as const;
  const [one] = ONE.models;
  const both: Selectable = { name: 'both', kind: 'plan', goodFor: '', models: [subject, one!] };
  const taken: Selectable = { ...both, name: 'tiny' };
  const { node, pools, load, opened, serve } = await open(t, [taken, both, ONE]);
  t.like((await infoOf(node)).plans, ['tiny', 'both']);
  t.is(node.selectables.find('plan', 'tiny')?.runs.length, 1);
  await load('one');
  await serve({ plan: 'both' });
  t.is(pools.length, 1);
  t.is((await opened(1)).runs.length, 2);
  t.is(node.engines.runs.length, 1);
  const { modelLoads } = await capacityOf(node);
  t.deepEqual(
    modelLoads.map(({ name }) => name),
    ['both', 'one'],
  );
});

test('a model counts and runs as the file on the disk shows when it is loaded', async t => {
  const found = selectableModel('one', { precision: 'int8' });
  const [{ model } = assertNever()] = found.models;
  const prepare = async () => ({ ...model, precision: 'fp32', peakBytes: 3 * GB }) as const;
  const { node, load, serve } = await open(t, [found], { others: { prepare } });
  await load('one');
  t.is((await infoOf(node)).selectable[1]?.memoryBytes, 3 * GB);
  t.is((await capacityOf(node)).megapixelsFree, 66);
  const caller = await serve({ model: 'one' });
  t.is(caller.result().header?.modelRuns[0]?.precision, 'fp32');
});

function assertNever(): never {
  throw new Error('a plan without a model');
}

test('a drain ends what is loaded, and what loads', async t => {
  const { node, load, opened, ask } = await open(t, [ONE, TWO]);
  const one = await load('one');
  const waiting = await new MatteCaller(node).sendFile('12345', { model: 'two' });
  const two = await opened(2);
  t.is(node.selectables.processes().length, 2);
  node.status.drain('shutdown');
  await ask({ model: 'one' }).refused({ code: 'NODE_UNAVAILABLE' });
  await node.selectables.close(0);
  t.deepEqual([one.closedWithMs, two.closedWithMs], [0, 0]);
  await waiting.refused({ retryable: true });
  t.deepEqual(node.selectables.processes(), []);
});
