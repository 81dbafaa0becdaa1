import ava, { type ExecutionContext } from 'ava';
import type { RunnablePlan } from '../pipeline.ts';
import { LoadingPool, selectableModel } from '../test/loading-pools.ts';
import { ownClock } from '../test/own-clock.ts';
import { openTestNode } from '../test/test-node.ts';

const WANTED_MS = 5000;
const TURN_AFTER_MS = 5000;
const SERVED_MS_MIN = 10_000;
const test = ava.serial;

/** Of 8 GB, 85 % without a photo are 6.3 GB: the own plan's engine and one of these fit. */
const PEAK_BYTES = 4e9;
const SHORT = { code: 'NODE_SHORT_OF_MEMORY' };
/** A control plane asks again as often for a job that is refused. */
const ASKED_EACH_MS = 2000;

async function open(t: ExecutionContext, loadMs = 0) {
  const clock = ownClock(t, { measured: true });
  const pools = new Map<string, LoadingPool>();
  const found = ['one', 'two', 'three'].map(name =>
    selectableModel(name, { peakBytes: PEAK_BYTES }),
  );
  const node = await openTestNode({
    others: {
      look: async () => ({ selectable: found, problems: [] }),
      open: model => {
        const pool = new LoadingPool(model, node.gates);
        pools.set(model.model, pool);
        return pool;
      },
    },
  });
  t.teardown(async () => {
    for (const pool of pools.values()) pool.leave();
    await node.close();
  });
  const planOf = (name: string): RunnablePlan => node.selectables.find('model', name) ?? node.plan;
  const room = (name: string) => node.selectables.roomFor(planOf(name), 1);
  const isRefused = (name: string) => t.throws(() => room(name), SHORT, name);
  const isTaken = (name: string) => t.notThrows(() => room(name), name);
  /** Enters an image that has the engines until the returned function is called. */
  const enter = async (name: string) => {
    const leave = room(name).enter();
    await clock.tickAsync(loadMs);
    pools.get(name)?.load();
    await planOf(name).ready?.();
    return leave;
  };
  /** Refused for as long, again and again. */
  const refusedFor = async (ms: number, ...names: string[]) => {
    for (let leftMs = ms; leftMs > 0; leftMs -= ASKED_EACH_MS) {
      for (const name of names) isRefused(name);
      await clock.tickAsync(Math.min(leftMs, ASKED_EACH_MS));
    }
    for (const name of names) isRefused(name);
  };
  return { clock, node, pools, enter, isRefused, isTaken, refusedFor };
}

test('models whose images overlap give way to each other by turns', async t => {
  const { pools, enter, isRefused, isTaken, refusedFor } = await open(t);
  const leaveTwo = await enter('two');
  await refusedFor(SERVED_MS_MIN / 2, 'one');
  isTaken('two');
  await refusedFor(SERVED_MS_MIN / 2, 'one');
  isRefused('two');
  isTaken('tiny');
  t.is(pools.get('two')?.closedWithMs, undefined);
  leaveTwo();
  for (const name of ['two', 'three']) isRefused(name);
  const leaveOne = await enter('one');
  t.is(pools.get('two')?.closedWithMs, 0);
  await refusedFor(SERVED_MS_MIN / 2, 'two');
  isTaken('one');
  await refusedFor(SERVED_MS_MIN / 2, 'two');
  isRefused('one');
  leaveOne();
  await enter('two');
  t.is(pools.get('one')?.closedWithMs, 0);
});

test('engines that are idle now and then give way at once, and to nobody who asks once', async t => {
  const { clock, enter, isRefused, isTaken } = await open(t);
  const leave = await enter('two');
  await clock.tickAsync(SERVED_MS_MIN);
  isRefused('one');
  await clock.tickAsync(WANTED_MS + TURN_AFTER_MS);
  isRefused('one');
  isTaken('two');
  leave();
  isTaken('one');
});

test('a turn ends where nobody asks for the load any more, and where it lasts too long', async t => {
  const { clock, enter, isRefused, isTaken, refusedFor } = await open(t);
  await enter('two');
  await clock.tickAsync(SERVED_MS_MIN);
  await refusedFor(TURN_AFTER_MS, 'one');
  isRefused('two');
  await clock.tickAsync(WANTED_MS);
  isTaken('two');
  await refusedFor(TURN_AFTER_MS, 'one');
  isTaken('two');
  await refusedFor(10_000, 'one');
  isRefused('two');
  await refusedFor(30_000, 'one');
  isTaken('two');
});

test('the load that was refused for longest goes first', async t => {
  const { enter, isRefused, refusedFor } = await open(t);
  const leave = await enter('two');
  await refusedFor(SERVED_MS_MIN / 2, 'three');
  await refusedFor(SERVED_MS_MIN / 2, 'one', 'three');
  leave();
  isRefused('one');
  await t.notThrowsAsync(enter('three'));
});

test('engines serve for as long as their load took before they give way', async t => {
  const { enter, isTaken, isRefused, refusedFor } = await open(t, 3 * SERVED_MS_MIN);
  await enter('two');
  await refusedFor(2 * SERVED_MS_MIN, 'one');
  isTaken('two');
  // The clock also runs by itself, so the load took somewhat longer.
  await refusedFor(SERVED_MS_MIN + ASKED_EACH_MS, 'one');
  isRefused('two');
});
